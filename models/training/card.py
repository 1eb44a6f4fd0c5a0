"""A finished model as a folder: weights, configuration, vocabulary, a slice of held-out text, and its card."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors.flax import load_file, save_file
from tokenizers import Tokenizer

from models.tensors import TensorSpec
from models.training.loop import Arrays
from models.training.recipes import Recipe


def stored_name(spec: TensorSpec, layer: int, family: str) -> str:
    """The name of one layer's tensor in the file: ``W_q.0`` for characters, else Hugging Face's."""
    if family == "char":
        return spec.name.removeprefix("layers.{layer}.") + (f".{layer}" if "{layer}" in spec.name else "")
    return "model." + spec.name.format(layer=layer)


def write(
    folder: Path,
    recipe: Recipe,
    cfg: Any,
    table: Mapping[str, TensorSpec],
    arrays: Arrays,
    tokenizer: Tokenizer | None,
    held_out: str,
    loss: float,
    sources: Mapping[str, Any],
) -> None:
    """Write everything that ships with a model; ``loss`` is that on ``held_out``, in nats a token."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for field, spec in table.items():
        layers = np.asarray(arrays[field]) if "{layer}" in spec.name else np.asarray(arrays[field])[None]
        for layer, array in enumerate(layers):
            tensors[stored_name(spec, layer, cfg.family)] = jnp.asarray(merged(array, spec))
    metadata = {"format": "pt"}
    if cfg.family == "char":
        metadata |= {"n_heads": str(cfg.n_heads), "context_length": str(cfg.context)}
    else:
        config = {**recipe.config, "torch_dtype": recipe.dtype}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    save_file(tensors, folder / "model.safetensors", metadata)
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "held_out.txt").write_text(held_out, "utf-8")
    (folder / "README.md").write_text(_card(recipe, cfg, tensors, loss, sources), "utf-8")


def read_arrays(folder: Path, cfg: Any, table: Mapping[str, TensorSpec]) -> Arrays:
    """The weights of a folder that `write` made, as the training loop holds them."""
    tensors = load_file(folder / "model.safetensors")
    arrays = {}
    for field, spec in table.items():
        if "{layer}" in spec.name:
            layers = [tensors[stored_name(spec, i, cfg.family)].reshape(spec.shape) for i in range(cfg.n_layers)]
            arrays[field] = jnp.stack(layers).astype(jnp.float32)
        else:
            arrays[field] = tensors[stored_name(spec, 0, cfg.family)].reshape(spec.shape).astype(jnp.float32)
    return arrays


def merged(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """A matrix as files hold it, heads not split out: (out, in)."""
    if len(spec.shape) < 3:
        return array
    inner = spec.axes[0] == "d_model"  # W_O: the heads are what it reads
    return array.reshape(spec.shape[0], -1) if inner else array.reshape(-1, spec.shape[-1])


def _card(recipe: Recipe, cfg: Any, tensors: Mapping[str, Any], loss: float, sources: Mapping[str, Any]) -> str:
    size = sum(array.size for array in tensors.values())
    used = {name: sources[f"{name}.txt"] for name in recipe.corpus}
    per_step = sum(recipe.rows.values()) * cfg.context
    unit = "character" if cfg.family == "char" else "token"
    lines = [
        "---",
        f"title: {recipe.title}",
        f"family: {cfg.family}",
        f"parameters: {size}",
        f"steps: {recipe.steps}",
        f"held_out_loss: {loss:.6f}",
        "---",
        "",
        f"# {recipe.name}",
        "",
        f"{recipe.title}. {size:,} parameters, trained from "
        + ("random weights" if recipe.start_from is None else recipe.start_from)
        + f" for {recipe.steps:,} steps of {per_step:,} {unit}s.",
        "",
        recipe.story,
        "",
        f"**Loss** on `held_out.txt`, which was not trained on: {loss:.4f} nats a {unit} (consecutive windows of "
        f"{cfg.context:,} {unit}s, the first of each given).",
        "",
        "**Text**",
        "",
        *(
            f"- {name}: {source['name']} ({source['licence']})"
            for name, found in used.items()
            for source in found["sources"]
        ),
        "",
        f"**Training** AdamW, betas {recipe.betas[0]} and {recipe.betas[1]}, weight decay {recipe.weight_decay} on "
        f"matrices, learning rate {recipe.learning_rate:g} after {recipe.warmup} steps of warm-up, then cosine decay "
        f"to a tenth; windows of {cfg.context:,} {unit}s a step: "
        + ", ".join(f"{rows} of {kind}" for kind, rows in recipe.rows.items())
        + f"; seed {recipe.seed}.",
        "",
        "**To make it again**: `make corpus`, then "
        f"`python -m models.training {recipe.name}` (`models/training/recipes.py` holds every setting).",
        "",
        "**Use** to see a small model work; it knows nothing and its text means nothing. The weights are under the "
        "repository's licence; the slice of text in `held_out.txt` is under that of its sources.",
        "",
    ]
    return "\n".join(lines)
