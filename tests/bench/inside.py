"""Looking inside: everything captured over a long prompt, the page's numbers from it, and all weights."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from safetensors.numpy import save_file
from weightwatcher import WeightWatcher  # pyright: ignore[reportMissingImports] - installed by `make bench`

from jaxcore import attention
from jaxcore.catalogue import open_reference
from jaxcore.checkpoint.store import Checkpoint, read
from jaxcore.layers import evolution
from jaxcore.session import LoadedModel
from jaxcore.weights import chosen, health
from models import decode
from tests.bench import machine
from tests.bench.rows import Row, against
from tests.reference import gemma3

LENGTH = 512
EVERYTHING = frozenset({"pattern", "resid_pre", "resid_mid", "resid_post"})


def captured(model: LoadedModel) -> list[Row]:
    """All patterns and states of `LENGTH` tokens with the last logits, and what the commands make of them."""
    reference = gemma3.from_folder(model.checkpoint.path)
    ids = np.random.default_rng(0).integers(1000, 200_000, LENGTH, dtype=np.int32)
    prompt, tokens, positions = torch.tensor(ids[None].astype(np.int64)), jnp.asarray(ids), jnp.arange(LENGTH)

    def ours():
        cache = decode.new_cache(model.config, 0)
        out = decode.step(model.params, cache, tokens, positions, cfg=model.config, taps=EVERYTHING)
        return jax.block_until_ready(out)

    def theirs():
        with torch.no_grad():
            return reference(
                prompt, use_cache=False, output_attentions=True, output_hidden_states=True, logits_to_keep=1
            )

    times = machine.alternated({"ours": ours, "float32 eager": theirs}, 5)
    commands = {
        "layer evolution with lens": lambda: evolution(model, ids.tolist()),
        "statistics of every head": lambda: attention.head_statistics(model, ids.tolist()),
    }
    return [
        *against(f"read {LENGTH} tokens, all patterns and states", times, "1.5x"),
        *(
            Row(f"{name}, {LENGTH} tokens", f"{seconds:.2f} s")
            for name, seconds in machine.alternated(commands, 3).items()
        ),
    ]


def weights(model: LoadedModel) -> list[Row]:
    """All tensors of a bfloat16 file, without spectra and with them."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = as_bfloat16(model.checkpoint, Path(folder))
        size = (Path(folder) / "model.safetensors").stat().st_size
        names = chosen(checkpoint)
        plain = machine.alternated({"": lambda: health(checkpoint, names, spectra=False)}, 2)[""]
        times = machine.alternated(
            {"ours": lambda: health(checkpoint, names, spectra=True), "WeightWatcher": weight_watcher(checkpoint)}, 1
        )
    return [
        Row(f"`weights` of a bfloat16 file of {size / 1e9:.2f} GB", f"{plain:.1f} s", target="3 s"),
        *against("the same with spectra and power laws (the peer without the embedding)", times, "1x"),
    ]


def weight_watcher(checkpoint: Checkpoint) -> Callable[[], object]:
    """WeightWatcher's analysis of the same matrices, but for the embedding, which it leaves out."""
    layers = torch.nn.ModuleDict()
    for name, info in checkpoint.tensors.items():
        if len(info.shape) == 2 and "embed" not in name:
            layer = torch.nn.Linear(info.shape[1], info.shape[0], bias=False)
            layer.weight = torch.nn.Parameter(torch.tensor(read(checkpoint, name).astype(np.float32)), False)
            layers[name.replace(".", "_")] = layer
    return lambda: WeightWatcher(model=layers).analyze()


def as_bfloat16(source: Checkpoint, folder: Path) -> Checkpoint:
    """A copy of a checkpoint with bfloat16 weights."""
    tensors = {name: read(source, name).astype(ml_dtypes.bfloat16) for name in source.tensors}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(dict(source.config)))
    return open_reference(str(folder))
