"""Apertus's forward pass, one layer at a time (Apertus report, arXiv 2509.14233).

Follows ``transformers``' ``models/apertus/modeling_apertus.py``: a norm before each sublayer, q/k norms before the
rotary embedding, an MLP without gate, and an output head that may be the embedding.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models import blocks, prenorm
from models.apertus.config import BETA, EPS, Config
from models.blocks import Attend, Keys, Layer, attention_output, project, rms_norm, rms_scale, rotate, xielu
from models.params import Params, assembled
from models.shapes import Logits, Positions, Resid
from models.trace import Trace


class Block(NamedTuple):
    """The weights of one layer, or of all layers stacked. The last four are those of xIELU, in float32."""

    attention_norm: Float[Array, "*layer d_model"]
    W_Q: Float[Array, "*layer n_heads head_dim d_model"]
    W_K: Float[Array, "*layer n_kv_heads head_dim d_model"]
    W_V: Float[Array, "*layer n_kv_heads head_dim d_model"]
    W_O: Float[Array, "*layer d_model n_heads head_dim"]
    q_norm: Float[Array, "*layer head_dim"]
    k_norm: Float[Array, "*layer head_dim"]
    mlp_norm: Float[Array, "*layer d_model"]
    W_up: Float[Array, "*layer d_mlp d_model"]
    W_down: Float[Array, "*layer d_model d_mlp"]
    alpha_p: Float[Array, "*layer"]
    alpha_n: Float[Array, "*layer"]
    beta: Float[Array, "*layer"]
    eps: Float[Array, "*layer"]


def params(arrays: Mapping[str, Array]) -> Params:
    """Parameters from the arrays of `models.apertus.tensors.tensor_table`; constants that are absent are filled in."""
    constants = {"blocks.beta": BETA, "blocks.eps": EPS}
    filled = {name: jnp.full_like(arrays["blocks.alpha_p"], value) for name, value in constants.items()}
    return assembled({**filled, **arrays}, Block)


def layers(cfg: Config) -> Layer:
    """The window and rotary frequencies of every layer, stacked."""
    return blocks.layers(cfg.windows, [cfg.rope] * cfg.n_layers, cfg.head_dim)


def embed(weights: Params, tokens: Int[Array, "seq"], positions: Positions, cfg: Config) -> Resid:
    """Token embeddings."""
    return weights.W_E[tokens].astype(jnp.float32)


def block(
    resid_pre: Resid, w: Block, layer: Layer, positions: Positions, attend: Attend, cfg: Config
) -> tuple[Trace, Keys]:
    """One layer. ``attend(q, keys)`` gives the per-head result and the pattern.

    Returns every activation (what nobody asks for, XLA never computes) and the new keys.
    """

    def norm(x, gain):
        return rms_norm(x, gain.astype(jnp.float32), cfg.norm_eps)

    x = norm(resid_pre, w.attention_norm)
    q = rotate(norm(project(x, w.W_Q), w.q_norm), positions, layer.inv_freq)
    k = rotate(norm(project(x, w.W_K), w.k_norm), positions, layer.inv_freq)
    keys = Keys(k.swapaxes(0, 1), project(x, w.W_V).swapaxes(0, 1), positions)
    z, pattern = attend(q, keys)
    attn_out = attention_output(z, w.W_O)
    mlp_act = xielu(project(norm(resid_pre + attn_out, w.mlp_norm), w.W_up), w.alpha_p, w.alpha_n, w.beta, w.eps)
    return prenorm.seen(resid_pre, keys, z, pattern, attn_out, mlp_act, w), keys


writers = prenorm.writers


def read_out(weights: Params, part: Resid, resid: Resid, cfg: Config) -> Resid:
    """What the final norm makes of a part of the residual stream ``resid``; parts that add up to it still do."""
    return part * rms_scale(resid, cfg.norm_eps) * weights.final_norm.astype(jnp.float32)


def output_bias(weights: Params) -> Float[Array, "vocab"]:
    """The share of the logits that no part of the residual stream makes: none."""
    return jnp.zeros(len(weights.W_U))


def unembed(weights: Params, resid: Resid, cfg: Config) -> Logits:
    """Final norm and output head."""
    return project(read_out(weights, resid, resid, cfg), weights.W_U)
