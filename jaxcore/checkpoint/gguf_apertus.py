"""Apertus in GGUF files: xIELU's scalars lie among the metadata, and rotary scaling is a factor for each frequency.

Sources: llama.cpp's ``conversion/apertus.py`` and ``llama.py``, and ``src/models/apertus.cpp``.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np

from jaxcore.checkpoint.gguf_file import Numbers, damaged, pieces
from jaxcore.checkpoint.gguf_names import ATTENTION, MLP, Dialect, Metadata
from jaxcore.checkpoint.store import TensorInfo
from models.apertus.config import DEFAULTS
from models.errors import ConfigError
from models.rotary import Bands, Rope, inverse_frequencies

IN_LAYER = {"attn_norm": "attention_layernorm", **ATTENTION, "ffn_norm": "feedforward_layernorm", **MLP}
ROPE_FACTORS = "rope_freqs.weight"
USUAL = Bands(original=8192, low=1.0, high=4.0)
"""The bands of the published models."""
CLOSE = 1e-4
"""How far factors may be from those that follow from bands, as a share; they are stored in float32."""


def hf_config(metadata: Metadata, infos: Sequence[TensorInfo]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration, and notes on values that the file does not state."""
    common = metadata.common(infos)
    head_dim = metadata.number("attention.key_length", common["hidden_size"] // max(common["num_attention_heads"], 1))
    turned = metadata.number("rope.dimension_count", head_dim)
    if turned != head_dim:
        raise ConfigError(f"{metadata.path}: {turned} of {head_dim} dimensions of a head are rotated; all must be.")
    base = float(metadata.number("rope.freq_base"))
    factors = next((info for info in infos if info.name == ROPE_FACTORS), None)
    rope, notes = _scaling(metadata, factors, base, head_dim)
    return {
        "architectures": ["ApertusForCausalLM"],
        "model_type": "apertus",
        **common,
        "head_dim": head_dim,
        "rms_norm_eps": metadata.norm_eps(DEFAULTS["rms_norm_eps"]),
        "rope_parameters": {**rope, "rope_theta": base},
        "hidden_act": "xielu",
        "bos_token_id": metadata.values.get("tokenizer.ggml.bos_token_id", 1),
        "eos_token_id": [metadata.values.get("tokenizer.ggml.eos_token_id", 2)],
    }, notes


def _scaling(
    metadata: Metadata, info: TensorInfo | None, base: float, head_dim: float
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Rotary settings in Hugging Face's spelling: from the factors of all frequencies, or else from the metadata."""
    kind = metadata.values.get(f"{metadata.architecture}.rope.scaling.type", "none")
    if kind not in ("none", "linear") or (kind == "linear" and info is not None):
        raise ConfigError(f"{metadata.path}: rotary scaling of type {str(kind)[:80]!r} is not supported for Apertus.")
    if kind == "linear":
        return {"rope_type": "linear", "factor": metadata.number("rope.scaling.factor")}, ()
    if info is None:
        return {"rope_type": "default"}, ("The file holds no rotary scaling, so none is used.",)
    if info.shape != (head_dim // 2,):
        raise damaged(metadata.path, f"{info.name} has the shape {list(info.shape)} for heads of {head_dim} dimensions")
    divided = np.concatenate(list(pieces(info))).reshape(-1).astype(np.float64)
    if (divided == 1).all():
        return {"rope_type": "default"}, ()
    rope = _llama3(divided, base)
    if rope is None or rope.bands is None:
        raise ConfigError(
            f"{metadata.path}: {info.name} divides the rotary frequencies by {divided.min():g} to {divided.max():g}, "
            "but not in the bands of llama3 scaling; only those are supported."
        )
    bands = rope.bands
    return {
        "rope_type": "llama3",
        "factor": rope.factor,
        "low_freq_factor": bands.low,
        "high_freq_factor": bands.high,
        "original_max_position_embeddings": bands.original,
    }, (
        f"The file gives rotary scaling as a factor for each frequency. They are those of llama3 scaling by "
        f"{rope.factor:g} in the bands {bands.low:g} to {bands.high:g} of {bands.original:,} tokens, which is used.",
    )


def _llama3(divided: np.ndarray, base: float) -> Rope | None:
    """The rotary embedding whose frequencies are divided so, if there is one; the low band's edge is taken as 1."""
    head_dim, factor = 2 * len(divided), float(divided.max())
    if not (divided.min() > 0 and 1 < factor < np.inf and 1 < base < np.inf):
        return None
    plain = inverse_frequencies(Rope(base=base), head_dim)
    kept = (1 / divided - 1 / factor) / (1 - 1 / factor)
    tried = [USUAL]
    between = (kept > CLOSE) & (kept < 1 - CLOSE)
    if between.sum() > 1:  # points on the line from one band to the other
        slope, start = np.polyfit(plain[between], kept[between], 1).tolist()
        if slope > 0 > start:
            tried.append(Bands(original=round(-2 * pi * slope / start), low=1.0, high=round(1 - 1 / start, 4)))
    for bands in tried:
        rope = Rope(base=base, factor=factor, bands=bands)
        if np.allclose(plain / inverse_frequencies(rope, head_dim), divided, rtol=CLOSE, atol=0):
            return rope
    return None


def scalars(metadata: Metadata) -> dict[str, TensorInfo]:
    """xIELU's scalars, each a tensor at its place among the metadata, shaped as in Hugging Face's files."""
    layers, tensors = metadata.number("block_count"), {}
    shapes: dict[str, tuple[int, ...]] = {"alpha_p": (1,), "alpha_n": (1,), "beta": (), "eps": ()}
    for field, shape in shapes.items():
        numbers = metadata.values.get(f"xielu.{field}")
        if numbers is None and field in ("beta", "eps"):
            continue
        if not isinstance(numbers, Numbers) or numbers.kind not in ("<f4", "<f8") or len(numbers) != layers:
            given = f"{len(numbers)} numbers" if isinstance(numbers, Numbers) else repr(numbers)[:80]
            raise ConfigError(
                f"{metadata.path}: the metadata give xielu.{field} as {given}; a floating point number for each of the "
                f"{layers} layers is needed. Convert the model again with a current llama.cpp."
            )
        size = np.dtype(numbers.kind).itemsize
        for i in range(len(numbers)):
            stored = f"xielu.{field}[{i}]"
            info = TensorInfo(stored, shape, f"F{8 * size}", size, metadata.path, numbers.offset + size * i)
            tensors[f"layers.{i}.mlp.act_fn.{field}"] = info
    return tensors


DIALECT = Dialect(IN_LAYER, hf_config, in_metadata=scalars, read_for_config=frozenset({ROPE_FACTORS}))
