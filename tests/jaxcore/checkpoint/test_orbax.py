"""Orbax folders: what comes back is what was written, to the bit, and nothing is left of what fails."""

import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch

from jaxcore.catalogue import list_models, open_reference, ready
from jaxcore.checkpoint import orbax
from jaxcore.checkpoint.store import read, stacked
from jaxcore.inspect import inspect
from jaxcore.sample import generate
from jaxcore.sampling import Settings
from jaxcore.session import load
from models.errors import CheckpointError, ConfigError, InputError
from tests.jaxcore.checkpoint import tiny
from tests.on_devices import on_devices
from tests.reference import gemma3

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROOT = Path(__file__).parents[3]


def quiet(_share, _what):
    pass


def written(source: Path, folder: Path, **options):
    return orbax.write(open_reference(str(source)), folder, progress=quiet, **options)


def bits(array) -> tuple:
    array = np.asarray(array)
    return array.dtype, array.shape, array.tobytes()


def equal(a, b) -> bool:
    """Whether two models' parameters are the same to the bit."""
    return jax.tree.all(jax.tree.map(lambda x, y: bits(x) == bits(y), a.params, b.params))


@pytest.fixture(scope="session", params=DTYPES)
def source(request, tmp_path_factory) -> Path:
    """A tiny model as transformers saves it, with all that lies beside weights."""
    folder = tmp_path_factory.mktemp(request.param)
    model = gemma3.make(tie_word_embeddings=request.param == "float32").to(DTYPES[request.param])
    model.save_pretrained(folder)
    gemma3.save_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text('{"chat": "ü"}')
    (folder / "chat_template.jinja").write_text("{{ bos_token }}")
    (folder / "unrelated.txt").write_text("no")
    return folder


@pytest.fixture(scope="session")
def folder(source, tmp_path_factory) -> Path:
    """The same model as Orbax."""
    path = tmp_path_factory.mktemp("orbax") / "made"
    written(source, path)
    return path


def test_every_tensor_comes_back_to_the_bit(source, folder):
    before, after = open_reference(str(source)), open_reference(str(folder))
    assert (after.format, after.path) == ("orbax", folder)
    assert after.tensors.keys() == before.tensors.keys()
    for name in before.tensors:
        assert bits(read(after, name)) == bits(read(before, name)), name
    assert after.tensors["layers.3.mlp.up_proj.weight"].name == "blocks.W_up"


def test_layers_are_stacked_without_a_copy(folder):
    checkpoint = open_reference(str(folder))
    names = [f"layers.{i}.self_attn.q_proj.weight" for i in range(5)]
    together = stacked(checkpoint, names)
    assert together.shape == (5, 64, 48)
    assert not together.flags.owndata
    assert all(bits(row) == bits(read(checkpoint, name)) for row, name in zip(together, names, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_loads_like_the_folder_it_was_made_from(source, folder, dtype):
    before, after = (load(open_reference(str(path)), dtype=dtype) for path in (source, folder))
    assert equal(before, after)
    assert (after.config, after.dtype) == (before.config, dtype)
    texts = [list(generate(m, gemma3.prompt(9), Settings(temperature=0.0), steps=8))[-1] for m in (before, after)]
    assert texts[0] == texts[1]


def test_configuration_and_tokenizer_are_copied_as_they_are(source, folder):
    assert json.loads((folder / "config.json").read_text()) == json.loads((source / "config.json").read_text())
    copied = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]
    for name in copied:
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    assert not (folder / "unrelated.txt").exists()
    assert open_reference(str(folder)).tokenizer == folder / "tokenizer.json"


def test_orbax_itself_restores_the_parameters(source, folder):
    model = load(open_reference(str(source)), dtype="bfloat16" if "bfloat16" in str(source) else "float32")
    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(folder)
    expected = {**model.params._asdict(), **{f"blocks.{k}": v for k, v in model.params.blocks._asdict().items()}}
    del expected["blocks"]
    if model.config.tied:
        del expected["W_U"]  # stored once, as W_E
    assert {name: bits(array) for name, array in tree.items()} == {name: bits(a) for name, a in expected.items()}


def test_inspecting_tells_the_same_as_of_the_source(source, folder):
    before, after = (inspect(open_reference(str(path))) for path in (source, folder))
    same = ("config", "architecture", "totals", "tokenizer", "missing")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    for key in ("name", "shape", "dtype", "parameters", "bytes"):
        assert {(row["name"], str(row[key])) for row in after["tensors"]} == {
            (row["name"], str(row[key])) for row in before["tensors"]
        }


LIGHT = """
import sys
from jaxcore.__main__ import main
status = main(["inspect", sys.argv[1], "--mesh", "2,4", "--out", sys.argv[2]])
print(status, [name for name in ("jax", "flax", "orbax", "tensorstore") if name in sys.modules])
"""


def test_inspecting_needs_neither_orbax_nor_jax(folder, tmp_path):
    command = [sys.executable, "-c", LIGHT, str(folder), str(tmp_path / "seen.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"
    assert json.loads((tmp_path / "seen.json").read_text())["mesh"]["devices"] == 8


def test_it_is_found_in_a_folder_of_checkpoints(folder):
    (listed,) = [entry for entry in list_models(folder.parent) if entry["reference"] == str(folder)]
    assert (listed["architecture"], listed["note"]) == ("gemma3", "")


def test_each_of_eight_devices_holds_its_part(source, folder, tmp_path):
    ids = gemma3.prompt(20)
    seen, arrays = on_devices(folder, (2, 4), ids, tmp_path / "seen.npz")
    model = load(open_reference(str(source)), dtype="float32")
    for path, leaf in jax.tree.leaves_with_path(model.params):
        assert bits(arrays[jax.tree_util.keystr(path)]) == bits(leaf)
    assert seen["shards"][".blocks.W_Q"] == [[5, 1, 16, 48]] * 8
    assert seen["shards"][".blocks.W_K"] == [[5, 2, 16, 48]] * 8
    assert seen["shards"][".blocks.W_gate"] == [[5, 20, 48]] * 8
    (text,) = list(generate(model, ids, Settings(temperature=0.0), steps=6))[-1]
    assert seen["greedy"] == text.token_ids
    assert set(seen["restored"]) == {path.parent.name for path in folder.glob("*/.zarray")}


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_be_stored_in_another_dtype(source, tmp_path, dtype):
    made = written(source, tmp_path / "made", dtype=dtype)
    before = open_reference(str(source))
    for name in before.tensors:
        stored = torch.tensor(read(before, name).astype(np.float32)).to(DTYPES[dtype])
        assert read(made, name).dtype == dtype
        np.testing.assert_array_equal(read(made, name).astype(np.float32), stored.float().numpy())


def test_revision_and_notes_are_kept(source, tmp_path):
    checkpoint = replace(open_reference(str(source)), revision="abc", notes=("Weights were quantised (é).",))
    made = orbax.write(checkpoint, tmp_path / "made", progress=quiet)
    assert (made.revision, made.notes) == ("abc", checkpoint.notes)


def test_a_note_is_not_made_twice(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    in_json("config.json", rms_norm_eps=None)(tmp_path / "source")
    written(tmp_path / "source", tmp_path / "made")
    before, after = (open_reference(str(tmp_path / name)) for name in ("source", "made"))
    assert "rms_norm_eps = 1e-06" in before.notes[0]
    assert after.notes == before.notes


def test_a_gguf_is_written_as_its_float32_values(model, tmp_path, own_cache):
    tiny.write_gguf(tmp_path / "tiny.gguf", tiny.arrays(model))
    source = ready(open_reference(str(tmp_path / "tiny.gguf")))
    made = orbax.write(source, tmp_path / "made", progress=quiet)
    assert made.tokenizer == tmp_path / "made" / "tokenizer.model"
    assert made.tensors.keys() == tiny.arrays(model).keys()
    for name in made.tensors:
        assert bits(read(made, name)) == bits(read(source, name))


def test_a_file_of_weights_brings_what_lies_beside_it(source, tmp_path):
    made = written(source / "model.safetensors", tmp_path / "made")
    assert made.tokenizer == tmp_path / "made" / "tokenizer.json"


def test_an_empty_folder_may_be_there_already(source, tmp_path):
    (tmp_path / "made").mkdir()
    assert written(source, tmp_path / "made").format == "orbax"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("full", "exists and is not an empty folder; choose another --out"),
        ("full/file", "exists and is not an empty folder"),
        ("absent/made", "cannot be written: No such file or directory"),
        ("full/file/made", "cannot be written: Not a directory"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(source, tmp_path, target, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("precious")
    with pytest.raises(InputError, match=message):
        written(source, tmp_path / target)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["full", "full/file"]
    assert (tmp_path / "full" / "file").read_text() == "precious"


def test_a_disk_that_is_too_small_is_seen_first(tmp_path):
    with pytest.raises(InputError, match=r"takes 1000000000\.0 GB but its disk has"):
        orbax.refuse_target(tmp_path / "made", 10**18)


def test_a_disk_that_fills_up_leaves_nothing(source, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # the largest arrays take more
    try:
        with pytest.raises(InputError, match="made cannot be written: File too large"):
            written(source, tmp_path / "made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_nothing(source, tmp_path):
    def interrupt(share, _what):
        if share > 0.5:
            assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orbax.write(open_reference(str(source)), tmp_path / "made", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_breaks_off_leaves_nothing(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    checkpoint = open_reference(str(tmp_path / "source"))
    with (tmp_path / "source" / "model.safetensors").open("r+b") as file:
        file.truncate(30_000)
    with pytest.raises(CheckpointError, match="was moved or changed since it was opened"):
        orbax.write(checkpoint, tmp_path / "made", progress=quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def in_json(name, **changes):
    """Changes values in a JSON file; None removes them."""

    def change(folder):
        table = {**json.loads((folder / name).read_text()), **changes}
        (folder / name).write_text(json.dumps({key: value for key, value in table.items() if value is not None}))

    return change


def removed(name):
    return lambda folder: (folder / name).unlink()


def filled(name, content):
    return lambda folder: (folder / name).write_text(content)


def leaf(key):
    return {"x": {"key_metadata": [{"key": key, "key_type": 2}]}}


DAMAGE = {
    "no tree": (removed("_METADATA"), "an Orbax folder without _METADATA"),
    "no config": (removed("config.json"), r"there is no config\.json beside the weights"),
    "tree is no JSON": (filled("_METADATA", "{"), "is not valid JSON"),
    "tree is a list": (filled("_METADATA", "[]"), "is not a JSON object"),
    "tree cut short": (filled("_METADATA", '{"use_ocdbt": false}'), "tree_metadata is missing or of an unknown form"),
    "tree of another form": (in_json("_METADATA", tree_metadata={"x": {"key_metadata": [3]}}), "of an unknown form"),
    "tree of numbers": (in_json("_METADATA", tree_metadata=[1]), "of an unknown form"),
    "outside": (in_json("_METADATA", tree_metadata=leaf("../W_E")), "is not the plain name of an array"),
    "parent": (in_json("_METADATA", tree_metadata=leaf("..")), "is not the plain name of an array"),
    "packed": (in_json("_METADATA", use_ocdbt=True), "packed together"),
    "no such array": (in_json("_METADATA", tree_metadata=leaf("W_X")), "the array W_X is missing"),
    "said is no table": (in_json("_CHECKPOINT_METADATA", custom_metadata={"clearbox": [1]}), "of an unknown form"),
    "notes are numbers": (
        in_json("_CHECKPOINT_METADATA", custom_metadata={"clearbox": {"notes": [1]}}),
        "unknown form",
    ),
    "no notes": (in_json("_CHECKPOINT_METADATA", custom_metadata={"clearbox": {"notes": 1}}), "unknown form"),
    "odd revision": (in_json("_CHECKPOINT_METADATA", custom_metadata={"clearbox": {"revision": [1]}}), "unknown form"),
    "no description": (removed("blocks.W_Q/.zarray"), r"the array blocks\.W_Q is missing"),
    "no numbers": (removed("blocks.W_Q/0.0.0.0"), "0 is missing: it holds the numbers of blocks.W_Q"),
    "cut short": (filled("blocks.W_Q/0.0.0.0", "x" * 99), "bytes but the file has 99; it is truncated"),
    "compressed": (in_json("W_E/.zarray", compressor={"id": "zstd"}), "is compressed or cut into pieces"),
    "in pieces": (in_json("W_E/.zarray", chunks=[1, 48]), "is compressed or cut into pieces"),
    "in columns": (in_json("W_E/.zarray", order="F"), "is compressed or cut into pieces"),
    "other numbers": (in_json("W_E/.zarray", dtype="<i4"), "dtype is <i4"),
    "records": (in_json("W_E/.zarray", dtype=[["a", "<f4"]]), "dtype is"),
    "no shape": (in_json("W_E/.zarray", shape=None), "shape is None"),
    "empty": (in_json("W_E/.zarray", shape=[0, 48]), "a list of whole numbers above 0"),
    "huge": (in_json("W_E/.zarray", shape=[2**40, 2**40], chunks=[2**40, 2**40]), "bytes but the file has"),
    "other layers": (in_json("config.json", num_hidden_layers=4, layer_types=None), "config.json says 4 layers"),
    "other model": (in_json("config.json", model_type="t5"), "model_type 't5', which does not run here"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_explained(folder, tmp_path, damage, message):
    shutil.copytree(folder, tmp_path / "damaged")
    damage(tmp_path / "damaged")
    with pytest.raises((CheckpointError, ConfigError), match=message) as raised:
        open_reference(str(tmp_path / "damaged"))
    assert str(tmp_path / "damaged") in str(raised.value)


def test_a_config_of_other_sizes_is_noticed_before_loading(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    in_json("config.json", intermediate_size=81)(tmp_path / "other")
    checkpoint = open_reference(str(tmp_path / "other"))
    assert any("Of another shape: layers.0.mlp" in sentence for sentence in inspect(checkpoint)["missing"])
    with pytest.raises(CheckpointError, match="do not fit the configuration"):
        load(checkpoint)


def test_what_others_saved_opens_once_it_is_saved_unpacked(folder, source, tmp_path):
    """Nested trees too, such as parameters saved as they are in memory."""
    with ocp.StandardCheckpointer() as checkpointer:
        flat = checkpointer.restore(folder)
        blocks = {name.removeprefix("blocks."): flat.pop(name) for name in list(flat) if name.startswith("blocks.")}
        checkpointer.save(tmp_path / "packed", {**flat, "blocks": blocks})
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_reference(str(tmp_path / "packed"))
    shutil.copy(source / "config.json", tmp_path / "packed")
    with pytest.raises(CheckpointError, match=r"Save it again with .*use_ocdbt=False, use_compression=False"):
        open_reference(str(tmp_path / "packed"))
    with ocp.PyTreeCheckpointer(use_ocdbt=False, use_compression=False) as checkpointer:
        tree = checkpointer.restore(tmp_path / "packed")
        checkpointer.save(tmp_path / "unpacked", tree, custom_metadata={"notes": "of another program", "revision": 3})
    shutil.copy(source / "config.json", tmp_path / "unpacked")
    opened = open_reference(str(tmp_path / "unpacked"))
    assert (opened.revision, opened.notes) == (None, ())
    assert equal(load(open_reference(str(folder))), load(opened))


def test_bits_that_are_no_numbers_survive(source, tmp_path):
    """NaN with a payload, infinities, negative zero and subnormals are copied like any other."""
    checkpoint = open_reference(str(source))
    info = checkpoint.tensors["norm.weight"]
    wide = info.dtype == "F32"
    odd = [0x7FC01234, 0xFF800000, 0x80000000, 0x1] if wide else [0x7FC1, 0xFF80, 0x8000, 0x1]
    values = np.array(odd, np.uint32 if wide else np.uint16)
    shutil.copytree(source, tmp_path / "source")
    with (tmp_path / "source" / "model.safetensors").open("r+b") as file:
        file.seek(info.offset)
        file.write(values.tobytes())
    made = written(tmp_path / "source", tmp_path / "made")
    found = read(made, "norm.weight")
    assert found.dtype == (np.float32 if wide else ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.view(values.dtype)[:4], values)
