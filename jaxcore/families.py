"""Which architectures run, and how each reads its configuration and names its tensors. Imports no JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxcore.checkpoint.store import Checkpoint, resolve
from models.char.config import from_table as char_config
from models.char.tensors import tensor_table as char_tensors
from models.errors import ConfigError
from models.gemma3.config import from_hf as gemma3_config
from models.gemma3.tensors import tensor_table as gemma3_tensors
from models.tensors import TensorSpec


@dataclass(frozen=True)
class Family:
    """An architecture: a configuration from ``config.json``, and the tensors that it needs."""

    title: str
    config: Callable[[Mapping[str, Any]], Any]
    tensors: Callable[[Any], dict[str, TensorSpec]]


GEMMA3 = Family("Gemma 3", gemma3_config, gemma3_tensors)
CHAR = Family("Character transformer", char_config, char_tensors)
FAMILIES = {"gemma3": GEMMA3, "gemma3_text": GEMMA3, "char": CHAR}
"""By ``model_type``."""


def family_of(checkpoint: Checkpoint) -> Family:
    """The family of a checkpoint. Raises `ConfigError` for an architecture that does not run here."""
    kind = checkpoint.config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ConfigError(
            f"{checkpoint.path} is of model_type {kind!r}, which does not run here; supported: {', '.join(FAMILIES)}."
        )
    return FAMILIES[kind]


def checked_config(checkpoint: Checkpoint) -> Any:
    """The configuration of a checkpoint whose tensors all fit it, else `ConfigError` or `CheckpointError`."""
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    resolve(checkpoint, family.tensors(config).values(), config.n_layers)
    return config
