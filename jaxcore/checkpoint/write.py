"""Writing files and folders whole or not at all; safetensors files piece by piece."""

import json
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxcore.checkpoint.store import DTYPES

ALIGNMENT = 64
"""Bytes; what XLA asks of host memory that it is to use without a copy."""


@dataclass(frozen=True)
class Entry:
    """One tensor to be written: its data in pieces along the first axis, made when they are needed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def write_safetensors(path: Path, entries: Sequence[Entry], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors in the given order; nothing is left behind if that fails or is interrupted.

    The data begin at a multiple of `ALIGNMENT`, so each tensor does too as long as the sizes before it are multiples;
    the format allows no gaps. Raises `ValueError` if an entry's pieces do not have its dtype and add up to its shape.
    """
    header = _header(entries, metadata or {})
    with replaced(path) as temporary, temporary.open("xb") as file:
        file.write(header)
        for entry in entries:
            written = 0
            for piece in entry.pieces:
                if piece.dtype != DTYPES[entry.dtype]:
                    raise ValueError(f"{entry.name}: a piece is {piece.dtype}, the entry says {entry.dtype}")
                data = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
                file.write(data.data)
                written += data.nbytes
            if written != _nbytes(entry):
                raise ValueError(f"{entry.name}: {written} bytes were written, its shape takes {_nbytes(entry)}")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``, renamed to it at the end, or removed if anything goes wrong."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_replaced(path: Path) -> Iterator[Path]:
    """A name in a temporary folder beside ``path`` for a folder to be made, renamed to ``path`` at the end.

    ``path`` must be absent or an empty folder. Whatever goes wrong, nothing else is left there.
    """
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))
    try:
        yield temporary / path.name
        (temporary / path.name).rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _nbytes(entry: Entry) -> int:
    return math.prod(entry.shape) * DTYPES[entry.dtype].itemsize


def _header(entries: Sequence[Entry], metadata: Mapping[str, str]) -> bytes:
    table: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for entry in entries:
        end = offset + _nbytes(entry)
        table[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(table, ensure_ascii=False).encode()
    raw += b" " * (-(8 + len(raw)) % ALIGNMENT)
    return len(raw).to_bytes(8, "little") + raw
