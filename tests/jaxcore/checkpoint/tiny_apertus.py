"""A tiny Apertus as llama.cpp writes it to a GGUF file: scalars and rotary factors computed as its scripts do."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import ApertusForCausalLM

from tests.reference import apertus

GGUF_NAMES = {
    "attention_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "feedforward_layernorm": "ffn_norm",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<|assistant_end|>"]
VOCAB = 320
WIDTH = {"hidden_size": 48, "intermediate_size": 96}
"""Rows of whole blocks, so that they may be quantised too."""
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = [
    "The quick brown Fox jumps over the lazy Dogs; the quick foxes don't jump over THE HTTPServer.",
    "Zürich, Genève und Basel liegen in der Schweiz: in 2024 waren es 12345 und 678.",
    "def there(where):\n    return where  # the other thing\n\n",
    "東京 и Москва, τὸ αὐτό",
]


def tokenizer(pre: str = "tekken") -> Tokenizer:
    """A byte-level BPE with merges, trained on a few lines, which cuts texts as the real ones do."""
    library = Tokenizer(models.BPE(ignore_merges=pre == "tekken"))
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "gpt-2")
    if pre == "tekken":
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(TEKKEN), "isolated"), bytes_only])
    else:
        library.pre_tokenizer = bytes_only
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=alphabet)
    library.train_from_iterator(TEXT * 20, trainer)
    assert library.get_vocab_size() == VOCAB
    return library


def make(**changes) -> ApertusForCausalLM:
    return apertus.make(**{"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, **WIDTH, **changes})


def arrays(model: ApertusForCausalLM) -> dict[str, np.ndarray]:
    """All tensors by canonical name, xIELU's constants too."""
    tensors = {name.removeprefix("model."): t.detach().numpy() for name, t in model.state_dict().items()}
    return {name: t for name, t in tensors.items() if not (model.config.tie_word_embeddings and "lm_head" in name)}


def rotary_factors(settings: Mapping[str, float], head_dim: int) -> list[float]:
    """llama.cpp's ``rope_freqs``: what each frequency is divided by."""
    factors, original = [], settings["original_max_position_embeddings"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * settings["rope_theta"] ** (i / head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(settings["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / settings["factor"] + smooth))
    return factors


def gguf_name(name: str) -> str:
    top = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    top["lm_head.weight"] = "output.weight"
    if name in top:
        return top[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{GGUF_NAMES[part.removesuffix('.weight')]}.weight"


def write_gguf(
    path: Path,
    model: ApertusForCausalLM,
    *,
    told: Mapping[str, Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    factors: np.ndarray | None = None,
    pre: str = "tekken",
    vocabulary: Mapping[str, Any] | None = None,
    quantised: Mapping[str, GGMLQuantizationType] | None = None,
) -> None:
    """Store a model as llama.cpp does. ``told``, ``scalars``, ``factors`` and ``vocabulary`` replace what it says;
    None leaves a key out."""
    config, tensors = model.config, arrays(model)
    writer = GGUFWriter(path, "apertus")
    sizes = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        **(told or {}),
    }
    for key, value in sizes.items():
        if value is not None:
            add = {float: writer.add_float32, str: writer.add_string}.get(type(value), writer.add_uint32)
            add(f"apertus.{key}", value)

    layers = range(config.num_hidden_layers)
    stored = {
        f"xielu.{field}": [float(tensors[f"layers.{i}.mlp.act_fn.{field}"].item()) for i in layers]
        for field in ("alpha_p", "alpha_n", "beta", "eps")
    }
    for key, value in {**stored, **(scalars or {})}.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_array(key, value)

    library = json.loads(tokenizer(pre).to_str())
    tokens = sorted(library["model"]["vocab"], key=library["model"]["vocab"].get)
    words = {
        "tokens": tokens,
        "merges": [" ".join(pair) for pair in library["model"]["merges"]],
        "token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "model": "gpt2",
        "pre": pre,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **(vocabulary or {}),
    }
    for key, value in words.items():
        if value is not None:
            adders = {list: writer.add_array, str: writer.add_string, int: writer.add_uint32}
            adders[type(value)](f"tokenizer.ggml.{key}", value)

    if factors is None and config.rope_parameters["rope_type"] == "llama3":
        factors = np.array(rotary_factors(config.rope_parameters, config.head_dim), np.float32)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    for name, array in tensors.items():
        if "act_fn" not in name:
            kind = (quantised or {}).get(name)
            writer.add_tensor(gguf_name(name), array if kind is None else quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
