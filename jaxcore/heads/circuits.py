"""Heads as products of matrices (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits), in float64.

A head's QK circuit is ``A = W_Q^T W_K`` and its OV circuit ``B = W_O W_V``, both ``[d_model d_model]`` of rank at most
``head_dim``; *gain-weighted* ones read through the gain of the norm before them. They are kept as factors with
orthonormal outsides, so that norms, spectra, traces and products cost head-size matrices and lose no digits. All
functions take stacks of products, one a head, at once; decompositions are LAPACK's.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

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

    left: Float[np.ndarray, "*heads d_model rank"]
    core: Float[np.ndarray, "*heads rank rank"]
    right: Float[np.ndarray, "*heads d_model rank"]


class Circuits(NamedTuple):
    """QK and OV of every head, and the directions that biases add to its scores: ``[layer n_heads ...]``."""

    qk: Product
    ov: Product
    key_bias: Float[np.ndarray, "layer n_heads d_model"]
    query_bias: Float[np.ndarray, "layer n_heads d_model"]


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


def transposed(matrices: np.ndarray) -> np.ndarray:
    """Each matrix of a stack."""
    return np.swapaxes(matrices, -1, -2)


def product(left: Float[np.ndarray, "*heads d_model rank"], right: Float[np.ndarray, "*heads rank d_model"]) -> Product:
    """``left @ right`` in the kept form."""
    outer_left, inner_left = np.linalg.qr(left)
    outer_right, inner_right = np.linalg.qr(transposed(right))
    return Product(outer_left, inner_left @ transposed(inner_right), outer_right)


def circuits(blocks: Blocks) -> Circuits:
    """Gain-weighted circuits of all heads."""
    gain, bias = blocks.ln1_w[:, None, None], blocks.ln1_b[:, None, :, None]
    read_q, read_k, read_v = blocks.W_Q * gain, blocks.W_K * gain, blocks.W_V * gain
    return Circuits(
        qk=product(transposed(read_q), read_k),
        ov=product(blocks.W_O, read_v),
        key_bias=(transposed(read_k) @ (blocks.W_Q @ bias))[..., 0],
        query_bias=(transposed(read_q) @ (blocks.W_K @ bias))[..., 0],
    )


def unweighted(blocks: Blocks) -> Blocks:
    """The same blocks as if the norm before attention had gain 1."""
    return blocks._replace(ln1_w=np.ones_like(blocks.ln1_w))


def at(p: Product, index: Any) -> Product:
    """A part of a stack of products."""
    return Product(*(x[index] for x in p))


def dense(p: Product) -> Float[np.ndarray, "*heads d_model d_model"]:
    return p.left @ p.core @ transposed(p.right)


def norm(p: Product) -> Float[np.ndarray, "*heads"]:
    """Frobenius norm."""
    return np.linalg.norm(p.core, axis=(-2, -1))


def singular_values(p: Product) -> Float[np.ndarray, "*heads rank"]:
    return np.linalg.svd(p.core, compute_uv=False)


def singular_vectors(p: Product) -> tuple[np.ndarray, np.ndarray]:
    """Left and right singular vectors, in columns, leading first: ``[*heads d_model rank]``."""
    u, _, vt = np.linalg.svd(p.core)
    return p.left @ u, p.right @ transposed(vt)


def trace(p: Product) -> Float[np.ndarray, "*heads"]:
    return np.sum(p.core * (transposed(p.left) @ p.right), axis=(-2, -1))


def inner(p: Product, other: Product) -> Float[np.ndarray, "*heads"]:
    """Frobenius inner product."""
    across = (transposed(p.left) @ other.left) @ other.core @ (transposed(other.right) @ p.right)
    return np.sum(p.core * across, axis=(-2, -1))


def chain(p: Product, then: Product) -> Product:
    """``p @ then``."""
    return Product(p.left, p.core @ (transposed(p.right) @ then.left) @ then.core, then.right)


def symmetric_part(p: Product) -> Float[np.ndarray, "*heads span span"]:
    """The symmetric part in an orthonormal basis of all that the product reads and writes: same norm and spectrum."""
    basis, _ = np.linalg.qr(np.concatenate([p.left, p.right], axis=-1))
    small = (transposed(basis) @ p.left) @ p.core @ (transposed(p.right) @ basis)
    return (small + transposed(small)) / 2


def eigenvalue_masses(symmetric: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the positive and of the negated negative eigenvalues."""
    values = np.linalg.eigvalsh(symmetric)
    return np.maximum(values, 0).sum(axis=-1), np.maximum(-values, 0).sum(axis=-1)
