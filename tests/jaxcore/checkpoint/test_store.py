"""Checking a checkpoint's tensors against what its configuration promises."""

from dataclasses import replace

import pytest

from jaxcore.checkpoint.safetensors import open_folder
from jaxcore.checkpoint.store import fits, names_of, problems, resolve
from models.errors import CheckpointError
from models.gemma3.config import from_hf
from models.gemma3.tensors import tensor_table
from models.tensors import TensorSpec


@pytest.mark.parametrize(
    ("stored", "shape", "expected"),
    [
        ((1024, 640), (4, 256, 640), True),
        ((640, 1024), (640, 4, 256), True),
        ((256, 640), (1, 256, 640), True),
        ((640, 256), (640, 1, 256), True),
        ((4, 256, 640), (4, 256, 640), True),
        ((640,), (640,), True),
        ((4,), (4, 1), True),
        ((640, 1024), (4, 256, 640), False),
        ((1024, 641), (4, 256, 640), False),
        ((1024,), (4, 256, 640), False),
        ((1024, 640, 2), (4, 256, 640), False),
        ((0, 640), (4, 256, 640), False),
        ((), (4,), False),
    ],
)
def test_a_shape_fits_if_merging_neighbours_gives_it(stored, shape, expected):
    assert fits(stored, shape) is expected


def test_names_of_layers_and_of_single_tensors():
    assert names_of(TensorSpec("norm.weight", ("a",), (1,)), 2) == ("norm.weight",)
    assert names_of(TensorSpec("layers.{layer}.x", ("a",), (1,)), 2) == ("layers.0.x", "layers.1.x")


@pytest.fixture
def checkpoint(saved):
    return open_folder(saved)


def found(checkpoint, **changed):
    config = from_hf({**checkpoint.config, "layer_types": None, **changed})
    return problems(checkpoint, tensor_table(config), config.n_layers)


def test_a_complete_checkpoint_has_no_problems(checkpoint):
    assert found(checkpoint) == []


def test_missing_misshapen_and_superfluous_tensors_are_each_a_sentence(checkpoint):
    tensors = dict(checkpoint.tensors)
    del tensors["layers.2.mlp.up_proj.weight"]
    tensors["norm.weight"] = replace(tensors["norm.weight"], shape=(63,))
    tensors["layers.0.self_attn.q_proj.bias"] = tensors["norm.weight"]
    tensors["layers.1.mlp.down_proj.weight"] = replace(tensors["layers.1.mlp.down_proj.weight"], dtype="I8")
    assert found(replace(checkpoint, tensors=tensors)) == [
        "Missing: layers.2.mlp.up_proj.weight.",
        "Of another shape: norm.weight is (63,) where the configuration asks for (64,).",
        "Not floating point: layers.1.mlp.down_proj.weight is I8; quantised weights are read from GGUF files only.",
        "The architecture has no place for: layers.0.self_attn.q_proj.bias.",
    ]


@pytest.mark.parametrize("layers", [6, 8, 10**9])
def test_a_wrong_layer_count_is_one_sentence(checkpoint, layers):
    table = tensor_table(from_hf({**checkpoint.config, "layer_types": None}))
    assert problems(checkpoint, table, layers) == [f"The configuration says {layers} layers, the file holds 7."]


def test_the_wrong_head_count_is_seen_in_the_shapes(checkpoint):
    sentences = found(checkpoint, num_attention_heads=8)
    assert len(sentences) == 1
    assert "q_proj.weight is (128, 64) where the configuration asks for (8, 32, 64)" in sentences[0]
    assert "and 10 more" in sentences[0]


def test_an_untied_model_needs_its_head(checkpoint):
    assert found(checkpoint, tie_word_embeddings=False) == ["Missing: lm_head.weight."]


def test_a_tied_model_may_store_its_head(checkpoint):
    tensors = {**checkpoint.tensors, "lm_head.weight": checkpoint.tensors["embed_tokens.weight"]}
    assert found(replace(checkpoint, tensors=tensors)) == []


def test_resolve_raises_what_problems_finds(checkpoint):
    config = from_hf({**checkpoint.config, "hidden_size": 65})
    with pytest.raises(CheckpointError, match=r"do not fit the configuration\. Of another shape: embed_tokens"):
        resolve(checkpoint, tensor_table(config), config.n_layers)
