"""Checkpoints in GGUF files: a bounded header reader, exact dequantisation, and a mappable copy for later starts.

The ``gguf`` package's own reader makes an object of every token and takes many seconds to open a large vocabulary;
this one walks the header once, checks every length against the file, and decodes token lists only when asked.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import hashlib
import json
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from jaxcore.checkpoint import gguf_names
from jaxcore.checkpoint.paths import cache_folder
from jaxcore.checkpoint.safetensors import open_folder
from jaxcore.checkpoint.store import Checkpoint, TensorInfo, mapped_bytes
from jaxcore.checkpoint.write import Entry, write_safetensors
from models.errors import CheckpointError, ConfigError

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
DAY = 24 * 3600


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
            begin = self.take(size * np.dtype(SCALARS[item]).itemsize)
            return np.frombuffer(self.buffer, SCALARS[item], size, begin).copy()
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


def open_file(path: Path, reference: str | None = None) -> Checkpoint:
    """Read the header of a GGUF file; tensors are named and shaped as in the Hugging Face files."""
    metadata, infos = read_header(path)
    config, notes = gguf_names.hf_config(path, metadata, infos)
    tensors = {}
    for info in infos:
        name = gguf_names.canonical(info.name)
        if name is None:
            notes = (*notes, f"{info.name} is not part of the text model and is left out.")
        elif name in tensors:
            raise damaged(path, f"{info.name} stands twice")
        else:
            tensors[name] = replace(info, shift=gguf_names.shift(config["model_type"], name))
    quantised = sorted({i.dtype for i in infos} - {"F32", "F16", "BF16", "F64"})
    if quantised:
        notes = (*notes, f"Weights were quantised ({', '.join(quantised)}); each is used at its exact float32 value.")
    return Checkpoint(reference or str(path), path, "gguf", config, tensors, path, None, notes)


def pieces(info: TensorInfo) -> Iterator[np.ndarray]:
    """A tensor's rows as exact float32, some at a time: ``[rows, width]``."""
    rows, width = prod(info.shape[:-1]), info.shape[-1]
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


def converted_copy(checkpoint: Checkpoint, progress: Callable[[float, str], None]) -> Checkpoint:
    """The same model as a Hugging Face folder of float32 tensors in the user's cache, made on first use.

    The same tensor of all layers lies in one piece, so that `jaxcore.checkpoint.store.stacked` need not copy.
    The folder appears only when it is complete.
    """
    folder = cache_folder() / "converted" / f"{checkpoint.path.stem}-{_identity(checkpoint)}"
    if not folder.is_dir():
        try:
            _convert(checkpoint, folder, progress)
        except OSError as error:
            raise CheckpointError(
                f"The float32 copy of {checkpoint.path.name} cannot be written to {folder.parent} ({error.strerror}). "
                "Free some space, or point CLEARBOX_CACHE to a folder that can be written."
            ) from None
    note = f"Its values are read from a float32 copy in {folder}, made once for fast starts."
    return replace(open_folder(folder, checkpoint.reference), notes=(*checkpoint.notes, note))


def _identity(checkpoint: Checkpoint) -> str:
    """What tells one file's copy from another's, wherever the file lies: its header, size and time of change."""
    stat = checkpoint.path.stat()
    digest = hashlib.sha256(f"{stat.st_size}:{stat.st_mtime_ns}:{gguf_names.LAYOUT_VERSION}".encode())
    with checkpoint.path.open("rb") as file:
        digest.update(file.read(min(info.offset for info in checkpoint.tensors.values())))
    return digest.hexdigest()[:16]


def _convert(checkpoint: Checkpoint, folder: Path, progress: Callable[[float, str], None]) -> None:
    order = sorted(checkpoint.tensors, key=gguf_names.layout_order)
    size = sum(info.parameters * 4 for info in checkpoint.tensors.values())
    folder.parent.mkdir(parents=True, exist_ok=True)
    for old in folder.parent.glob(".unfinished-*"):
        if time.time() - old.stat().st_mtime > DAY:  # its process was killed before it could clean up
            shutil.rmtree(old, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < size * 1.02:
        raise CheckpointError(
            f"The float32 copy of {checkpoint.path.name} needs {size / 1e9:.1f} GB, {folder.parent} has "
            f"{free / 1e9:.1f} GB free. Free some space, or point CLEARBOX_CACHE to another disk."
        )

    def reported(done: int, info: TensorInfo) -> Iterator[np.ndarray]:
        for piece in pieces(info):
            progress(done / size, f"Converting {info.name} from {info.dtype}")
            yield piece
            done += piece.nbytes

    entries, done = [], 0
    for name in order:
        info = checkpoint.tensors[name]
        stored_as = name if name == "lm_head.weight" else f"model.{name}"
        entries.append(Entry(stored_as, "F32", info.shape, reported(done, info)))
        done += info.parameters * 4

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as temporary:
        made = Path(temporary) / "model"
        made.mkdir()
        (made / "config.json").write_text(json.dumps(checkpoint.config, indent=1))
        metadata, _ = read_header(checkpoint.path)
        if isinstance(template := metadata.get("tokenizer.chat_template"), str):
            (made / "chat_template.jinja").write_text(template, "utf-8")
        (made / "tokenizer.model").write_bytes(sentencepiece_model(checkpoint.path, metadata))
        write_safetensors(made / "model.safetensors", entries, {"format": "pt"})
        try:
            made.rename(folder)
        except OSError:  # another process finished the same copy first
            if not folder.is_dir():
                raise


def sentencepiece_model(path: Path, metadata: Mapping[str, Any]) -> bytes:
    """The tokenizer of a GGUF file as a SentencePiece model."""
    proto: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # generated: its classes have no static types
    kind = metadata.get("tokenizer.ggml.model")
    names = ("tokens", "scores", "token_type")
    tokens, scores, types = (metadata.get(f"tokenizer.ggml.{name}") for name in names)
    if kind != "llama":
        raise ConfigError(f"{path}: a tokenizer of kind {kind!r} is not supported in a GGUF file; SentencePiece is.")
    if not (isinstance(tokens, Strings) and isinstance(scores, np.ndarray) and isinstance(types, np.ndarray)):
        raise damaged(path, "its tokens, scores or token types are missing")
    if not len(tokens) == len(scores) == len(types):
        raise damaged(path, "its token list, scores and types differ in length")
    if not np.isfinite(scores).all() or not np.isin(types, range(1, 7)).all():
        raise damaged(path, "a token has a score that is not finite, or an unknown type")
    special = {
        f"{field}_id": metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        for field, name, default in (("bos", "bos", 2), ("eos", "eos", 1), ("unk", "unknown", 3), ("pad", "padding", 0))
    }
    if not all(isinstance(token_id, int) and 0 <= token_id < len(tokens) for token_id in special.values()):
        raise damaged(path, "a special token lies outside the vocabulary")
    piece_type = proto.ModelProto.SentencePiece
    model = proto.ModelProto()
    for token_id, (piece, score, kind) in enumerate(zip(tokens.values, scores.tolist(), types.tolist(), strict=True)):
        if kind == piece_type.USER_DEFINED:
            piece = piece.replace(" ", "\u2581")  # llama.cpp writes these with plain spaces
        model.pieces.add(piece=piece, score=score, type=piece_type.UNKNOWN if token_id == special["unk_id"] else kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.vocab_size = len(tokens)
    model.trainer_spec.byte_fallback = True
    for field, token_id in special.items():
        setattr(model.trainer_spec, field, token_id)
        # SentencePiece finds its special tokens by these names and ignores the ids.
        setattr(model.trainer_spec, field.replace("_id", "_piece"), tokens.values[token_id])
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    return model.SerializeToString()
