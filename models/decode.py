"""Running a model: over a whole sequence, over a prompt into a cache, and one token at a time.

All three are one function, `extend`: new tokens attend to the cache and to each other, and their keys are
appended to the cache. `forward` gives the logits of all new tokens, `step` only those of the last. Functions
take one sequence; lift them with ``jax.vmap`` over tokens and cache for many.
"""

from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from models.apertus import model as apertus
from models.blocks import Keys, attention, by_position
from models.cache import KVCache, append, empty_cache, ring_of_layer
from models.char import model as char
from models.gemma3 import model as gemma3
from models.shapes import Logits, Positions, Resid
from models.trace import Edits, Trace

FAMILIES: dict[str, ModuleType] = {"gemma3": gemma3, "apertus": apertus, "char": char}
"""Families that can run.

Each module has ``params``, ``embed``, ``block``, ``layers``, ``writers``, ``read_out``, ``output_bias``, ``unembed``.
"""


def new_cache(cfg: Any, capacity: int) -> KVCache:
    """An empty cache for ``capacity`` tokens."""
    return empty_cache(cfg.windows, capacity, cfg.n_kv_heads, cfg.head_dim)


def extend(
    params: Any,
    cache: KVCache,
    tokens: Int[Array, "seq"],
    positions: Positions,
    *,
    cfg: Any,
    taps: frozenset[str] = frozenset(),
    rows: Int[Array, "rows"] | None = None,
    edits: Edits | None = None,
) -> tuple[Resid, KVCache, Trace]:
    """Run ``tokens`` at ``positions`` (-1 for padding, at the end) after what ``cache`` holds.

    Returns the residual stream after the last block, the cache with the new keys, and what ``taps`` names, of the
    tokens at ``rows`` only if those are given (``v`` is always of all).
    """
    family = FAMILIES[cfg.family]
    rings, places = ring_of_layer(cfg.windows)
    length = max(len(ring.positions) for ring in cache) or len(tokens)

    def layer(resid_pre, scanned):
        weights, kind, ring, place, edit = scanned

        def attend(q, new):
            z, pattern = looked_up(q, new)
            return (z if edit is None else edit.head_scale[:, None] * z + edit.head_add), pattern

        def looked_up(q, new):
            def over(old, place):
                segments = (old.keys(place), new) if len(old.positions) else (new,)
                z, pattern = attention(q, positions, segments, window=kind.window, scale=cfg.attention_scale)
                if "pattern" not in taps:
                    return z, None
                # Without a cache the new tokens are the whole sequence, in order already.
                return z, by_position(pattern, segments, length) if len(old.positions) else pattern

            return lax.switch(ring, [partial(over, old) for old in cache], place)

        seen, new = family.block(resid_pre, weights, kind, positions, attend, cfg)
        if edit is not None:
            mlp_out = edit.mlp_scale * seen.mlp_out + edit.mlp_add
            seen = seen._replace(mlp_out=mlp_out, resid_post=seen.resid_mid + mlp_out)
        trace = Trace(**{tap: of_rows(tap, getattr(seen, tap)) for tap in taps})
        return seen.resid_post, (trace, new.k, new.v)

    def of_rows(tap, x):
        return x if rows is None or tap == "v" else jnp.take(x, rows, axis=1 if tap == "pattern" else 0)

    resid = family.embed(params, tokens, positions, cfg)
    scanned = (params.blocks, family.layers(cfg), np.array(rings), np.array(places), edits)
    # Gradients recompute each layer: XLA on CPU would copy the saved activations of all layers at each of them.
    resid, (trace, k, v) = lax.scan(jax.checkpoint(layer), resid, scanned)
    groups = [np.flatnonzero(np.array(rings) == r) for r in range(len(cache))]
    cache = tuple(append(ring, Keys(k[group], v[group], positions)) for ring, group in zip(cache, groups, strict=True))
    return resid, cache, trace


@partial(jax.jit, static_argnames=("cfg", "taps"), donate_argnames=("cache",))
def forward(
    params: Any,
    cache: KVCache,
    tokens: Int[Array, "seq"],
    positions: Positions,
    *,
    cfg: Any,
    taps: frozenset[str] = frozenset(),
) -> tuple[Logits, KVCache, Trace]:
    """Logits after every new token, and the grown cache; a whole sequence needs only an empty one."""
    resid, cache, trace = extend(params, cache, tokens, positions, cfg=cfg, taps=taps)
    return FAMILIES[cfg.family].unembed(params, resid, cfg), cache, trace


@partial(jax.jit, static_argnames=("cfg", "taps"), donate_argnames=("cache",))
def step(
    params: Any,
    cache: KVCache,
    tokens: Int[Array, "seq"],
    positions: Positions,
    *,
    cfg: Any,
    taps: frozenset[str] = frozenset(),
    edits: Edits | None = None,
) -> tuple[Float[Array, "vocab"], KVCache, Trace]:
    """Logits after the last new token that is not padding, and the grown cache."""
    resid, cache, trace = extend(params, cache, tokens, positions, cfg=cfg, taps=taps, edits=edits)
    last = resid[jnp.argmax(positions)]
    return FAMILIES[cfg.family].unembed(params, last[None], cfg)[0], cache, trace
