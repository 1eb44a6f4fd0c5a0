"""Reading a text with a view inside: activations piece by piece, so that memory stays bounded on long texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxcore.sample import BUCKETS, cache_for, check_prompt, pieces
from jaxcore.session import LoadedModel
from models import decode
from models.cache import KVCache
from models.errors import InputError
from models.shapes import Resid
from models.trace import Trace

PATTERN_BYTES = 2**29
"""What the patterns of a piece may take."""


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of a text. Arrays hold ``count`` tokens from ``start`` on, then padding that means nothing.

    With chosen rows, ``resid`` and the trace (but for ``v``) hold those rows instead.
    """

    start: int
    count: int
    resid: Resid
    trace: Trace


@partial(jax.jit, static_argnames=("cfg", "taps"), donate_argnames=("cache",))
def extend(
    params: Any,
    cache: KVCache,
    tokens: Int[Array, "seq"],
    positions: Int[Array, "seq"],
    rows: Int[Array, "rows"] | None,
    *,
    cfg: Any,
    taps: frozenset[str],
) -> tuple[Float[Array, "rows d_model"], KVCache, Trace]:
    """`models.decode.extend`, compiled; the residual stream after the last block at ``rows`` only."""
    resid, cache, trace = decode.extend(params, cache, tokens, positions, cfg=cfg, taps=taps, rows=rows)
    return (resid if rows is None else resid[rows]), cache, trace


def readable(model: LoadedModel, ids: Sequence[int]) -> list[int]:
    """The ids that one pass reads: all, or the last ``context`` where the context slides. Raises `InputError`."""
    check_prompt(model, ids)
    return list(ids[-model.config.context :])


def read(
    model: LoadedModel, ids: Sequence[int], taps: frozenset[str], rows: Sequence[int] | None = None
) -> Iterator[Piece]:
    """Read ``ids`` (as `readable` gives them) and yield what ``taps`` names, a piece at a time.

    Pieces are as long as their patterns' memory allows. With ``rows``, positions in the text in ascending order, a
    piece holds only those of its tokens, padded to a bucket. Raises `InputError` for a text that is too long to be
    read with patterns.
    """
    cfg = model.config
    one = len(ids) <= BUCKETS[-1] and _pattern_bytes(cfg, BUCKETS[-1], BUCKETS[-1], taps) <= PATTERN_BYTES
    cache = decode.new_cache(cfg, 0) if one else cache_for(model, len(ids))
    length = max(len(ring.positions) for ring in cache)
    if "pattern" in taps and not one and length < len(ids):
        raise InputError(
            f"Every layer of {model.reference} sees at most {length:,} tokens back: patterns of a text of {len(ids):,} "
            f"tokens are not kept. Shorten it to {length:,}."
        )
    fitting = [b for b in BUCKETS if _pattern_bytes(cfg, b, length, taps) <= PATTERN_BYTES]
    longest = BUCKETS[-1] if one else max(fitting, default=BUCKETS[0])
    for start, (tokens, positions) in zip(range(0, len(ids), longest), pieces(ids, longest), strict=True):
        count = min(longest, len(ids) - start)
        chosen, kept = None, count
        if rows is not None:
            inside = np.array([row - start for row in rows if start <= row < start + count], np.int32)
            kept = len(inside)
            chosen = jnp.asarray(np.pad(inside, (0, next(b for b in BUCKETS if b >= kept) - kept)))
        resid, cache, trace = extend(model.params, cache, tokens, positions, chosen, cfg=cfg, taps=taps)
        yield Piece(start, kept, resid, trace)


def _pattern_bytes(cfg: Any, queries: int, keys: int, taps: frozenset[str]) -> int:
    return 4 * cfg.n_layers * cfg.n_heads * queries * keys if "pattern" in taps else 0
