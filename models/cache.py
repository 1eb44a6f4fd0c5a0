"""Keys and values of earlier tokens, in rings of fixed size.

Layers with the same attention window share a ring. A ring has as many slots as its layers can look back, so
a sliding-window layer keeps only its window; the token at position p lies in slot ``p % slots``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.blocks import Keys


class Ring(NamedTuple):
    """One ring for all layers of one window; ``positions`` is -1 where a slot is still empty."""

    k: Float[Array, "layers n_kv_heads slots head_dim"]
    v: Float[Array, "layers n_kv_heads slots head_dim"]
    positions: Int[Array, "slots"]

    def keys(self, layer: Int[Array, ""]) -> Keys:
        return Keys(self.k[layer], self.v[layer], self.positions)


KVCache = tuple[Ring, ...]


def ring_windows(windows: Sequence[int]) -> tuple[int, ...]:
    """The window of each ring, given the window of each layer."""
    return tuple(sorted(set(windows)))


def ring_of_layer(windows: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each layer the number of its ring and its place in that ring."""
    rings = [ring_windows(windows).index(w) for w in windows]
    return rings, [rings[:i].count(r) for i, r in enumerate(rings)]


def empty_cache(windows: Sequence[int], capacity: int, n_kv_heads: int, head_dim: int) -> KVCache:
    """A cache that holds ``capacity`` tokens (fewer in layers with a smaller window); 0 slots for no cache."""
    rings = []
    for window in ring_windows(windows):
        slots = min(window, capacity)
        shape = (list(windows).count(window), n_kv_heads, slots, head_dim)
        rings.append(Ring(jnp.zeros(shape), jnp.zeros(shape), jnp.full(slots, -1, jnp.int32)))
    return tuple(rings)


def append(ring: Ring, new: Keys) -> Ring:
    """Write the keys of new tokens (``[layers new ...]``), those at position -1 left out, the oldest overwritten."""
    slots = len(ring.positions)
    if slots == 0:
        return ring
    kept = (new.positions >= 0) & (new.positions > jnp.max(new.positions) - slots)
    slot = jnp.where(kept, new.positions % slots, slots)  # one past the end: dropped
    return Ring(
        ring.k.at[:, :, slot].set(new.k, mode="drop"),
        ring.v.at[:, :, slot].set(new.v, mode="drop"),
        ring.positions.at[slot].set(new.positions, mode="drop"),
    )
