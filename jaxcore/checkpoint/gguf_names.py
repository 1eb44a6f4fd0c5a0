"""What GGUF calls things: metadata to a Hugging Face configuration, tensor names, and what llama.cpp adds to norms.

Sources: llama.cpp's ``convert_hf_to_gguf.py`` and the ``gguf`` package's ``constants.py`` and ``tensor_mapping.py``.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcore.checkpoint.store import TensorInfo
from models.errors import ConfigError

LAYOUT_VERSION = 2
"""Raise this when the content of converted copies changes, so that old ones are made anew."""

TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
LINEAR_SCALING = {34: 8.0, 48: 8.0, 62: 8.0}
"""Gemma 3's rotary scaling on global layers by number of layers (4B, 12B, 27B); smaller models have none."""


def canonical(name: str) -> str | None:
    """The Hugging Face name (without prefix) of a GGUF tensor; None for what the text model does not use."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        layer, part = match.groups()
        return f"layers.{layer}.{IN_LAYER[part]}.weight" if part in IN_LAYER else None
    bare = name.removesuffix(".weight")
    return f"{TOP[bare]}.weight" if bare in TOP else None


def layout_order(name: str) -> tuple[str, int]:
    """Sort key that brings the same tensor of all layers together."""
    match = re.search(r"\.(\d+)\.", name)
    return re.sub(r"\.\d+\.", ".*.", name), int(match[1]) if match else 0


def shift(model_type: str, name: str) -> float:
    """What to add to the file's values: llama.cpp stores Gemma's norms as 1 + weight."""
    return -1.0 if model_type == "gemma3_text" and name.endswith("norm.weight") else 0.0


def hf_config(
    path: Path, metadata: Mapping[str, Any], infos: Sequence[TensorInfo]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration in Hugging Face's spelling, and notes on values that the file does not state."""
    architecture = metadata.get("general.architecture")
    if architecture != "gemma3":
        raise ConfigError(f"{path} is a GGUF file of architecture {architecture!r}; supported: gemma3.")

    def get(key: str, default: Any = None) -> Any:
        value = metadata.get(f"gemma3.{key}", default)
        if value is None:
            raise ConfigError(
                f"{path}: the metadata lack gemma3.{key}; convert the model again with a current llama.cpp."
            )
        if not isinstance(value, int | float):
            raise ConfigError(f"{path}: the metadata give gemma3.{key} as {value!r}; one number is supported.")
        return value

    layers, heads, head_dim = get("block_count"), get("attention.head_count"), get("attention.key_length", 256)
    rows = [info.shape[0] for info in infos if info.name == "token_embd.weight"]
    tied = all(info.name != "output.weight" for info in infos)
    factor, notes = _scaling(metadata, layers)
    scalar = get("embedding_length") / max(heads, 1) if layers == 62 else head_dim
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": rows[0] if rows else len(metadata.get("tokenizer.ggml.tokens", ())),
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": head_dim,
        "sliding_window": get("attention.sliding_window"),
        "max_position_embeddings": get("context_length"),
        "query_pre_attn_scalar": scalar,
        # The file rounds this to float32; nine digits give back what was written.
        "rms_norm_eps": float(f"{get('attention.layer_norm_rms_epsilon', 1e-6):.6g}"),
        "rope_theta": get("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": get("rope.freq_base_swa", 10_000.0),
        "rope_scaling": {"rope_type": "linear", "factor": factor} if factor != 1 else None,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": tied,
        "hidden_activation": "gelu_pytorch_tanh",
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id", 2),
        "eos_token_id": [metadata.get("tokenizer.ggml.eos_token_id", 1)],
    }, (
        "GGUF does not state the order of local and global layers (every sixth is global) nor, in most files, the "
        "rotary base of local layers (10,000); both are Gemma 3's own.",
        *notes,
    )


def _scaling(metadata: Mapping[str, Any], layers: int) -> tuple[float, tuple[str, ...]]:
    """The rotary factor of global layers: Gemma 3's for this size, since files of one size disagree."""
    stored = metadata.get("gemma3.rope.scaling.factor")
    if stored is not None and not isinstance(stored, int | float):
        stored = None
    if layers not in LINEAR_SCALING and layers not in (18, 26):
        return float(stored or 1.0), ()
    factor = LINEAR_SCALING.get(layers, 1.0)
    if stored == factor or (stored is None and factor == 1):
        return factor, ()
    given = "no rotary scaling factor" if stored is None else f"a rotary scaling factor of {stored:g}"
    return factor, (
        f"The file gives {given}; the published Gemma 3 with {layers} layers has {factor:g} on global layers, which is "
        "used.",
    )
