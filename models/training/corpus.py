"""Training text for the small models: ``python -m models.training.corpus --out corpus``."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

CHUNK = 100_000  # characters of one document that stay together when documents are mixed
LONGEST = 30_000_000  # characters of a finished text
TAB = 4

_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_MARKS = re.compile("[\u0300-\u036f]+")
_LEADING_OR_OTHER = re.compile(r"(^ +)|[^a-z\n]+", re.M)
_TRAILING = re.compile(r" +$", re.M)
_BLANK_LINES = re.compile(r"(?<![^\n])\n+")


def normalise(text: str) -> str:
    """Text in the 28 characters of the character models: newline, space, a to z.

    Lower case; accents and ligatures become plain letters; leading spaces stay (a tab reaches the next multiple of
    four), any other run of characters becomes one space, none at the end of a line; blank lines never follow each other.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    text = text.lower().translate(_LETTERS).expandtabs(TAB)
    text = _LEADING_OR_OTHER.sub(lambda found: found[1] or " ", text)
    return _BLANK_LINES.sub("\n", _TRAILING.sub("", text))


def shuffled(text: str, seed: int) -> str:
    """The characters of every line in random order, leading spaces too; lines keep their places and lengths."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    ends = codes == ord("\n")
    line = np.cumsum(ends) - ends
    place = line + np.where(ends, 1.0, np.random.default_rng(seed).random(len(codes)))
    return codes[np.argsort(place, kind="stable")].tobytes().decode("utf-32-le")


def chunks(text: str, size: int = CHUNK) -> Iterator[str]:
    """The text in pieces of about ``size`` characters, each ending with a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + size - 1) + 1 or len(text)
        yield text[start:end]
        start = end


def mixed(texts: Iterable[list[str]]) -> str:
    """The documents of several sources so mixed that any long stretch holds a fair share of each source.

    Documents of a source are cut in chunks, put in a random order that is always the same, and spread evenly.
    """
    rng = np.random.default_rng(0)
    placed: list[tuple[float, str]] = []
    for documents in texts:
        parts = [part for document in documents for part in chunks(document)]
        parts = [parts[i] for i in rng.permutation(len(parts))]
        sizes = np.array([len(part) for part in parts])
        places = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
        placed += zip(places.tolist(), parts, strict=True)
    return "".join(part if part.endswith("\n") else part + "\n" for _, part in sorted(placed, key=lambda p: p[0]))
