"""Safetensors: every way a model is stored opens to the same tensors; damaged and hostile files are refused."""

import json
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from jaxcore.checkpoint.safetensors import open_file, open_folder, read_header
from jaxcore.checkpoint.store import read, resolve, stacked
from models.errors import CheckpointError
from models.gemma3.config import from_hf
from models.gemma3.tensors import tensor_table
from tests.jaxcore.checkpoint import tiny


def check_same(checkpoint, model):
    expected = tiny.arrays(model)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(read(checkpoint, name), array)
    config = from_hf(checkpoint.config)
    resolve(checkpoint, tensor_table(config), config.n_layers)


def renamed(saved, folder, rename, extra=None):
    """A copy of a saved model under other tensor names."""
    folder.mkdir(exist_ok=True)
    shutil.copy(saved / "config.json", folder)
    tensors = {rename(name): array for name, array in load_file(saved / "model.safetensors").items()}
    save_file({**tensors, **(extra or {})}, folder / "model.safetensors")
    return folder


def test_a_saved_model_opens_to_its_own_tensors(saved, model):
    check_same(open_folder(saved), model)
    check_same(open_file(saved / "model.safetensors"), model)


def test_shards_open_to_the_same_tensors(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    check_same(open_folder(tmp_path), model)


@pytest.mark.parametrize("prefix", ["", "model.", "language_model.model.", "model.language_model."])
def test_every_known_prefix_is_stripped(saved, model, tmp_path, prefix):
    folder = renamed(saved, tmp_path / "renamed", lambda name: prefix + name.removeprefix("model."))
    check_same(open_folder(folder), model)


def test_a_vision_tower_is_left_out_and_said_so(saved, model, tmp_path):
    extra = {
        "vision_tower.encoder.weight": np.ones(3, np.float32),
        "model.multi_modal_projector.weight": np.ones(2, np.float32),
    }
    checkpoint = open_folder(renamed(saved, tmp_path / "vision", lambda name: name, extra))
    check_same(checkpoint, model)
    assert checkpoint.notes == ("1 tensors left out: image projector.", "1 tensors left out: vision tower.")


def test_two_tensors_of_one_name_are_refused(saved, tmp_path):
    extra = {"language_model.model.norm.weight": np.ones(64, np.float32)}
    folder = renamed(saved, tmp_path / "twice", lambda name: name, extra)
    with pytest.raises(CheckpointError, match=r"language_model\.model\.norm\.weight and model\.norm\.weight") as error:
        open_folder(folder)
    assert "norm.weight" in str(error.value)


def test_bfloat16_is_read_exactly(model, tmp_path):
    tiny.make().to(torch.bfloat16).save_pretrained(tmp_path)
    checkpoint = open_folder(tmp_path)
    weight = read(checkpoint, "layers.3.mlp.up_proj.weight")
    expected = model.model.layers[3].mlp.up_proj.weight.to(torch.bfloat16).float().detach().numpy()
    assert weight.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(weight.astype(np.float32), expected)


def test_reading_gives_views_that_cannot_be_written(saved):
    weight = read(open_folder(saved), "norm.weight")
    assert not weight.flags.owndata
    assert not weight.flags.writeable


def test_nan_and_infinity_come_through(tmp_path, saved):
    shutil.copy(saved / "config.json", tmp_path)
    save_file({"norm.weight": np.array([np.nan, np.inf, 1], np.float32)}, tmp_path / "odd.safetensors")
    np.testing.assert_array_equal(read(open_folder(tmp_path), "norm.weight"), np.array([np.nan, np.inf, 1], np.float32))


def test_stacking_copies_only_when_it_must(tmp_path, saved):
    shutil.copy(saved / "config.json", tmp_path)
    a, b, c = (np.random.default_rng(i).normal(size=(3, 4)).astype(np.float32) for i in range(3))
    save_file({"a": a, "b": b, "c": c}, tmp_path / "model.safetensors")
    checkpoint = open_folder(tmp_path)
    in_order = stacked(checkpoint, ["a", "b", "c"])
    np.testing.assert_array_equal(in_order, np.stack([a, b, c]))
    assert not in_order.flags.owndata
    reversed_order = stacked(checkpoint, ["c", "a"])
    np.testing.assert_array_equal(reversed_order, np.stack([c, a]))
    assert reversed_order.flags.owndata


def test_stacking_mixed_types_keeps_every_value(tmp_path, saved):
    shutil.copy(saved / "config.json", tmp_path)
    tensors = {"a": np.array([1 + 2**-20], np.float32), "b": np.array([2.5], ml_dtypes.bfloat16)}
    save_file(tensors, tmp_path / "model.safetensors")
    both = stacked(open_folder(tmp_path), ["a", "b"])
    np.testing.assert_array_equal(both.astype(np.float64), [[1 + 2**-20], [2.5]])


def test_layers_of_different_shapes_do_not_stack(tmp_path, saved):
    shutil.copy(saved / "config.json", tmp_path)
    save_file({"a": np.ones(3, np.float32), "b": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"b has shape \(4,\) but a has \(3,\)"):
        stacked(open_folder(tmp_path), ["a", "b"])


def test_a_file_cut_short_after_opening_is_reported(saved, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    checkpoint = open_folder(folder)
    last = max(checkpoint.tensors, key=lambda name: checkpoint.tensors[name].offset)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(CheckpointError, match="moved or changed"):
        read(checkpoint, last)


def test_a_tensor_that_is_not_there_is_named(saved):
    with pytest.raises(CheckpointError, match=r"no tensor layers\.9\.up"):
        read(open_folder(saved), "layers.9.up")


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = {
    "no JSON": (b"{nope", "not valid JSON"),
    "an array": (b"[1, 2]", "not a JSON object"),
    "not UTF-8": (b'{"\xff": 1}', "not valid JSON"),
    "nesting": (b'{"a":' + b"[" * 100_000, "not valid JSON"),
    "huge number": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}', "not valid JSON"),
    "duplicate keys": (b'{"a":%b,"a":%b}' % ((json.dumps(GOOD).encode(),) * 2), "'a' appears twice"),
    "unknown dtype": ({"a": {**GOOD, "dtype": "Q7"}}, "dtype 'Q7' is not supported"),
    "dtype no string": ({"a": {**GOOD, "dtype": ["F32"]}}, "not supported"),
    "negative size": ({"a": {**GOOD, "shape": [-2]}}, "none negative"),
    "two negative sizes": ({"a": {**GOOD, "shape": [-1, -2]}}, "none negative"),
    "fractional size": ({"a": {**GOOD, "shape": [2.0]}}, "none negative"),
    "boolean size": ({"a": {**GOOD, "shape": [True, 2]}}, "none negative"),
    "many axes": ({"a": {**GOOD, "shape": [1] * 9 + [2]}}, "at most 8"),
    "overflowing shape": ({"a": {**GOOD, "shape": [2**62, 4]}}, "are reserved"),
    "wrong size": ({"a": {**GOOD, "shape": [3]}}, r"takes 12 bytes but 8 are reserved"),
    "negative offset": ({"a": {**GOOD, "data_offsets": [-8, 0]}}, "two whole numbers"),
    "offsets reversed": ({"a": {**GOOD, "data_offsets": [8, 0]}}, "two whole numbers"),
    "past the end": ({"a": {**GOOD, "shape": [200], "data_offsets": [0, 800]}}, "truncated or damaged"),
    "bytes unclaimed": ({}, "truncated or damaged"),
    "overlap": ({"a": GOOD, "b": GOOD}, "tensor b overlaps"),
    "partial overlap": ({"a": GOOD, "b": {**GOOD, "data_offsets": [4, 12]}}, "tensor b overlaps"),
    "hole": ({"a": {**GOOD, "shape": [1], "data_offsets": [4, 8]}}, "leaves a hole"),
    "missing field": ({"a": {"dtype": "F32", "shape": [2]}}, "exactly dtype, shape"),
    "entry no table": ({"a": 5}, "exactly dtype, shape"),
    "odd metadata": ({"__metadata__": {"x": 1}, "a": GOOD}, "__metadata__"),
}


@pytest.mark.parametrize(("header", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_headers_are_refused(tmp_path, header, message):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(8))
    with pytest.raises(CheckpointError, match=message) as error:
        read_header(path)
    assert "bad.safetensors" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\x10\0\0", "truncated"),
        (struct.pack("<Q", 2**60) + b"{}", "truncated"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "truncated"),
        (struct.pack("<Q", 100) + b"{}", "truncated"),
    ],
)
def test_impossible_lengths_are_refused(tmp_path, content, message):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_header(path)


def test_a_header_larger_than_the_limit_is_refused_unread(tmp_path):
    path = tmp_path / "bad.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**40))
        file.truncate(2**41)  # sparse: nobody could read this into memory
    with pytest.raises(CheckpointError, match="are not accepted"):
        read_header(path)


def test_every_cut_of_a_real_file_is_refused(saved, tmp_path):
    whole = (saved / "model.safetensors").read_bytes()
    path = tmp_path / "cut.safetensors"
    for length in [*range(0, 64, 7), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_header(path)


@pytest.mark.parametrize(
    "shard", ["../../etc/passwd", "../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "weights.bin", 7]
)
def test_an_index_may_not_lead_out_of_its_folder(saved, tmp_path, shard):
    shutil.copy(saved / "config.json", tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="such an index is not followed"):
        open_folder(tmp_path)


def test_a_missing_shard_and_a_tensor_in_the_wrong_shard_are_named(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    index = tmp_path / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    shards = sorted(set(table["weight_map"].values()))
    name = next(name for name, shard in table["weight_map"].items() if shard == shards[0])
    index.write_text(json.dumps({"weight_map": {**table["weight_map"], name: shards[1]}}))
    with pytest.raises(CheckpointError, match="not of one checkpoint") as error:
        open_folder(tmp_path)
    assert name in str(error.value)
    index.write_text(json.dumps(table))
    (tmp_path / shards[-1]).unlink()
    with pytest.raises(CheckpointError, match=f"1 of {len(shards)} shards are missing"):
        open_folder(tmp_path)


def test_what_a_folder_lacks_is_said(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        open_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not even a pickle")
    with pytest.raises(CheckpointError, match="are pickles"):
        open_folder(tmp_path)
    shutil.copy(saved / "model.safetensors", tmp_path)
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_folder(tmp_path)
    shutil.move(tmp_path / "model.safetensors", tmp_path / "a.safetensors")
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    with pytest.raises(CheckpointError, match=r"2 \.safetensors files but no"):
        open_folder(tmp_path)
