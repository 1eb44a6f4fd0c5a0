"""What a checkpoint holds, from its headers alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from typing import Any

from jaxcore.catalogue import parameters
from jaxcore.checkpoint.store import Checkpoint, names_of, present, problems
from jaxcore.families import family_of
from models.sharding import MESH_AXES, RULES, partition, shard_shape

KINDS = {".json": "tokenizer.json", ".model": "SentencePiece", ".gguf": "inside the GGUF file"}

PARTS = {
    "W_E": "embedding",
    "W_pos": "embedding",
    "W_U": "output head",
    "b_U": "output head",
    "W_Q": "attention",
    "W_K": "attention",
    "W_V": "attention",
    "W_O": "attention",
    "W_gate": "MLP",
    "W_up": "MLP",
    "W_down": "MLP",
    "alpha_p": "MLP",
    "alpha_n": "MLP",
}
"""What each parameter is part of; the rest are norms."""
BYTES = {"float32": 4, "bfloat16": 2}
"""Of a weight in memory."""


def described(checkpoint: Checkpoint) -> dict[str, Any]:
    """The model in a line of every result: ``{"reference", "architecture", "parameters", "dtype"}``.

    ``dtype`` is the stored type of most parameters.
    """
    by_dtype = _by_dtype(checkpoint)
    return {
        "reference": checkpoint.reference,
        "architecture": family_of(checkpoint).config(checkpoint.config).family,
        "parameters": parameters(checkpoint),
        "dtype": max(by_dtype, key=lambda dtype: by_dtype[dtype]["parameters"], default=None),
    }


def inspect(checkpoint: Checkpoint) -> dict[str, Any]:
    """Configuration, tensor table, totals, tokenizer, what is missing, and notes, for the ``inspect`` command.

    Tensors that are missing, misshapen or superfluous do not raise: they are listed under ``missing``, as sentences.
    """
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    missing = problems(checkpoint, family.tensors(config), config.n_layers)
    tokenizer = _tokenizer_kind(checkpoint)
    if config.vocab == 0:
        missing.append("Embeddings and output layer: this file holds blocks only, so it cannot read or write.")
    elif tokenizer is None:
        missing.append("No tokenizer.json or tokenizer.model lies beside the weights: text cannot be read or written.")
    return {
        "reference": checkpoint.reference,
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "revision": checkpoint.revision,
        "architecture": config.family,
        "config": asdict(config),
        "tensors": [
            {
                "name": name,
                "stored_name": info.name,
                "shape": list(info.shape),
                "dtype": info.dtype,
                "parameters": info.parameters,
                "bytes": info.nbytes,
            }
            for name, info in checkpoint.tensors.items()
        ],
        "totals": totals(checkpoint),
        "tokenizer": tokenizer,
        "missing": missing,
        "notes": list(checkpoint.notes),
    }


def _tokenizer_kind(checkpoint: Checkpoint) -> str | None:
    if checkpoint.config["model_type"] == "char":
        return "characters"
    return None if checkpoint.tokenizer is None else KINDS[checkpoint.tokenizer.suffix]


def totals(checkpoint: Checkpoint) -> dict[str, Any]:
    """How many tensors, parameters and bytes a checkpoint holds."""
    return {
        "tensors": len(checkpoint.tensors),
        "parameters": parameters(checkpoint),
        "bytes": sum(info.nbytes for info in checkpoint.tensors.values()),
        "by_dtype": _by_dtype(checkpoint),
    }


def device_plan(checkpoint: Checkpoint, sizes: Sequence[int]) -> dict[str, Any]:
    """What each device of a mesh would hold, by `models.sharding`; all hold the same amount.

    ``sizes`` are those of `MESH_AXES`. ``partition`` names the mesh axis that splits each axis, null where every
    device holds it whole; ``replicated`` lists those axes that were to be split but cannot be, evenly.
    """
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    mesh: dict[str, int] = dict(zip(MESH_AXES, sizes, strict=True))
    rows, replicated, held = [], [], 0
    for field, tensor in present(checkpoint, family.tensors(config), config.n_layers).items():
        spec = tensor.stacked(config.n_layers)
        split = partition(spec.axes, spec.shape, mesh)
        shard = shard_shape(spec.shape, split, mesh)
        held += prod(shard)
        rows.append(
            {"parameter": field, "axes": spec.axes, "shape": spec.shape, "partition": split, "device_shape": shard}
        )
        for axis, size, chosen in zip(spec.axes, spec.shape, split, strict=True):
            wanted = RULES[axis]
            if wanted and wanted != chosen:
                told = {"axis": axis, "size": size, "mesh_axis": wanted, "mesh_size": mesh[wanted]}
                replicated.append({"parameter": field, **told})
    return {
        "axes": mesh,
        "devices": prod(sizes),
        "parameters_per_device": held,
        "bytes_per_device": {dtype: held * size for dtype, size in BYTES.items()},
        "parameters": rows,
        "replicated": replicated,
    }


def _by_dtype(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    tensors, sizes, nbytes = Counter(), Counter(), Counter()
    for info in checkpoint.tensors.values():
        tensors[info.dtype] += 1
        sizes[info.dtype] += info.parameters
        nbytes[info.dtype] += info.nbytes
    return {d: {"tensors": tensors[d], "parameters": sizes[d], "bytes": nbytes[d]} for d in sorted(tensors)}


def parameters_by_part(checkpoint: Checkpoint) -> dict[str, int]:
    """Parameters of embedding, attention, MLP, norms and, if it is not the embedding, output head."""
    family = family_of(checkpoint)
    config = family.config(checkpoint.config)
    sizes: Counter[str] = Counter()
    for field, spec in family.tensors(config).items():
        copies = 0 if spec.optional else len(names_of(spec, config.n_layers))
        sizes[PARTS.get(field.removeprefix("blocks."), "norms")] += prod(spec.shape) * copies
    return dict(sizes)


def memory_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """What the weights take in memory as ``float32`` or ``bfloat16``."""
    return sum(parameters_by_part(checkpoint).values()) * BYTES[dtype]
