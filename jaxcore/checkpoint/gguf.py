"""Checkpoints in GGUF files: opened under Hugging Face's names, and copied once to a folder that can be mapped."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxcore.checkpoint import gguf_apertus, gguf_gemma3
from jaxcore.checkpoint.gguf_file import damaged, pieces, read_header
from jaxcore.checkpoint.gguf_names import LAYOUT_VERSION, Dialect, Metadata, canonical, layout_order
from jaxcore.checkpoint.gguf_tokenizer import tokenizer_file
from jaxcore.checkpoint.paths import cache_folder
from jaxcore.checkpoint.safetensors import open_folder
from jaxcore.checkpoint.store import Checkpoint, TensorInfo
from jaxcore.checkpoint.write import ALIGNMENT, Entry, write_safetensors
from models.errors import CheckpointError, ConfigError

DIALECTS: dict[str, Dialect] = {"gemma3": gguf_gemma3.DIALECT, "apertus": gguf_apertus.DIALECT}
"""By ``general.architecture``."""
DAY = 24 * 3600


def open_file(path: Path, reference: str | None = None) -> Checkpoint:
    """Read the header of a GGUF file; tensors are named and shaped as in the Hugging Face files."""
    metadata, infos = read_header(path)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in DIALECTS:
        raise ConfigError(f"{path} is a GGUF file of architecture {architecture!r}; supported: {', '.join(DIALECTS)}.")
    dialect, told = DIALECTS[architecture], Metadata(path, architecture, metadata)
    config, notes = dialect.config(told, infos)
    tensors = dialect.in_metadata(told)
    for info in infos:
        name = canonical(info.name, dialect.in_layer)
        if info.name in dialect.read_for_config:
            continue
        if name is None:
            notes = (*notes, f"{info.name} is not part of the text model and is left out.")
        elif name in tensors:
            raise damaged(path, f"{info.name} stands twice")
        else:
            shift = dialect.norm_shift if name.endswith("norm.weight") else 0.0
            tensors[name] = replace(info, shift=shift)
    quantised = sorted({i.dtype for i in infos} - {"F32", "F16", "BF16", "F64"})
    if quantised:
        notes = (*notes, f"Weights were quantised ({', '.join(quantised)}); each is used at its exact float32 value.")
    return Checkpoint(reference or str(path), path, "gguf", config, tensors, path, None, notes)


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
    digest = hashlib.sha256(f"{stat.st_size}:{stat.st_mtime_ns}:{LAYOUT_VERSION}".encode())
    with checkpoint.path.open("rb") as file:
        # The header ends before the first tensor; single numbers may lie within it.
        digest.update(file.read(min(info.offset for info in checkpoint.tensors.values() if info.parameters > 1)))
    return digest.hexdigest()[:16]


def _convert(checkpoint: Checkpoint, folder: Path, progress: Callable[[float, str], None]) -> None:
    tensors = checkpoint.tensors
    # What is no multiple of the alignment comes last, where it cannot push other tensors off theirs.
    order = sorted(tensors, key=lambda name: (tensors[name].parameters * 4 % ALIGNMENT > 0, *layout_order(name)))
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
        tokenizer, content = tokenizer_file(checkpoint.path, metadata)
        (made / tokenizer).write_bytes(content)
        if isinstance(template := metadata.get("tokenizer.chat_template"), str):
            (made / "chat_template.jinja").write_text(template, "utf-8")
        write_safetensors(made / "model.safetensors", entries, {"format": "pt"})
        try:
            made.rename(folder)
        except OSError:  # another process finished the same copy first
            if not folder.is_dir():
                raise
