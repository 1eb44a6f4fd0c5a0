"""GGUF files as they lie on disk: a bounded header reader, and the exact values of tensors.

The ``gguf`` package's own reader makes an object of every token and takes many seconds to open a large vocabulary;
this one walks the header once, checks every length against the file, and decodes arrays only when asked.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from jaxcore.checkpoint.store import TensorInfo, mapped_bytes
from models.errors import CheckpointError

SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
STRING, ARRAY = 8, 9
MOST = {"tensors": 100_000, "metadata entries": 100_000, "array entries": 50_000_000, "dimensions": 4}
"""Counts above these are refused before any work is done."""
CHUNK = 16 * 1024 * 1024
"""Parameters that are dequantised at a time."""


@dataclass(frozen=True)
class Strings:
    """An array of strings still in the file."""

    path: Path
    offset: int
    count: int

    def __len__(self) -> int:
        return self.count

    @cached_property
    def values(self) -> list[str]:
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as buffer:
            cursor = _Cursor(self.path, buffer, self.offset)
            return [cursor.string() for _ in range(self.count)]


@dataclass(frozen=True)
class Numbers:
    """An array of numbers still in the file; ``kind`` is NumPy's name of their type."""

    path: Path
    offset: int
    count: int
    kind: str

    def __len__(self) -> int:
        return self.count

    @cached_property
    def values(self) -> np.ndarray:
        return np.fromfile(self.path, self.kind, self.count, offset=self.offset)


@dataclass
class _Cursor:
    """A place in the header that never leaves the file."""

    path: Path
    buffer: mmap
    at: int

    def take(self, size: int) -> int:
        """Move past ``size`` bytes; returns where they begin."""
        begin = self.at
        if not 0 <= size <= len(self.buffer) - begin:
            raise damaged(self.path, f"its header asks for {size:,} bytes at byte {begin:,}, past the end of the file")
        self.at += size
        return begin

    def number(self, kind: str) -> Any:
        size = np.dtype(kind).itemsize
        return np.frombuffer(self.buffer, kind, 1, self.take(size))[0].item()

    def count(self, what: str) -> int:
        value = self.number("<u4" if what == "dimensions" else "<u8")
        if value > MOST[what]:
            raise damaged(self.path, f"it claims {value:,} {what}")
        return value

    def skip_string(self) -> None:
        self.take(struct.unpack_from("<Q", self.buffer, self.take(8))[0])

    def string(self) -> str:
        begin = self.take(8)
        size = struct.unpack_from("<Q", self.buffer, begin)[0]
        self.take(size)
        return self.buffer[begin + 8 : begin + 8 + size].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise damaged(self.path, f"metadata of the unknown type {kind}")
        item, size = self.number("<u4"), self.count("array entries")
        if item in SCALARS:
            return Numbers(self.path, self.take(size * np.dtype(SCALARS[item]).itemsize), size, SCALARS[item])
        if item != STRING:
            raise damaged(self.path, f"an array of the unknown or nested type {item}")
        begin = self.at
        for _ in range(size):
            self.skip_string()
        return Strings(self.path, begin, size)


def damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged or not a GGUF file: {what}. Download it again.")


def read_header(path: Path) -> tuple[dict[str, Any], list[TensorInfo]]:
    """Metadata and tensors of a GGUF file of version 2 or 3; shapes are in row order, as in PyTorch."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        with path.open("rb") as file:
            magic = file.read(4)
            if magic != b"GGUF":
                raise damaged(path, f"it begins with {magic!r}")
            with mmap(file.fileno(), 0, access=ACCESS_READ) as buffer:
                cursor = _Cursor(path, buffer, 4)
                version = cursor.number("<u4")
                if version not in (2, 3):
                    raise CheckpointError(
                        f"{path} is GGUF version {version}; versions 2 and 3 (little endian) can be read."
                    )
                n_tensors, n_metadata = cursor.count("tensors"), cursor.count("metadata entries")
                metadata = {}
                for _ in range(n_metadata):
                    key = cursor.string()
                    if key in metadata:
                        raise damaged(path, f"its metadata hold {key[:200]!r} twice")
                    metadata[key] = cursor.value(cursor.number("<u4"))
                raw = []
                for _ in range(n_tensors):
                    name = cursor.string()
                    shape = tuple(cursor.number("<u8") for _ in range(cursor.count("dimensions")))[::-1]
                    raw.append((name, shape, cursor.number("<u4"), cursor.number("<u8")))
                header_end, size = cursor.at, len(buffer)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None

    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
        raise damaged(path, f"its alignment is {alignment}")
    start = -(-header_end // alignment) * alignment
    infos = []
    for name, shape, kind, offset in raw:
        if kind not in GGML_QUANT_SIZES:
            raise CheckpointError(f"{path}: {name} has the unknown quantisation type {kind}; update the gguf package.")
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        if not 0 < prod(shape) < 2**50 or not shape or shape[-1] % block:
            raise damaged(path, f"{name} has the impossible shape {list(shape)}")
        nbytes = prod(shape) // block * block_bytes
        if offset % alignment or start + offset + nbytes > size:
            raise damaged(path, f"{name} lies outside the file (cut short?)")
        infos.append(TensorInfo(name, shape, GGMLQuantizationType(kind).name, nbytes, path, start + offset))
    ends = sorted((i.offset, i.offset + i.nbytes, i.name) for i in infos)
    for (_, end, name), (begin, _, following) in pairwise(ends):
        if begin < end:
            raise damaged(path, f"{name} and {following} overlap")
    return metadata, infos


def pieces(info: TensorInfo) -> Iterator[np.ndarray]:
    """A tensor's rows as exact float32, some at a time: ``[rows, width]``."""
    rows, width = prod(info.shape[:-1]), prod(info.shape[-1:])
    row_bytes = info.nbytes // rows
    step = max(1, CHUNK // width)
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        stored = np.array(mapped_bytes(info, begin * row_bytes, end * row_bytes)).reshape(end - begin, row_bytes)
        yield _float32(stored, info) + np.float32(info.shift)


def _float32(stored: np.ndarray, info: TensorInfo) -> np.ndarray:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    if info.dtype == "F64":
        return stored.view("<f8").astype(np.float32)
    try:
        return dequantize(stored, GGMLQuantizationType[info.dtype])
    except NotImplementedError:
        raise CheckpointError(
            f"{info.file}: {info.name} is stored as {info.dtype}, which the gguf package cannot dequantise. Use a file "
            "quantised in another way, or update the package."
        ) from None
