"""The head study of a character transformer in plain numpy: every matrix whole, every head in a loop."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg as la
from sklearn.metrics import silhouette_samples

norm = np.linalg.norm


def svd(m):
    return np.linalg.svd(m, full_matrices=False)


def ratio(a, b) -> Any:
    return None if b == 0 else a / b


def masses(m):
    e = la.eigvalsh((m + m.T) / 2)
    return e[e > 0].sum(), -e[e < 0].sum()


def symmetric_fraction(m):
    return ratio(norm((m + m.T) / 2), norm(m))


def energy(rows, basis):
    return ratio(norm(rows @ basis) ** 2, norm(rows) ** 2)


def complex_list(values):
    pairs = sorted(values, key=lambda v: (-abs(v), -v.imag))
    return [{"real": v.real, "imag": v.imag} for v in pairs]


def lloyd(x, k, first):
    chosen = [first]
    while len(chosen) < k:
        near = np.min([((x - x[c]) ** 2).sum(axis=1) for c in chosen], axis=0)
        chosen.append(int(np.argmax(near)))
    centres, labels = x[chosen].copy(), np.full(len(x), -1)
    for _ in range(300):
        now = np.argmin([((x - c) ** 2).sum(axis=1) for c in centres], axis=0)
        if (now == labels).all():
            break
        labels = now
        for c in range(k):
            if (labels == c).any():
                centres[c] = x[labels == c].mean(axis=0)
    return labels


def study(weights: Mapping[str, np.ndarray], heads: int = 6) -> dict[str, Any]:
    """The analyses by name, as the command gives them."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    layers = sum(name.startswith("W_q.") for name in w)
    d = w["W_q.0"].shape[1]
    size = d // heads
    all_heads = [(layer, j) for layer in range(layers) for j in range(heads)]
    later_heads = [at for at in all_heads if at[0] > 0]
    first_heads = [(0, j) for j in range(heads)]
    name = "L{0[0]}H{0[1]}".format
    Q, K, V, W_O, A, B, r, t, raw_A, raw_B = ({} for _ in range(10))
    for at in all_heads:
        layer, j = at
        rows = slice(j * size, (j + 1) * size)
        gain, bias = w[f"ln1_w.{layer}"], w[f"ln1_b.{layer}"]
        q, k, v = (w[f"W_{x}.{layer}"][rows] for x in "qkv")
        W_O[at] = w[f"W_o.{layer}"][:, rows]
        raw_A[at], raw_B[at] = q.T @ k, W_O[at] @ v
        Q[at], K[at], V[at] = q * gain, k * gain, v * gain
        A[at], B[at] = Q[at].T @ K[at], W_O[at] @ V[at]
        r[at], t[at] = K[at].T @ (q @ bias), Q[at].T @ (k @ bias)

    def composed(later, earlier):
        return np.trace(A[later] @ B[earlier])

    def normalized(later, earlier):
        return ratio(composed(later, earlier), norm(A[later]) * norm(B[earlier]))

    def cosine(x, y):
        return ratio(np.sum(x * y), norm(x) * norm(y))

    def cut(*ranks):
        return sorted({min(rank, size) for rank in ranks})

    pairs = [(x, y) for x in later_heads for y in all_heads if y[0] < x[0]]
    out: dict[str, Any] = {}
    ov = [[cosine(B[x], B[y]) for y in first_heads] for x in first_heads]
    selector = max(first_heads, key=lambda at: (norm(A[at]), -at[1]))
    others = [at for at in first_heads if at != selector]
    sets = [
        s
        for n in range(2, len(others) + 1)
        for s in combinations(others, n)
        if all((ov[x[1]][y[1]] or 0) >= 0.7 for x, y in combinations(s, 2))
    ]
    group = max(sets, key=lambda s: (len(s), min(ov[x[1]][y[1]] for x, y in combinations(s, 2))), default=None)
    induction = max(later_heads, key=lambda at: normalized(at, selector), default=None)
    out["selection"] = {
        "selector_head": name(selector),
        "group": [name(at) for at in group or others] or None,
        "group_is_similar": group is not None,
        "induction_head": induction and name(induction),
    }
    group = group or others

    out["tensor_stats"] = {}
    for key, m in w.items():
        stats = {"shape": list(m.shape), "min": m.min(), "mean": m.mean(), "max": m.max(), "std": m.std()}
        stats["frobenius_norm"] = norm(m)
        if m.ndim == 2:
            s = svd(m)[1]
            stats |= {"top_singular_values": s[:8], "stable_rank": ratio(np.sum(s**2), s[0] ** 2)}
        out["tensor_stats"][key] = stats

    out["head_table"], out["gain_weighted_heads"], out["symmetric_eigenvalue_masses"] = [], [], []
    for at in all_heads:
        s, so = svd(raw_A[at])[1], svd(raw_B[at])[1]
        e = np.linalg.eigvals(w[f"W_v.{at[0]}"][at[1] * size : (at[1] + 1) * size] @ W_O[at]).real
        out["head_table"].append(
            {
                "head": name(at),
                "qk_frobenius_norm": norm(raw_A[at]),
                "qk_top_singular_values": s[: min(4, size)],
                "qk_top1_energy": ratio(s[0] ** 2, np.sum(s**2)),
                "qk_symmetric_fraction": symmetric_fraction(raw_A[at]),
                "qk_trace": np.trace(raw_A[at]),
                "ov_frobenius_norm": norm(raw_B[at]),
                "ov_top_singular_values": so[: min(4, size)],
                "ov_trace": np.trace(raw_B[at]),
                "ov_eigenvalue_real_max": e.max(),
                "ov_eigenvalue_real_min": e.min(),
            }
        )
        out["gain_weighted_heads"].append(
            {
                "head": name(at),
                "qk_frobenius_norm": norm(A[at]),
                "qk_top_singular_values": svd(A[at])[1][: min(6, size)],
                "qk_trace": np.trace(A[at]),
                "ov_frobenius_norm": norm(B[at]),
                "key_bias_norm": norm(r[at]),
                "query_bias_norm": norm(t[at]),
                "key_bias_direction": r[at],
                "query_bias_direction": t[at],
            }
        )
        p, n = masses(A[at])
        out["symmetric_eigenvalue_masses"].append(
            {
                "head": name(at),
                "positive_eigenvalue_mass": p,
                "negative_eigenvalue_mass": n,
                "signed_mass_fraction": ratio(p - n, p + n),
            }
        )

    def largest(later):
        found = [(normalized(later, e), e) for e in all_heads if e[0] < later[0]]
        ranked = sorted((f for f in found if f[0] is not None), key=lambda f: (-f[0], f[1]))[:5]
        return [{"earlier_head": name(e), "normalized_trace": v} for v, e in ranked]

    def pair(x, y, **fields):
        return {"later_head": name(x), "earlier_head": name(y), **fields}

    out["trace_compositions"] = {
        "pairs": [pair(x, y, trace=composed(x, y), normalized_trace=normalized(x, y)) for x, y in pairs],
        "largest": {name(x): largest(x) for x in later_heads},
    }
    out["key_bias_propagation"] = [
        pair(x, y, normalized_norm=ratio(norm(r[x] @ B[y]), norm(r[x]) * norm(B[y]))) for x, y in pairs
    ]
    M = {layer: w[f"W_proj.{layer}"] @ (w[f"W_fc.{layer}"] * w[f"ln2_w.{layer}"]) for layer in range(layers)}
    out["mlp_products"] = [
        {
            "later_head": name(x),
            "mlp_layer": layer,
            "normalized_trace": ratio(np.trace(A[x] @ M[layer]), norm(A[x]) * norm(M[layer])),
        }
        for x in later_heads
        for layer in range(x[0])
    ]
    out["head_cosines"] = {
        "layer": 0,
        "ov_cosine": ov,
        "qk_cosine": [[cosine(A[x], A[y]) for y in first_heads] for x in first_heads],
    }
    out["mlp_spectra"] = {
        f"{m}.{layer}": svd(w[f"{m}.{layer}"])[1] for layer in range(layers) for m in ("W_fc", "W_proj")
    }

    rank = min(20, size)

    def basis_of(matrix):
        u, _, vt = svd(matrix)
        return la.orth(np.concatenate([u[:, :rank], vt[:rank].T], axis=1))

    u, s, vt = svd(A[selector])
    values = np.linalg.eigvals(K[selector] @ Q[selector].T)
    out["qk_spectrum"] = {
        "head": name(selector),
        "rank": rank,
        "singular_values": s[:size],
        "eigenvalues": complex_list(values),
        "complex_eigenvalue_fraction": ratio(np.abs(values.imag).sum(), np.abs(values).sum()),
        "subspace_overlap": svd(u[:, :rank].T @ vt[:rank].T)[1],
        "unweighted_qk_singular_values": svd(raw_A[selector])[1][:size],
        "unweighted_v_singular_values": svd(w["W_v.0"][selector[1] * size : (selector[1] + 1) * size])[1],
        "ov_singular_values": svd(B[selector])[1][:size],
    }

    def overlaps(matrix, gain):
        basis = basis_of(matrix)
        return [
            {
                "head": name(at),
                "query_read_fraction": energy(w["W_q.0"][at[1] * size : (at[1] + 1) * size] * gain, basis),
                "key_read_fraction": energy(w["W_k.0"][at[1] * size : (at[1] + 1) * size] * gain, basis),
                "value_read_fraction": energy(w["W_v.0"][at[1] * size : (at[1] + 1) * size] * gain, basis),
                "output_write_fraction": energy(W_O[at].T, basis),
            }
            for at in first_heads
        ]

    out["subspace_overlaps"] = {
        "head": name(selector),
        "rank": rank,
        "gain_weighted": overlaps(A[selector], w["ln1_w.0"]),
        "unweighted": overlaps(raw_A[selector], 1.0),
    }

    if group:
        u, s, _ = svd(np.concatenate([B[at] for at in group], axis=1))
        C = u[:, : min(2, size)]
        C = C * np.sign([C[np.argmax(np.abs(c)), i] for i, c in enumerate(C.T)])
        out["shared_write_subspace"] = {
            "group": [name(at) for at in group],
            "rank": min(2, size),
            "singular_values": s[: min(20, size)],
            "basis": C,
            "ov_write_fraction": {name(at): energy(B[at].T, C) for at in first_heads},
            "later_heads": [
                {
                    "head": name(at),
                    "query_energy_fraction": energy(A[at].T, C),
                    "key_energy_fraction": energy(A[at], C),
                    "key_bias_fraction": ratio(norm(C.T @ r[at]) ** 2, norm(r[at]) ** 2),
                    "key_bias_norm": norm(r[at]),
                    "key_bias_coordinates": C.T @ r[at],
                }
                for at in later_heads
            ],
        }
        _, s, vt = svd(np.concatenate([B[at] for at in group]))
        inside = basis_of(A[selector])
        out["shared_read_subspace"] = {
            "group": [name(at) for at in group],
            "selector_head": name(selector),
            "singular_values": s[: min(10, size)],
            "selector_qk_energy": [norm(inside.T @ vt[i]) ** 2 for i in range(min(4, size))],
        }
    else:
        out["shared_write_subspace"] = out["shared_read_subspace"] = None

    right = svd(B[selector])[2]

    def projected(at, rank):
        T = right[:rank].T
        m = T.T @ A[at] @ B[selector] @ T
        p, n = masses(m)
        return {
            "projected_trace": np.trace(m),
            "symmetric_fraction": symmetric_fraction(m),
            "positive_eigenvalue_mass": p,
            "negative_eigenvalue_mass": n,
        }

    out["projected_compositions"] = {
        "selector_head": name(selector),
        "rank": min(27, size),
        "heads": [
            {"head": name(at), "trace": composed(at, selector), **projected(at, min(27, size))} for at in later_heads
        ],
    }
    out["rank_sensitivity"] = induction and {
        "induction_head": name(induction),
        "selector_head": name(selector),
        "ranks": [{"rank": n, **projected(induction, n)} for n in cut(16, 20, 24, 27, 32, 40, 64)],
    }

    G = (w["W_fc.0"] * w["ln2_w.0"]) @ B[selector]
    G = G - G.mean(axis=0)
    _, s, vt = svd(G)
    clusterings = []
    for n in cut(20, 24, 27, 32):
        x = G @ vt[:n].T / np.sqrt(s[:n])
        x = x / norm(x, axis=1, keepdims=True)
        labels = lloyd(x, n + 1, int(np.argmax(norm(G, axis=1))))
        sizes = np.bincount(labels, minlength=n + 1)
        means = np.array([norm(x[labels == c].mean(axis=0)) if sizes[c] else 0.0 for c in range(n + 1)])
        clusterings.append(
            {
                "rank": n,
                "clusters": n + 1,
                "silhouette": silhouette_samples(x, labels).mean(),
                "mean_cohesion": np.average(means, weights=sizes),
                "cluster_sizes": sorted(sizes.tolist(), reverse=True),
            }
        )
    out["row_clustering"] = {"head": name(selector), "singular_values": s[:size], "clusterings": clusterings}

    e, U = la.eigh(Q[selector].T @ Q[selector] + K[selector].T @ K[selector])
    e, U = e[::-1], U[:, ::-1]
    ranks = []
    for n in cut(16, 20, 24, 32):
        Z = U[:, :n] / np.sqrt(e[:n])
        white = Z.T @ A[selector] @ Z
        R = la.polar(white)[0]
        ranks.append(
            {
                "rank": n,
                "whitened_singular_values": svd(white)[1],
                "alignments": {
                    name(at): [
                        np.sum(Z.T @ A[at] @ Z * np.linalg.matrix_power(R, p)) / (norm(Z.T @ A[at] @ Z) * np.sqrt(n))
                        for p in range(-4, 5)
                    ]
                    for at in others
                },
            }
        )
    out["polar_alignments"] = {"selector_head": name(selector), "powers": list(range(-4, 5)), "ranks": ranks}
    return out
