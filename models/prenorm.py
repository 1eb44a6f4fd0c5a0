"""What layers have in common whose sublayers write to the residual stream as they are, without a norm after them."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from models.blocks import Keys, by_head, project
from models.shapes import Resid
from models.trace import Trace, Writers


def seen(
    resid_pre: Resid,
    keys: Keys,
    z: Float[Array, "seq n_heads head_dim"],
    pattern: Any,
    attn_out: Resid,
    mlp_act: Float[Array, "seq d_mlp"],
    w: Any,
) -> Trace:
    """Every activation of a layer with weights ``w``."""
    resid_mid, mlp_out, unscaled = resid_pre + attn_out, project(mlp_act, w.W_down), jnp.ones(len(resid_pre))
    return Trace(
        resid_pre=resid_pre,
        resid_mid=resid_mid,
        resid_post=resid_mid + mlp_out,
        pattern=pattern,
        v=keys.v,
        z=z,
        head_out=by_head(z, w.W_O),
        attn_norm_scale=unscaled,
        attn_out=attn_out,
        mlp_act=mlp_act,
        mlp_norm_scale=unscaled,
        mlp_out=mlp_out,
    )


def writers(w: Any) -> Writers:
    """The writers of one layer."""
    return Writers(w.W_O.astype(jnp.float32), w.W_down.astype(jnp.float32))
