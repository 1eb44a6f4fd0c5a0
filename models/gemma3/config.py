"""Gemma 3's configuration, from a ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.fields import Fields
from models.rotary import Rope, read_rope
from models.windows import UNLIMITED


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
        FIELDS.check_heads(self.n_heads, self.n_kv_heads, self.head_dim)
        if len(self.is_global) != self.n_layers:
            raise FIELDS.error(
                f"layer_types has {len(self.is_global)} entries for {self.n_layers} layers; they must agree."
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
FIELDS = Fields("Gemma 3", DEFAULTS)


def from_hf(config: Mapping[str, Any]) -> Config:
    """Read a Hugging Face ``config.json`` of type ``gemma3_text``, or ``gemma3`` with its ``text_config``.

    Both spellings of the rotary settings are understood (``rope_theta`` with ``rope_scaling``, and
    ``rope_parameters``, flat or by layer type). Raises `ConfigError` for a field that is not of its kind, and for
    Gemma 3 variants that we do not run.
    """
    inner = FIELDS.get(config, "text_config", dict)
    text = {k: v for part in (config, inner) for k, v in part.items() if v is not None}
    _refuse_variants(text)
    local, wide = _ropes(text)
    is_global = _layer_types(text)
    return Config(
        vocab=FIELDS.get(text, "vocab_size", int),
        d_model=FIELDS.get(text, "hidden_size", int),
        n_layers=FIELDS.get(text, "num_hidden_layers", int),
        n_heads=FIELDS.get(text, "num_attention_heads", int),
        n_kv_heads=FIELDS.get(text, "num_key_value_heads", int),
        head_dim=FIELDS.get(text, "head_dim", int),
        d_mlp=FIELDS.get(text, "intermediate_size", int),
        window=FIELDS.get(text, "sliding_window", int),
        context=FIELDS.get(text, "max_position_embeddings", int),
        query_scalar=FIELDS.get(text, "query_pre_attn_scalar", float),
        norm_eps=FIELDS.get(text, "rms_norm_eps", float),
        rope_local=local,
        rope_global=wide,
        is_global=is_global,
        tied=FIELDS.get(text, "tie_word_embeddings", bool),
    )


def _refuse_variants(text: Mapping[str, Any]) -> None:
    activation = text.get("hidden_activation", DEFAULTS["hidden_activation"])
    if activation != "gelu_pytorch_tanh":
        raise FIELDS.error(f"hidden_activation is {activation!r}; only gelu_pytorch_tanh is supported.")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "attention_bias", "use_bidirectional_attention"):
        if text.get(key):
            raise FIELDS.error(f"{key} is {text[key]!r}; this variant of Gemma 3 is not supported.")


def _layer_types(text: Mapping[str, Any]) -> tuple[bool, ...]:
    """Whether each layer is global."""
    n_layers = FIELDS.check_layers(FIELDS.get(text, "num_hidden_layers", int))
    if "layer_types" not in text:
        every = FIELDS.get(
            text, "_sliding_window_pattern", int, default=FIELDS.get(text, "sliding_window_pattern", int)
        )
        return tuple((i + 1) % every == 0 for i in range(n_layers))
    types = FIELDS.get(text, "layer_types", list)
    unknown = [t for t in types if t not in list(LAYER_TYPES)]
    if unknown:
        raise FIELDS.error(f"layer_types holds {unknown[0]!r}; known are {', '.join(LAYER_TYPES)}.")
    return tuple(LAYER_TYPES[t] for t in types)


def _ropes(text: Mapping[str, Any]) -> tuple[Rope, Rope]:
    """The rotary embedding of local and of global layers."""
    by_type = FIELDS.get(text, "rope_parameters", dict)
    if not by_type.keys() & LAYER_TYPES.keys():  # flat: the global layers' own; local layers are never scaled
        by_type = {"full_attention": by_type or FIELDS.get(text, "rope_scaling", dict)}
    kinds = ("default", "linear")
    local, wide = (FIELDS.get(by_type, kind, dict) for kind in ("sliding_attention", "full_attention"))
    return (
        read_rope(FIELDS, local, FIELDS.get(text, "rope_local_base_freq", float), kinds),
        read_rope(FIELDS, wide, FIELDS.get(text, "rope_theta", float), kinds),
    )


def filled_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `from_hf` takes for fields that a ``config.json`` leaves out."""
    text = {**config, **config.get("text_config", {})}
    if text.get("rope_parameters") is not None:
        text |= {"rope_theta": "told", "rope_local_base_freq": "told"}
    if any(text.get(name) is not None for name in ("layer_types", "_sliding_window_pattern")):
        text |= {"sliding_window_pattern": "told"}
    return FIELDS.filled_in(text)
