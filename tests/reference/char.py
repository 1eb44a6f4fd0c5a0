"""The character transformer written out in plain numpy, float64, one head at a time; and files of random ones."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

SYMBOLS = "\n abcdefghijklmnopqrstuvwxyz"
LAYERS, HEADS, CONTEXT = 4, 6, 128

Weights = dict[str, np.ndarray]


def make(d: int = 384, *, layers: int = LAYERS, context: int = CONTEXT, vocab: int = 28, seed: int = 0) -> Weights:
    """Weights with every entry random: gains away from 1, biases away from 0, scores large enough to matter."""
    rng = np.random.default_rng(seed)

    def normal(*shape, scale=1.0, mean=0.0):
        return (mean + scale * rng.standard_normal(shape)).astype(np.float32)

    weights = {"tok_emb": normal(vocab, d), "pos_emb": normal(context, d, scale=0.5)}
    for layer in range(layers):
        for norm in ("ln1", "ln2"):
            weights[f"{norm}_w.{layer}"] = normal(d, scale=0.3, mean=1)
            weights[f"{norm}_b.{layer}"] = normal(d, scale=0.3)
        for name in ("W_q", "W_k", "W_v", "W_o"):
            weights[f"{name}.{layer}"] = normal(d, d, scale=d**-0.5)
        weights[f"W_fc.{layer}"] = normal(4 * d, d, scale=d**-0.5)
        weights[f"W_proj.{layer}"] = normal(d, 4 * d, scale=(4 * d) ** -0.5)
    weights |= {"lnf_w": normal(d, scale=0.3, mean=1), "lnf_b": normal(d, scale=0.3)}
    weights |= {"W_out": normal(vocab, d, scale=d**-0.5), "b_out": normal(vocab)}
    return weights


def save(path: Path, weights: Mapping[str, np.ndarray], **metadata: str) -> Path:
    save_file(dict(weights), path, metadata or None)
    return path


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gain + bias


def window_logits(ids: list[int], weights: Weights, heads: int = HEADS) -> np.ndarray:
    """Logits after every token of at most one context, read at positions from 0: ``[seq vocab]``."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    length, width = len(ids), w["tok_emb"].shape[1]
    size = width // heads
    stream = w["tok_emb"][ids] + w["pos_emb"][:length]
    layer = 0
    while f"W_q.{layer}" in w:
        x = layer_norm(stream, w[f"ln1_w.{layer}"], w[f"ln1_b.{layer}"])
        written = np.zeros_like(stream)
        for head in range(heads):
            rows = slice(head * size, (head + 1) * size)
            q, k, v = (x @ w[f"{name}.{layer}"][rows].T for name in ("W_q", "W_k", "W_v"))
            for i in range(length):
                scores = k[: i + 1] @ q[i] / np.sqrt(size)
                weight = np.exp(scores - scores.max())
                written[i] += w[f"W_o.{layer}"][:, rows] @ (weight / weight.sum() @ v[: i + 1])
        stream = stream + written
        x = layer_norm(stream, w[f"ln2_w.{layer}"], w[f"ln2_b.{layer}"])
        stream = stream + np.maximum(x @ w[f"W_fc.{layer}"].T, 0) @ w[f"W_proj.{layer}"].T
        layer += 1
    return layer_norm(stream, w["lnf_w"], w["lnf_b"]) @ w["W_out"].T + w["b_out"]


def logits(ids: list[int], weights: Weights, heads: int = HEADS) -> np.ndarray:
    """Logits after every token of any text: past the context each from the last ``context`` tokens."""
    context = len(weights["pos_emb"])
    first = window_logits(ids[:context], weights, heads)
    later = [window_logits(ids[end - context : end], weights, heads)[-1] for end in range(context + 1, len(ids) + 1)]
    return np.concatenate([first, np.reshape(later, (len(later), -1))]) if later else first


def greedy(ids: list[int], weights: Weights, steps: int) -> list[int]:
    """The likeliest continuation, every window read anew."""
    text, context = list(ids), len(weights["pos_emb"])
    for _ in range(steps):
        text.append(int(window_logits(text[-context:], weights)[-1].argmax()))
    return text[len(ids) :]
