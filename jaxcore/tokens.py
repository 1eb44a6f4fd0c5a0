"""How tokenizers split a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxcore.catalogue import open_reference, ready
from jaxcore.char_tokenizer import char_tokenizer
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.tokenizer import Tokenizer, load_tokenizer, no_tokenizer
from models.char.config import SYMBOLS

NAMES = {"gemma3": "gemma3-270m"}
"""Tokenizers by short name, and the model in the catalogue that brings each."""


@dataclass(frozen=True)
class Split:
    """A text in the tokens of one tokenizer; spans are byte offsets into the text's UTF-8."""

    name: str
    vocabulary: int
    count: int
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    byte_spans: tuple[tuple[int, int], ...]
    characters_per_token: float


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that a checkpoint brings, or None: its files, or the characters of a character transformer."""
    if checkpoint.config["model_type"] == "char":
        return char_tokenizer(checkpoint.reference) if checkpoint.config["vocab"] == len(SYMBOLS) else None
    if checkpoint.tokenizer is None:
        return None
    return load_tokenizer(checkpoint.tokenizer, checkpoint.config, checkpoint.reference)


def find_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by short name, by path to its file, or that of any model reference."""
    if name.endswith((".json", ".model")):
        return load_tokenizer(Path(name), {}, name)
    return tokenizer_of(ready(open_reference(NAMES.get(name, name)))) or no_tokenizer(name)


def split(tokenizer: Tokenizer, text: str) -> Split:
    """Split a text; no special tokens are added."""
    ids = tokenizer.encode(text)
    return Split(
        name=tokenizer.name,
        vocabulary=tokenizer.vocabulary,
        count=len(ids),
        ids=tuple(ids),
        tokens=tuple(tokenizer.texts(ids)),
        byte_spans=tuple(tokenizer.byte_spans(ids)),
        characters_per_token=len(text) / len(ids) if ids else 0.0,
    )


def compare(text: str, names: Sequence[str]) -> list[Split]:
    """The same text under several tokenizers."""
    return [split(find_tokenizer(name), text) for name in names]
