"""An open checkpoint: what its headers say it holds, and its tensors when asked for."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from models.errors import CheckpointError
from models.tensors import TensorSpec

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""Element types that are stored as they are used, in safetensors' spelling; little endian."""
FLOATS = ("F16", "BF16", "F32", "F64")
LISTED = 4
"""How many tensors an error message names."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header of its file describes it.

    ``dtype`` is safetensors' spelling (F32, BF16) or ggml's type (Q5_0); ``offset`` counts bytes from the start of
    ``file``; ``shift`` is added to every stored value on reading.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    file: Path
    offset: int
    shift: float = 0.0

    @property
    def parameters(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose headers have been read and checked.

    ``config`` is in Hugging Face's spelling whatever the format; ``tensors`` goes by canonical name, without the
    prefixes that wrappers put in front (``layers.0.self_attn.q_proj.weight``); ``tokenizer`` is a tokenizer.json, a
    tokenizer.model or the .gguf itself; ``notes`` are sentences for the user about what was filled in or left out.
    """

    reference: str
    path: Path
    format: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    tokenizer: Path | None = None
    revision: str | None = None
    notes: tuple[str, ...] = ()


def read(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """The tensor of that canonical name: a read-only view of the file as stored; from a .gguf, float32.

    Raises `CheckpointError` if there is no such tensor or the file has changed since it was opened.
    """
    info = _info(checkpoint, name)
    if checkpoint.format == "gguf":
        from jaxcore.checkpoint.gguf_file import pieces  # imports this module

        return np.concatenate(list(pieces(info))).reshape(info.shape)
    return _mapped(info, info.shape)


def stacked(checkpoint: Checkpoint, names: Sequence[str]) -> np.ndarray:
    """Tensors of one shape on a new leading axis: ``[len(names), ...]``.

    A view of the file where they lie there one after the other; a copy otherwise, made tensor by tensor.
    """
    infos = [_info(checkpoint, name) for name in names]
    first = infos[0]
    odd = next((info for info in infos if info.shape != first.shape), None)
    if odd:
        raise CheckpointError(
            f"{odd.file}: {odd.name} has shape {odd.shape} but {first.name} has {first.shape}; all layers of a model "
            "must have the same shapes."
        )
    if checkpoint.format != "gguf" and _contiguous(infos):
        return _mapped(first, (len(infos), *first.shape))
    dtypes = [np.dtype(np.float32) if checkpoint.format == "gguf" else DTYPES[info.dtype] for info in infos]
    out = np.empty((len(infos), *first.shape), np.result_type(*dtypes))
    for i, name in enumerate(names):
        out[i] = read(checkpoint, name)
    return out


def mapped_bytes(info: TensorInfo, start: int, stop: int) -> np.ndarray:
    """Bytes ``start`` to ``stop`` of a tensor, as a read-only view of its file."""
    if start == stop:
        return np.empty(0, np.uint8)
    try:
        mapped = np.memmap(info.file, np.uint8, mode="r", offset=info.offset + start, shape=(stop - start,))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{info.file}: cannot read {info.name} ({error}); the file was moved or changed since it was opened. "
            "Open the checkpoint again."
        ) from error
    return np.asarray(mapped)


def names_of(spec: TensorSpec, n_layers: int) -> tuple[str, ...]:
    """The canonical names behind one entry of a tensor table: one for each layer, or a single one."""
    if "{layer}" not in spec.name:
        return (spec.name,)
    return tuple(spec.name.format(layer=i) for i in range(n_layers))


def present(checkpoint: Checkpoint, table: Mapping[str, TensorSpec], n_layers: int) -> dict[str, TensorSpec]:
    """The entries of a tensor table without optional ones of which the checkpoint holds nothing."""
    return {
        field: spec
        for field, spec in table.items()
        if not spec.optional or any(name in checkpoint.tensors for name in names_of(spec, n_layers))
    }


def resolve(checkpoint: Checkpoint, table: Mapping[str, TensorSpec], n_layers: int) -> None:
    """Check that the checkpoint holds what the table asks for and nothing else; raise `CheckpointError` otherwise."""
    found = problems(checkpoint, table, n_layers)
    if found:
        raise CheckpointError(
            f"{checkpoint.path}: the tensors do not fit the configuration. " + " ".join(found) + " Check that the "
            "configuration belongs to these weights: what it leaves out was filled in with the family's defaults."
        )


def problems(checkpoint: Checkpoint, table: Mapping[str, TensorSpec], n_layers: int) -> list[str]:
    """What `resolve` objects to, a sentence for each kind; empty if the checkpoint is complete.

    A tensor fits if its shape is the table's, or the table's with adjacent axes merged (heads not yet split out).
    """
    tensors = checkpoint.tensors
    layers = {match[1] for name in tensors if (match := re.match(r"layers\.(\d+)\.", name))}
    # A wrong layer count is one sentence, not thousands; and the work stays bounded whatever the config says.
    checked = min(n_layers, len(layers))
    specs = present(checkpoint, table, checked).values()
    expected = {name: spec.shape for spec in specs for name in names_of(spec, checked)}
    sentences = []
    if len(layers) != n_layers:
        sentences.append(f"The configuration says {n_layers} layers, the file holds {len(layers)}.")

    missing = [name for name in expected if name not in tensors]
    if missing:
        sentences.append(f"Missing: {_list(missing)}.")

    wrong = [n for n, shape in expected.items() if n in tensors and not fits(tensors[n].shape, shape)]
    if wrong:
        sentences.append(
            "Of another shape: "
            + _list([f"{n} is {tensors[n].shape} where the configuration asks for {expected[n]}" for n in wrong])
            + "."
        )
    packed = [n for n in expected if n in tensors and checkpoint.format != "gguf" and tensors[n].dtype not in FLOATS]
    if packed:
        sentences.append(
            "Not floating point: "
            + _list([f"{n} is {tensors[n].dtype}" for n in packed])
            + "; quantised weights are read from GGUF files only."
        )
    optional = {"lm_head.weight"}  # a tied model may store its embedding twice
    extra = [n for n in tensors if n not in expected and n not in optional and not _beyond(n, checked, n_layers)]
    if extra:
        sentences.append(f"The architecture has no place for: {_list(extra)}.")
    return sentences


def fits(stored: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether merging adjacent axes of ``shape`` gives ``stored``."""
    axes = list(shape)
    for size in stored:
        merged = axes.pop(0) if axes else 1
        while merged < size and axes:
            merged *= axes.pop(0)
        if merged != size:
            return False
    return all(size == 1 for size in axes)


def _beyond(name: str, checked: int, n_layers: int) -> bool:
    """Whether a tensor belongs to a layer past those checked, where the wrong layer count has been reported."""
    match = re.match(r"layers\.(\d{1,9})\.", name)
    return match is not None and checked < max(n_layers, int(match[1]) + 1)


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - LISTED:,} more" if len(items) > LISTED else ""
    return ", ".join(items[:LISTED]) + more


def _info(checkpoint: Checkpoint, name: str) -> TensorInfo:
    if name not in checkpoint.tensors:
        raise CheckpointError(f"{checkpoint.path}: there is no tensor {name}; `inspect` lists those there are.")
    return checkpoint.tensors[name]


def _contiguous(infos: Sequence[TensorInfo]) -> bool:
    return all(a.file == b.file and a.dtype == b.dtype and a.offset + a.nbytes == b.offset for a, b in pairwise(infos))


def _mapped(info: TensorInfo, shape: tuple[int, ...]) -> np.ndarray:
    dtype = DTYPES[info.dtype]
    return mapped_bytes(info, 0, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
