"""Results to files: JSON in which every number is finite, NPZ, never half-written."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxcore import __version__
from jaxcore.checkpoint.write import replaced
from models.errors import InputError


def plain(value: Any) -> Any:
    """A record as JSON values: dataclasses and mappings to objects, arrays to lists, non-finite numbers to null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def result(
    schema: str, model: Mapping[str, Any] | None, elapsed_s: float, content: Mapping[str, Any]
) -> dict[str, Any]:
    """A result with what every result carries: schema, model, versions, time taken."""
    versions = {"jax": version("jax"), "jaxlib": version("jaxlib"), "clearbox": __version__}
    head = {"schema": f"clearbox.{schema}/1", "model": model, "versions": versions, "elapsed_s": round(elapsed_s, 3)}
    return plain({**head, **content})


def to_json(value: Any) -> str:
    """JSON text of a result."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=1)


def write(path: Path, content: Callable[[IO[bytes]], Any]) -> None:
    """Let ``content`` write a file that appears only when it is complete. Raises `InputError` if it cannot."""
    try:
        with replaced(path) as temporary, temporary.open("xb") as file:
            content(file)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}. Choose another --out.") from None
