"""Power-law fits of spectra (Clauset, Shalizi and Newman 2009, arXiv 0706.1062)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TAIL = 10
"""Values that a fitted tail has at least."""


@dataclass(frozen=True)
class Fit:
    """Density proportional to x ** -``alpha`` from ``xmin`` on; ``ks`` is the Kolmogorov-Smirnov distance there.

    Where no fit was possible the numbers are None, and ``status`` says why. A fit says nothing by itself: the distance
    tells how well a power law describes the tail, and other laws may do as well.
    """

    alpha: float | None
    xmin: float | None
    ks: float | None
    status: str


def fit(values: Float[np.ndarray, "n"]) -> Fit:
    """The continuous maximum-likelihood fit whose ``xmin`` makes the distance smallest."""
    x = np.sort(values[np.isfinite(values) & (values > 0)])
    starts = np.flatnonzero(np.diff(x, prepend=-np.inf) > 0)
    starts = starts[starts <= len(x) - TAIL]
    if len(starts) == 0:
        return Fit(None, None, None, f"only {len(x)} positive values; a tail needs {TAIL}")
    if x[0] == x[-1]:
        return Fit(None, None, None, "all values are equal")
    logs = np.log(x)
    tails = np.cumsum(logs[::-1])[::-1]
    best = (np.inf, 0.0, 0)
    for start in starts:
        n = len(x) - start
        spread = tails[start] - n * logs[start]
        if spread <= 1e-12 * n:
            continue
        alpha = 1 + n / spread
        model = 1 - np.exp((1 - alpha) * (logs[start:] - logs[start]))
        steps = np.arange(n + 1) / n
        ks = max(np.max(steps[1:] - model), np.max(model - steps[:-1]))
        best = min(best, (ks, alpha, start))
    ks, alpha, start = best
    if not np.isfinite(ks):
        return Fit(None, None, None, "the values of every tail are equal")
    return Fit(float(alpha), float(x[start]), float(ks), f"fitted to the {len(x) - start} largest of {len(x)}")
