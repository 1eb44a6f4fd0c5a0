"""Tokenizers: the shipped ids, exact bytes, one BOS, and errors."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from jaxcore.tokenizer import load_tokenizer, visible
from models.errors import CheckpointError, InputError
from tests.jaxcore.checkpoint import tiny

TEXTS = [
    "The capital of Switzerland is",
    " leading, two  spaces,   trailing ",
    "a\n\n\tb\r\nc",
    "2024 + 1 = 2025",
    "Zürich 東京 🇨🇭 👩‍👩‍👧 e\u0301",
    "zero \0 byte",
    "<b>bold</b> <not_special>",
    "",
]


@pytest.fixture(scope="session")
def gemma_tokenizer(gemma_ready):
    return load_tokenizer(gemma_ready.tokenizer, gemma_ready.config, "gemma3-270m")


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory) -> Path:
    """A byte-level BPE as GPT-2 has it, without merges, and two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    path = tmp_path_factory.mktemp("byte-level") / "tokenizer.json"
    library.save(str(path))
    return path


def test_the_ids_are_those_of_gemma(gemma_tokenizer):
    ids = gemma_tokenizer.encode("The capital of Switzerland is", bos=True)
    assert ids == [2, 818, 5279, 529, 24687, 563]
    assert gemma_tokenizer.vocabulary == 262_144
    assert (gemma_tokenizer.bos, gemma_tokenizer.stop_ids) == (2, {1, 106})


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("Bundesgesundheitsamt", 5),
        ("Krankenversicherung", 4),
        ("Rechtsschutzversicherung", 4),
        ("Arbeitsplatzcomputer", 5),
        ("Donaudampfschifffahrt", 9),
        ("12345", 5),
    ],
)
def test_words_split_as_in_gemma(gemma_tokenizer, word, count):
    assert len(gemma_tokenizer.encode(word)) == count


def test_the_tokenizer_inside_the_gguf_is_the_same(gemma, gemma_tokenizer):
    inside = load_tokenizer(gemma.tokenizer, gemma.config, "gemma3-270m")
    assert inside.pieces == gemma_tokenizer.pieces
    assert (inside.bos, inside.stop_ids, inside.control) == (2, gemma_tokenizer.stop_ids, gemma_tokenizer.control)
    for text in TEXTS:
        assert inside.encode(text) == gemma_tokenizer.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_decoding_gives_the_text_back(gemma_tokenizer, byte_level, text):
    for tokenizer in (gemma_tokenizer, load_tokenizer(byte_level, {}, "bytes")):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        raw = text.encode()
        pieces = [raw[start:end] for start, end in tokenizer.byte_spans(ids)]
        assert pieces == [tokenizer.token_bytes(i) for i in ids]
        assert b"".join(pieces) == raw


def test_there_is_exactly_one_bos(gemma_tokenizer):
    bare = gemma_tokenizer.encode("hello")
    for text in ("hello", "<bos>hello", "<bos><bos>hello"):
        assert gemma_tokenizer.encode(text, bos=True) == [2, *bare]
    assert gemma_tokenizer.encode("", bos=True) == [2]
    assert gemma_tokenizer.encode("<bos>hello") == [2, *bare]


def test_control_tokens_in_a_text_are_single_tokens(gemma_tokenizer):
    ids = gemma_tokenizer.encode("<start_of_turn>user\nhi<end_of_turn>\n")
    assert (ids[0], ids[-2], ids[-1]) == (105, 106, 107)
    assert gemma_tokenizer.decode(ids) == "user\nhi\n"
    assert gemma_tokenizer.text(105) == "<start_of_turn>"


def test_a_byte_shows_as_a_byte_until_its_character_is_whole(gemma_tokenizer):
    text = "\U00016a0b"  # no token of its own
    ids = gemma_tokenizer.encode(text)
    assert [gemma_tokenizer.token_bytes(i) for i in ids] == [bytes([b]) for b in text.encode()]
    assert gemma_tokenizer.texts(ids) == ["⟨F0⟩", "⟨96⟩", "⟨A8⟩", text]
    assert gemma_tokenizer.text(ids[0]) == "⟨F0⟩"


def test_visible_marks_white_space():
    assert visible(" a\n\tb") == "·a↵⇥b"


@pytest.mark.parametrize("token_id", [-1, 262_144, 2**40])
def test_an_id_outside_the_vocabulary_is_an_input_error(gemma_tokenizer, token_id):
    with pytest.raises(InputError, match=f"Token id {token_id} does not exist"):
        gemma_tokenizer.decode([token_id])


def test_half_a_surrogate_pair_is_an_input_error(gemma_tokenizer, byte_level):
    for tokenizer in (gemma_tokenizer, load_tokenizer(byte_level, {}, "bytes")):
        with pytest.raises(InputError, match="surrogate"):
            tokenizer.encode("a\ud83d")


def test_a_byte_level_vocabulary_has_the_bytes_of_its_characters(byte_level):
    tokenizer = load_tokenizer(byte_level, {}, "bytes")
    assert sorted(tokenizer.pieces[:256]) == [bytes([b]) for b in range(256)]
    assert tokenizer.encode("<s>é", bos=True) == tokenizer.encode("é", bos=True)
    assert tokenizer.token_bytes(tokenizer.bos) == b"<s>"
    assert tokenizer.stop_ids == {257}


def test_stop_ids_come_from_all_that_name_them(byte_level, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(byte_level.read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    tokenizer = load_tokenizer(path, {"eos_token_id": 7, "text_config": {"eos_token_id": [8]}}, "bytes")
    assert tokenizer.stop_ids == {5, 6, 7, 8, 257}


def test_a_vocabulary_larger_than_the_model_is_refused(byte_level):
    assert load_tokenizer(byte_level, {"vocab_size": 258}, "bytes").vocabulary == 258
    with pytest.raises(CheckpointError, match="has 258 tokens, the model embeds 255"):
        load_tokenizer(byte_level, {"vocab_size": 255}, "bytes")
    with pytest.raises(CheckpointError, match="has 258 tokens, the model embeds 255"):
        load_tokenizer(byte_level, {"text_config": {"vocab_size": 255}}, "bytes")


def test_special_tokens_past_the_model_s_are_dropped(byte_level):
    tokenizer = load_tokenizer(byte_level, {"vocab_size": 257}, "bytes")
    assert tokenizer.vocabulary == 257
    assert tokenizer.decode(tokenizer.encode("ok")) == "ok"
    with pytest.raises(InputError, match="</s>, a token that bytes cannot read"):
        tokenizer.encode("ok</s>")


def test_a_tokenizer_json_with_byte_fallback_is_exact(tmp_path):
    vocab = {piece: i for i, piece in enumerate([*tiny.PIECES, *tiny.BYTES])}
    library = Library(models.BPE(vocab=vocab, merges=[("▁", "a"), ("a", "b")], byte_fallback=True))
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    from tokenizers import normalizers

    library.normalizer = normalizers.Replace(" ", "▁")
    library.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>"])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    tokenizer = load_tokenizer(path, {"vocab_size": tiny.VOCAB}, "tiny")
    text = " a ab  é\n"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes(vocab["<0xE9>"]) == b"\xe9"
    assert (tokenizer.bos, tokenizer.stop_ids) == (2, {1, 11})


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", b"{}"), ("tokenizer.model", b"\xff\xff")])
def test_a_damaged_file_is_a_checkpoint_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        load_tokenizer(tmp_path / name, {}, "x")


def test_no_tokenizer_and_one_that_changes_the_text_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        load_tokenizer(None, {}, "x")
    Library(models.WordPiece(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="WordPiece"):
        load_tokenizer(tmp_path / "tokenizer.json", {}, "x")
