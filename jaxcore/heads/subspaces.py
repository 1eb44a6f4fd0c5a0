"""What a group of first-layer heads shares, and compositions seen through the selector's own directions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcore.heads import circuits
from jaxcore.heads.circuits import Circuits
from jaxcore.heads.compositions import Composed
from jaxcore.heads.naming import Place, cut, facing, name, places, ratio, row
from jaxcore.heads.selector import of_head, read_basis

Record = dict[str, Any]
WRITE_RANK, WRITE_COUNT, READ_COUNT, READ_DIRECTIONS = 2, 20, 10, 4
PROJECTED_RANK = 27
SENSITIVITY_RANKS = (16, 20, 24, 27, 32, 40, 64)


def shared_write_subspace(found: Circuits, group: Sequence[Place], table: Composed) -> Record:
    """Where a group of heads writes together, and which later heads look there."""
    head_dim = found.ov.core.shape[-1]
    side_by_side = np.concatenate([circuits.dense(of_head(found, at).ov) for at in group], axis=1)
    u, s, _ = np.linalg.svd(side_by_side, full_matrices=False)
    rank = min(WRITE_RANK, head_dim)
    basis = facing(u[:, :rank])
    first = [(0, head) for head in range(table.shape[1])]
    later = []
    for at in places(table.shape, 1):
        qk, bias = of_head(found, at).qk, found.key_bias[at]
        along = basis.T @ bias
        later.append(
            row(
                at,
                query_energy_fraction=ratio(np.sum(((basis.T @ qk.left) @ qk.core) ** 2), table.qk_norm[at] ** 2),
                key_energy_fraction=ratio(np.sum((qk.core @ (qk.right.T @ basis)) ** 2), table.qk_norm[at] ** 2),
                key_bias_fraction=ratio(np.sum(along**2), table.key_bias_norm[at] ** 2),
                key_bias_norm=table.key_bias_norm[at],
                key_bias_coordinates=along,
            )
        )
    written = {at: of_head(found, at).ov for at in first}
    return {
        "group": [name(at) for at in group],
        "rank": rank,
        "singular_values": s[: min(WRITE_COUNT, head_dim)],
        "basis": basis,
        "ov_write_fraction": {
            name(at): ratio(np.sum((basis.T @ ov.left @ ov.core) ** 2), table.ov_norm[at] ** 2)
            for at, ov in written.items()
        },
        "later_heads": later,
    }


def shared_read_subspace(found: Circuits, group: Sequence[Place], selector: Place) -> Record:
    """What a group of heads reads together, and how much of it the selector's QK reads too."""
    head_dim = found.ov.core.shape[-1]
    stacked = np.concatenate([circuits.dense(of_head(found, at).ov) for at in group])
    _, s, vt = np.linalg.svd(stacked, full_matrices=False)
    inside = vt[: min(READ_DIRECTIONS, head_dim)] @ read_basis(of_head(found, selector))
    return {
        "group": [name(at) for at in group],
        "selector_head": name(selector),
        "singular_values": s[: min(READ_COUNT, head_dim)],
        "selector_qk_energy": np.sum(inside**2, axis=1),
    }


def projected_compositions(found: Circuits, selector: Place, table: Composed) -> Record:
    """Later heads' compositions with the selector, in the directions whose content the selector moves."""
    rank = min(PROJECTED_RANK, found.ov.core.shape[-1])
    heads = [
        row(at, trace=table.trace[at][selector], **_projected(found, at, selector, rank))
        for at in places(table.shape, 1)
    ]
    return {"selector_head": name(selector), "rank": rank, "heads": heads}


def rank_sensitivity(found: Circuits, induction: Place, selector: Place) -> Record:
    """Whether the strongest of those compositions depends on how many directions are kept."""
    ranks = cut(SENSITIVITY_RANKS, found.ov.core.shape[-1])
    listed = [{"rank": rank, **_projected(found, induction, selector, rank)} for rank in ranks]
    return {"induction_head": name(induction), "selector_head": name(selector), "ranks": listed}


def _projected(found: Circuits, at: Place, selector: Place, rank: int) -> Record:
    """``T^T A B T`` with T the leading right singular vectors of the selector's B."""
    qk, ov = of_head(found, at).qk, of_head(found, selector).ov
    _, right = circuits.singular_vectors(ov)
    T = right[:, :rank]
    both = circuits.chain(qk, ov)
    inside = (T.T @ both.left) @ both.core @ (both.right.T @ T)
    symmetric = (inside + inside.T) / 2
    positive, negative = circuits.eigenvalue_masses(symmetric)
    return {
        "projected_trace": np.trace(inside),
        "symmetric_fraction": ratio(np.linalg.norm(symmetric), np.linalg.norm(inside)),
        "positive_eigenvalue_mass": positive,
        "negative_eigenvalue_mass": negative,
    }
