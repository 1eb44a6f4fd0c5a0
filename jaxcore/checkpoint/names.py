"""Tensor names without the prefixes that wrapping models put in front of them."""

from collections import Counter
from collections.abc import Iterable

from jaxcore.checkpoint import char_names
from jaxcore.checkpoint.store import TensorInfo
from models.errors import CheckpointError

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
"""Longest first: where the text model sits in text-only and in vision checkpoints, old and new."""
LEFT_OUT = {
    "vision_tower.": "vision tower",
    "vision_model.": "vision tower",
    "multi_modal_projector.": "image projector",
    "embed_vision.": "image projector",
}


def canonical(name: str) -> str:
    """``model.language_model.norm.weight`` -> ``norm.weight``; ``W_q.0`` -> ``layers.0.W_q``."""
    prefix = next((p for p in PREFIXES if name.startswith(p)), "")
    return char_names.canonical(name[len(prefix) :])


def by_canonical_name(infos: Iterable[TensorInfo]) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """Tensors of the text model by canonical name, and a note about those left out.

    Raises `CheckpointError` if two stored tensors would go by one name.
    """
    tensors: dict[str, TensorInfo] = {}
    left_out: Counter[str] = Counter()
    for info in infos:
        name = canonical(info.name)
        part = next((what for start, what in LEFT_OUT.items() if name.startswith(start)), None)
        if part is None and name.endswith("rotary_emb.inv_freq"):
            part = "rotary tables, which are computed"
        if part is not None:
            left_out[part] += 1
        elif name in tensors:
            other = tensors[name]
            raise CheckpointError(
                f"{info.file}: {other.name} and {info.name} (in {other.file.name} and {info.file.name}) are both "
                f"{name}; it is unclear which one the model uses. Remove one of them."
            )
        else:
            tensors[name] = info
    notes = tuple(f"{count} tensors left out: {part}." for part, count in left_out.items())
    return tensors, notes
