"""Tensors and heads one by one: norms, spectra, traces, biases, eigenvalues."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcore.checkpoint.store import Checkpoint, read
from jaxcore.heads import circuits
from jaxcore.heads.circuits import Blocks, Circuits, Product, over_heads
from jaxcore.heads.naming import places, ratio, row

Record = dict[str, Any]
TOP = 8


def tensor_stats(checkpoint: Checkpoint) -> dict[str, Record]:
    """Of every tensor shape, range, mean, population deviation and norm; of matrices also the leading spectrum."""
    found = {}
    for stored in checkpoint.tensors:
        array = read(checkpoint, stored).astype(np.float64)
        stats = found[_file_name(stored)] = {
            "shape": list(array.shape),
            "min": array.min(),
            "mean": array.mean(),
            "max": array.max(),
            "std": array.std(),
            "frobenius_norm": np.linalg.norm(array),
        }
        if array.ndim == 2:
            s = np.linalg.svd(array, compute_uv=False)
            stats |= {"top_singular_values": s[:TOP], "stable_rank": ratio(np.sum(s**2), s[0] ** 2)}
    return found


def mlp_spectra(blocks: Blocks) -> dict[str, np.ndarray]:
    """All singular values of the MLP matrices, by the names that files give them."""
    spectra = {"W_fc": jax.device_get(_spectra(blocks.W_up)), "W_proj": jax.device_get(_spectra(blocks.W_down))}
    return {f"{role}.{i}": spectra[role][i] for i in range(len(blocks.W_up)) for role in spectra}


@jax.jit
def _spectra(matrices):
    return jax.vmap(lambda m: jnp.linalg.svd(m, compute_uv=False))(matrices)


def _file_name(canonical: str) -> str:
    """``layers.0.W_q`` -> ``W_q.0``."""
    parts = canonical.split(".")
    return f"{parts[2]}.{parts[1]}" if parts[0] == "layers" else canonical


@over_heads
def _of_product(p: Product):
    symmetric = circuits.symmetric_part(p)
    return {
        "norm": circuits.norm(p),
        "singular_values": circuits.singular_values(p),
        "trace": circuits.trace(p),
        "symmetric_norm": jnp.linalg.norm(symmetric),
        "masses": circuits.eigenvalue_masses(symmetric),
    }


def head_table(blocks: Blocks) -> list[Record]:
    """Heads without the gain of the norm before them."""
    raw = circuits.circuits(circuits.unweighted(blocks))
    qk, ov = (jax.device_get(_of_product(side)) for side in (raw.qk, raw.ov))
    eigenvalues = np.linalg.eigvals(blocks.W_V @ blocks.W_O).real
    return [
        row(
            at,
            qk_frobenius_norm=qk["norm"][at],
            qk_top_singular_values=qk["singular_values"][at][:4],
            qk_top1_energy=ratio(qk["singular_values"][at][0] ** 2, qk["norm"][at] ** 2),
            qk_symmetric_fraction=ratio(qk["symmetric_norm"][at], qk["norm"][at]),
            qk_trace=qk["trace"][at],
            ov_frobenius_norm=ov["norm"][at],
            ov_top_singular_values=ov["singular_values"][at][:4],
            ov_trace=ov["trace"][at],
            ov_eigenvalue_real_max=eigenvalues[at].max(),
            ov_eigenvalue_real_min=eigenvalues[at].min(),
        )
        for at in places(qk["norm"].shape)
    ]


def gain_weighted_heads(found: Circuits) -> list[Record]:
    """Heads as they read through that gain, with the directions that its bias adds."""
    qk, ov = (jax.device_get(_of_product(side)) for side in (found.qk, found.ov))
    keys, queries = np.asarray(found.key_bias), np.asarray(found.query_bias)
    return [
        row(
            at,
            qk_frobenius_norm=qk["norm"][at],
            qk_top_singular_values=qk["singular_values"][at][:6],
            qk_trace=qk["trace"][at],
            ov_frobenius_norm=ov["norm"][at],
            key_bias_norm=np.linalg.norm(keys[at]),
            query_bias_norm=np.linalg.norm(queries[at]),
            key_bias_direction=keys[at],
            query_bias_direction=queries[at],
        )
        for at in places(qk["norm"].shape)
    ]


def symmetric_eigenvalue_masses(found: Circuits) -> list[Record]:
    """How far each head's scores favour a likeness of query and key (positive) or its opposite."""
    positive, negative = jax.device_get(_of_product(found.qk)["masses"])
    return [
        row(
            at,
            positive_eigenvalue_mass=positive[at],
            negative_eigenvalue_mass=negative[at],
            signed_mass_fraction=ratio(positive[at] - negative[at], positive[at] + negative[at]),
        )
        for at in places(positive.shape)
    ]


def head_cosines(found: Circuits) -> Record:
    """Frobenius cosines between the first layer's heads."""
    ov, qk = (_cosines(jax.tree.map(lambda x: x[0], side)) for side in (found.ov, found.qk))
    return {"layer": 0, "ov_cosine": ov, "qk_cosine": qk}


def _cosines(heads: Product) -> list[list[float | None]]:
    inner = np.asarray(_inner_products(heads))
    norms = np.linalg.norm(heads.core, axis=(1, 2))
    return [[ratio(inner[i, j], norms[i] * norms[j]) for j in range(len(inner))] for i in range(len(inner))]


@jax.jit
def _inner_products(heads: Product):
    each = jax.vmap(circuits.inner, in_axes=(None, 0))
    return jax.vmap(each, in_axes=(0, None))(heads, heads)
