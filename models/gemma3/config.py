"""Gemma 3's configuration, from a ``config.json``."""

from collections.abc import Callable, Mapping
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
    context_slides = False

    def __post_init__(self) -> None:
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
MOST_LAYERS = 10_000

KINDS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number above 0", lambda v: type(v) is int and 0 < v < 2**31),
    float: ("a number above 0", lambda v: type(v) in (int, float) and 0 < v < 1e30),
    bool: ("true or false", lambda v: type(v) is bool),
    dict: ("a table", lambda v: isinstance(v, Mapping)),
    list: ("a list", lambda v: isinstance(v, list | tuple)),
}
"""What a field may be, in words and as a test."""


def _get(values: Mapping[str, Any], field: str, kind: type, default: Any = None) -> Any:
    """A field, or ``default``, or Gemma 3's own; `ConfigError` if it is not of its kind. A null counts as absent."""
    value = values.get(field)
    if value is None:
        value = DEFAULTS.get(field, kind()) if default is None else default
    words, fits = KINDS[kind]
    if not fits(value):
        raise ConfigError(f"Gemma 3 config: {field} is {repr(value)[:80]}; it must be {words}.")
    return kind(value)


def from_hf(config: Mapping[str, Any]) -> Config:
    """Read a Hugging Face ``config.json`` of type ``gemma3_text``, or ``gemma3`` with its ``text_config``.

    Both spellings of the rotary settings are understood (``rope_theta`` with ``rope_scaling``, and
    ``rope_parameters``, flat or by layer type). Raises `ConfigError` for a field that is not of its kind, and for
    Gemma 3 variants that we do not run.
    """
    inner = _get(config, "text_config", dict)
    text = {k: v for part in (config, inner) for k, v in part.items() if v is not None}
    _refuse_variants(text)
    local, wide = _ropes(text)
    is_global = _layer_types(text)
    return Config(
        vocab=_get(text, "vocab_size", int),
        d_model=_get(text, "hidden_size", int),
        n_layers=_get(text, "num_hidden_layers", int),
        n_heads=_get(text, "num_attention_heads", int),
        n_kv_heads=_get(text, "num_key_value_heads", int),
        head_dim=_get(text, "head_dim", int),
        d_mlp=_get(text, "intermediate_size", int),
        window=_get(text, "sliding_window", int),
        context=_get(text, "max_position_embeddings", int),
        query_scalar=_get(text, "query_pre_attn_scalar", float),
        norm_eps=_get(text, "rms_norm_eps", float),
        rope_local=local,
        rope_global=wide,
        is_global=is_global,
        tied=_get(text, "tie_word_embeddings", bool),
    )


def _refuse_variants(text: Mapping[str, Any]) -> None:
    activation = text.get("hidden_activation", DEFAULTS["hidden_activation"])
    if activation != "gelu_pytorch_tanh":
        raise ConfigError(f"Gemma 3 config: hidden_activation is {activation!r}; only gelu_pytorch_tanh is supported.")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "attention_bias", "use_bidirectional_attention"):
        if text.get(key):
            raise ConfigError(f"Gemma 3 config: {key} is {text[key]!r}; this variant of Gemma 3 is not supported.")


def _layer_types(text: Mapping[str, Any]) -> tuple[bool, ...]:
    """Whether each layer is global."""
    n_layers = _get(text, "num_hidden_layers", int)
    if n_layers > MOST_LAYERS:
        raise ConfigError(f"Gemma 3 config: num_hidden_layers is {n_layers:,}; at most {MOST_LAYERS:,} are supported.")
    if "layer_types" not in text:
        every = _get(text, "_sliding_window_pattern", int, default=_get(text, "sliding_window_pattern", int))
        return tuple((i + 1) % every == 0 for i in range(n_layers))
    types = _get(text, "layer_types", list)
    unknown = [t for t in types if t not in list(LAYER_TYPES)]
    if unknown:
        raise ConfigError(f"Gemma 3 config: layer_types holds {unknown[0]!r}; known are {', '.join(LAYER_TYPES)}.")
    return tuple(LAYER_TYPES[t] for t in types)


def _ropes(text: Mapping[str, Any]) -> tuple[Rope, Rope]:
    """The rotary embedding of local and of global layers."""
    by_type = _get(text, "rope_parameters", dict)
    if not by_type.keys() & LAYER_TYPES.keys():  # flat: the global layers' own; local layers are never scaled
        by_type = {"full_attention": by_type or _get(text, "rope_scaling", dict)}
    local = _rope(_get(by_type, "sliding_attention", dict), _get(text, "rope_local_base_freq", float))
    return local, _rope(_get(by_type, "full_attention", dict), _get(text, "rope_theta", float))


def _rope(settings: Mapping[str, Any], base: float) -> Rope:
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in ("default", "linear"):
        raise ConfigError(f"Gemma 3 config: rotary scaling of type {kind!r} is not supported; default and linear are.")
    factor = _get(settings, "factor", float, default=1.0) if kind == "linear" else 1.0
    return Rope(base=_get(settings, "rope_theta", float, default=base), factor=factor)
