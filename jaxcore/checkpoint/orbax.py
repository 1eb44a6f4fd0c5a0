"""Orbax checkpoints: a folder with one array for each parameter, the layers stacked, and config.json and tokenizer.

The arrays are Zarr's (version 2), each a single uncompressed chunk, so that every array is one file of raw numbers.
Orbax restores such a folder like any other, to any sharding; here its files are memory-mapped as safetensors are, and
neither Orbax nor JAX is imported to open one.
Formats: https://orbax.readthedocs.io, https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from jaxcore import __version__
from jaxcore.checkpoint.safetensors import MAX_RANK, read_config, read_json, tokenizer_in
from jaxcore.checkpoint.store import DTYPES, Checkpoint, TensorInfo, names_of, present, read
from jaxcore.checkpoint.write import folder_replaced
from jaxcore.families import checked_config, family_of
from models.errors import CheckpointError, InputError
from models.tensors import TensorSpec

TREE, STEP = "_METADATA", "_CHECKPOINT_METADATA"
"""Orbax's own files: the tree of arrays, and what was said when they were saved."""
WRITER = "clearbox"
"""The key of what `write` says there."""
NUMBERS = {"<f2": "F16", "bfloat16": "BF16", "<f4": "F32", "<f8": "F64"}
"""Zarr's spelling of an element type to ours."""
LAYOUT = {"zarr_format": 2, "order": "C", "compressor": None, "filters": None}
"""What the metadata of an array say if its chunk is a file of raw numbers."""
BESIDE = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files that are copied along."""


def is_orbax(folder: Path) -> bool:
    """Whether Orbax has written this folder."""
    return (folder / TREE).is_file() or (folder / STEP).is_file()


def open_folder(folder: Path, reference: str | None = None) -> Checkpoint:
    """Open an Orbax folder that also holds the model's config.json; reads metadata only.

    Raises `CheckpointError` saying what is missing or damaged, or that the arrays are stored in another layout.
    """
    if not (folder / TREE).is_file():
        raise CheckpointError(
            f"{folder}: this is an Orbax folder without {TREE}, so it holds no arrays itself: give the folder inside "
            "it that does, or save the checkpoint again if there is none."
        )
    bare = Checkpoint(reference or str(folder), folder, "orbax", read_config(folder), {}, tokenizer_in(folder))
    family = family_of(bare)
    config = family.config(bare.config)
    table = family.tensors(config)
    tensors: dict[str, TensorInfo] = {}
    for field in _fields(folder):
        array = _array(folder, field)
        spec = table.get(field, TensorSpec(field, (), array.shape))
        for info in _by_layer(array, spec, config.n_layers):
            tensors[info.name] = replace(info, name=array.name)
    revision, notes = _said(folder)
    return replace(bare, tensors=tensors, revision=revision, notes=notes)


def _fields(folder: Path) -> list[str]:
    """The names of the arrays in the saved tree, nested ones joined by dots as their folders are."""
    path = folder / TREE
    tree = read_json(path)
    if tree.get("use_ocdbt", True) or tree.get("use_zarr3"):
        raise CheckpointError(
            f"{folder}: its arrays are packed together (OCDBT) or of Zarr version 3, and cannot be mapped. Save it "
            "again with orbax.checkpoint.PyTreeCheckpointer(use_ocdbt=False, use_compression=False)."
        )
    try:
        fields = [".".join(str(key["key"]) for key in leaf["key_metadata"]) for leaf in tree["tree_metadata"].values()]
    except (AttributeError, KeyError, TypeError):
        raise CheckpointError(f"{path}: tree_metadata is missing or of an unknown form; the file is damaged.") from None
    odd = next((field for field in fields if not field.strip(".") or set(field) & set("/\\\0:")), None)
    if odd is not None:  # only a plain name: metadata must not lead out of the folder
        raise CheckpointError(f"{path}: {odd[:200]!r} is not the plain name of an array; such a tree is not followed.")
    return fields


def _array(folder: Path, field: str) -> TensorInfo:
    """One whole array, checked against the size of its file."""
    path = folder / field / ".zarray"
    if not path.is_file():
        raise CheckpointError(f"{folder}: the array {field} is missing; copy or save the checkpoint again.")
    told = read_json(path)
    shape, dtype = told.get("shape"), told.get("dtype")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(type(n) is int and n > 0 for n in shape):
        raise CheckpointError(f"{path}: shape is {str(shape)[:80]}; it must be a list of whole numbers above 0.")
    if not isinstance(dtype, str) or dtype not in NUMBERS:
        raise CheckpointError(f"{path}: dtype is {str(dtype)[:80]}; {', '.join(NUMBERS)} can be read.")
    layout = {**LAYOUT, "chunks": shape}
    other = {key: told.get(key) for key, value in layout.items() if told.get(key) != value}
    if other:
        raise CheckpointError(
            f"{path}: the array is compressed or cut into pieces ({str(other)[:80]}), and cannot be mapped. Save it "
            "again from one device with orbax.checkpoint.PyTreeCheckpointer(use_ocdbt=False, use_compression=False)."
        )
    file = path.parent / _chunk(len(shape), "/" if told.get("dimension_separator") == "/" else ".")
    nbytes = prod(shape) * DTYPES[NUMBERS[dtype]].itemsize
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: it holds the numbers of {field}. Copy or save the checkpoint again.")
    if file.stat().st_size != nbytes:
        raise CheckpointError(
            f"{file}: {field} takes {nbytes:,} bytes but the file has {file.stat().st_size:,}; it is truncated or "
            "damaged. Copy or save the checkpoint again."
        )
    return TensorInfo(field, tuple(shape), NUMBERS[dtype], nbytes, file, 0)


def _by_layer(array: TensorInfo, spec: TensorSpec, n_layers: int) -> Iterator[TensorInfo]:
    """An array's tensors by canonical name: one for each layer, or a single one, shaped as in Hugging Face's files."""
    if "{layer}" not in spec.name:
        yield replace(array, name=spec.name)
        return
    if array.shape[:1] != (n_layers,):
        raise CheckpointError(
            f"{array.file}: {array.name} has the shape {array.shape}, config.json says {n_layers} layers; the two are "
            "not of one checkpoint."
        )
    nbytes = array.nbytes // n_layers
    for i, name in enumerate(names_of(spec, n_layers)):
        yield replace(array, name=name, shape=_merged(array.shape[1:], spec.axes), nbytes=nbytes, offset=i * nbytes)


def _merged(shape: tuple[int, ...], axes: tuple[str, ...]) -> tuple[int, ...]:
    """A shape with heads and head_dim as one axis, if they stand beside each other and nothing is merged yet."""
    if len(shape) != len(axes) or "head_dim" not in axes[1:]:
        return shape
    at = axes.index("head_dim")
    return (*shape[: at - 1], shape[at - 1] * shape[at], *shape[at + 1 :])


def _said(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """The revision and the notes that `write` has kept, if it wrote this folder."""
    path = folder / STEP
    custom = read_json(path).get("custom_metadata") if path.is_file() else None
    if not isinstance(custom, dict) or WRITER not in custom:
        return None, ()
    match custom[WRITER]:
        case {"revision": None | str() as revision, "notes": list(notes)} if all(isinstance(n, str) for n in notes):
            return revision, tuple(notes)
    raise CheckpointError(f"{path}: what {WRITER} has written there is of an unknown form; the file is damaged.")


def refuse_target(folder: Path, nbytes: int = 0) -> None:
    """Raise `InputError` unless a folder can be written there: new or empty, on a disk with ``nbytes`` free."""
    try:
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not an empty folder; choose another --out, or remove it.")
        free = shutil.disk_usage(folder.parent).free
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}. Choose another --out.") from None
    if free < nbytes:
        raise InputError(
            f"{folder} takes {nbytes / 1e9:.1f} GB but its disk has {free / 1e9:.1f} GB free. Free some space, or "
            "choose another --out."
        )


@dataclass(frozen=True)
class Parameter:
    """An array to be written: its shape and type, and its tensors one after the other, read when they are needed."""

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Iterable[np.ndarray]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def write(
    checkpoint: Checkpoint, folder: Path, *, dtype: str | None = None, progress: Callable[[float, str], None]
) -> Checkpoint:
    """Write a checkpoint whose tensors can be mapped as an Orbax folder, and open that.

    The folder appears only when it is complete. ``dtype`` (``float32``, ``bfloat16``) is that of the stored numbers,
    by default as they are. One tensor at a time is in memory. Raises `InputError` if ``folder`` is not empty or cannot
    be written.
    """
    config, folder = checked_config(checkpoint), folder.resolve()
    table = present(checkpoint, family_of(checkpoint).tensors(config), config.n_layers)
    tree = {field: _parameter(checkpoint, spec, config.n_layers, dtype) for field, spec in table.items()}
    size = sum(parameter.nbytes for parameter in tree.values())
    refuse_target(folder, size)
    said = {"version": __version__, "revision": checkpoint.revision, "notes": list(checkpoint.notes)}
    try:
        with folder_replaced(folder) as made:
            _save(made, tree, said, lambda done: progress(done / size, f"Writing {size / 1e9:.1f} GB"))
            (made / "config.json").write_text(json.dumps(dict(checkpoint.config), indent=1), "utf-8")
            _copy_beside(checkpoint, made)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}. Choose another --out.") from None
    return open_folder(folder)


def _parameter(checkpoint: Checkpoint, spec: TensorSpec, n_layers: int, dtype: str | None) -> Parameter:
    names = names_of(spec, n_layers)
    stored = np.result_type(*(DTYPES[checkpoint.tensors[name].dtype] for name in names))
    to = stored if dtype is None else DTYPES[{"float32": "F32", "bfloat16": "BF16"}[dtype]]
    return Parameter(
        spec.stacked(n_layers).shape, to, (read(checkpoint, name).astype(to, copy=False) for name in names)
    )


def _save(folder: Path, tree: Mapping[str, Parameter], said: Mapping[str, Any], written: Callable[[int], None]) -> None:
    """Let Orbax save a tree whose arrays are written as they are read; ``written`` is told how many bytes are."""
    import orbax.checkpoint as ocp

    class Streamed(ocp.type_handlers.NumpyHandler):
        """Arrays that Orbax restores as it does NumPy's, but that are never whole in memory."""

        async def serialize(self, values: Any, infos: Any, args: Any = None) -> list[Any]:
            done = 0
            for parameter, info in zip(values, infos, strict=True):
                await info.await_path_creation()
                written(done)
                _write_array(Path(info.path), parameter)
                done += parameter.nbytes
            return []

    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns that there is no OCDBT to merge, which is meant
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=False,
        use_compression=False,
        type_handler_registry=ocp.type_handlers.create_type_handler_registry((Parameter, Streamed())),
    )
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(folder, args=ocp.args.PyTreeSave(dict(tree)), custom_metadata={WRITER: dict(said)})


def _write_array(folder: Path, parameter: Parameter) -> None:
    """One Zarr array in one chunk."""
    spelling = next(zarr for zarr, ours in NUMBERS.items() if DTYPES[ours] == parameter.dtype)
    told = {**LAYOUT, "chunks": parameter.shape, "shape": parameter.shape, "dtype": spelling, "fill_value": None}
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps(told))
    with (folder / _chunk(len(parameter.shape), ".")).open("xb") as file:
        for piece in parameter.pieces:
            file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())


def _chunk(rank: int, separator: str) -> str:
    """The file of an array's only chunk."""
    return separator.join("0" * rank) or "0"


def _copy_beside(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the tokenizer and what belongs to it."""
    source = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    found = {source / name for name in BESIDE if (source / name).is_file()}
    for path in found if checkpoint.tokenizer is None else found | {checkpoint.tokenizer}:
        shutil.copyfile(path, folder / path.name)
