"""Which architectures run, and how each reads its configuration and names its tensors. Imports no JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxcore.checkpoint.store import Checkpoint, resolve
from models.apertus.config import FIELDS as APERTUS_FIELDS
from models.apertus.config import from_hf as apertus_config
from models.apertus.tensors import tensor_table as apertus_tensors
from models.char.config import from_table as char_config
from models.char.tensors import tensor_table as char_tensors
from models.errors import ConfigError
from models.gemma3.config import filled_in as gemma3_filled_in
from models.gemma3.config import from_hf as gemma3_config
from models.gemma3.tensors import tensor_table as gemma3_tensors
from models.tensors import TensorSpec


@dataclass(frozen=True)
class Family:
    """An architecture: a configuration from ``config.json``, and the tensors that it needs.

    ``filled_in`` gives what `config` takes for fields that the file leaves out.
    """

    title: str
    config: Callable[[Mapping[str, Any]], Any]
    tensors: Callable[[Any], dict[str, TensorSpec]]
    filled_in: Callable[[Mapping[str, Any]], dict[str, Any]]


GEMMA3 = Family("Gemma 3", gemma3_config, gemma3_tensors, gemma3_filled_in)
APERTUS = Family("Apertus", apertus_config, apertus_tensors, APERTUS_FIELDS.filled_in)
CHAR = Family("Character transformer", char_config, char_tensors, lambda _: {})
FAMILIES = {"gemma3": GEMMA3, "gemma3_text": GEMMA3, "apertus": APERTUS, "char": CHAR}
"""By ``model_type``."""
REFUSED = {
    "apertus1p5": "Apertus 1.5 reads images and audio and has a smaller output than input vocabulary",
    "apertus1p5_text": "Apertus 1.5 has a smaller output than input vocabulary",
    "apertus2": "of the Apertus family only the first is supported",
}
"""Relatives of those, with the reason why they do not run."""


def family_of(checkpoint: Checkpoint) -> Family:
    """The family of a checkpoint. Raises `ConfigError` for an architecture that does not run here."""
    kind = checkpoint.config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        why = f": {REFUSED[kind]}" if kind in list(REFUSED) else ""
        raise ConfigError(
            f"{checkpoint.path} is of model_type {kind!r}, which does not run here{why}; supported: "
            f"{', '.join(FAMILIES)}."
        )
    return FAMILIES[kind]


def checked_config(checkpoint: Checkpoint) -> Any:
    """The configuration of a checkpoint whose tensors all fit it, else `ConfigError` or `CheckpointError`."""
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    resolve(checkpoint, family.tensors(config), config.n_layers)
    return config
