"""Checkpoints on the Hugging Face hub, downloaded by ``huggingface_hub`` into its own cache."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from models.errors import CheckpointError, InputError

WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""Files that are fetched; pickles never are."""


@dataclass(frozen=True)
class Plan:
    """What opening a hub reference would download: ``missing_bytes`` are not in the cache yet."""

    repository: str
    revision: str
    files: tuple[str, ...]
    total_bytes: int
    missing_bytes: int
    cache: Path


def parse(reference: str) -> tuple[str, str | None]:
    """``hf:org/name[@revision]`` to repository and revision."""
    repository, _, revision = reference.removeprefix("hf:").partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"{reference!r} is not a hub reference; write hf:org/name or hf:org/name@revision.")
    return repository, revision or None


def plan(reference: str) -> Plan:
    """Ask the hub what a reference holds, pinned to one commit. Needs the network."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    repository, revision = parse(reference)
    try:
        info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    except Exception as error:
        raise _explained(error, repository, revision) from None
    files = {f.rfilename: f.size or 0 for f in info.siblings or () if _wanted(f.rfilename)}
    commit = str(info.sha)
    missing = [
        size
        for name, size in files.items()
        if not isinstance(try_to_load_from_cache(repository, name, revision=commit), str)
    ]
    return Plan(repository, commit, tuple(files), sum(files.values()), sum(missing), Path(HF_HUB_CACHE))


def fetch(wanted: Plan, progress: Callable[[float, str], None]) -> Path:
    """Download what is missing, file by file with progress in bytes; returns the folder."""
    from huggingface_hub import hf_hub_download
    from tqdm import tqdm

    done = 0

    class Reported(tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            nonlocal done
            done += int(n or 0)
            share = min(done / max(wanted.missing_bytes, 1), 1.0)
            progress(share, f"{done / 1e6:,.0f} of {wanted.missing_bytes / 1e6:,.0f} MB from {wanted.repository}")
            return super().update(n)

    folder = None
    for name in wanted.files:
        try:
            path = hf_hub_download(wanted.repository, name, revision=wanted.revision, tqdm_class=Reported)
        except Exception as error:
            raise _explained(error, wanted.repository, wanted.revision) from None
        if "/" not in name:
            folder = Path(path).parent
    if folder is None:
        raise CheckpointError(f"{wanted.repository} holds none of the files of a model in safetensors format.")
    return folder


def cached(reference: str) -> Path | None:
    """The folder of a reference that was downloaded before, without asking the network; None if it was not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, revision = parse(reference)
    try:
        folder = Path(
            snapshot_download(repository, revision=revision, allow_patterns=list(WANTED), local_files_only=True)
        )
    except (LocalEntryNotFoundError, FileNotFoundError):
        return None
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


def _wanted(name: str) -> bool:
    return "/" not in name and any(fnmatch(name, pattern) for pattern in WANTED)


def _explained(error: Exception, repository: str, revision: str | None) -> CheckpointError:
    """What a failure of the library means for the user."""
    from huggingface_hub import errors

    where = f"hf:{repository}" + (f"@{revision}" if revision else "")
    if isinstance(error, errors.GatedRepoError):
        return CheckpointError(
            f"{where} is gated: accept its licence on huggingface.co/{repository}, then run "
            "`hf auth login` with your token."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(f"{where}: this revision does not exist; leave it out for the newest.")
    if isinstance(error, errors.RepositoryNotFoundError):
        return CheckpointError(f"{where} does not exist, or is private: check the name, or run `hf auth login`.")
    if isinstance(error, OSError) and error.errno == 28:
        return CheckpointError(f"{where}: the disk is full; free some space or move the cache with HF_HOME.")
    return CheckpointError(
        f"{where} could not be reached ({type(error).__name__}). Check the network, or give a folder on this machine."
    )
