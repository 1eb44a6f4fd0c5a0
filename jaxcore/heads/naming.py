"""Names of heads, and numbers as results hold them."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from models.errors import InputError

Place = tuple[int, int]
"""Layer and head."""


def name(place: Place) -> str:
    return f"L{place[0]}H{place[1]}"


def parsed(text: str, shape: tuple[int, int]) -> Place:
    """The place that ``L3H1`` names among ``(layers, heads)``. Raises `InputError`."""
    match = re.fullmatch(r"L(\d{1,4})H(\d{1,4})", text.strip())
    if not match or not (int(match[1]) < shape[0] and int(match[2]) < shape[1]):
        raise InputError(
            f"{text[:40]!r} names no head of this model; write L0H0 to L{shape[0] - 1}H{shape[1] - 1}: layer, head."
        )
    return int(match[1]), int(match[2])


def places(shape: tuple[int, int], first: int = 0) -> Iterator[Place]:
    """All heads from layer ``first`` on, by layer, then head."""
    return ((layer, head) for layer in range(first, shape[0]) for head in range(shape[1]))


def pairs(shape: tuple[int, int]) -> Iterator[tuple[Place, Place]]:
    """Later and earlier heads of different layers: by later head, then earlier."""
    return ((later, earlier) for later in places(shape, 1) for earlier in places((later[0], shape[1])))


def ratio(part: Any, whole: Any) -> float | None:
    """Null where there is no whole."""
    return float(part / whole) if whole else None


def cut(ranks: tuple[int, ...], head_dim: int) -> list[int]:
    """Ranks that a head has, repeats dropped, ascending."""
    return sorted({min(rank, head_dim) for rank in ranks})


def complex_numbers(values: Any) -> list[dict[str, float]]:
    """By falling magnitude, of a conjugate pair the one with positive imaginary part first."""
    order = np.lexsort((-values.imag, -np.abs(values)))
    return [{"real": float(v.real), "imag": float(v.imag)} for v in values[order]]


def facing(basis: np.ndarray) -> np.ndarray:
    """Columns turned so that the largest entry of each is positive."""
    rows = np.argmax(np.abs(basis), axis=0)
    return basis * np.sign(basis[rows, np.arange(basis.shape[1])])


def row(place: Place, **fields: Any) -> dict[str, Any]:
    """A record of one head."""
    return {"head": name(place), **fields}
