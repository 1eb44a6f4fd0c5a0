"""Checkpoints on the Hugging Face hub, downloaded by ``huggingface_hub`` into its own cache."""

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from jaxcore.checkpoint.safetensors import has_weights
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
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json")
"""Files that are a tokenizer, the preferred one first."""
TOKENIZER_WANTED = (*TOKENIZERS, "tokenizer_config.json", "generation_config.json")
"""Files that are fetched when only the tokenizer is wanted."""


@dataclass(frozen=True)
class Plan:
    """What opening a hub reference would download: ``missing_bytes`` are not in the cache yet.

    ``revision`` is the commit that ``asked_for`` (a branch, tag or commit) stands for.
    """

    repository: str
    asked_for: str
    revision: str
    files: tuple[str, ...]
    total_bytes: int
    missing_bytes: int
    cache: Path


def parse(reference: str) -> tuple[str, str | None]:
    """``hf:org/name[@revision]`` to repository and revision."""
    repository, _, revision = reference.removeprefix("hf:").partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) or ".." in revision:
        raise InputError(f"{reference!r} is not a hub reference; write hf:org/name or hf:org/name@revision.")
    return repository, revision or None


def plan(reference: str, *, tokenizer_only: bool = False) -> Plan:
    """Ask the hub what a reference holds, pinned to one commit. Needs the network; downloads nothing."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import DEFAULT_REVISION, HF_HUB_CACHE

    repository, revision = parse(reference)
    try:
        info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    except Exception as error:
        raise _explained(error, repository, revision) from None
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or ()}
    files = _wanted(sizes, TOKENIZER_WANTED if tokenizer_only else WANTED)
    if tokenizer_only and not set(files) & set(TOKENIZERS):
        raise CheckpointError(f"hf:{repository} holds no tokenizer: none of {', '.join(TOKENIZERS)}.")
    if not tokenizer_only and not any(name.endswith(".safetensors") for name in files):
        raise CheckpointError(
            f"hf:{repository} holds no safetensors weights, and pickles (.bin, .pt) are never opened. Look for "
            "a converted copy of the model."
        )
    commit = str(info.sha)
    missing = [
        sizes[name] for name in files if not isinstance(try_to_load_from_cache(repository, name, revision=commit), str)
    ]
    return Plan(
        repository=repository,
        asked_for=revision or DEFAULT_REVISION,
        revision=commit,
        files=files,
        total_bytes=sum(sizes[name] for name in files),
        missing_bytes=sum(missing),
        cache=Path(HF_HUB_CACHE),
    )


def fetch(wanted: Plan, progress: Callable[[float, str], None]) -> Path:
    """Download what is missing, file by file with progress in bytes; returns the folder.

    What was asked for is noted in the cache only at the end, so that `cached` never finds half a checkpoint.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.file_download import repo_folder_name
    from tqdm import tqdm

    done = 0

    class Reported(tqdm):
        """A bar that draws nothing and passes its counts on."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal done
            done += int(n or 0)
            share = min(done / max(wanted.missing_bytes, 1), 1.0)
            progress(share, f"{done / 1e6:,.0f} of {wanted.missing_bytes / 1e6:,.0f} MB from {wanted.repository}")

    _check_room(wanted)
    progress(0.0, f"{len(wanted.files)} files, {wanted.missing_bytes / 1e6:,.0f} MB to download to {wanted.cache}")
    repository = wanted.cache / repo_folder_name(repo_id=wanted.repository, repo_type="model")
    try:
        for name in wanted.files:
            hf_hub_download(wanted.repository, name, revision=wanted.revision, tqdm_class=Reported)
        reference = repository / "refs" / wanted.asked_for
        if wanted.asked_for != wanted.revision:
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(wanted.revision)
    except Exception as error:
        raise _explained(error, wanted.repository, wanted.revision) from None
    return repository / "snapshots" / wanted.revision


def cached(reference: str) -> Path | None:
    """The folder of a reference that was downloaded whole, without asking the network; None if it was not."""
    from huggingface_hub import try_to_load_from_cache

    repository, revision = parse(reference)
    config = try_to_load_from_cache(repository, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if has_weights(folder) else None


def cached_tokenizer(reference: str) -> Path | None:
    """The tokenizer of a reference in the cache, without asking the network; None if there is none."""
    from huggingface_hub import try_to_load_from_cache

    repository, revision = parse(reference)
    found = (try_to_load_from_cache(repository, name, revision=revision) for name in TOKENIZERS)
    return next((Path(path) for path in found if isinstance(path, str)), None)


def _wanted(names: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """The files worth fetching: in the top folder, and of several sets of weights only the usual one."""
    chosen = [name for name in names if "/" not in name and any(fnmatch(name, pattern) for pattern in patterns)]
    weights = [name for name in chosen if name.endswith(".safetensors")]
    usual = [name for name in weights if name.startswith("model")] or weights
    return tuple(name for name in chosen if name not in weights or name in usual)


def _check_room(wanted: Plan) -> None:
    there = next(folder for folder in (wanted.cache, *wanted.cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < wanted.missing_bytes:
        raise CheckpointError(
            f"hf:{wanted.repository} needs {wanted.missing_bytes / 1e9:.1f} GB and {there} has {free / 1e9:.1f} GB "
            "free. Free some space, or move the cache with HF_HOME."
        )


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
