"""Files of character transformers: recognised without a config.json, complete or blocks only, and what can be wrong."""

import numpy as np
import pytest

from jaxcore.catalogue import list_models, open_reference
from jaxcore.checkpoint.store import read, stacked
from jaxcore.inspect import inspect
from jaxcore.session import load
from models.errors import CheckpointError, ClearboxError, ConfigError
from tests.reference import char

AROUND = ("tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out")


@pytest.fixture(scope="module")
def weights():
    return char.make(24, layers=2, context=10)


def test_a_single_file_needs_no_configuration(weights, tmp_path):
    checkpoint = open_reference(str(char.save(tmp_path / "m.safetensors", weights)))
    found = inspect(checkpoint)
    assert found["architecture"] == "char"
    assert found["missing"] == []
    assert found["tokenizer"] == "characters"
    assert found["totals"]["parameters"] == sum(w.size for w in weights.values())
    np.testing.assert_array_equal(read(checkpoint, "layers.1.W_q"), weights["W_q.1"])
    both = stacked(checkpoint, ["layers.0.W_fc", "layers.1.W_fc"])
    np.testing.assert_array_equal(both, [weights["W_fc.0"], weights["W_fc.1"]])


def test_a_folder_with_one_file_opens_too_and_is_listed(weights, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    char.save(folder / "model.safetensors", weights)
    assert open_reference(str(folder)).config["model_type"] == "char"
    listed = list_models(tmp_path)[-1]
    assert (listed["architecture"], listed["note"]) == ("char", "")


def test_blocks_alone_open_but_cannot_run(weights, tmp_path):
    blocks = {name: array for name, array in weights.items() if name not in AROUND}
    checkpoint = open_reference(str(char.save(tmp_path / "b.safetensors", blocks)))
    found = inspect(checkpoint)
    assert found["config"] == {
        "vocab": 0,
        "d_model": 24,
        "n_layers": 2,
        "n_heads": 6,
        "d_mlp": 96,
        "context": 0,
        "norm_eps": 1e-5,
    }
    assert found["missing"] == ["Embeddings and output layer: this file holds blocks only, so it cannot read or write."]
    np.testing.assert_array_equal(read(checkpoint, "layers.0.W_o"), weights["W_o.0"])
    with pytest.raises(CheckpointError, match=r"only the blocks .* cannot read or write text. Its weights can be"):
        load(checkpoint)


@pytest.mark.parametrize("absent", AROUND)
def test_one_tensor_around_the_blocks_missing_is_an_error(weights, tmp_path, absent):
    path = char.save(tmp_path / "m.safetensors", {n: w for n, w in weights.items() if n != absent})
    with pytest.raises(CheckpointError, match=absent):
        load(open_reference(str(path)))


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("W_k.1", (24, 20), r"layers.1.W_k is \(24, 20\)"),
        ("W_fc.1", (90, 24), r"layers.1.W_fc is \(90, 24\)"),
        ("W_proj.0", (24, 90), r"layers.0.W_proj is \(24, 90\)"),
        ("b_out", (27,), r"b_out is \(27,\)"),
        ("tok_emb", (28,), "tok_emb should be a matrix"),
        ("W_q.0", (24,), "W_q.0 should be a matrix"),
        ("extra", (3,), "no place for: extra"),
    ],
)
def test_shapes_that_disagree_are_named(weights, tmp_path, name, shape, says):
    path = char.save(tmp_path / "m.safetensors", {**weights, name: np.zeros(shape, np.float32)})
    with pytest.raises(ClearboxError, match=says):
        load(open_reference(str(path)))


@pytest.mark.parametrize(
    ("metadata", "kind", "says"),
    [
        ({"n_heads": "5"}, ConfigError, "5 heads cannot share a width of 24"),
        ({"n_heads": "six"}, CheckpointError, "n_heads as 'six'"),
        ({"n_heads": "0"}, CheckpointError, "n_heads as '0'"),
        ({"context_length": "12"}, CheckpointError, "context_length as 12, but pos_emb has 10 rows"),
    ],
)
def test_metadata_that_cannot_be(weights, tmp_path, metadata, kind, says):
    path = char.save(tmp_path / "m.safetensors", weights, **metadata)
    with pytest.raises(kind, match=says):
        open_reference(str(path))


def test_a_layer_in_the_middle_is_missing(weights, tmp_path):
    path = char.save(tmp_path / "m.safetensors", {n.replace(".1", ".2"): w for n, w in weights.items()})
    with pytest.raises(CheckpointError, match=r"Missing: layers.1.ln1_w"):
        load(open_reference(str(path)))


def test_other_alphabets_run_by_ids_and_have_no_text(tmp_path):
    path = char.save(tmp_path / "m.safetensors", char.make(24, layers=1, context=10, vocab=30))
    model = load(open_reference(str(path)))
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        _ = model.tokenizer


@pytest.mark.parametrize(
    ("text", "says"), [("Hello", "character 1 of the text is 'H'"), ("a b\tc", "character 4 of the text is '⇥'")]
)
def test_characters_outside_the_alphabet_are_named_with_their_place(weights, tmp_path, text, says):
    model = load(open_reference(str(char.save(tmp_path / "m.safetensors", weights))))
    with pytest.raises(ClearboxError, match=says):
        model.tokenizer.encode(text)
    assert model.tokenizer.decode(model.tokenizer.encode("a b\nz")) == "a b\nz"
