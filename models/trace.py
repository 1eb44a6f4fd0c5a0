"""What a caller may ask to see inside a forward pass, and what it may change there."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

ABSENT: Any = None
"""Stands for an activation that was not asked for."""


class Trace(NamedTuple):
    """Activations of every layer, each present only if it was named in ``taps``.

    ``attn_out`` and ``mlp_out`` are what joins the residual stream, after any post-norm, so that
    ``resid_mid = resid_pre + attn_out`` and ``resid_post = resid_mid + mlp_out``. ``head_out`` splits
    ``attn_out`` by head (a post-norm scales all heads of a token alike) and sums to it. ``mlp_act`` are the MLP's
    units after activation and gate. ``attn_norm_scale`` and ``mlp_norm_scale`` are the factors by which post-norms
    scale each token, 1 where there is none: with a family's ``writers``,
    ``mlp_out = mlp_norm_scale * (mlp_act @ W_down.T)``. ``v`` are the values of the tokens. The key axis of
    ``pattern`` is the position in the whole sequence, also while decoding with a cache.
    """

    resid_pre: Float[Array, "*layer seq d_model"] = ABSENT
    resid_mid: Float[Array, "*layer seq d_model"] = ABSENT
    resid_post: Float[Array, "*layer seq d_model"] = ABSENT
    pattern: Float[Array, "*layer n_heads query key"] = ABSENT
    v: Float[Array, "*layer n_kv_heads seq head_dim"] = ABSENT
    z: Float[Array, "*layer seq n_heads head_dim"] = ABSENT
    head_out: Float[Array, "*layer seq n_heads d_model"] = ABSENT
    attn_norm_scale: Float[Array, "*layer seq"] = ABSENT
    attn_out: Float[Array, "*layer seq d_model"] = ABSENT
    mlp_act: Float[Array, "*layer seq d_mlp"] = ABSENT
    mlp_norm_scale: Float[Array, "*layer seq"] = ABSENT
    mlp_out: Float[Array, "*layer seq d_model"] = ABSENT


TAPS = frozenset(Trace._fields)


class Writers(NamedTuple):
    """How a layer writes to the residual stream from ``z`` and ``mlp_act``, gains of post-norms folded in."""

    W_O: Float[Array, "d_model n_heads head_dim"]
    W_down: Float[Array, "d_model d_mlp"]


class Edits(NamedTuple):
    """Changes to a forward pass: what each head and each MLP gives is scaled, then added to.

    A head's ``z`` becomes ``head_scale * z + head_add`` and what the MLP adds to the residual stream (after any
    post-norm, which would undo a scale) ``mlp_scale * mlp_out + mlp_add``. Additions have a row for every token, or
    one for all.
    """

    head_scale: Float[Array, "*layer n_heads"]
    head_add: Float[Array, "*layer rows n_heads head_dim"]
    mlp_scale: Float[Array, "*layer"]
    mlp_add: Float[Array, "*layer rows d_model"]


def no_edits(cfg: Any, rows: int = 1) -> Edits:
    """Edits that change nothing."""
    layers, heads = cfg.n_layers, cfg.n_heads
    return Edits(
        head_scale=jnp.ones((layers, heads)),
        head_add=jnp.zeros((layers, rows, heads, cfg.head_dim)),
        mlp_scale=jnp.ones(layers),
        mlp_add=jnp.zeros((layers, rows, cfg.d_model)),
    )
