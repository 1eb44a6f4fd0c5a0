"""The character transformer's forward pass, one layer at a time.

GPT-2's block (Radford et al. 2019) without biases in its matrices: LayerNorm before each sublayer, learned
positions, a ReLU MLP, an untied output layer.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models import prenorm
from models.blocks import Attend, Keys, attention_output, layer_norm, project, rms_scale
from models.char.config import Config
from models.shapes import Logits, Positions, Resid
from models.trace import Trace


class Block(NamedTuple):
    """The weights of one layer, or of all layers stacked."""

    ln1_w: Float[Array, "*layer d_model"]
    ln1_b: Float[Array, "*layer d_model"]
    W_Q: Float[Array, "*layer n_heads head_dim d_model"]
    W_K: Float[Array, "*layer n_heads head_dim d_model"]
    W_V: Float[Array, "*layer n_heads head_dim d_model"]
    W_O: Float[Array, "*layer d_model n_heads head_dim"]
    ln2_w: Float[Array, "*layer d_model"]
    ln2_b: Float[Array, "*layer d_model"]
    W_up: Float[Array, "*layer d_mlp d_model"]
    W_down: Float[Array, "*layer d_model d_mlp"]


class Params(NamedTuple):
    """All weights of a model."""

    W_E: Float[Array, "vocab d_model"]
    W_pos: Float[Array, "context d_model"]
    blocks: Block
    lnf_w: Float[Array, "d_model"]
    lnf_b: Float[Array, "d_model"]
    W_U: Float[Array, "vocab d_model"]
    b_U: Float[Array, "vocab"]


def params(arrays: Mapping[str, Array]) -> Params:
    """Parameters from the arrays of `models.char.tensors.tensor_table`, those of layers stacked."""
    blocks = Block(**{field: arrays[f"blocks.{field}"] for field in Block._fields})
    return Params(blocks=blocks, **{field: arrays[field] for field in Params._fields if field != "blocks"})


class Layer(NamedTuple):
    """What differs between layers besides their weights: nothing but the form that decoding asks for."""

    window: Int[Array, "*layer"]


def layers(cfg: Config) -> Layer:
    """The window of every layer: the whole context."""
    return Layer(jnp.array(cfg.windows, jnp.int32))


def embed(weights: Params, tokens: Int[Array, "seq"], positions: Positions, cfg: Config) -> Resid:
    """Embeddings of the characters and of their positions."""
    return weights.W_E[tokens].astype(jnp.float32) + weights.W_pos[positions].astype(jnp.float32)


def block(
    resid_pre: Resid, w: Block, layer: Layer, positions: Positions, attend: Attend, cfg: Config
) -> tuple[Trace, Keys]:
    """One layer. ``attend(q, keys)`` gives the per-head result and the pattern.

    Returns every activation (what nobody asks for, XLA never computes) and the new keys.
    """
    x = layer_norm(resid_pre, w.ln1_w, w.ln1_b, cfg.norm_eps)
    keys = Keys(project(x, w.W_K).swapaxes(0, 1), project(x, w.W_V).swapaxes(0, 1), positions)
    z, pattern = attend(project(x, w.W_Q), keys)
    attn_out = attention_output(z, w.W_O)
    x = layer_norm(resid_pre + attn_out, w.ln2_w, w.ln2_b, cfg.norm_eps)
    mlp_act = jax.nn.relu(project(x, w.W_up))
    return prenorm.seen(resid_pre, keys, z, pattern, attn_out, mlp_act, w), keys


writers = prenorm.writers


def read_out(weights: Params, part: Resid, resid: Resid, cfg: Config) -> Resid:
    """What the final norm's gain makes of a part of the residual stream ``resid``; parts that add up to it still do."""
    scale = rms_scale(resid - jnp.mean(resid, axis=-1, keepdims=True), cfg.norm_eps)
    return (part - jnp.mean(part, axis=-1, keepdims=True)) * scale * weights.lnf_w


def output_bias(weights: Params) -> Float[Array, "vocab"]:
    """The share of the logits that no part of the residual stream makes: the biases of final norm and output layer."""
    return project(weights.lnf_b, weights.W_U) + weights.b_U


def unembed(weights: Params, resid: Resid, cfg: Config) -> Logits:
    """Final norm and output layer."""
    return project(layer_norm(resid, weights.lnf_w, weights.lnf_b, cfg.norm_eps), weights.W_U) + weights.b_U
