"""A tiny Gemma 3 with every parameter random, and the ways in which it may be stored."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}
PIECES = ["<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "b", "▁a", "ab", "1", "2", "<end_of_turn>"]
TYPES = [3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 3]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
VOCAB = len(PIECES) + len(BYTES)
CONFIG = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 5,
    "max_position_embeddings": 128,
    "query_pre_attn_scalar": 32,
}


def make() -> Gemma3ForCausalLM:
    """The model, norms random too."""
    torch.manual_seed(0)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**CONFIG, bos_token_id=2, eos_token_id=1, pad_token_id=0))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.1)
    return model


def arrays(model: Gemma3ForCausalLM) -> dict[str, np.ndarray]:
    """The tensors by canonical name."""
    return {name.removeprefix("model."): p.detach().numpy() for name, p in model.named_parameters()}


def gguf_name(name: str) -> str:
    top = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    if name in top:
        return top[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{GGUF_NAMES[part.removesuffix('.weight')]}.weight"


def write_gguf(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, int | float] | None = None,
    quantised: Mapping[str, GGMLQuantizationType] | None = None,
    architecture: str = "gemma3",
    chat_template: str | None = None,
) -> None:
    """Store tensors as llama.cpp does: norms with 1 added, a SentencePiece vocabulary in the metadata."""
    writer = GGUFWriter(path, architecture)
    told = {
        "context_length": CONFIG["max_position_embeddings"],
        "embedding_length": CONFIG["hidden_size"],
        "block_count": CONFIG["num_hidden_layers"],
        "feed_forward_length": CONFIG["intermediate_size"],
        "attention.head_count": CONFIG["num_attention_heads"],
        "attention.head_count_kv": CONFIG["num_key_value_heads"],
        "attention.key_length": CONFIG["head_dim"],
        "attention.sliding_window": CONFIG["sliding_window"],
        **(metadata or {}),
    }
    for key, value in told.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*PIECES, *BYTES])
    writer.add_token_scores([-float(i) for i in range(VOCAB)])
    writer.add_token_types([*TYPES, *[6] * len(BYTES)])
    for name, special in {"bos": 2, "eos": 1, "unk": 3, "pad": 0}.items():
        getattr(writer, f"add_{name}_token_id")(special)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for name, array in tensors.items():
        stored = array + np.float32(1) if name.endswith("norm.weight") else array
        kind = (quantised or {}).get(name)
        writer.add_tensor(gguf_name(name), stored if kind is None else quantize(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
