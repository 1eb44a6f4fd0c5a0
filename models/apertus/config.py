"""Apertus's configuration, from a ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.fields import Fields
from models.rotary import Rope, read_rope
from models.windows import UNLIMITED

BETA, EPS = 0.5, -1e-6
"""xIELU's constants where a checkpoint does not store them, as in transformers' ``XIELUActivation``."""
DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}
"""What a field means where a file leaves it out. Sizes have no default: transformers' own fit no published model."""
FIELDS = Fields("Apertus", DEFAULTS)
REQUIRED: Mapping[str, Any] = {
    "hidden_act": "xielu",
    "qk_norm": True,
    "post_norm": False,
    "attention_bias": False,
    "mlp_bias": False,
}
"""What must hold of the variants that run here, wherever a file says anything of it."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and constants of one Apertus model."""

    vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_mlp: int
    context: int
    norm_eps: float
    rope: Rope
    tied: bool

    family = "apertus"
    context_slides = False

    def __post_init__(self) -> None:
        FIELDS.check_heads(self.n_heads, self.n_kv_heads, self.head_dim)

    @property
    def windows(self) -> tuple[int, ...]:
        """How many tokens each layer sees: all."""
        return (UNLIMITED,) * self.n_layers

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5


def from_hf(config: Mapping[str, Any]) -> Config:
    """Read a Hugging Face ``config.json`` of type ``apertus``.

    Both spellings of the rotary settings are understood (``rope_theta`` with ``rope_scaling``, null for none, and
    ``rope_parameters``). Raises `ConfigError` for a size that is missing, a field that is not of its kind, and
    variants that we do not run.
    """
    for name, needed in REQUIRED.items():
        if config.get(name) not in (None, needed):
            raise FIELDS.error(f"{name} is {config[name]!r}; only Apertus models with {needed!r} are supported.")
    d_model, n_heads = FIELDS.get(config, "hidden_size", int), FIELDS.get(config, "num_attention_heads", int)
    if config.get("head_dim") is None and d_model % n_heads:
        raise FIELDS.error(f"hidden_size is {d_model}, which {n_heads} heads cannot share evenly; give head_dim.")
    return Config(
        vocab=FIELDS.get(config, "vocab_size", int),
        d_model=d_model,
        n_layers=FIELDS.check_layers(FIELDS.get(config, "num_hidden_layers", int)),
        n_heads=n_heads,
        n_kv_heads=FIELDS.get(config, "num_key_value_heads", int),
        head_dim=FIELDS.get(config, "head_dim", int, default=d_model // n_heads),
        d_mlp=FIELDS.get(config, "intermediate_size", int),
        context=FIELDS.get(config, "max_position_embeddings", int),
        norm_eps=FIELDS.get(config, "rms_norm_eps", float),
        rope=_rope(config),
        tied=FIELDS.get(config, "tie_word_embeddings", bool),
    )


def _rope(config: Mapping[str, Any]) -> Rope:
    settings = FIELDS.get(config, "rope_parameters", dict)
    if not settings and "rope_scaling" not in config:
        raise FIELDS.error("rope_parameters and rope_scaling are both missing; a model without scaling says null.")
    settings = settings or FIELDS.get(config, "rope_scaling", dict)
    return read_rope(FIELDS, settings, config.get("rope_theta"), ("default", "linear", "llama3"))
