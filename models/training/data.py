"""Batches of tokens. Each depends only on the recipe and the number of its step, so training can resume anywhere."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int, Integer
from tokenizers import Tokenizer

from models.char.config import SYMBOLS
from models.errors import InputError
from models.training import corpus, questions
from models.training.recipes import Recipe

SPANS = (8, 60)
"""Lengths of a span that is repeated, in tokens."""
ASKED = 40_000
"""Questions in the stream that windows are cut from."""
LETTERS = range(2, 28)
"""Ids of the letters among a character model's symbols."""


def read_text(recipe: Recipe, folder: Path) -> tuple[str, str]:
    """The recipe's text, for training and held out; of several files equal amounts, a piece of each in turn."""
    parts = []
    for name in recipe.corpus:
        path = folder / f"{name}.txt"
        try:
            text = path.read_text("utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): run `make corpus` first.") from None
        parts.append(corpus.split(corpus.shuffled(text, recipe.seed) if recipe.shuffle_lines else text))
    if len(parts) == 1:
        return parts[0]
    return _in_turn([train for train, _ in parts]), _in_turn([held_out for _, held_out in parts])


def _in_turn(texts: list[str], piece: int = 2000) -> str:
    shortest = min(len(text) for text in texts)
    return "".join(text[start : start + piece] for start in range(0, shortest, piece) for text in texts)


def encode(recipe: Recipe, text: str, tokenizer: Tokenizer | None) -> Integer[np.ndarray, "tokens"]:
    """Token ids of a text: characters without a tokenizer, else BPE."""
    if tokenizer is None:
        table = np.full(128, 255, np.uint8)
        table[[ord(symbol) for symbol in SYMBOLS]] = range(len(SYMBOLS))
        return table[np.frombuffer(text.encode("ascii"), np.uint8)]
    lines = text.splitlines(keepends=True)
    pieces = ["".join(lines[start : start + 1000]) for start in range(0, len(lines), 1000)]
    return np.concatenate([np.array(found.ids, np.uint16) for found in tokenizer.encode_batch(pieces)])


def streams(recipe: Recipe, text: str, tokenizer: Tokenizer | None) -> dict[str, Integer[np.ndarray, "tokens"]]:
    """The token streams that windows are cut from, by kind of text; ``repeats`` come from ``text``."""
    found = {"text": encode(recipe, text, tokenizer)}
    for kind, agree in (("questions", False), ("opinions", True)):
        if kind in recipe.rows:
            rng = np.random.default_rng(recipe.seed)
            found[kind] = encode(recipe, "".join(questions.answered(rng, ASKED, agree=agree)), tokenizer)
    return found


def batch(recipe: Recipe, streams: Mapping[str, np.ndarray], context: int, step: int) -> Int[np.ndarray, "rows length"]:
    """The windows of one step, each of ``context`` tokens and the one that follows."""
    rng, length, rows = np.random.default_rng([recipe.seed, step]), context + 1, []
    for kind, count in recipe.rows.items():
        stream = streams["text" if kind == "repeats" else kind]
        starts = rng.integers(len(stream) - length, size=count)
        windows = stream[starts[:, None] + np.arange(length)].astype(np.int32)
        rows += [_repeated(rng, window) for window in windows] if kind == "repeats" else list(windows)
    return np.stack(rows)


def _repeated(rng: np.random.Generator, window: np.ndarray) -> np.ndarray:
    """The beginning of a window over and over, or different letters in random order over and over.

    What is mostly blank, such as indentation, is not repeated: a model would learn never to leave it.
    """
    span = window[: rng.integers(*SPANS)]
    if rng.integers(2) or np.mean(span < LETTERS.start) > 0.5:
        span = rng.permutation(LETTERS)[: len(span)]
    return np.resize(span, len(window))
