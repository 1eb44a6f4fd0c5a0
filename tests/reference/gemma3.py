"""Tiny random Gemma 3 models: made, saved and run by `transformers`, opened by us."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedModel

from jaxcore.catalogue import open_reference
from jaxcore.session import LoadedModel, load

Reference = Gemma3ForCausalLM

BOS, EOS = 256, 257
WINDOW = 6
LOCAL = {"rope_type": "default", "rope_theta": 30.0}
WIDE = {"rope_type": "linear", "rope_theta": 500.0, "factor": 8.0}
CONFIG = {
    "vocab_size": 258,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "max_position_embeddings": 700,
    "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {"sliding_attention": LOCAL, "full_attention": WIDE},
}
"""No two sizes are equal, heads times head_dim is not the width, and both rotary bases turn fast enough to matter."""


def make(**changes) -> Reference:
    """A model with every parameter random, norms too, so that no fault hides behind a zero."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(**{**CONFIG, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0, **changes})
    config._attn_implementation = "eager"
    model = Gemma3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0, 0.4 if "norm" in name else 0.1)
    return model


def save_tokenizer(folder: Path, more: Sequence[str] = ()) -> None:
    """One token a byte, as byte-level vocabularies write them, then special ones: BOS, EOS and ``more``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(name, special=True) for name in ("<bos>", "<eos>", *more)])
    library.save(str(folder / "tokenizer.json"))


def opened(model: PreTrainedModel, folder: Path, dtype: str = "float32", **saving) -> LoadedModel:
    """The model saved as `transformers` saves it, and loaded from there."""
    model.save_pretrained(folder, **saving)
    save_tokenizer(folder)
    return load(open_reference(str(folder)), dtype=dtype)


def from_folder(folder: Path, **options) -> Reference:
    """A saved model in `transformers`, float32 and eager unless told otherwise."""
    options = {"dtype": torch.float32, "attn_implementation": "eager", **options}
    return Gemma3ForCausalLM.from_pretrained(folder, **options).eval()


def prompt(length: int, seed: int = 0, vocab: int = 256) -> list[int]:
    """BOS and random tokens."""
    return [BOS, *np.random.default_rng(seed).integers(0, vocab, length - 1).tolist()]


def logits(model: PreTrainedModel, ids: Sequence[int]) -> np.ndarray:
    """Logits after every token."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].numpy()


def patterns(model: PreTrainedModel, ids: Sequence[int]) -> np.ndarray:
    """Attention of every layer: ``[layer heads query key]``."""
    with torch.no_grad():
        out = model(torch.tensor([list(ids)]), output_attentions=True)
    return torch.cat(out.attentions).numpy()


def greedy(model: PreTrainedModel, ids: Sequence[int], steps: int) -> list[int]:
    """The likeliest continuation, from the whole text anew at every step."""
    text = list(ids)
    for _ in range(steps):
        text.append(int(logits(model, text)[-1].argmax()))
    return text[len(ids) :]


def continued(model: PreTrainedModel, ids: Sequence[int], steps: int) -> list[int]:
    """The likeliest continuation as `transformers` writes it, with its cache."""
    prompt = torch.tensor([list(ids)])
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=steps)
    return out[0, len(ids) :].tolist()
