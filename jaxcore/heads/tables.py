"""Tensors and heads one by one: norms, spectra, traces, biases, eigenvalues."""

from typing import Any

import numpy as np

from jaxcore.checkpoint.store import Checkpoint, read
from jaxcore.heads import circuits
from jaxcore.heads.circuits import Blocks, Circuits, Product
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
    spectra = {
        "W_fc": np.linalg.svd(blocks.W_up, compute_uv=False),
        "W_proj": np.linalg.svd(blocks.W_down, compute_uv=False),
    }
    return {f"{role}.{i}": spectra[role][i] for i in range(len(blocks.W_up)) for role in spectra}


def _file_name(canonical: str) -> str:
    """``layers.0.W_q`` -> ``W_q.0``."""
    parts = canonical.split(".")
    return f"{parts[2]}.{parts[1]}" if parts[0] == "layers" else canonical


def _of_product(p: Product) -> dict[str, Any]:
    symmetric = circuits.symmetric_part(p)
    return {
        "norm": circuits.norm(p),
        "singular_values": circuits.singular_values(p),
        "trace": circuits.trace(p),
        "symmetric_norm": np.linalg.norm(symmetric, axis=(-2, -1)),
        "masses": circuits.eigenvalue_masses(symmetric),
    }


def head_table(blocks: Blocks) -> list[Record]:
    """Heads without the gain of the norm before them."""
    raw = circuits.circuits(circuits.unweighted(blocks))
    qk, ov = (_of_product(side) for side in (raw.qk, raw.ov))
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
    qk, ov = (_of_product(side) for side in (found.qk, found.ov))
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
    positive, negative = _of_product(found.qk)["masses"]
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
    ov, qk = (_cosines(circuits.at(side, 0)) for side in (found.ov, found.qk))
    return {"layer": 0, "ov_cosine": ov, "qk_cosine": qk}


def _cosines(heads: Product) -> list[list[float | None]]:
    inner = circuits.inner(circuits.at(heads, (slice(None), None)), circuits.at(heads, None))
    norms = np.linalg.norm(heads.core, axis=(1, 2))
    return [[ratio(inner[i, j], norms[i] * norms[j]) for j in range(len(inner))] for i in range(len(inner))]
