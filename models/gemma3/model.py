"""Gemma 3's forward pass, one layer at a time (Gemma 3 report, arXiv 2503.19786).

Follows ``transformers``' ``models/gemma3/modeling_gemma3.py`` and google-deepmind/gemma's ``gm/nn``: norms
before and after each sublayer with gain 1 + weight, q/k norms before the rotary embedding, GeGLU,
embeddings scaled by sqrt(d_model).
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models import blocks
from models.blocks import Attend, Keys, Layer, attention_output, by_head, geglu, project, rms_norm, rms_scale, rotate
from models.gemma3.config import Config
from models.params import Params, assembled
from models.shapes import Logits, Positions, Resid
from models.trace import Trace, Writers


class Block(NamedTuple):
    """The weights of one layer, or of all layers stacked. Norms are stored as weights: the gain is 1 + weight."""

    attention_norm: Float[Array, "*layer d_model"]
    W_Q: Float[Array, "*layer n_heads head_dim d_model"]
    W_K: Float[Array, "*layer n_kv_heads head_dim d_model"]
    W_V: Float[Array, "*layer n_kv_heads head_dim d_model"]
    W_O: Float[Array, "*layer d_model n_heads head_dim"]
    q_norm: Float[Array, "*layer head_dim"]
    k_norm: Float[Array, "*layer head_dim"]
    post_attention_norm: Float[Array, "*layer d_model"]
    mlp_norm: Float[Array, "*layer d_model"]
    W_gate: Float[Array, "*layer d_mlp d_model"]
    W_up: Float[Array, "*layer d_mlp d_model"]
    W_down: Float[Array, "*layer d_model d_mlp"]
    post_mlp_norm: Float[Array, "*layer d_model"]


def params(arrays: Mapping[str, Array]) -> Params:
    """Parameters from the arrays of `models.gemma3.tensors.tensor_table`, those of layers stacked."""
    return assembled(arrays, Block)


def gain(weight: Float[Array, "*width"]) -> Float[Array, "*width"]:
    """What a norm multiplies by: Gemma stores it less 1."""
    return 1 + weight.astype(jnp.float32)


def layers(cfg: Config) -> Layer:
    """The window and rotary frequencies of every layer, stacked."""
    ropes = [cfg.rope_global if wide else cfg.rope_local for wide in cfg.is_global]
    return blocks.layers(cfg.windows, ropes, cfg.head_dim)


def embed(weights: Params, tokens: Int[Array, "seq"], positions: Positions, cfg: Config) -> Resid:
    """Token embeddings times sqrt(d_model), the factor rounded to the embedding's dtype as in training."""
    scale = jnp.asarray(cfg.d_model**0.5, weights.W_E.dtype).astype(jnp.float32)
    return weights.W_E[tokens].astype(jnp.float32) * scale


def block(
    resid_pre: Resid, w: Block, layer: Layer, positions: Positions, attend: Attend, cfg: Config
) -> tuple[Trace, Keys]:
    """One layer. ``attend(q, keys)`` gives the per-head result and the pattern.

    Returns every activation (what nobody asks for, XLA never computes) and the new keys.
    """

    def norm(x, weight):
        return rms_norm(x, gain(weight), cfg.norm_eps)

    x = norm(resid_pre, w.attention_norm)
    q = rotate(norm(project(x, w.W_Q), w.q_norm), positions, layer.inv_freq)
    k = rotate(norm(project(x, w.W_K), w.k_norm), positions, layer.inv_freq)
    keys = Keys(k.swapaxes(0, 1), project(x, w.W_V).swapaxes(0, 1), positions)
    z, pattern = attend(q, keys)
    written = attention_output(z, w.W_O)
    attn_norm_scale = rms_scale(written, cfg.norm_eps)
    attn_out = written * attn_norm_scale * gain(w.post_attention_norm)
    resid_mid = resid_pre + attn_out

    mlp_act = geglu(norm(resid_mid, w.mlp_norm), w.W_gate, w.W_up)
    written = project(mlp_act, w.W_down)
    mlp_norm_scale = rms_scale(written, cfg.norm_eps)
    mlp_out = written * mlp_norm_scale * gain(w.post_mlp_norm)

    seen = Trace(
        resid_pre=resid_pre,
        resid_mid=resid_mid,
        resid_post=resid_mid + mlp_out,
        pattern=pattern,
        v=keys.v,
        z=z,
        head_out=by_head(z, w.W_O) * (attn_norm_scale * gain(w.post_attention_norm))[:, None, :],
        attn_norm_scale=attn_norm_scale[:, 0],
        attn_out=attn_out,
        mlp_act=mlp_act,
        mlp_norm_scale=mlp_norm_scale[:, 0],
        mlp_out=mlp_out,
    )
    return seen, keys


def writers(w: Block) -> Writers:
    """The writers of one layer."""
    return Writers(
        W_O=w.W_O.astype(jnp.float32) * gain(w.post_attention_norm)[:, None, None],
        W_down=w.W_down.astype(jnp.float32) * gain(w.post_mlp_norm)[:, None],
    )


def read_out(weights: Params, part: Resid, resid: Resid, cfg: Config) -> Resid:
    """What the final norm makes of a part of the residual stream ``resid``; parts that add up to it still do."""
    return part * rms_scale(resid, cfg.norm_eps) * gain(weights.final_norm)


def output_bias(weights: Params) -> Float[Array, "vocab"]:
    """The share of the logits that no part of the residual stream makes: none."""
    return jnp.zeros(len(weights.W_U))


def unembed(weights: Params, resid: Resid, cfg: Config) -> Logits:
    """Final norm and output head."""
    return project(read_out(weights, resid, resid, cfg), weights.W_U)
