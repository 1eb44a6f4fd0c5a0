"""Heads as products of matrices (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits), in float64.

A head's QK circuit is ``A = W_Q^T W_K`` and its OV circuit ``B = W_O W_V``, both ``[d_model d_model]`` of rank at most
``head_dim``; *gain-weighted* ones read through the gain of the norm before them. They are kept as factors with
orthonormal outsides, so that norms, spectra, traces and products cost head-size matrices and lose no digits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxcore.checkpoint.store import Checkpoint, names_of, resolve, stacked
from jaxcore.families import CHAR


class Blocks(NamedTuple):
    """The weights of all blocks."""

    ln1_w: Float[np.ndarray, "layer d_model"]
    ln1_b: Float[np.ndarray, "layer d_model"]
    W_Q: Float[np.ndarray, "layer n_heads head_dim d_model"]
    W_K: Float[np.ndarray, "layer n_heads head_dim d_model"]
    W_V: Float[np.ndarray, "layer n_heads head_dim d_model"]
    W_O: Float[np.ndarray, "layer n_heads d_model head_dim"]
    ln2_w: Float[np.ndarray, "layer d_model"]
    ln2_b: Float[np.ndarray, "layer d_model"]
    W_up: Float[np.ndarray, "layer d_mlp d_model"]
    W_down: Float[np.ndarray, "layer d_model d_mlp"]


class Product(NamedTuple):
    """A square matrix ``left @ core @ right.T`` of low rank; the columns of both sides are orthonormal."""

    left: Float[Array, "*heads d_model rank"]
    core: Float[Array, "*heads rank rank"]
    right: Float[Array, "*heads d_model rank"]


class Circuits(NamedTuple):
    """QK and OV of every head, and the directions that biases add to its scores: ``[layer n_heads ...]``."""

    qk: Product
    ov: Product
    key_bias: Float[Array, "layer n_heads d_model"]
    query_bias: Float[Array, "layer n_heads d_model"]


def read_blocks(checkpoint: Checkpoint) -> Blocks:
    """The blocks of a character transformer. Raises `CheckpointError` for tensors that are missing or misshapen."""
    cfg = CHAR.config(checkpoint.config)
    table = CHAR.tensors(cfg)
    resolve(checkpoint, table, cfg.n_layers)
    arrays = {}
    for field in Blocks._fields:
        spec = table[f"blocks.{field}"]
        arrays[field] = stacked(checkpoint, names_of(spec, cfg.n_layers)).astype(np.float64)
        arrays[field] = arrays[field].reshape(cfg.n_layers, *spec.shape)
    arrays["W_O"] = np.moveaxis(arrays["W_O"], 2, 1)
    return Blocks(**arrays)


def product(left: Float[Array, "d_model rank"], right: Float[Array, "rank d_model"]) -> Product:
    """``left @ right`` in the kept form."""
    outer_left, inner_left = jnp.linalg.qr(left)
    outer_right, inner_right = jnp.linalg.qr(right.T)
    return Product(outer_left, inner_left @ inner_right.T, outer_right)


def circuits(blocks: Blocks) -> Circuits:
    """Gain-weighted circuits of all heads, on the host.

    One computation at a time: XLA on a CPU can wait for itself when decompositions of several overlap.
    """
    return jax.device_get(_circuits(blocks))


@jax.jit
def _circuits(blocks: Blocks) -> Circuits:

    def head(q, k, v, o, gain, bias):
        read_q, read_k, read_v = q * gain, k * gain, v * gain
        key_bias, query_bias = read_k.T @ (q @ bias), read_q.T @ (k @ bias)
        return Circuits(product(read_q.T, read_k), product(o, read_v), key_bias, query_bias)

    over_heads = jax.vmap(head, in_axes=(0, 0, 0, 0, None, None))
    return jax.vmap(over_heads)(blocks.W_Q, blocks.W_K, blocks.W_V, blocks.W_O, blocks.ln1_w, blocks.ln1_b)


def unweighted(blocks: Blocks) -> Blocks:
    """The same blocks as if the norm before attention had gain 1."""
    return blocks._replace(ln1_w=np.ones_like(blocks.ln1_w))


def dense(p: Product) -> Float[Array, "d_model d_model"]:
    return p.left @ p.core @ p.right.T


def norm(p: Product) -> Float[Array, ""]:
    """Frobenius norm."""
    return jnp.linalg.norm(p.core)


def singular_values(p: Product) -> Float[Array, "rank"]:
    return jnp.linalg.svd(p.core, compute_uv=False)


def singular_vectors(p: Product) -> tuple[Float[Array, "d_model rank"], Float[Array, "d_model rank"]]:
    """Left and right singular vectors, in columns, leading first."""
    u, _, vt = jnp.linalg.svd(p.core)
    return p.left @ u, p.right @ vt.T


def trace(p: Product) -> Float[Array, ""]:
    return jnp.sum(p.core * (p.left.T @ p.right))


def inner(p: Product, other: Product) -> Float[Array, ""]:
    """Frobenius inner product."""
    return jnp.sum(p.core * ((p.left.T @ other.left) @ other.core @ (other.right.T @ p.right)))


def chain(p: Product, then: Product) -> Product:
    """``p @ then``."""
    return Product(p.left, p.core @ (p.right.T @ then.left) @ then.core, then.right)


def symmetric_part(p: Product) -> Float[Array, "span span"]:
    """The symmetric part in an orthonormal basis of all that the product reads and writes: same norm and spectrum."""
    basis, _ = jnp.linalg.qr(jnp.concatenate([p.left, p.right], axis=1))
    small = (basis.T @ p.left) @ p.core @ (p.right.T @ basis)
    return (small + small.T) / 2


def eigenvalue_masses(symmetric: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums of the positive and of the negated negative eigenvalues."""
    values = jnp.linalg.eigvalsh(symmetric)
    return jnp.sum(jnp.maximum(values, 0)), jnp.sum(jnp.maximum(-values, 0))


def over_heads(f):
    """A function of one head's product lifted to all heads of all layers, and compiled."""
    return jax.jit(jax.vmap(jax.vmap(f)))
