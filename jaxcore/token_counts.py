"""How many tokens several tokenizers need for many words, and what may be concluded from that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from jaxcore.tokenizer import Tokenizer
from models.errors import InputError

Counts = Mapping[str, tuple[int | None, ...]]
"""By tokenizer: the tokens of each word, None for a word that it cannot write."""


@dataclass(frozen=True)
class Rival:
    """A tokenizer beside the one with the fewest tokens, on the words that all can write.

    ``chance`` is the two-sided exact sign test over the words where the two differ: how often a coin would give a split
    at least as uneven.
    """

    name: str
    total: int
    better: int
    worse: int
    same: int
    chance: float


@dataclass(frozen=True)
class Verdict:
    """Which tokenizer needs fewest tokens in all for the words that every one can write."""

    best: str
    total: int
    words: int
    rivals: tuple[Rival, ...]


def count(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[int | None, ...]:
    """Tokens of each word, without special tokens."""

    def tokens(word: str) -> int | None:
        try:
            return len(tokenizer.encode(word))
        except InputError:
            return None

    return tuple(tokens(word) for word in words)


def verdict(counts: Counts) -> Verdict | None:
    """Compare all tokenizers with the one that needs fewest tokens; None if no word can be written by all."""
    shared = [row for row in zip(*counts.values(), strict=True) if None not in row]
    if not shared:
        return None
    columns = dict(zip(counts, zip(*shared, strict=True), strict=True))
    best = min(columns, key=lambda name: sum(columns[name]))
    rivals = [_rival(name, column, columns[best]) for name, column in columns.items() if name != best]
    return Verdict(best, sum(columns[best]), len(shared), tuple(sorted(rivals, key=lambda rival: rival.total)))


def _rival(name: str, tokens: Sequence[int], best: Sequence[int]) -> Rival:
    better = sum(mine < its for mine, its in zip(tokens, best, strict=True))
    worse = sum(mine > its for mine, its in zip(tokens, best, strict=True))
    same = len(tokens) - better - worse
    return Rival(name, sum(tokens), better, worse, same, sign_test(better, worse))


def sign_test(a: int, b: int) -> float:
    """The chance that ``a + b`` tosses of a fair coin split at least as unevenly as ``a`` to ``b``."""
    n = a + b
    return min(1.0, 2 * sum(comb(n, k) for k in range(min(a, b) + 1)) / 2**n)


def characters_per_token(words: Sequence[str], tokens: Sequence[int | None]) -> float | None:
    """Over a whole list of words; None if the tokenizer cannot write all of them."""
    known = [n for n in tokens if n is not None]
    return sum(map(len, words)) / sum(known) if len(known) == len(words) and sum(known) else None
