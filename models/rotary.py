"""Rotary embeddings: their settings in a ``config.json``, and the frequencies that follow. Imports no JAX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.fields import Fields


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Which wavelengths are scaled (``llama3`` in transformers): in tokens, those over ``original / low`` are.

    Those under ``original / high`` are not, and those between are blended. ``original`` is the context length of
    pretraining.
    """

    original: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Rope:
    """A rotary embedding: its base, and the factor that stretches positions, for all wavelengths or by ``bands``."""

    base: float
    factor: float = 1.0
    bands: Bands | None = None


def inverse_frequencies(rope: Rope, head_dim: int) -> NDArray[np.float64]:
    """Radians a token for each pair of dimensions: ``[head_dim / 2]``.

    Su et al. 2021 (arXiv 2104.09864); bands as in ``transformers``' ``modeling_rope_utils.py``.
    """
    plain = rope.base ** -(np.arange(0, head_dim, 2) / head_dim)
    if rope.bands is None:
        return plain / rope.factor
    turns = rope.bands.original * plain / (2 * pi)
    kept = np.clip((turns - rope.bands.low) / (rope.bands.high - rope.bands.low), 0, 1)
    return plain * (kept + (1 - kept) / rope.factor)


def read_rope(fields: Fields, settings: Mapping[str, Any], base: Any, kinds: Sequence[str]) -> Rope:
    """The rotary embedding that ``settings`` describe; ``base`` is used unless they hold their own.

    Raises `ConfigError` for a scaling of another kind than ``kinds``, or whose own settings are missing or wrong.
    """
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in kinds:
        raise fields.error(f"rotary scaling of type {kind!r} is not supported; supported: {', '.join(kinds)}.")
    base = fields.get(settings, "rope_theta", float, default=base)
    if kind == "default":
        return Rope(base=base)
    factor = fields.get(settings, "factor", float, default=1.0 if kind == "linear" else None)
    if kind == "linear":
        return Rope(base=base, factor=factor)
    bands = Bands(
        original=fields.get(settings, "original_max_position_embeddings", int),
        low=fields.get(settings, "low_freq_factor", float),
        high=fields.get(settings, "high_freq_factor", float),
    )
    if bands.low >= bands.high:
        raise fields.error(f"low_freq_factor is {bands.low:g}; it must be below high_freq_factor, {bands.high:g}.")
    return Rope(base=base, factor=factor, bands=bands)
