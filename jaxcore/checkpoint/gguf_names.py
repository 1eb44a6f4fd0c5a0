"""What GGUF calls things, and what an architecture's dialect of it consists of.

Sources: llama.cpp's ``conversion`` scripts and the ``gguf`` package's ``constants.py`` and ``tensor_mapping.py``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxcore.checkpoint.store import TensorInfo
from models.errors import ConfigError

LAYOUT_VERSION = 3
"""Raise this when the content of converted copies changes, so that old ones are made anew."""

TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


@dataclass(frozen=True)
class Metadata:
    """The metadata of a file, whose keys about the model begin with its architecture."""

    path: Path
    architecture: str
    values: Mapping[str, Any]

    def number(self, key: str, default: Any = None) -> Any:
        """One number about the model. Raises `ConfigError` if it is absent and has no default, or is no number."""
        value = self.values.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ConfigError(
                f"{self.path}: the metadata lack {self.architecture}.{key}; convert the model again with a current "
                "llama.cpp."
            )
        if not isinstance(value, int | float):
            raise ConfigError(
                f"{self.path}: the metadata give {self.architecture}.{key} as {str(value)[:80]!r}; one number is "
                "supported."
            )
        return value

    def common(self, infos: Sequence[TensorInfo]) -> dict[str, Any]:
        """What all architectures say in the same way, in Hugging Face's spelling."""
        rows = [info.shape[0] for info in infos if info.name == "token_embd.weight"]
        return {
            "vocab_size": rows[0] if rows else len(self.values.get("tokenizer.ggml.tokens", ())),
            "hidden_size": self.number("embedding_length"),
            "intermediate_size": self.number("feed_forward_length"),
            "num_hidden_layers": self.number("block_count"),
            "num_attention_heads": self.number("attention.head_count"),
            "num_key_value_heads": self.number("attention.head_count_kv"),
            "max_position_embeddings": self.number("context_length"),
            "tie_word_embeddings": all(info.name != "output.weight" for info in infos),
        }

    def norm_eps(self, default: float) -> float:
        """The epsilon of norms. The file rounds it to float32; six digits give back what was written."""
        return float(f"{self.number('attention.layer_norm_rms_epsilon', default):.6g}")


@dataclass(frozen=True)
class Dialect:
    """How the files of one architecture are read.

    ``in_layer`` names its tensors; ``config`` gives the configuration in Hugging Face's spelling, and notes on values
    that the file does not state; ``norm_shift`` is what to add to norms; ``in_metadata`` gives tensors that lie among
    the metadata, by canonical name; ``read_for_config`` names tensors that say something of the configuration.
    """

    in_layer: Mapping[str, str]
    config: Callable[[Metadata, Sequence[TensorInfo]], tuple[dict[str, Any], tuple[str, ...]]]
    norm_shift: float = 0.0
    in_metadata: Callable[[Metadata], dict[str, TensorInfo]] = lambda _: {}
    read_for_config: frozenset[str] = frozenset()


def canonical(name: str, in_layer: Mapping[str, str]) -> str | None:
    """The Hugging Face name (without prefix) of a GGUF tensor; None for what the text model does not use."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        layer, part = match.groups()
        return f"layers.{layer}.{in_layer[part]}.weight" if part in in_layer else None
    bare = name.removesuffix(".weight")
    return f"{TOP[bare]}.weight" if bare in TOP else None


def layout_order(name: str) -> tuple[str, int]:
    """Sort key that brings the same tensor of all layers together."""
    match = re.search(r"\.(\d+)\.", name)
    return re.sub(r"\.\d+\.", ".*.", name), int(match[1]) if match else 0
