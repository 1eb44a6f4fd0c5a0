"""Character transformers in safetensors: recognised by their tensors, which also give every size but the heads'."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcore.checkpoint.store import TensorInfo
from models.char.config import HEADS
from models.errors import CheckpointError

IN_LAYER = re.compile(r"(ln1_w|ln1_b|W_q|W_k|W_v|W_o|ln2_w|ln2_b|W_fc|W_proj)\.(\d{1,9})")


def canonical(name: str) -> str:
    """``W_q.0`` -> ``layers.0.W_q``."""
    return IN_LAYER.sub(r"layers.\2.\1", name) if IN_LAYER.fullmatch(name) else name


def is_char(infos: Sequence[TensorInfo]) -> bool:
    """Whether these are a character transformer's tensors."""
    return any(info.name == "W_q.0" for info in infos)


def config(path: Path, infos: Sequence[TensorInfo], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The table that `models.char.config.from_table` reads.

    A file without ``tok_emb``, ``pos_emb`` and output layer holds blocks only: its vocabulary and context are 0.
    Raises `CheckpointError` for tensors or metadata that give no size.
    """
    shapes = {info.name: info.shape for info in infos}

    def size(name: str, axis: int, otherwise: int | None = None) -> int:
        if name not in shapes and otherwise is not None:
            return otherwise
        if len(shapes.get(name, ())) != 2:
            raise CheckpointError(
                f"{path}: {name} should be a matrix, but "
                + (f"has shape {shapes[name]}." if name in shapes else "is missing.")
                + " Save the model again with all tensors of its blocks."
            )
        return shapes[name][axis]

    # Without any of the tensors around the blocks their absence is meant; with some, the others are missing.
    around = {"tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out"} & shapes.keys()
    return {
        "model_type": "char",
        "vocab": size("tok_emb", 0, None if around else 0),
        "d_model": size("W_q.0", 1),
        "n_layers": len({match[2] for name in shapes if (match := IN_LAYER.fullmatch(name))}),
        "n_heads": _number(path, metadata, "n_heads", HEADS),
        "d_mlp": size("W_fc.0", 0),
        "context": _context(path, metadata, size("pos_emb", 0)) if around else 0,
    }


def _context(path: Path, metadata: Mapping[str, str], rows: int) -> int:
    stated = _number(path, metadata, "context_length", rows)
    if stated != rows:
        raise CheckpointError(
            f"{path}: the metadata give context_length as {stated}, but pos_emb has {rows} rows; correct one of them."
        )
    return rows


def _number(path: Path, metadata: Mapping[str, str], key: str, default: int) -> int:
    text = metadata.get(key, str(default))
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise CheckpointError(f"{path}: the metadata give {key} as {text[:80]!r}; it must be a whole number above 0.")
    return int(text)
