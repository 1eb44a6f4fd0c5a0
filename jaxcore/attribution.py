"""Which parts of a model made a logit: direct logit attribution, the tokens behind it, and what parts write.

The final norm scales the whole stream of a token by one factor, so a logit is a sum over what embedding, heads and MLPs
wrote (Elhage et al. 2021). What a part does by way of later layers is not in it; `jaxcore.whatif` measures that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxcore.reading import read, readable
from jaxcore.session import LoadedModel
from models import decode
from models.errors import InputError
from models.shapes import Resid
from models.trace import Trace

TAPS = frozenset(
    {"resid_pre", "head_out", "mlp_out", "z", "pattern", "v", "attn_norm_scale", "mlp_act", "mlp_norm_scale"}
)


class Parts(NamedTuple):
    """Shares of one logit, or of the difference of two; they sum to ``logit``."""

    logit: Float[Array, ""]
    embedding: Float[Array, ""]
    heads: Float[Array, "layer n_heads"]
    mlps: Float[Array, "layer"]
    bias: Float[Array, ""]
    sources: Float[Array, "layer n_heads key"]
    """Each head's share by the token it was read from."""
    units: Float[Array, "layer d_mlp"]
    """Each MLP's share by unit."""


class Promoted(NamedTuple):
    """Tokens whose logits a part raises most, and those it lowers most, descending by size."""

    up_id: Int[Array, "top"]
    up: Float[Array, "top"]
    down_id: Int[Array, "top"]
    down: Float[Array, "top"]


@dataclass(frozen=True)
class Inside:
    """All that attribution needs of one position of a text: its activations, and the values of all tokens."""

    ids: tuple[int, ...]
    position: int
    resid: Resid
    trace: Trace
    logits: np.ndarray


def inside(model: LoadedModel, ids: Sequence[int], position: int) -> Inside:
    """Read a text and keep what led to the prediction after ``position``. Raises `InputError` outside the text."""
    ids = readable(model, ids)
    if not 0 <= position < len(ids):
        raise InputError(f"Position {position} is outside the text of {len(ids):,} tokens.")
    values, found, resid = [], None, None
    for piece in read(model, ids[: position + 1], TAPS, [position]):
        values.append(piece.trace.v)
        if piece.count:
            found = jax.tree.map(lambda x: x[:, :1], piece.trace._replace(pattern=None, v=None))
            found, resid = found._replace(pattern=piece.trace.pattern[:, :, :1]), piece.resid[:1]
    assert found is not None  # the position is in one of the pieces
    assert resid is not None
    v = jnp.concatenate(values, axis=2)
    keys = position + 1
    trace = found._replace(v=v[:, :, :keys], pattern=found.pattern[..., :keys])
    logits = np.asarray(decode.FAMILIES[model.config.family].unembed(model.params, resid, model.config)[0])
    return Inside(tuple(ids), position, resid, trace, logits)


@partial(jax.jit, static_argnames=("cfg",))
def _parts(params: Any, resid: Resid, trace: Trace, token: Int[Array, ""], weight: Float[Array, ""], *, cfg: Any):
    """Shares of the logit of ``token`` times ``weight``."""
    family = decode.FAMILIES[cfg.family]
    reader = params.W_U[token].astype(jnp.float32) * weight

    def logit_of(part):
        return family.read_out(params, part, resid, cfg)[0] @ reader

    _, back = jax.vjp(logit_of, resid)
    direction = back(jnp.ones(()))[0][0]  # what one unit of a part along each coordinate adds: parts enter linearly

    def layer(_, scanned):
        block, trace = scanned
        writers = family.writers(block)
        to_z = jnp.einsum("mhd,m->hd", writers.W_O, direction) * trace.attn_norm_scale[0]
        values = jnp.repeat(trace.v, cfg.n_heads // cfg.n_kv_heads, axis=0)
        sources = trace.pattern[:, 0] * jnp.einsum("hkd,hd->hk", values, to_z, precision="highest")
        units = trace.mlp_act[0] * (direction @ writers.W_down) * trace.mlp_norm_scale[0]
        return None, (trace.head_out[0] @ direction, trace.mlp_out[0] @ direction, sources, units)

    _, (heads, mlps, sources, units) = lax.scan(layer, None, (params.blocks, trace))
    bias = family.output_bias(params)[token] * weight
    embedding = trace.resid_pre[0, 0] @ direction
    return Parts(logit_of(resid) + bias, embedding, heads, mlps, bias, sources, units)


def attribution(model: LoadedModel, found: Inside, token: int, against: int | None = None) -> Parts:
    """Shares of a token's logit, or with ``against`` of its lead over another token's, on the host."""
    for name in (token, *([] if against is None else [against])):
        if not 0 <= name < model.config.vocab:
            raise InputError(f"Token id {name} is outside the vocabulary of {model.config.vocab:,} tokens.")
    one = _parts(model.params, found.resid, found.trace, jnp.int32(token), jnp.float32(1), cfg=model.config)
    if against is not None:
        other = _parts(model.params, found.resid, found.trace, jnp.int32(against), jnp.float32(-1), cfg=model.config)
        one = jax.tree.map(jnp.add, one, other)
    return jax.device_get(one)


@partial(jax.jit, static_argnames=("cfg", "top"))
def _promoted(params: Any, part: Float[Array, "d_model"], resid: Resid, *, cfg: Any, top: int) -> Promoted:
    family = decode.FAMILIES[cfg.family]
    changes = (family.read_out(params, part[None], resid, cfg) @ params.W_U.T.astype(jnp.float32))[0]
    up, up_id = lax.top_k(changes, top)
    down, down_id = lax.top_k(-changes, top)
    return Promoted(up_id, up, down_id, -down)


def head_write(model: LoadedModel, found: Inside, layer: int, head: int, top: int = 10) -> Promoted:
    """What a head writes at the position, in terms of the vocabulary."""
    return _write(model, found, found.trace.head_out[layer, 0, head], top)


def mlp_write(model: LoadedModel, found: Inside, layer: int, top: int = 10) -> Promoted:
    """The same of an MLP."""
    return _write(model, found, found.trace.mlp_out[layer, 0], top)


def unit_write(model: LoadedModel, found: Inside, layer: int, unit: int, top: int = 10) -> Promoted:
    """The same of one unit of an MLP."""
    block = jax.tree.map(lambda x: x[layer], model.params.blocks)
    column = decode.FAMILIES[model.config.family].writers(block).W_down[:, unit]
    scale = found.trace.mlp_act[layer, 0, unit] * found.trace.mlp_norm_scale[layer, 0]
    return _write(model, found, column * scale, top)


def _write(model: LoadedModel, found: Inside, part: Float[Array, "d_model"], top: int) -> Promoted:
    top = min(top, model.config.vocab)
    return jax.device_get(_promoted(model.params, part, found.resid, cfg=model.config, top=top))
