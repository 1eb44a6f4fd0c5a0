"""Gemma 3 in GGUF files: norms hold 1 + weight, and half of the rotary settings is not written down."""

from collections.abc import Sequence
from typing import Any

from jaxcore.checkpoint.gguf_names import ATTENTION, MLP, Dialect, Metadata
from jaxcore.checkpoint.store import TensorInfo

IN_LAYER = {
    "attn_norm": "input_layernorm",
    **ATTENTION,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    **MLP,
    "post_ffw_norm": "post_feedforward_layernorm",
}
LINEAR_SCALING = {34: 8.0, 48: 8.0, 62: 8.0}
"""Gemma 3's rotary scaling on global layers by number of layers (4B, 12B, 27B); smaller models have none."""


def hf_config(metadata: Metadata, infos: Sequence[TensorInfo]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration, and notes on values that the file does not state."""
    common, head_dim = metadata.common(infos), metadata.number("attention.key_length", 256)
    layers, heads = common["num_hidden_layers"], common["num_attention_heads"]
    factor, notes = _scaling(metadata, layers)
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        **common,
        "head_dim": head_dim,
        "sliding_window": metadata.number("attention.sliding_window"),
        "query_pre_attn_scalar": common["hidden_size"] / max(heads, 1) if layers == 62 else head_dim,
        "rms_norm_eps": metadata.norm_eps(1e-6),
        "rope_theta": metadata.number("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": metadata.number("rope.freq_base_swa", 10_000.0),
        "rope_scaling": {"rope_type": "linear", "factor": factor} if factor != 1 else None,
        "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh",
        "bos_token_id": metadata.values.get("tokenizer.ggml.bos_token_id", 2),
        "eos_token_id": [metadata.values.get("tokenizer.ggml.eos_token_id", 1)],
    }, (
        "GGUF does not state the order of local and global layers (every sixth is global) nor, in most files, the "
        "rotary base of local layers (10,000); both are Gemma 3's own.",
        *notes,
    )


def _scaling(metadata: Metadata, layers: int) -> tuple[float, tuple[str, ...]]:
    """The rotary factor of global layers: Gemma 3's for this size, since files of one size disagree."""
    stored = metadata.values.get("gemma3.rope.scaling.factor")
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


DIALECT = Dialect(IN_LAYER, hf_config, norm_shift=-1.0)
