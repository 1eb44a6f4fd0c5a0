"""The whole study of a character transformer's heads, as the command ``heads`` writes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxcore.checkpoint.store import Checkpoint
from jaxcore.families import CHAR
from jaxcore.heads import circuits, compositions, selector, subspaces, tables
from jaxcore.heads.compositions import Selection
from jaxcore.heads.naming import Place, name, parsed
from models.errors import InputError

Record = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """Heads named by the user instead of those that the weights single out."""

    selector: str | None = None
    group: Sequence[str] = ()
    induction: str | None = None


AS_FOUND = Chosen()


def study(checkpoint: Checkpoint, chosen: Chosen = AS_FOUND) -> Record:
    """Every analysis of the weights, in float64. Raises `ClearboxError` for another architecture or unknown heads."""
    if checkpoint.config.get("model_type") != "char":
        raise InputError(
            f"{checkpoint.reference} is no character transformer, and the head study reads nothing else; name a model "
            "such as char-english."
        )
    cfg = CHAR.config(checkpoint.config)
    blocks = circuits.read_blocks(checkpoint)
    found = circuits.circuits(blocks)
    table, cosines = compositions.composed(found), tables.head_cosines(found)
    heads = _with(compositions.selected(table, cosines["ov_cosine"]), chosen, table.shape)
    at = heads.selector
    return {
        "config": {
            "d_model": cfg.d_model,
            "n_heads": cfg.n_heads,
            "n_layers": cfg.n_layers,
            "d_head": cfg.head_dim,
            "d_mlp": cfg.d_mlp,
            "blocks_only": cfg.blocks_only,
            "context_length": cfg.context or None,
            "vocab_size": cfg.vocab or None,
        },
        "selection": {
            "selector_head": name(at),
            "group": heads.group and [name(place) for place in heads.group],
            "group_is_similar": heads.group_is_similar,
            "induction_head": heads.induction and name(heads.induction),
        },
        "tensor_stats": tables.tensor_stats(checkpoint),
        "head_table": tables.head_table(blocks),
        "gain_weighted_heads": tables.gain_weighted_heads(found),
        "trace_compositions": compositions.trace_compositions(table),
        "qk_spectrum": selector.qk_spectrum(blocks, found, at),
        "subspace_overlaps": selector.subspace_overlaps(blocks, found, at),
        "mlp_spectra": tables.mlp_spectra(blocks),
        "head_cosines": cosines,
        "key_bias_propagation": compositions.key_bias_propagation(table),
        "mlp_products": compositions.mlp_products(found, blocks, table),
        "shared_write_subspace": heads.group and subspaces.shared_write_subspace(found, heads.group, table),
        "shared_read_subspace": heads.group and subspaces.shared_read_subspace(found, heads.group, at),
        "projected_compositions": subspaces.projected_compositions(found, at, table),
        "rank_sensitivity": heads.induction and subspaces.rank_sensitivity(found, heads.induction, at),
        "row_clustering": selector.row_clustering(blocks, found, at),
        "symmetric_eigenvalue_masses": tables.symmetric_eigenvalue_masses(found),
        "polar_alignments": selector.polar_alignments(blocks, found, at),
    }


def _with(heads: Selection, chosen: Chosen, shape: tuple[int, int]) -> Selection:
    """The selection with what the user named in its place. Raises `InputError` for heads that cannot be chosen."""

    def first_layer(text: str) -> Place:
        place = parsed(text, shape)
        if place[0] != 0:
            raise InputError(f"{text} is not in the first layer, as selector and group are; choose L0H0 and the like.")
        return place

    induction = heads.induction if chosen.induction is None else parsed(chosen.induction, shape)
    if induction is not None and induction[0] == 0:
        raise InputError(
            f"{chosen.induction} is in the first layer; an induction head reads what an earlier one wrote."
        )
    return Selection(
        selector=heads.selector if chosen.selector is None else first_layer(chosen.selector),
        group=tuple(first_layer(text) for text in chosen.group) or heads.group,
        group_is_similar=heads.group_is_similar and not chosen.group,
        induction=induction,
    )
