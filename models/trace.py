"""What a caller may ask to see inside a forward pass."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Trace(NamedTuple):
    """Activations of every layer, each present only if it was named in ``taps``.

    ``attn_out`` and ``mlp_out`` are what joins the residual stream, after any post-norm, so that
    ``resid_mid = resid_pre + attn_out`` and ``resid_post = resid_mid + mlp_out``. ``head_out`` splits
    ``attn_out`` by head (a post-norm scales all heads of a token alike) and sums to it. The key axis of
    ``pattern`` is the position in the whole sequence, also while decoding with a cache.
    """

    resid_pre: Float[Array, "*layer seq d_model"] | None = None
    resid_mid: Float[Array, "*layer seq d_model"] | None = None
    resid_post: Float[Array, "*layer seq d_model"] | None = None
    pattern: Float[Array, "*layer n_heads query key"] | None = None
    z: Float[Array, "*layer seq n_heads head_dim"] | None = None
    head_out: Float[Array, "*layer seq n_heads d_model"] | None = None
    attn_out: Float[Array, "*layer seq d_model"] | None = None
    mlp_out: Float[Array, "*layer seq d_model"] | None = None


TAPS = frozenset(Trace._fields)
