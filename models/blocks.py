"""The pieces that transformer layers are made of; one implementation for every family.

Arithmetic is float32 throughout; only weights may be stored narrower (`project`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from models.rotary import Rope, inverse_frequencies
from models.shapes import Mask, Positions


def project(x: Float[Array, "*rows d_in"], W: Float[Array, "*out d_in"]) -> Float[Array, "..."]:
    """``x`` times the transpose of ``W`` (last axes contracted), accumulated in float32: ``[*rows *out]``.

    Narrow weights are widened on CPU, whose matrix products are float32; on an accelerator ``x`` is narrowed to
    the weights' dtype for its matrix units. Written as ``x @ W.T`` of a matrix because XLA's CPU backend then reads
    a layer's weights where they lie in the stack; other spellings of the same product copy them first.
    """
    matrix = W.reshape(-1, W.shape[-1])

    def wide(x, matrix):
        return jnp.matmul(x, matrix.T.astype(jnp.float32), precision="highest")

    def narrow(x, matrix):
        return jnp.matmul(x.astype(matrix.dtype), matrix.T, preferred_element_type=jnp.float32)

    y = wide(x, matrix) if W.dtype == jnp.float32 else lax.platform_dependent(x, matrix, cpu=wide, default=narrow)
    return y.reshape(*x.shape[:-1], *W.shape[:-1])


def rms_scale(x: Float[Array, "*rows width"], eps: float) -> Float[Array, "*rows 1"]:
    """The factor that brings ``x`` to unit root mean square (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    return lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)


def rms_norm(x: Float[Array, "*rows width"], gain: Float[Array, "width"], eps: float) -> Float[Array, "*rows width"]:
    """RMSNorm: ``x`` at unit root mean square times ``gain``."""
    return x * rms_scale(x, eps) * gain


def layer_norm(
    x: Float[Array, "*rows width"], gain: Float[Array, "width"], bias: Float[Array, "width"], eps: float
) -> Float[Array, "*rows width"]:
    """LayerNorm (Ba et al. 2016, arXiv 1607.06450)."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * rms_scale(centred, eps) * gain + bias


def rotate(
    x: Float[Array, "seq heads head_dim"], positions: Positions, inv_freq: Float[Array, "half"]
) -> Float[Array, "seq heads head_dim"]:
    """Rotary embedding (Su et al. 2021, arXiv 2104.09864), rotating the two halves of ``head_dim`` together."""
    angle = positions[:, None, None] * inv_freq
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def causal_mask(query: Int[Array, "query"], key: Int[Array, "key"], window: Int[Array, ""]) -> Mask:
    """Which keys a query sees: not later than itself, among the last ``window`` positions, and not padding (-1)."""
    offset = query[:, None] - key[None, :]
    return (offset >= 0) & (offset < window) & (key >= 0)[None, :]


class Layer(NamedTuple):
    """What differs between layers besides their weights: how far each sees, and how fast it rotates."""

    window: Int[Array, "*layer"]
    inv_freq: Float[Array, "*layer half"]


def layers(windows: Sequence[int], ropes: Sequence[Rope], head_dim: int) -> Layer:
    """The windows and rotary frequencies of all layers, stacked."""
    inv_freq = np.stack([inverse_frequencies(rope, head_dim) for rope in ropes])
    return Layer(jnp.array(windows, jnp.int32), jnp.array(inv_freq, jnp.float32))


class Keys(NamedTuple):
    """Keys and values with the position of each; position -1 marks an empty slot."""

    k: Float[Array, "n_kv_heads key head_dim"]
    v: Float[Array, "n_kv_heads key head_dim"]
    positions: Int[Array, "key"]


Attend = Callable[[Any, Keys], tuple[Float[Array, "seq n_heads head_dim"], Any]]
"""From queries and new keys to the per-head result ``z`` and the pattern, or None where nobody asked for that."""


def each(f: Callable, *args: Any) -> Any:
    """``f`` for every entry of the leading axis: ``vmap``, less a batch axis of one, which is slow in XLA on CPU."""
    if jax.tree.leaves(args)[0].shape[0] > 1:
        return jax.vmap(f)(*args)
    return jax.tree.map(lambda y: y[None], f(*jax.tree.map(lambda x: x[0], args)))


def attention(
    q: Float[Array, "query n_heads head_dim"],
    positions: Positions,
    segments: tuple[Keys, ...],
    *,
    window: Int[Array, ""],
    scale: float,
) -> tuple[Float[Array, "query n_heads head_dim"], Float[Array, "n_heads query key"]]:
    """Softmax attention over the keys of all ``segments`` (the cache and the new tokens), never joined in memory.

    Query head h reads key/value head ``h // (n_heads / n_kv_heads)``. A query at position -1 (padding) sees
    nothing; its row of the pattern is uniform and its output is not meant to be read.
    Returns the per-head result ``z`` and the pattern, whose rows sum to 1.
    """
    n_query, n_heads, head_dim = q.shape
    n_kv_heads = segments[0].k.shape[0]
    masks = [causal_mask(positions, keys.positions, window) for keys in segments]
    ends = np.cumsum([mask.shape[1] for mask in masks])[:-1]

    def one(q, *kv):  # a key/value head and the query heads that share it
        rows = q.reshape(-1, head_dim) * scale

        def score(k, mask):
            dots = jnp.matmul(rows, k.T, precision="highest").reshape(len(q), *mask.shape)
            return jnp.where(mask, dots, jnp.finfo(jnp.float32).min)

        scores = [score(k, mask) for (k, _), mask in zip(kv, masks, strict=True)]
        pattern = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
        shares = jnp.split(pattern.reshape(len(rows), -1), ends, axis=-1)
        z = jnp.zeros(rows.shape)
        for share, (_, v) in zip(shares, kv, strict=True):
            z += jnp.matmul(share, v, precision="highest")
        return z.reshape(q.shape), pattern

    grouped = q.reshape(n_query, n_kv_heads, -1, head_dim).transpose(1, 2, 0, 3)
    z, pattern = each(one, grouped, *((keys.k, keys.v) for keys in segments))
    return z.reshape(n_heads, n_query, head_dim).swapaxes(0, 1), pattern.reshape(n_heads, n_query, -1)


def by_position(
    pattern: Float[Array, "n_heads query key"], segments: tuple[Keys, ...], length: int
) -> Float[Array, "n_heads query length"]:
    """A pattern with its key axis in the order of positions 0 to ``length`` - 1, wherever the cache keeps them."""
    positions = jnp.concatenate([keys.positions for keys in segments])
    column = jnp.where(positions >= 0, positions, length)  # past the end: dropped
    return jnp.zeros((*pattern.shape[:-1], length)).at[..., column].add(pattern, mode="drop")


def geglu(
    x: Float[Array, "seq d_model"], W_gate: Float[Array, "d_mlp d_model"], W_up: Float[Array, "d_mlp d_model"]
) -> Float[Array, "seq d_mlp"]:
    """The units of a GeGLU MLP, with the tanh GELU (Shazeer 2020, arXiv 2002.05202)."""
    return jax.nn.gelu(project(x, W_gate), approximate=True) * project(x, W_up)


def attention_output(
    z: Float[Array, "seq n_heads head_dim"], W_O: Float[Array, "d_model n_heads head_dim"]
) -> Float[Array, "seq d_model"]:
    """What all heads write together."""
    return project(z.reshape(len(z), -1), W_O.reshape(len(W_O), -1))


def by_head(
    z: Float[Array, "seq n_heads head_dim"], W_O: Float[Array, "d_model n_heads head_dim"]
) -> Float[Array, "seq n_heads d_model"]:
    """What each head writes."""
    return jnp.einsum("shd,mhd->shm", z, W_O.astype(jnp.float32), precision="highest")


def xielu(
    x: Float[Array, "*rows d_mlp"],
    alpha_p: Float[Array, ""],
    alpha_n: Float[Array, ""],
    beta: Float[Array, ""],
    eps: Float[Array, ""],
) -> Float[Array, "*rows d_mlp"]:
    """xIELU: quadratic above 0, exponential below (Huang and Schlag 2024, arXiv 2411.13010).

    The slopes are softplus(``alpha_p``) and ``beta`` + softplus(``alpha_n``). ``eps``, just below 0, is the largest
    number whose exponential is taken, so that xielu(0) is not quite 0, as in ``transformers``' ``XIELUActivation``.
    """
    above = jax.nn.softplus(alpha_p) * jnp.square(x)
    below = (beta + jax.nn.softplus(alpha_n)) * (jnp.expm1(jnp.minimum(x, eps)) - x)
    return jnp.where(x > 0, above, below) + beta * x
