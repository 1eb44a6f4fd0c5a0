"""Configuration and tensor table of a recipe, whatever its family."""

from collections.abc import Mapping
from typing import Any

from models.apertus.config import from_hf as apertus_config
from models.apertus.tensors import tensor_table as apertus_tensors
from models.char.config import from_table as char_config
from models.char.tensors import tensor_table as char_tensors
from models.gemma3.config import from_hf as gemma3_config
from models.gemma3.tensors import tensor_table as gemma3_tensors
from models.tensors import TensorSpec

FAMILIES = {
    "apertus": (apertus_config, apertus_tensors),
    "char": (char_config, char_tensors),
    "gemma3_text": (gemma3_config, gemma3_tensors),
}
"""By ``model_type``."""


def config_and_table(config: Mapping[str, Any]) -> tuple[Any, dict[str, TensorSpec]]:
    """What a recipe's ``config`` stands for."""
    read, table = FAMILIES[config["model_type"]]
    cfg = read(config)
    return cfg, table(cfg)
