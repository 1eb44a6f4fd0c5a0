"""A model in memory, ready to run."""

from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np

from jaxcore.catalogue import Progress, parameters
from jaxcore.checkpoint.store import Checkpoint, names_of, present, read, stacked
from jaxcore.families import checked_config, family_of
from jaxcore.tokenizer import Tokenizer, no_tokenizer
from jaxcore.tokens import tokenizer_of
from models import decode
from models.errors import OUT_OF_MEMORY, CheckpointError, ClearboxError, InputError, is_out_of_memory
from models.sharding import named_sharding
from models.tensors import TensorSpec

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(jax.numpy.bfloat16)}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """Parameters on a device, with the configuration that belongs to them."""

    reference: str
    checkpoint: Checkpoint
    config: Any
    params: Any
    own_tokenizer: Tokenizer | None
    dtype: str
    device: str

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer. Raises `CheckpointError` if it came without; ids can be read all the same."""
        return self.own_tokenizer or no_tokenizer(self.reference)


def described(model: LoadedModel) -> dict[str, Any]:
    """What a result says about the model it comes from."""
    return {
        "reference": model.reference,
        "architecture": model.config.family,
        "parameters": parameters(model.checkpoint),
        "dtype": model.dtype,
        "device": model.device,
        "revision": model.checkpoint.revision,
    }


def default_dtype(device: str) -> str:
    """float32 on a CPU, whose matrix products are float32; bfloat16 on an accelerator."""
    return "float32" if device == "cpu" else "bfloat16"


def find_device(kind: str | None) -> jax.Device:
    """The first device of a kind (``cpu``, ``gpu``), or JAX's default."""
    try:
        return jax.devices(kind)[0]
    except RuntimeError:
        raise InputError(
            f"There is no {kind} that JAX can use here: install the JAX build for it (see the README), or leave "
            "--device out."
        ) from None


def load(
    checkpoint: Checkpoint,
    *,
    dtype: str | None = None,
    device: str | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: Progress = lambda *_: None,
) -> LoadedModel:
    """Put a checkpoint's weights on a device and open its tokenizer, if it has one.

    Float32 weights that lie stacked in their file are used on a CPU where they are mapped, without a copy.
    With ``mesh`` (instead of ``device``) they are split over its devices by `models.sharding`, and only the part that
    a device holds is read for it. Raises `ClearboxError` for a checkpoint that does not fit its configuration, or
    does not fit into memory.
    """
    config = checked_config(checkpoint)
    place = find_device(device) if mesh is None else mesh.devices.flat[0]
    dtype = dtype or default_dtype(place.platform)
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; choose {' or '.join(DTYPES)}.")
    if config.vocab == 0:
        raise CheckpointError(
            f"{checkpoint.reference} holds only the blocks of a character transformer, without embeddings and output "
            "layer, so it cannot read or write text. Its weights can be analysed all the same."
        )
    tokenizer = tokenizer_of(checkpoint)
    table = present(checkpoint, family_of(checkpoint).tensors(config), config.n_layers)
    sizes = {field: prod(spec.stacked(config.n_layers).shape) for field, spec in table.items()}
    arrays, done = {}, 0
    try:
        for field, spec in table.items():
            progress(done / sum(sizes.values()), f"Loading {field.removeprefix('blocks.')}")
            kept = DTYPES[dtype if spec.shape else "float32"]
            arrays[field] = _placed(checkpoint, spec, config.n_layers, kept, place if mesh is None else mesh)
            done += sizes[field]
        jax.block_until_ready(arrays)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        needed = sum(sizes.values()) * DTYPES[dtype].itemsize / 1e9
        raise ClearboxError(f"{checkpoint.reference} needs {needed:.1f} GB for its weights. {OUT_OF_MEMORY}") from None
    params = decode.FAMILIES[config.family].params(arrays)
    return LoadedModel(checkpoint.reference, checkpoint, config, params, tokenizer, dtype, place.platform)


def _placed(
    checkpoint: Checkpoint, spec: TensorSpec, n_layers: int, dtype: np.dtype, where: jax.Device | jax.sharding.Mesh
) -> jax.Array:
    """One parameter, on a device or split over a mesh."""
    names, whole = names_of(spec, n_layers), spec.stacked(n_layers)
    if not isinstance(where, jax.sharding.Mesh):
        stored = stacked(checkpoint, names).reshape(whole.shape)
        return jax.device_put(stored.astype(dtype, copy=False), where)
    by_layer = len(whole.shape) - len(spec.shape)

    def part(index: Any) -> np.ndarray:  # a slice for each axis
        chosen = names[index[0]] if by_layer else names
        rows = [read(checkpoint, name).reshape(spec.shape)[index[by_layer:]] for name in chosen]
        return (np.stack(rows) if by_layer else rows[0]).astype(dtype, copy=False)

    return jax.make_array_from_callback(whole.shape, named_sharding(whole, where), part)
