"""GGUF: exact values, the configuration that Gemma 3 defines, the mappable copy, and hostile files."""

import struct
from pathlib import Path

import gguf as library
import numpy as np
import pytest
import sentencepiece
from gguf.constants import GGMLQuantizationType

from jaxcore.catalogue import open_reference, ready
from jaxcore.checkpoint.gguf import converted_copy, open_file
from jaxcore.checkpoint.gguf_file import read_header
from jaxcore.checkpoint.store import read, resolve, stacked
from models.errors import CheckpointError, ConfigError
from models.gemma3.config import Rope, from_hf
from models.gemma3.tensors import tensor_table
from tests.jaxcore.checkpoint import tiny


def quiet(_share, _what):
    pass


@pytest.fixture(scope="session")
def stored(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny.write_gguf(path, tiny.arrays(model))
    return path


def test_tensors_come_back_under_their_names_with_the_one_taken_off_norms(stored, model):
    checkpoint = open_file(stored)
    expected = tiny.arrays(model)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, array in expected.items():
        actual = read(checkpoint, name)
        assert actual.dtype == np.float32
        assert actual.shape == array.shape
        if name.endswith("norm.weight"):
            array = (array + np.float32(1)) - np.float32(1)  # what storing it as float32 has kept
        np.testing.assert_array_equal(actual, array)


def test_the_configuration_is_that_of_the_model(stored, model):
    config = from_hf(open_file(stored).config)
    assert config == from_hf(model.config.to_dict())
    resolve(open_file(stored), tensor_table(config), config.n_layers)


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0", "F16", "BF16"])
def test_quantised_tensors_are_their_exact_values(model, tmp_path, kind):
    name, quantised = "layers.2.mlp.up_proj.weight", GGMLQuantizationType[kind]
    array = tiny.arrays(model)[name]
    tiny.write_gguf(tmp_path / "q.gguf", tiny.arrays(model), quantised={name: quantised})
    checkpoint = open_file(tmp_path / "q.gguf")
    expected = library.quants.dequantize(library.quants.quantize(array, quantised), quantised)
    assert not np.array_equal(expected, array)
    np.testing.assert_array_equal(read(checkpoint, name), expected)
    assert any(kind in note for note in checkpoint.notes) == (kind[0] == "Q")


def test_stacking_dequantises_layer_by_layer(stored, model):
    names = [f"layers.{i}.mlp.gate_proj.weight" for i in range(7)]
    expected = np.stack([tiny.arrays(model)[name] for name in names])
    np.testing.assert_array_equal(stacked(open_file(stored), names), expected)


@pytest.mark.parametrize(
    ("metadata", "factor", "said"),
    [
        ({"block_count": 34}, 8.0, "no rotary scaling factor"),
        ({"block_count": 34, "rope.scaling.factor": 8.0}, 8.0, None),
        ({"block_count": 48, "rope.scaling.factor": 1.0}, 8.0, "a rotary scaling factor of 1"),
        ({"block_count": 26, "rope.scaling.factor": 8.0}, 1.0, "a rotary scaling factor of 8"),
        ({"block_count": 26}, 1.0, None),
        ({"block_count": 7, "rope.scaling.factor": 4.0}, 4.0, None),
    ],
)
def test_the_rotary_factor_is_that_of_the_size(model, tmp_path, metadata, factor, said):
    tiny.write_gguf(tmp_path / "x.gguf", tiny.arrays(model), metadata)
    checkpoint = open_file(tmp_path / "x.gguf")
    config = from_hf(checkpoint.config)
    assert config.rope_global == Rope(base=1e6, factor=factor)
    assert config.rope_local == Rope(base=1e4, factor=1.0)
    assert [said is not None and said in note for note in checkpoint.notes].count(True) == (said is not None)


def test_the_query_scale_of_the_27b_is_not_its_head_dim(model, tmp_path):
    sizes = {"block_count": 62, "embedding_length": 5376, "attention.head_count": 32, "attention.key_length": 128}
    tiny.write_gguf(tmp_path / "27b.gguf", tiny.arrays(model), sizes)
    assert from_hf(open_file(tmp_path / "27b.gguf").config).query_scalar == 168
    tiny.write_gguf(tmp_path / "small.gguf", tiny.arrays(model))
    assert from_hf(open_file(tmp_path / "small.gguf").config).query_scalar == 32


def test_another_architecture_is_refused_by_name(model, tmp_path):
    tiny.write_gguf(tmp_path / "x.gguf", tiny.arrays(model), architecture="llama")
    with pytest.raises(ConfigError, match="architecture 'llama'; supported: gemma3, apertus"):
        open_file(tmp_path / "x.gguf")


def test_the_copy_is_made_once_and_maps_without_copying(stored, model, own_cache):
    told = []
    copy = converted_copy(open_file(stored, "mine"), lambda share, what: told.append(share))
    assert copy.reference == "mine"
    assert told == sorted(told)
    assert 0 <= told[0] < told[-1] < 1
    names = [f"layers.{i}.mlp.gate_proj.weight" for i in range(7)]
    mapped = stacked(copy, names)
    assert not mapped.flags.owndata
    np.testing.assert_array_equal(mapped, np.stack([tiny.arrays(model)[name] for name in names]))
    for name in copy.tensors:
        np.testing.assert_array_equal(read(copy, name), read(open_file(stored), name))

    again = converted_copy(open_file(stored, "mine"), lambda *_: pytest.fail("converted a second time"))
    assert again == copy
    assert {path.name for path in copy.path.iterdir()} == {"config.json", "model.safetensors", "tokenizer.model"}


def test_transformers_loads_the_copy(stored, model, own_cache):
    import torch
    from transformers import Gemma3ForCausalLM

    loaded = Gemma3ForCausalLM.from_pretrained(converted_copy(open_file(stored), quiet).path)
    ids = torch.tensor([[2, 5, 6, 7, 8, 9, 5, 6]])
    with torch.no_grad():
        # Norms have been rounded once, when 1 was added to them.
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)


def test_an_interrupted_conversion_leaves_nothing(stored, own_cache):
    def interrupt(share, _what):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converted_copy(open_file(stored), interrupt)
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
    assert list((own_cache / "converted").iterdir()) == []


def test_a_changed_file_gets_a_new_copy(model, tmp_path, own_cache):
    path = tmp_path / "x.gguf"
    tiny.write_gguf(path, tiny.arrays(model))
    first = converted_copy(open_file(path), quiet)
    tiny.write_gguf(path, {name: 2 * array for name, array in tiny.arrays(model).items()})
    second = converted_copy(open_file(path), quiet)
    assert first.path != second.path
    np.testing.assert_array_equal(read(second, "embed_tokens.weight"), 2 * tiny.arrays(model)["embed_tokens.weight"])


def test_a_copy_that_another_process_finished_first_is_used(stored, own_cache):
    finished = []

    def race(_share, _what):
        if not finished:
            finished.append(True)
            finished.append(converted_copy(open_file(stored), quiet))

    copy = converted_copy(open_file(stored), race)
    assert copy == finished[1]
    assert [path.name for path in (own_cache / "converted").iterdir()] == [copy.path.name]


# Hostile files, written by hand.


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(metadata=(), tensors=(), version=3, n_tensors=None, n_metadata=None, data=128) -> bytes:
    counts = len(tensors) if n_tensors is None else n_tensors, len(metadata) if n_metadata is None else n_metadata
    raw = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(metadata) + b"".join(tensors)
    return raw + bytes(-len(raw) % 32) + bytes(data)


F32 = 0
HOSTILE = {
    "empty": (b"", "begins with"),
    "other magic": (b"GGML" + bytes(100), "begins with"),
    "only magic": (b"GGUF", "past the end"),
    "big endian": (header(version=3 << 24), "version 50331648"),
    "version 1": (header(version=1), "version 1"),
    "tensor count": (header(n_tensors=2**63), "claims 9,223,372,036,854,775,808 tensors"),
    "metadata count": (header(n_metadata=2**40), "metadata entries"),
    "more entries than bytes": (header(n_metadata=50_000, data=0), "past the end|twice"),
    "key past the end": (header([string(b"k", 2**62)], n_metadata=1), "past the end"),
    "string past the end": (header([entry(b"k", 8, string(b"v", 2**63 + 5))]), "past the end"),
    "unknown type": (header([entry(b"k", 77, b"")]), "unknown type 77"),
    "array length": (header([entry(b"k", 9, struct.pack("<IQ", 4, 2**60))]), "array entries"),
    "array past the end": (header([entry(b"k", 9, struct.pack("<IQ", 4, 10_000))]), "past the end"),
    "strings past the end": (header([entry(b"k", 9, struct.pack("<IQ", 8, 10_000))]), "past the end|strings"),
    "nested array": (header([entry(b"k", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 4, 0))]), "nested type 9"),
    "key twice": (header([entry(b"k", 4, bytes(4))] * 2), "'k' twice"),
    "alignment": (header([entry(b"general.alignment", 4, struct.pack("<I", 33))]), "alignment is 33"),
    "no alignment": (header([entry(b"general.alignment", 4, bytes(4))]), "alignment is 0"),
    "alignment no number": (header([entry(b"general.alignment", 8, string(b"32"))]), "alignment is 32"),
    "many axes": (header(tensors=[tensor(b"t", (1,) * 5, F32, 0)]), "claims 5 dimensions"),
    "no axes": (header(tensors=[tensor(b"t", (), F32, 0)]), "impossible shape"),
    "zero size": (header(tensors=[tensor(b"t", (0, 4), F32, 0)]), "impossible shape"),
    "huge shape": (header(tensors=[tensor(b"t", (2**63, 2**63), F32, 0)]), "impossible shape"),
    "broken block": (header(tensors=[tensor(b"t", (31, 2), 8, 0)]), "impossible shape"),
    "unknown quantisation": (header(tensors=[tensor(b"t", (4,), 999, 0)]), "unknown quantisation type 999"),
    "unaligned offset": (header(tensors=[tensor(b"t", (4,), F32, 4)]), "outside the file|aligned"),
    "offset past the end": (header(tensors=[tensor(b"t", (4,), F32, 2**40)]), "outside the file"),
    "cut short": (header(tensors=[tensor(b"t", (64,), F32, 0)], data=100), "outside the file"),
    "overlap": (header(tensors=[tensor(b"t", (16,), F32, 0), tensor(b"u", (4,), F32, 32)]), "overlap"),
    "same place": (header(tensors=[tensor(b"t", (4,), F32, 0), tensor(b"u", (4,), F32, 0)]), "overlap"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(tmp_path, content, message):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as error:
        read_header(path)
    assert "bad.gguf" in str(error.value)


def test_every_cut_of_a_sound_file_is_refused(stored, tmp_path):
    whole, path = stored.read_bytes(), tmp_path / "cut.gguf"
    for length in [*range(0, 4000, 97), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_header(path)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        (b"gemma3.block_count", 8, string(b"many")),
        (b"gemma3.attention.head_count", 9, struct.pack("<IQ2I", 4, 2, 1, 1)),
        (b"gemma3.attention.head_count", 4, bytes(4)),
        (b"gemma3.rope.freq_base", 8, string(b"x")),
        (b"gemma3.attention.layer_norm_rms_epsilon", 8, string(b"x")),
    ],
)
def test_metadata_of_the_wrong_kind_are_a_configuration_error(tmp_path, key, kind, value):
    sound = {
        b"general.architecture": (8, string(b"gemma3")),
        **{
            b"gemma3." + field: (4, struct.pack("<I", 62))
            for field in (
                b"context_length",
                b"embedding_length",
                b"block_count",
                b"feed_forward_length",
                b"attention.head_count",
                b"attention.head_count_kv",
                b"attention.key_length",
                b"attention.sliding_window",
            )
        },
    }
    entries = [entry(k, *v) for k, v in {**sound, key: (kind, value)}.items()]
    path = tmp_path / "odd.gguf"
    path.write_bytes(header(entries, [tensor(b"token_embd.weight", (4, 2), F32, 0)]))
    with pytest.raises(ConfigError):
        open_reference(str(path))


def test_a_file_without_its_tensors_is_refused_before_it_is_converted(model, tmp_path, own_cache):
    tensors = tiny.arrays(model)
    del tensors["layers.3.mlp.up_proj.weight"]
    tiny.write_gguf(tmp_path / "x.gguf", tensors)
    checkpoint = open_reference(str(tmp_path / "x.gguf"))
    with pytest.raises(CheckpointError, match=r"Missing: layers\.3\.mlp\.up_proj\.weight"):
        ready(checkpoint)
    assert not own_cache.exists()


# The real file.


def test_the_real_model_opens_as_what_it_is(gemma):
    config = from_hf(gemma.config)
    assert (config.n_layers, config.d_model, config.n_heads, config.n_kv_heads, config.head_dim) == (18, 640, 4, 1, 256)
    assert (config.vocab, config.d_mlp, config.window, config.context) == (262_144, 2048, 512, 32_768)
    assert (config.query_scalar, config.norm_eps, config.tied) == (256, 1e-6, True)
    assert config.rope_global == Rope(base=1e6)
    assert [i for i, wide in enumerate(config.is_global) if wide] == [5, 11, 17]
    assert sum(info.parameters for info in gemma.tensors.values()) == 268_098_176
    assert {info.dtype for info in gemma.tensors.values()} == {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}
    resolve(gemma, tensor_table(config), config.n_layers)


@pytest.mark.parametrize("stored_as", ["attn_q", "attn_v", "attn_output", "ffn_down", "attn_k_norm"])
def test_real_tensors_are_those_of_the_reference_dequantiser(gemma, gemma_ready, stored_as):
    parts = {short: name for name, short in tiny.GGUF_NAMES.items()}
    name = f"layers.11.{parts[stored_as]}.weight"
    info = gemma.tensors[name]
    raw = Path(info.file).read_bytes()[info.offset : info.offset + info.nbytes]
    rows = np.frombuffer(raw, np.uint8).reshape(*info.shape[:-1], -1)
    expected = library.quants.dequantize(rows, GGMLQuantizationType[info.dtype])
    if stored_as.endswith("norm"):
        expected = expected - np.float32(1)
    np.testing.assert_array_equal(read(gemma, name), expected)
    np.testing.assert_array_equal(read(gemma_ready, name), expected)


def test_the_real_copy_stacks_without_copying_at_an_address_that_xla_can_use(gemma_ready):
    up = stacked(gemma_ready, [f"layers.{i}.mlp.up_proj.weight" for i in range(18)])
    assert up.shape == (18, 2048, 640)
    assert not up.flags.owndata
    assert up.ctypes.data % 64 == 0


def test_the_copy_carries_a_tokenizer_that_sentencepiece_reads(gemma_ready):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(gemma_ready.tokenizer))
    assert processor.encode("The capital of Switzerland is") == [818, 5279, 529, 24687, 563]
    special = [processor.bos_id(), processor.eos_id(), processor.unk_id(), processor.pad_id()]
    assert special == [2, 1, 3, 0]
