"""Apertus in GGUF files: the same tensors, configuration, text and logits as the model they were made from."""

import json

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from jaxcore.catalogue import open_reference, parameters, ready
from jaxcore.checkpoint.gguf import converted_copy, open_file
from jaxcore.checkpoint.store import read, resolve, stacked
from jaxcore.sample import all_logits
from jaxcore.session import described, load
from jaxcore.tokenizer import load_tokenizer
from models.apertus.config import from_hf
from models.apertus.tensors import tensor_table
from models.errors import CheckpointError, ConfigError
from models.rotary import Bands, Rope, inverse_frequencies
from tests.jaxcore.checkpoint import tiny_apertus
from tests.reference import apertus, gemma3
from tests.reference.apertus import LLAMA3, PLAIN

VARIANTS = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "unscaled": {"rope_parameters": PLAIN},
    "one key/value head": {"num_key_value_heads": 1},
    "the usual constants": {"own_constants": False},
}


@pytest.fixture(scope="module")
def source():
    return tiny_apertus.make()


@pytest.fixture(scope="module")
def stored(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "apertus.gguf"
    tiny_apertus.write_gguf(path, source)
    return path


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tensor_comes_back_exactly_under_its_name(tmp_path, variant):
    model = tiny_apertus.make(**VARIANTS[variant])
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model)
    checkpoint, expected = open_file(tmp_path / "x.gguf"), tiny_apertus.arrays(model)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, array in expected.items():
        actual = read(checkpoint, name)
        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual.reshape(array.shape), array)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_configuration_is_that_of_the_model(tmp_path, variant):
    model = tiny_apertus.make(**VARIANTS[variant])
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model)
    checkpoint = open_file(tmp_path / "x.gguf")
    config = from_hf(checkpoint.config)
    expected = from_hf(model.config.to_dict())
    assert config == expected
    resolve(checkpoint, tensor_table(config), config.n_layers)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_logits_are_those_of_the_model(tmp_path, own_cache, variant):
    model = tiny_apertus.make(**VARIANTS[variant])
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model)
    loaded = load(open_reference(str(tmp_path / "x.gguf"), converted=True), dtype="float32")
    ids = gemma3.prompt(150)
    np.testing.assert_allclose(all_logits(loaded, ids), gemma3.logits(model, ids), atol=1e-4, rtol=0)
    counted = sum(p.numel() for p in model.parameters())
    assert described(loaded)["parameters"] == parameters(open_file(tmp_path / "x.gguf")) == counted


def test_the_copy_maps_whole_layers_and_keeps_the_scalars(stored, source, own_cache):
    copy = converted_copy(open_file(stored), lambda *_: None)
    assert {path.name for path in copy.path.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    for name, array in tiny_apertus.arrays(source).items():
        np.testing.assert_array_equal(read(copy, name).reshape(array.shape), array)
    for part in ("mlp.up_proj.weight", "self_attn.o_proj.weight", "mlp.act_fn.alpha_n"):
        mapped = stacked(copy, [f"layers.{i}.{part}" for i in range(3)])
        assert not mapped.flags.owndata
    offsets = {info.offset % 64 for name, info in copy.tensors.items() if "act_fn" not in name}
    assert offsets == {0}


def test_transformers_opens_the_copy(stored, source, own_cache):
    copy = converted_copy(open_file(stored), lambda *_: None)
    ids = gemma3.prompt(150)
    loaded = apertus.from_folder(copy.path)
    np.testing.assert_allclose(gemma3.logits(loaded, ids), gemma3.logits(source, ids), atol=1e-5, rtol=0)


def test_other_scalars_get_another_copy(source, tmp_path, own_cache):
    """They lie among the metadata, which must count for the copy's identity."""
    path, copies = tmp_path / "x.gguf", []
    for alpha in (0.25, 0.75):
        tiny_apertus.write_gguf(path, source, scalars={"xielu.eps": [-alpha] * 3})
        copies.append(converted_copy(open_file(path), lambda *_: None))
    assert [read(copy, "layers.2.mlp.act_fn.eps").item() for copy in copies] == [-0.25, -0.75]


def test_quantised_weights_are_their_exact_values(tmp_path):
    model = tiny_apertus.make(intermediate_size=96)
    name, kind = "layers.1.mlp.down_proj.weight", GGMLQuantizationType.Q8_0
    tiny_apertus.write_gguf(tmp_path / "q.gguf", model, quantised={name: kind})
    array = tiny_apertus.arrays(model)[name]
    np.testing.assert_array_equal(read(open_file(tmp_path / "q.gguf"), name), dequantize(quantize(array, kind), kind))


def test_constants_may_be_left_out(tmp_path, own_cache):
    model = tiny_apertus.make(own_constants=False)
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model, scalars={"xielu.beta": None, "xielu.eps": None})
    loaded = load(open_reference(str(tmp_path / "x.gguf"), converted=True), dtype="float32")
    ids = gemma3.prompt(60)
    np.testing.assert_allclose(all_logits(loaded, ids), gemma3.logits(model, ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("alpha_p", None, "xielu.alpha_p as None; a floating point number for each of the 3 layers"),
        ("alpha_n", None, "xielu.alpha_n as None"),
        ("alpha_n", [0.1, 0.2], "xielu.alpha_n as 2 numbers"),
        ("beta", [0.5] * 4, "xielu.beta as 4 numbers"),
        ("eps", [1, 2, 3], "xielu.eps as 3 numbers; a floating point number"),
        ("alpha_p", 0.5, r"xielu.alpha_p as 0\.5"),
        ("alpha_p", ["a", "b", "c"], "xielu.alpha_p as Strings"),
    ],
)
def test_scalars_that_are_missing_or_wrong_are_named(source, tmp_path, field, value, message):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, scalars={f"xielu.{field}": value})
    with pytest.raises(ConfigError, match=f"x.gguf: the metadata give {message}"):
        open_file(tmp_path / "x.gguf")


# Rotary scaling: the file has only what each frequency is divided by.


PUBLISHED = {"rope_theta": 12e6, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
PUBLISHED |= {"original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("changes", "head_dim", "factor", "bands"),
    [
        ({}, 128, 8.0, Bands(original=8192, low=1.0, high=4.0)),
        ({"factor": 32.0, "rope_theta": 4e6}, 128, 32.0, Bands(original=8192, low=1.0, high=4.0)),
        (LLAMA3, 16, 8.0, Bands(original=128, low=1.0, high=4.0)),
        ({"low_freq_factor": 2.0, "high_freq_factor": 8.0}, 128, 8.0, Bands(original=4096, low=1.0, high=4.0)),
        ({"high_freq_factor": 6.0}, 64, 8.0, Bands(original=8192, low=1.0, high=6.0)),
    ],
)
def test_rotary_scaling_is_found_from_its_factors(tmp_path, changes, head_dim, factor, bands):
    """Bands from 2 to 8 of 8,192 tokens are those from 1 to 4 of 4,096."""
    settings = {**PUBLISHED, **changes}
    factors = np.array(tiny_apertus.rotary_factors(settings, head_dim), np.float32)
    model = tiny_apertus.make(head_dim=head_dim, rope_parameters={**PLAIN, "rope_theta": settings["rope_theta"]})
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model, factors=factors)
    checkpoint = open_file(tmp_path / "x.gguf")
    rope = from_hf(checkpoint.config).rope
    assert rope == Rope(base=settings["rope_theta"], factor=factor, bands=bands)
    plain = inverse_frequencies(Rope(base=settings["rope_theta"]), head_dim)
    np.testing.assert_allclose(plain / inverse_frequencies(rope, head_dim), factors, rtol=1e-4)
    assert any(f"llama3 scaling by {factor:g}" in note for note in checkpoint.notes)


def test_factors_of_one_are_no_scaling(source, tmp_path):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, factors=np.ones(8, np.float32))
    assert from_hf(open_file(tmp_path / "x.gguf").config).rope == Rope(base=100.0)


def test_linear_scaling_stands_in_the_metadata(tmp_path):
    told = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    tiny_apertus.write_gguf(tmp_path / "x.gguf", tiny_apertus.make(rope_parameters=PLAIN), told=told)
    assert from_hf(open_file(tmp_path / "x.gguf").config).rope == Rope(base=100.0, factor=4.0)


FACTORS = tiny_apertus.rotary_factors(LLAMA3, 16)


@pytest.mark.parametrize(
    ("factors", "told", "error", "message"),
    [
        (FACTORS[::-1], {}, ConfigError, "rope_freqs.weight divides .* not in the bands of llama3 scaling"),
        ([1.0, 2.0, 1.0, 2.0, 3.0, 1.0, 4.0, 4.0], {}, ConfigError, "not in the bands"),
        ([1.0] * 7 + [0.5], {}, ConfigError, "by 0.5 to 1, but"),
        ([1.0] * 7 + [0.0], {}, ConfigError, "not in the bands"),
        ([1.0] * 7 + [np.inf], {}, ConfigError, "not in the bands"),
        ([1.0] * 7 + [np.nan], {}, ConfigError, "not in the bands"),
        (FACTORS, {"rope.freq_base": 150.0}, ConfigError, "not in the bands"),
        (FACTORS, {"rope.freq_base": 0.0}, ConfigError, "not in the bands"),
        (FACTORS[:7], {}, CheckpointError, r"rope_freqs.weight has the shape \[7\] for heads of 16 dimensions"),
        (FACTORS, {"rope.scaling.type": "yarn"}, ConfigError, "scaling of type 'yarn' is not supported"),
        (FACTORS, {"rope.scaling.type": "linear"}, ConfigError, "scaling of type 'linear' is not supported"),
        (FACTORS, {"rope.freq_base": None}, ConfigError, "the metadata lack apertus.rope.freq_base"),
        (FACTORS, {"rope.dimension_count": 8}, ConfigError, "8 of 16 dimensions of a head are rotated"),
        (FACTORS, {"attention.key_length": np.inf, "rope.dimension_count": np.inf}, CheckpointError, "heads of inf"),
        (FACTORS, {"attention.key_length": np.nan, "rope.dimension_count": None}, ConfigError, "nan of nan dimensions"),
        (FACTORS, {"block_count": None}, ConfigError, "the metadata lack apertus.block_count"),
        (FACTORS, {"block_count": "three"}, ConfigError, "apertus.block_count as 'three'; one number"),
    ],
)
def test_what_the_metadata_cannot_mean_is_refused(source, tmp_path, factors, told, error, message):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, factors=np.array(factors, np.float32), told=told)
    with pytest.raises(error, match=message):
        open_file(tmp_path / "x.gguf")


def test_a_width_without_key_length_is_shared_by_the_heads(tmp_path):
    model = tiny_apertus.make(head_dim=12, rope_parameters=PLAIN)
    tiny_apertus.write_gguf(tmp_path / "x.gguf", model, told={"attention.key_length": None})
    assert from_hf(open_file(tmp_path / "x.gguf").config).head_dim == 12


def test_a_missing_tensor_is_named_before_anything_is_converted(tmp_path, own_cache):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", tiny_apertus.make(), told={"feed_forward_length": 95})
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.up_proj\.weight is \(96, 48\) where"):
        ready(open_reference(str(tmp_path / "x.gguf")))
    assert not own_cache.exists()


# The tokenizer.


TEXTS = [
    *tiny_apertus.TEXT,
    "",
    " leading and trailing ",
    "a\n\n\tb\r\nc  \n d",
    "don't we'LL HTTPServer camelCase ABCdef éÀ",
    "3.14159 + 2²",
    "path/to//\n/file.txt !!! (what?)\n\n",
    "🇨🇭 👩‍👩‍👧 e\u0301 \u00a0x\u3000y",
    "<s>in</s> <|assistant_end|><pad> <other>",
    "\0 zero",
]


@pytest.mark.parametrize("pre", ["tekken", "gpt-2"])
def test_the_ids_are_those_of_the_original_tokenizer(source, tmp_path, own_cache, pre):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, pre=pre)
    checkpoint, original = open_reference(str(tmp_path / "x.gguf")), tiny_apertus.tokenizer(pre)
    copy = ready(checkpoint)
    assert copy.tokenizer == copy.path / "tokenizer.json"
    for tokenizer in (
        load_tokenizer(checkpoint.tokenizer, checkpoint.config, "inside"),
        load_tokenizer(copy.tokenizer, copy.config, "copy"),
    ):
        assert (tokenizer.kind, tokenizer.vocabulary) == ("BPE (byte level)", tiny_apertus.VOCAB)
        assert (tokenizer.bos, tokenizer.control) == (1, frozenset(range(5)))
        assert 2 in tokenizer.stop_ids
        for text in TEXTS:
            ids = tokenizer.encode(text)
            assert ids == original.encode(text, add_special_tokens=False).ids
            assert b"".join(tokenizer.token_bytes(i) for i in ids) == text.encode()


def test_the_two_ways_to_cut_a_text_differ(source):
    """Else the test above could not tell them apart."""
    pieces = {}
    for pre in ("tekken", "gpt-2"):
        cut = tiny_apertus.tokenizer(pre).pre_tokenizer.pre_tokenize_str("HTTPServer don't 123\n")
        pieces[pre] = [piece for piece, _ in cut]
    assert pieces["gpt-2"] == ["HTTPServer", "Ġdon", "'t", "Ġ123", "Ċ"]
    assert pieces["tekken"] == ["HTTPServer", "Ġdon", "'t", "Ġ", "1", "2", "3", "Ċ"]


def test_whole_pieces_need_no_merges_in_tekken(source, tmp_path):
    """A token that no merge leads to is still found when a piece of text is exactly that token."""
    tokens = sorted(vocab := tiny_apertus.tokenizer().get_vocab(), key=vocab.get)
    made = json.loads(tiny_apertus.tokenizer().to_str())["model"]["merges"]
    word = next(token for token in reversed(tokens) if len(token) > 2 and token.isalpha() and token.isascii())
    merges = [" ".join(pair) for pair in made if "".join(pair) != word]
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, vocabulary={"merges": merges})
    checkpoint = open_file(tmp_path / "x.gguf")
    assert load_tokenizer(checkpoint.tokenizer, checkpoint.config, "x").encode(word) == [vocab[word]]


def test_user_defined_tokens_are_text_not_control(source, tmp_path):
    types = [3, 3, 3, 3, 4, *[1] * (tiny_apertus.VOCAB - 5)]
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, vocabulary={"token_type": types})
    checkpoint = open_file(tmp_path / "x.gguf")
    tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.config, "x")
    assert tokenizer.control == {0, 1, 2, 3}
    assert tokenizer.decode(tokenizer.encode("a<|assistant_end|>b")) == "a<|assistant_end|>b"


def test_a_chat_models_own_stop_token_is_read(source, tmp_path):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, vocabulary={"eos_token_id": 4})
    checkpoint = open_file(tmp_path / "x.gguf")
    assert 4 in load_tokenizer(checkpoint.tokenizer, checkpoint.config, "x").stop_ids


TYPES = [3] * 5 + [1] * (tiny_apertus.VOCAB - 5)


@pytest.mark.parametrize(
    ("vocabulary", "error", "message"),
    [
        ({"pre": "llama-bpe"}, ConfigError, "by the rules 'llama-bpe' .*supported: gpt-2, tekken"),
        ({"pre": None}, ConfigError, "by the rules 'None'"),
        ({"model": "bert"}, ConfigError, "a tokenizer of kind 'bert' is not supported"),
        ({"model": None}, ConfigError, "a tokenizer of kind None is not supported"),
        ({"merges": None}, CheckpointError, "its tokens, merges or token types are missing"),
        ({"token_type": None}, CheckpointError, "its tokens, merges or token types are missing"),
        ({"tokens": None}, CheckpointError, "its tokens, merges or token types are missing"),
        ({"token_type": TYPES[1:]}, CheckpointError, "differ in number"),
        ({"tokens": ["a"] * tiny_apertus.VOCAB}, CheckpointError, "a token stands twice"),
        ({"merges": ["a"]}, CheckpointError, "the merge 'a ' does not join"),
        ({"merges": ["q zz"]}, CheckpointError, "the merge 'q zz' does not join"),
        ({"bos_token_id": tiny_apertus.VOCAB}, CheckpointError, "a special token lies outside the vocabulary"),
    ],
)
def test_vocabularies_that_cannot_be_used_are_refused(source, tmp_path, own_cache, vocabulary, error, message):
    tiny_apertus.write_gguf(tmp_path / "x.gguf", source, vocabulary=vocabulary)
    checkpoint = open_reference(str(tmp_path / "x.gguf"))
    with pytest.raises(error, match=message):
        load_tokenizer(checkpoint.tokenizer, checkpoint.config, "x")
    with pytest.raises(error, match=message):
        ready(checkpoint)
    assert not [path for path in own_cache.rglob("*") if path.is_file()]


def test_the_copied_tokenizer_is_a_whole_tokenizer_json(stored, own_cache):
    copy = converted_copy(open_file(stored), lambda *_: None)
    library, original = Tokenizer.from_file(str(copy.tokenizer)), tiny_apertus.tokenizer()
    for text in TEXTS:
        ids = library.encode(text, add_special_tokens=False).ids
        assert library.decode(ids, skip_special_tokens=False) == original.decode(ids, skip_special_tokens=False)
