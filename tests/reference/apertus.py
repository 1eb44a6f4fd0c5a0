"""Tiny random Apertus models: made, saved and run by `transformers`, opened by us."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import ApertusConfig, ApertusForCausalLM

from tests.reference.gemma3 import BOS, EOS

Reference = ApertusForCausalLM

ORIGINAL = 128
BANDS = {"original_max_position_embeddings": ORIGINAL, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, **BANDS}
PLAIN = {"rope_type": "default", "rope_theta": 100.0}
CONFIG = {
    "vocab_size": 258,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 700,
    "rope_parameters": LLAMA3,
    "qk_norm": True,
    "post_norm": False,
}
"""No two sizes are equal, heads times head_dim is not the width, and of the eight wavelengths three lie under a quarter
of `ORIGINAL`, three between, and two over it."""


def make(*, own_constants: bool = True, **changes) -> Reference:
    """A model with every parameter random, norms and xIELU's scalars too, so that no fault hides behind equal ones.

    With ``own_constants`` each layer also has a beta of its own and an eps large enough to be seen.
    """
    torch.manual_seed(0)
    config = ApertusConfig(**{**CONFIG, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0, **changes})
    config._attn_implementation = "eager"
    model = ApertusForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            centre, spread = (1, 0.4) if "norm" in name else (0, 1) if "alpha" in name else (0, 0.2)
            weight.normal_(centre, spread)
        if own_constants:
            for i, layer in enumerate(model.model.layers):
                layer.mlp.act_fn.beta.fill_(0.3 + 0.2 * i)
                layer.mlp.act_fn.eps.fill_(-0.1 - 0.05 * i)
    return model


def without(folder: Path, *endings: str) -> None:
    """Take the tensors with such names out of a saved model."""
    path = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if not name.endswith(endings)}
    save_file(kept, path, {"format": "pt"})


def from_folder(folder: Path, **options) -> Reference:
    """A saved model in `transformers`, float32 and eager unless told otherwise."""
    options = {"dtype": torch.float32, "attn_implementation": "eager", **options}
    return ApertusForCausalLM.from_pretrained(folder, **options).eval()
