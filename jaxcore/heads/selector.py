"""The selector: the first-layer head with the strongest QK circuit, and what else reads and writes where it reads."""

from typing import Any

import numpy as np
import scipy.linalg

from jaxcore.heads import circuits
from jaxcore.heads.circuits import Blocks, Circuits
from jaxcore.heads.naming import Place, complex_numbers, cut, name, ratio, row

Record = dict[str, Any]
RANK = 20
"""Singular vectors on each side that span what the selector reads."""
CLUSTER_RANKS, POLAR_RANKS = (20, 24, 27, 32), (16, 20, 24, 32)
POWERS = tuple(range(-4, 5))
ROUNDS = 300


def of_head(found: Circuits, at: Place) -> Circuits:
    """One head's circuits."""
    return Circuits(circuits.at(found.qk, at), circuits.at(found.ov, at), found.key_bias[at], found.query_bias[at])


def qk_spectrum(blocks: Blocks, found: Circuits, at: Place) -> Record:
    """Is the selector's QK like a shift? Turning directions into others gives complex eigenvalues."""
    head, raw = of_head(found, at), of_head(circuits.circuits(circuits.unweighted(blocks)), at)
    rank = min(RANK, head.qk.core.shape[0])
    left, right = circuits.singular_vectors(head.qk)
    values = np.linalg.eigvals(head.qk.core @ (head.qk.right.T @ head.qk.left))
    return {
        "head": name(at),
        "rank": rank,
        "singular_values": circuits.singular_values(head.qk),
        "eigenvalues": complex_numbers(values),
        "complex_eigenvalue_fraction": ratio(np.abs(values.imag).sum(), np.abs(values).sum()),
        "subspace_overlap": np.linalg.svd(left[:, :rank].T @ right[:, :rank], compute_uv=False),
        "unweighted_qk_singular_values": circuits.singular_values(raw.qk),
        "unweighted_v_singular_values": np.linalg.svd(blocks.W_V[at], compute_uv=False),
        "ov_singular_values": circuits.singular_values(head.ov),
    }


def read_basis(head: Circuits) -> np.ndarray:
    """An orthonormal basis of the leading left and right singular vectors of a head's QK."""
    left, right = circuits.singular_vectors(head.qk)
    rank = min(RANK, left.shape[1])
    return scipy.linalg.orth(np.concatenate([left[:, :rank], right[:, :rank]], axis=1))


def subspace_overlaps(blocks: Blocks, found: Circuits, at: Place) -> Record:
    """How much of what each head of the layer reads and writes lies where the selector reads."""
    raw = circuits.unweighted(blocks)
    weighted = _energies(blocks, read_basis(of_head(found, at)), at[0])
    plain = _energies(raw, read_basis(of_head(circuits.circuits(raw), at)), at[0])
    return {"head": name(at), "rank": min(RANK, blocks.W_Q.shape[2]), "gain_weighted": weighted, "unweighted": plain}


def _energies(blocks: Blocks, basis: np.ndarray, layer: int) -> list[Record]:
    gain = blocks.ln1_w[layer]
    return [
        row(
            (layer, head),
            query_read_fraction=energy(blocks.W_Q[layer, head] * gain, basis),
            key_read_fraction=energy(blocks.W_K[layer, head] * gain, basis),
            value_read_fraction=energy(blocks.W_V[layer, head] * gain, basis),
            output_write_fraction=energy(blocks.W_O[layer, head].T, basis),
        )
        for head in range(blocks.W_Q.shape[1])
    ]


def energy(rows: np.ndarray, basis: np.ndarray) -> float | None:
    """Share of the rows' squared norm inside a basis."""
    return ratio(np.sum((rows @ basis) ** 2), np.sum(rows**2))


def row_clustering(blocks: Blocks, found: Circuits, at: Place) -> Record:
    """Do the MLP's units fall into groups, seen through what the selector writes? (Rousseeuw 1987 for silhouettes.)"""
    head = of_head(found, at)
    rows = (blocks.W_up[at[0]] * blocks.ln2_w[at[0]]) @ circuits.dense(head.ov)
    rows = rows - rows.mean(axis=0)
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    rank = head.ov.core.shape[0]
    first = int(np.argmax(np.linalg.norm(rows, axis=1)))
    listed = []
    for r in cut(CLUSTER_RANKS, rank):
        points = rows @ vt[:r].T / np.sqrt(np.where(s[:r] > 0, s[:r], 1))
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        points = points / np.where(lengths > 0, lengths, 1)
        labels = k_means(points, min(r + 1, len(points)), first)
        sizes = np.bincount(labels, minlength=r + 1)
        cohesion = sum(np.linalg.norm(points[labels == c].sum(axis=0)) for c in range(r + 1)) / len(points)
        listed.append(
            {
                "rank": r,
                "clusters": r + 1,
                "silhouette": silhouette(points, labels),
                "mean_cohesion": cohesion,
                "cluster_sizes": np.sort(sizes)[::-1],
            }
        )
    return {"head": name(at), "singular_values": s[:rank], "clusterings": listed}


def k_means(points: np.ndarray, clusters: int, first: int) -> np.ndarray:
    """Labels after Lloyd's rounds, from the point ``first`` and then always the farthest from those chosen."""
    chosen = [first]
    nearest = _squared_distances(points, points[[first]])[:, 0]
    while len(chosen) < clusters:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, _squared_distances(points, points[chosen[-1:]])[:, 0])
    centres, labels = points[chosen], np.full(len(points), -1)
    for _ in range(ROUNDS):
        now = np.argmin(_squared_distances(points, centres), axis=1)
        if (now == labels).all():
            break
        labels = now
        counts = np.bincount(labels, minlength=clusters)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, points)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return labels


def _squared_distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)


def silhouette(points: np.ndarray, labels: np.ndarray) -> float | None:
    """Mean over points of (b - a) / max(a, b), a and b the mean distances to the own and the nearest other cluster."""
    present = np.unique(labels)
    if len(present) < 2:
        return None
    member = (labels[:, None] == present[None]).astype(float)
    totals = np.concatenate([np.sqrt(_squared_distances(part, points)) @ member for part in _parts(points)])
    sizes, own = member.sum(axis=0), member.astype(bool)
    within = totals[own] / np.maximum(sizes[np.argmax(own, axis=1)] - 1, 1)
    outside = np.where(own, np.inf, totals / sizes).min(axis=1)
    largest = np.maximum(within, outside)
    alone = sizes[np.argmax(own, axis=1)] == 1
    return float(np.mean(np.where(alone | (largest == 0), 0, (outside - within) / np.where(largest == 0, 1, largest))))


def _parts(points: np.ndarray, size: int = 256) -> list[np.ndarray]:
    return [points[start : start + size] for start in range(0, len(points), size)]


def polar_alignments(blocks: Blocks, found: Circuits, at: Place) -> Record:
    """Do other heads look along powers of the turn that the selector makes?"""
    layer, gain = at[0], blocks.ln1_w[at[0]]
    reads = np.concatenate([blocks.W_Q[at] * gain, blocks.W_K[at] * gain])
    _, s, vt = np.linalg.svd(reads, full_matrices=False)
    others = [(layer, head) for head in range(blocks.W_Q.shape[1]) if head != at[1]]
    circuits_of = {other: circuits.dense(of_head(found, other).qk) for other in (at, *others)}
    listed = []
    for r in cut(POLAR_RANKS, blocks.W_Q.shape[2]):
        if s[r - 1] == 0:
            continue
        Z = vt[:r].T / s[:r]
        whitened = Z.T @ circuits_of[at] @ Z
        turn, _ = scipy.linalg.polar(whitened)
        turns = [np.linalg.matrix_power(turn if power >= 0 else turn.T, abs(power)) for power in POWERS]
        seen = {other: Z.T @ circuits_of[other] @ Z for other in others}
        listed.append(
            {
                "rank": r,
                "whitened_singular_values": np.linalg.svd(whitened, compute_uv=False),
                "alignments": {
                    name(other): [ratio(np.sum(m * t), np.linalg.norm(m) * np.sqrt(r)) for t in turns]
                    for other, m in seen.items()
                },
            }
        )
    return {"selector_head": name(at), "powers": list(POWERS), "ranks": listed}
