"""Reading the fields of a ``config.json``: each by its kind, each refusal by its name. Imports no JAX."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from models.errors import ConfigError

MOST_LAYERS = 10_000
KINDS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number above 0", lambda v: type(v) is int and 0 < v < 2**31),
    float: ("a number above 0", lambda v: type(v) in (int, float) and 0 < v < 1e30),
    bool: ("true or false", lambda v: type(v) is bool),
    dict: ("a table", lambda v: isinstance(v, Mapping)),
    list: ("a list", lambda v: isinstance(v, list | tuple)),
}
"""What a field may be, in words and as a test."""


@dataclass(frozen=True)
class Fields:
    """How one family reads its fields: the name its errors begin with, and what a field means where it is left out."""

    title: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def error(self, sentence: str) -> ConfigError:
        return ConfigError(f"{self.title} config: {sentence}")

    def get(self, values: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
        """A field, or ``default``, or the family's own; an absent table or list is empty. A null counts as absent.

        Raises `ConfigError` if the field is not of its kind, or is left out and must not be.
        """
        words, fits = KINDS[kind]
        value = values.get(name)
        if value is None:
            value = self.defaults.get(name) if default is None else default
        if value is None:
            if kind not in (dict, list):
                raise self.error(f"{name} is missing; it must be {words}.")
            return kind()
        if not fits(value):
            raise self.error(f"{name} is {repr(value)[:80]}; it must be {words}.")
        return kind(value)

    def filled_in(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The family's own values of the fields that are left out."""
        return {name: value for name, value in self.defaults.items() if values.get(name) is None}

    def check_layers(self, n_layers: int) -> int:
        """The number of layers, which bounds all later work. Raises `ConfigError` if it is absurd."""
        if n_layers > MOST_LAYERS:
            raise self.error(f"num_hidden_layers is {n_layers:,}; at most {MOST_LAYERS:,} are supported.")
        return n_layers

    def check_heads(self, n_heads: int, n_kv_heads: int, head_dim: int) -> None:
        """Raise `ConfigError` if query heads cannot share key/value heads, or halves of a head cannot be rotated."""
        if n_heads % n_kv_heads:
            raise self.error(
                f"{n_heads} heads cannot share {n_kv_heads} key/value heads evenly; "
                "check num_attention_heads and num_key_value_heads."
            )
        if head_dim % 2:
            raise self.error(f"head_dim is {head_dim}; rotary embeddings need an even number.")
