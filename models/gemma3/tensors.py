"""Which tensors a Gemma 3 checkpoint holds, and which parameter each becomes."""

from models.gemma3.config import Config
from models.tensors import TensorSpec, specs


def tensor_table(cfg: Config) -> dict[str, TensorSpec]:
    """For each parameter (``blocks.`` for those of a layer) its stored name, axes and shape."""
    spec, layer = specs(cfg)
    table = {
        "W_E": spec("embed_tokens", "vocab", "d_model"),
        "blocks.attention_norm": layer("input_layernorm", "d_model"),
        "blocks.W_Q": layer("self_attn.q_proj", "n_heads", "head_dim", "d_model"),
        "blocks.W_K": layer("self_attn.k_proj", "n_kv_heads", "head_dim", "d_model"),
        "blocks.W_V": layer("self_attn.v_proj", "n_kv_heads", "head_dim", "d_model"),
        "blocks.W_O": layer("self_attn.o_proj", "d_model", "n_heads", "head_dim"),
        "blocks.q_norm": layer("self_attn.q_norm", "head_dim"),
        "blocks.k_norm": layer("self_attn.k_norm", "head_dim"),
        "blocks.post_attention_norm": layer("post_attention_layernorm", "d_model"),
        "blocks.mlp_norm": layer("pre_feedforward_layernorm", "d_model"),
        "blocks.W_gate": layer("mlp.gate_proj", "d_mlp", "d_model"),
        "blocks.W_up": layer("mlp.up_proj", "d_mlp", "d_model"),
        "blocks.W_down": layer("mlp.down_proj", "d_model", "d_mlp"),
        "blocks.post_mlp_norm": layer("post_feedforward_layernorm", "d_model"),
        "final_norm": spec("norm", "d_model"),
    }
    return table if cfg.tied else {**table, "W_U": spec("lm_head", "vocab", "d_model")}
