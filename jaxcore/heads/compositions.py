"""How heads and MLPs feed later heads: traces of products of their circuits, and bias directions through them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from jaxcore.heads import circuits
from jaxcore.heads.circuits import Blocks, Circuits
from jaxcore.heads.naming import Place, name, pairs, places, ratio

Record = dict[str, Any]
LARGEST = 5
SIMILAR = 0.7
"""OV cosine from which heads count as alike."""


@dataclass(frozen=True)
class Composed:
    """Every pair of heads, by later and earlier place, and the norms to compare them by."""

    trace: np.ndarray
    through: np.ndarray
    qk_norm: np.ndarray
    ov_norm: np.ndarray
    key_bias_norm: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        layers, heads = self.qk_norm.shape
        return layers, heads

    def normalized(self, later: Place, earlier: Place) -> float | None:
        """``tr(A B) / (|A| |B|)``."""
        return ratio(self.trace[later][earlier], self.qk_norm[later] * self.ov_norm[earlier])


def composed(found: Circuits) -> Composed:
    """All pairs of heads: ``tr(A_later B_earlier)``, and ``|r_later^T B_earlier|`` with the later head's key bias."""
    later, earlier = circuits.at(found.qk, np.s_[:, :, None, None]), circuits.at(found.ov, np.s_[None, None])
    trace = circuits.trace(circuits.chain(later, earlier))
    read = found.key_bias[:, :, None, None, None, :] @ earlier.left @ earlier.core
    through = np.linalg.norm(read, axis=(-2, -1))
    return Composed(
        trace,
        through,
        qk_norm=np.linalg.norm(found.qk.core, axis=(2, 3)),
        ov_norm=np.linalg.norm(found.ov.core, axis=(2, 3)),
        key_bias_norm=np.linalg.norm(found.key_bias, axis=2),
    )


def trace_compositions(table: Composed) -> Record:
    """Whether what an earlier head writes is what a later one looks for, for every pair, and the largest."""
    listed = [
        {
            "later_head": name(later),
            "earlier_head": name(earlier),
            "trace": table.trace[later][earlier],
            "normalized_trace": table.normalized(later, earlier),
        }
        for later, earlier in pairs(table.shape)
    ]
    largest = {}
    for later in places(table.shape, 1):
        values = [(e, table.normalized(later, e)) for e in places((later[0], table.shape[1]))]
        ranked = sorted(((e, value) for e, value in values if value is not None), key=lambda pair: -pair[1])
        largest[name(later)] = [{"earlier_head": name(e), "normalized_trace": v} for e, v in ranked[:LARGEST]]
    return {"pairs": listed, "largest": largest}


def key_bias_propagation(table: Composed) -> list[Record]:
    """How far a later head's key bias reads what an earlier head writes."""
    return [
        {
            "later_head": name(later),
            "earlier_head": name(earlier),
            "normalized_norm": ratio(
                table.through[later][earlier], table.key_bias_norm[later] * table.ov_norm[earlier]
            ),
        }
        for later, earlier in pairs(table.shape)
    ]


def mlp_products(found: Circuits, blocks: Blocks, table: Composed) -> list[Record]:
    """Traces of later QK with an earlier layer's MLP as if it were linear (no activation: a product of weights)."""
    traces, norms = [], []
    for W_down, W_up, gain in zip(blocks.W_down, blocks.W_up, blocks.ln2_w, strict=True):
        reads, writes = circuits.transposed((W_up * gain) @ found.qk.left), circuits.transposed(found.qk.right) @ W_down
        traces.append(np.sum((found.qk.core @ writes) * reads, axis=(-2, -1)))
        norms.append(np.linalg.norm(W_down @ (W_up * gain)))
    return [
        {
            "later_head": name(later),
            "mlp_layer": layer,
            "normalized_trace": ratio(traces[layer][later], table.qk_norm[later] * norms[layer]),
        }
        for later in places(table.shape, 1)
        for layer in range(later[0])
    ]


@dataclass(frozen=True)
class Selection:
    """The heads that further analyses are about; None where the model has too few layers or heads."""

    selector: Place
    group: tuple[Place, ...] | None
    group_is_similar: bool
    induction: Place | None


def selected(table: Composed, ov_cosine: list[list[float | None]]) -> Selection:
    """The first-layer head with the largest QK, the others that write alike, and the later head that reads the first.

    The group is the largest set of other first-layer heads with pairwise OV cosines of at least `SIMILAR` (of equally
    large ones that with the largest smallest cosine), or all others if there is none.
    """
    heads = table.shape[1]
    selector = (0, int(np.argmax(table.qk_norm[0])))
    others = [head for head in range(heads) if head != selector[1]]
    alike = np.array([[value is not None and value >= SIMILAR for value in row] for row in ov_cosine])
    cosine = np.array([[np.nan if value is None else value for value in row] for row in ov_cosine])
    sets = [found for found in _maximal(frozenset(), frozenset(others), frozenset(), alike) if len(found) > 1]

    def smallest(found: tuple[int, ...]) -> float:
        return min(cosine[a, b] for a, b in combinations(found, 2))

    best = max(sets, key=lambda found: (len(found), smallest(found), [-h for h in found]), default=None)
    later = [(table.normalized(at, selector), at) for at in places(table.shape, 1)]
    known = [(value, at) for value, at in later if value is not None]
    return Selection(
        selector,
        group=tuple((0, head) for head in best or others) or None,
        group_is_similar=best is not None,
        induction=max(known, key=lambda pair: (pair[0], [-i for i in pair[1]]))[1] if known else None,
    )


def _maximal(
    chosen: frozenset[int], candidates: frozenset[int], excluded: frozenset[int], alike: np.ndarray
) -> Iterator[tuple[int, ...]]:
    """Sets that are alike in every pair and that no further head is like (Bron and Kerbosch 1973)."""
    if not candidates and not excluded:
        yield tuple(sorted(chosen))
    for head in sorted(candidates):
        near = frozenset(np.flatnonzero(alike[head]).tolist()) - {head}
        yield from _maximal(chosen | {head}, candidates & near, excluded & near, alike)
        candidates, excluded = candidates - {head}, excluded | {head}
