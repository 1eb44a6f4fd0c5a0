"""Which tensors a character transformer's file holds, and which parameter each becomes."""

from models.char.config import Config
from models.tensors import TensorSpec


def tensor_table(cfg: Config) -> dict[str, TensorSpec]:
    """For each parameter (``blocks.`` for those of a layer) its stored name, axes and shape."""
    sizes = {
        "vocab": cfg.vocab,
        "context": cfg.context,
        "d_model": cfg.d_model,
        "n_heads": cfg.n_heads,
        "head_dim": cfg.head_dim,
        "d_mlp": cfg.d_mlp,
    }

    def spec(name: str, *axes: str) -> TensorSpec:
        return TensorSpec(name, axes, tuple(sizes[a] for a in axes))

    def layer(name: str, *axes: str) -> TensorSpec:
        return spec("layers.{layer}." + name, *axes)

    blocks = {
        "blocks.ln1_w": layer("ln1_w", "d_model"),
        "blocks.ln1_b": layer("ln1_b", "d_model"),
        "blocks.W_Q": layer("W_q", "n_heads", "head_dim", "d_model"),
        "blocks.W_K": layer("W_k", "n_heads", "head_dim", "d_model"),
        "blocks.W_V": layer("W_v", "n_heads", "head_dim", "d_model"),
        "blocks.W_O": layer("W_o", "d_model", "n_heads", "head_dim"),
        "blocks.ln2_w": layer("ln2_w", "d_model"),
        "blocks.ln2_b": layer("ln2_b", "d_model"),
        "blocks.W_up": layer("W_fc", "d_mlp", "d_model"),
        "blocks.W_down": layer("W_proj", "d_model", "d_mlp"),
    }
    if cfg.blocks_only:
        return blocks
    return {
        "W_E": spec("tok_emb", "vocab", "d_model"),
        "W_pos": spec("pos_emb", "context", "d_model"),
        **blocks,
        "lnf_w": spec("lnf_w", "d_model"),
        "lnf_b": spec("lnf_b", "d_model"),
        "W_U": spec("W_out", "vocab", "d_model"),
        "b_U": spec("b_out", "vocab"),
    }
