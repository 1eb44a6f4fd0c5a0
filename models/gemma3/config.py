"""Gemma 3's configuration, from a ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import ConfigError

UNLIMITED = 2**30
"""The window of a layer that sees every earlier token."""


@dataclass(frozen=True, kw_only=True)
class Rope:
    """A rotary embedding: its base, and the factor by which linear scaling stretches positions."""

    base: float
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and constants of one Gemma 3 model.

    ``window`` counts the tokens that a local layer sees, the current one included; ``is_global`` has one
    entry a layer; attention scores are divided by sqrt(``query_scalar``).
    """

    vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_mlp: int
    window: int
    context: int
    query_scalar: float
    norm_eps: float
    rope_local: Rope
    rope_global: Rope
    is_global: tuple[bool, ...]
    tied: bool

    family = "gemma3"

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if Config.__annotations__[field] is int and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"Gemma 3 config: {field} is {value!r}; it must be a whole number above 0.")
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(
                f"Gemma 3 config: {self.n_heads} heads cannot share {self.n_kv_heads} key/value heads evenly; "
                "check num_attention_heads and num_key_value_heads."
            )
        if self.head_dim % 2:
            raise ConfigError(f"Gemma 3 config: head_dim is {self.head_dim}; rotary embeddings need an even number.")
        if len(self.is_global) != self.n_layers:
            raise ConfigError(
                f"Gemma 3 config: layer_types has {len(self.is_global)} entries for {self.n_layers} layers; "
                "they must agree."
            )

    @property
    def windows(self) -> tuple[int, ...]:
        """How many tokens each layer sees, the current one included."""
        return tuple(UNLIMITED if wide else self.window for wide in self.is_global)

    @property
    def attention_scale(self) -> float:
        return self.query_scalar**-0.5


# transformers' Gemma3TextConfig: what a field means where the official 4B, 12B and 27B files leave it out.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
}
LAYER_TYPES = {"full_attention": True, "sliding_attention": False}


def from_hf(config: Mapping[str, Any]) -> Config:
    """Read a Hugging Face ``config.json`` of type ``gemma3_text``, or ``gemma3`` with its ``text_config``.

    Both spellings of the rotary settings are understood (``rope_theta`` with ``rope_scaling``, and
    ``rope_parameters``, flat or by layer type). Raises `ConfigError` for what Gemma 3 variants we do not run.
    """
    outer = {k: v for k, v in config.items() if v is not None}
    text = {**outer, **{k: v for k, v in outer.get("text_config", {}).items() if v is not None}}
    get = {**DEFAULTS, **text}.__getitem__

    _refuse_variants(text, get)
    n_layers = get("num_hidden_layers")
    local, wide = _ropes(text, get)
    return Config(
        vocab=get("vocab_size"),
        d_model=get("hidden_size"),
        n_layers=n_layers,
        n_heads=get("num_attention_heads"),
        n_kv_heads=get("num_key_value_heads"),
        head_dim=get("head_dim"),
        d_mlp=get("intermediate_size"),
        window=get("sliding_window"),
        context=get("max_position_embeddings"),
        query_scalar=float(get("query_pre_attn_scalar")),
        norm_eps=float(get("rms_norm_eps")),
        rope_local=local,
        rope_global=wide,
        is_global=_layer_types(text, n_layers, text.get("_sliding_window_pattern", get("sliding_window_pattern"))),
        tied=bool(get("tie_word_embeddings")),
    )


def _refuse_variants(text: Mapping[str, Any], get: Any) -> None:
    if get("hidden_activation") != "gelu_pytorch_tanh":
        raise ConfigError(
            f"Gemma 3 config: hidden_activation is {get('hidden_activation')!r}; only gelu_pytorch_tanh is supported."
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "attention_bias", "use_bidirectional_attention"):
        if text.get(key):
            raise ConfigError(f"Gemma 3 config: {key} is {text[key]!r}; this variant of Gemma 3 is not supported.")


def _layer_types(text: Mapping[str, Any], n_layers: int, pattern: int) -> tuple[bool, ...]:
    if "layer_types" not in text:
        return tuple((i + 1) % pattern == 0 for i in range(n_layers))
    unknown = set(text["layer_types"]) - LAYER_TYPES.keys()
    if unknown:
        raise ConfigError(f"Gemma 3 config: layer_types holds {sorted(unknown)}; known are {sorted(LAYER_TYPES)}.")
    return tuple(LAYER_TYPES[t] for t in text["layer_types"])


def _ropes(text: Mapping[str, Any], get: Any) -> tuple[Rope, Rope]:
    """The rotary embedding of local and of global layers."""
    by_type = text.get("rope_parameters", {})
    if not by_type.keys() & LAYER_TYPES.keys():  # flat: the global layers' own; local layers are never scaled
        by_type = {"full_attention": by_type or text.get("rope_scaling", {})}
    local = _rope(by_type.get("sliding_attention", {}), get("rope_local_base_freq"))
    return local, _rope(by_type.get("full_attention", {}), get("rope_theta"))


def _rope(settings: Mapping[str, Any], base: float) -> Rope:
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in ("default", "linear"):
        raise ConfigError(f"Gemma 3 config: rotary scaling of type {kind!r} is not supported; default and linear are.")
    factor = float(settings.get("factor", 1.0)) if kind == "linear" else 1.0
    return Rope(base=float(settings.get("rope_theta", base)), factor=factor)
