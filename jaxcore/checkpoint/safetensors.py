"""Opening safetensors checkpoints: single files, and folders with one file or several and an index.

The headers are checked here, by the rules of the format, before anything is read; tensors are then memory-mapped
straight from the file, because the safetensors library copies every tensor that it hands out as NumPy.
Format: https://huggingface.co/docs/safetensors.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxcore.checkpoint import char_names
from jaxcore.checkpoint.names import by_canonical_name
from jaxcore.checkpoint.store import DTYPES, Checkpoint, TensorInfo
from models.errors import CheckpointError

INDEX = "model.safetensors.index.json"
MAX_HEADER = 32 * 2**20
"""Bytes; headers of the largest published shards take a few hundred kilobytes."""
MAX_RANK = 8
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def refuse_pickle(path: Path) -> None:
    """Raise `CheckpointError` for a file whose name says that it is a pickle, without opening it."""
    if path.suffix.lower() in PICKLES:
        raise CheckpointError(
            f"{path}: {path.suffix} checkpoints are pickles, which run code when they are opened, so they are never "
            "read. Convert the checkpoint to .safetensors where you trust it, and open that."
        )


def open_folder(folder: Path, reference: str | None = None, revision: str | None = None) -> Checkpoint:
    """Open a folder in Hugging Face's layout: config.json and safetensors, one file or several with an index.

    Reads headers only. Raises `CheckpointError` saying what is missing or damaged.
    """
    return _checkpoint(folder, reference or str(folder), _weight_files(folder), revision)


def open_file(path: Path, reference: str | None = None) -> Checkpoint:
    """Open a single ``.safetensors`` file.

    Its config.json and tokenizer lie in the same folder; a character transformer needs neither.
    """
    return _checkpoint(path, reference or str(path), [path], None)


def has_weights(folder: Path) -> bool:
    """Whether a folder holds safetensors weights, and all shards that its index names."""
    try:
        return bool(_weight_files(folder))
    except CheckpointError:
        return False


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of at most `MAX_HEADER` bytes, without duplicate keys."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_HEADER + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error
    return _object(raw, path, "the file")


def read_header(path: Path) -> tuple[dict[str, str], list[TensorInfo]]:
    """Metadata and tensors of a safetensors file, from its header, in the order in which they lie in the file.

    Raises `CheckpointError` unless the header is sound: known dtypes, bytes = shape x dtype, and tensors that cover
    the rest of the file without holes or overlaps.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise CheckpointError(
                    f"{path}: the header should take {length:,} bytes but the file has {size:,}; the file is truncated "
                    "or not a safetensors file. Download it again."
                )
            if length > MAX_HEADER:
                raise CheckpointError(
                    f"{path}: the header takes {length:,} bytes; more than {MAX_HEADER:,} are not accepted."
                )
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error

    header = _object(raw, path, "the header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ in the header is not a table of strings; the file is damaged.")
    start = 8 + length
    infos = [_tensor(path, name, entry, start) for name, entry in header.items()]
    infos.sort(key=lambda info: (info.offset, info.nbytes))
    for info in infos:
        if info.offset != start:
            kind = "overlaps the one before" if info.offset < start else "leaves a hole before it"
            raise CheckpointError(f"{path}: tensor {info.name} {kind}; the file is damaged. Download it again.")
        start += info.nbytes
    if start != size:
        raise CheckpointError(
            f"{path}: the tensors end at byte {start:,} but the file at {size:,}; it is truncated or damaged. "
            "Download it again."
        )
    return metadata, infos


def _tensor(path: Path, name: str, entry: Any, data: int) -> TensorInfo:
    """One entry of the header; ``data`` is where the tensors begin in the file."""

    def wrong(what: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name[:200]!r}: {what}. The file is damaged or of a newer format.")

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("the header entry must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise wrong(f"dtype {str(dtype)[:40]!r} is not supported (known are {', '.join(DTYPES)})")
    if not _counts(shape) or len(shape) > MAX_RANK:
        raise wrong(f"the shape must be a list of at most {MAX_RANK} whole numbers, none negative")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("data_offsets must be two whole numbers in order")
    nbytes = math.prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise wrong(f"{dtype} of shape {tuple(shape)} takes {nbytes} bytes but {offsets[1] - offsets[0]} are reserved")
    return TensorInfo(name, tuple(shape), dtype, nbytes, path, data + offsets[0])


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _object(raw: bytes, path: Path, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise CheckpointError(f"{path}: {twice[:200]!r} appears twice in {what}; the file is damaged.")
        return table

    if len(raw) > MAX_HEADER:
        raise CheckpointError(f"{path}: more than {MAX_HEADER:,} bytes of JSON are not accepted.")
    try:
        table = json.loads(raw.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {what} is not valid JSON; the file is damaged ({error}).") from error
    if not isinstance(table, dict):
        raise CheckpointError(f"{path}: {what} is not a JSON object; the file is damaged.")
    return table


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder. Raises `CheckpointError` if there is none or it is damaged."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: there is no config.json beside the weights, so the model's sizes are unknown. Copy the one "
            "that belongs to this checkpoint there."
        )
    config = {key: value for key, value in read_json(path).items() if key != "text_config" or value is not None}
    if not isinstance(config.get("text_config", {}), dict):
        raise CheckpointError(f"{path}: text_config is not a table; the file is damaged.")
    return config


def _weight_files(folder: Path) -> list[Path]:
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if (folder / INDEX).is_file():
        return _shards(folder)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise CheckpointError(
            f"{folder}: there are {len(found)} .safetensors files but no {INDEX} to say how they belong together. "
            "Add it, or give the path of one file."
        )
    for path in sorted(folder.iterdir()):
        refuse_pickle(path)
    raise CheckpointError(
        f"{folder}: there is no model.safetensors and no {INDEX} in this folder. Give the folder that holds the "
        "weights."
    )


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map is missing or empty; the index is damaged. Download it again.")
    for shard in weight_map.values():
        # Only a plain name: an index must not lead out of the folder. (Files may be links, as in the hub's cache.)
        if not isinstance(shard, str) or not shard.endswith(".safetensors") or set(shard) & set("/\\\0:"):
            raise CheckpointError(
                f"{path}: the shard {str(shard)[:200]!r} is not the plain name of a .safetensors file in this folder; "
                "such an index is not followed."
            )
    return weight_map


def _shards(folder: Path) -> list[Path]:
    names = sorted(set(_weight_map(folder).values()))
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise CheckpointError(
            f"{folder}: {len(absent)} of {len(names)} shards are missing ({', '.join(absent[:3])}); the download is "
            "incomplete. Fetch them."
        )
    return [folder / name for name in names]


def _check_index(folder: Path, infos: Iterable[TensorInfo]) -> None:
    places = {(info.name, info.file.name) for info in infos}
    lost = [(name, shard) for name, shard in _weight_map(folder).items() if (name, shard) not in places]
    if lost:
        name, shard = lost[0]
        raise CheckpointError(
            f"{folder / shard}: {name} should be here by the index but is not ({len(lost)} such tensors); shards and "
            "index are not of one checkpoint. Download them again."
        )


def _checkpoint(path: Path, reference: str, files: list[Path], revision: str | None) -> Checkpoint:
    headers = [read_header(file) for file in files]
    infos = [info for _, found in headers for info in found]
    folder = path if path.is_dir() else path.parent
    config = char_names.config(path, infos, headers[0][0]) if char_names.is_char(infos) else read_config(folder)
    if path.is_dir() and (path / INDEX).is_file() and files != [path / "model.safetensors"]:
        _check_index(path, infos)
    tensors, notes = by_canonical_name(infos)
    return Checkpoint(reference, path, "safetensors", config, tensors, tokenizer_in(folder), revision, notes)


def tokenizer_in(folder: Path) -> Path | None:
    """The tokenizer that lies in a folder, if there is one."""
    names = ("tokenizer.json", "tokenizer.model")
    return next((folder / name for name in names if (folder / name).is_file()), None)
