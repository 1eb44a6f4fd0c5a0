"""Temperature, top-k, top-p and min-p as the contract words them: sort, cut, renormalise, in float64 NumPy."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Kept:
    """What the filters leave; arrays are over the vocabulary."""

    mask: np.ndarray
    probability_raw: np.ndarray
    probability_temperature: np.ndarray
    probability_final: np.ndarray
    kept_top_k: int
    kept_top_p: int
    kept_final: int
    mass_top_k: float
    mass_top_p: float
    mass_final: float
    margin: float
    """How far the nearest deciding mass lies from a line: below 1e-6 rounding may decide."""


def softmax(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        weight = np.exp(x - x.max())
    return weight / weight.sum()


def order(logits: np.ndarray) -> np.ndarray:
    """Token ids by falling logit, the lower id first among equals."""
    return np.lexsort((np.arange(len(logits)), -logits))


def entropy(p: np.ndarray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def keep(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> Kept:
    logits = logits.astype(np.float64)
    ids, raw, margin = order(logits), softmax(logits), np.inf
    if temperature == 0:
        tempered = raw
        top_k, top_p, min_p = 1, 1.0, 0.0
    else:
        with np.errstate(over="ignore"):
            tempered = softmax((logits - logits.max()) / temperature)
    n_k = len(ids) if top_k == 0 else min(top_k, len(ids))
    within_k = tempered[ids[:n_k]] / tempered[ids[:n_k]].sum()
    n_p = n_k
    if top_p < 1:
        mass = np.cumsum(within_k)
        n_p = min(int((mass < top_p).sum()) + 1, n_k)
        margin = min(margin, np.abs(mass - top_p).min())
    share = tempered[ids[:n_p]] / tempered[ids[0]]
    if min_p > 0:
        margin = min(margin, np.abs(share[1:] - min_p).min(initial=np.inf))
    survivors = ids[:n_p][share >= min_p]
    final = np.zeros(len(ids))
    final[survivors] = tempered[survivors] / tempered[survivors].sum()
    return Kept(
        mask=np.isin(np.arange(len(ids)), survivors),
        probability_raw=raw,
        probability_temperature=tempered,
        probability_final=final,
        kept_top_k=n_k,
        kept_top_p=n_p,
        kept_final=len(survivors),
        mass_top_k=float(tempered[ids[:n_k]].sum()),
        mass_top_p=float(within_k[:n_p].sum()),
        mass_final=float(tempered[survivors].sum()),
        margin=float(margin),
    )
