"""The character transformer's configuration: all of it but the number of heads can be read off its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import ConfigError

SYMBOLS = "\n abcdefghijklmnopqrstuvwxyz"
"""The characters, in the order of their ids."""
HEADS = 6
"""Where a file does not state its number of heads."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and constants of one character transformer.

    ``context`` and ``vocab`` are 0 in a file that holds only the blocks, without embeddings and output layer.
    """

    vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    d_mlp: int
    context: int
    norm_eps: float = 1e-5

    family = "char"
    tied = False
    context_slides = True  # a longer text is read from its last `context` characters, at positions from 0

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"Character transformer: {self.n_heads} heads cannot share a width of {self.d_model} evenly; set "
                "n_heads in the metadata of the file."
            )

    @property
    def blocks_only(self) -> bool:
        return self.vocab == 0

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def n_kv_heads(self) -> int:
        return self.n_heads

    @property
    def windows(self) -> tuple[int, ...]:
        """How many tokens each layer sees, the current one included."""
        return (self.context,) * self.n_layers

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5


def from_table(config: Mapping[str, Any]) -> Config:
    """The configuration from a table with the names of `Config`'s fields; other entries are left aside.

    Raises `ConfigError` for a field that is missing or not a whole number.
    """
    sizes = ("vocab", "d_model", "n_layers", "n_heads", "d_mlp", "context")
    for field in sizes:
        value, least = config.get(field), 0 if field in ("vocab", "context") else 1
        if type(value) is not int or not least <= value < 2**31:
            raise ConfigError(
                f"Character transformer: {field} is {str(value)[:80]!r}; it must be a whole number of at least {least}."
            )
    return Config(**{field: config[field] for field in sizes})
