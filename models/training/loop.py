"""The training loop: next-token prediction with AdamW, resumable, the same on CPU and GPU."""

import sys
import time
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jaxtyping import Array, Float, Int, Integer

from models import decode
from models.tensors import TensorSpec
from models.training.data import batch
from models.training.recipes import Recipe

SAVE_EVERY = 250
"""Steps between checkpoints of the whole training state."""
EVALUATED = 32
"""Windows that are scored at once."""

Arrays = dict[str, Array]


def initial(cfg: Any, table: Mapping[str, TensorSpec], seed: int) -> Arrays:
    """Random weights: normal with variance 1 / inputs (LeCun et al. 1998), norms neutral.

    What writes to the residual stream is smaller by sqrt(2 layers), as in GPT-2 (Radford et al. 2019); GPT-2's fixed
    0.02 suits wide models, in these attention would stay flat for thousands of steps. xIELU begins at alpha = 0.8
    (arXiv 2411.13010).
    """
    keys = jax.random.split(jax.random.key(seed), len(table))
    return {field: _initial(cfg, field, spec, key) for (field, spec), key in zip(table.items(), keys, strict=True)}


def _initial(cfg: Any, field: str, spec: TensorSpec, key: Array) -> Array:
    shape = (cfg.n_layers, *spec.shape) if "{layer}" in spec.name else spec.shape
    name = field.removeprefix("blocks.")
    if name in ("alpha_p", "alpha_n"):
        return jnp.full(shape, np.log(np.expm1(0.8 if name == "alpha_p" else 0.8 - 0.5)), jnp.float32)
    if len(spec.shape) < 2:
        neutral = 0.0 if cfg.family == "gemma3" or name.endswith(("_b", "b_U")) else 1.0
        return jnp.full(shape, neutral, jnp.float32)
    writes = name in ("W_O", "W_down")
    inputs = prod(spec.shape[1:]) if writes else spec.shape[-1]
    variance = 1 / inputs / (2 * cfg.n_layers if writes else 1)
    return variance**0.5 * jax.random.normal(key, shape, jnp.float32)


def losses(arrays: Arrays, windows: Int[Array, "rows length"], *, cfg: Any) -> Float[Array, "rows context"]:
    """Cross-entropy in nats of every token of each window after the first."""
    family = decode.FAMILIES[cfg.family]
    params = family.params(arrays)

    def one(window):
        positions = jnp.arange(len(window) - 1)
        resid, _, _ = decode.extend(params, decode.new_cache(cfg, 0), window[:-1], positions, cfg=cfg)
        return optax.softmax_cross_entropy_with_integer_labels(family.unembed(params, resid, cfg), window[1:])

    return jax.vmap(one)(windows)


@partial(jax.jit, static_argnames=("cfg",), donate_argnames=("state",))
def update(state: TrainState, windows: Int[Array, "rows length"], *, cfg: Any) -> tuple[TrainState, Float[Array, ""]]:
    """One step; returns the new state and the loss before it."""
    loss, grads = jax.value_and_grad(lambda arrays: losses(arrays, windows, cfg=cfg).mean())(state.params)
    return state.apply_gradients(grads=grads), loss


_losses = partial(jax.jit, static_argnames=("cfg",))(losses)


def held_out_loss(arrays: Arrays, ids: Integer[np.ndarray, "tokens"], *, cfg: Any) -> float:
    """Mean nats a token over consecutive windows of the context length; the first token of a window is given."""
    count = len(ids) // cfg.context
    windows = ids[: count * cfg.context].reshape(count, cfg.context).astype(np.int32)
    parts = [_losses(arrays, jnp.array(windows[at : at + EVALUATED]), cfg=cfg) for at in range(0, count, EVALUATED)]
    return float(np.concatenate(parts).mean(dtype=np.float64))


def optimiser(recipe: Recipe) -> optax.GradientTransformation:
    """AdamW with warm-up and cosine decay to a tenth; weight decay on matrices only; gradients clipped at norm 1."""
    rate = optax.warmup_cosine_decay_schedule(
        0.0, recipe.learning_rate, recipe.warmup, recipe.steps, recipe.learning_rate / 10
    )

    def matrices(arrays: Arrays) -> dict[str, bool]:
        return {field: field.split(".")[-1].startswith("W_") for field in arrays}

    b1, b2 = recipe.betas
    adamw = optax.adamw(rate, b1=b1, b2=b2, weight_decay=recipe.weight_decay, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(1.0), adamw)


def train(
    recipe: Recipe,
    cfg: Any,
    arrays: Arrays,
    streams: Mapping[str, np.ndarray],
    folder: Path,
    save_every: int = SAVE_EVERY,
) -> Arrays:
    """Train from ``arrays``, or from the last checkpoint in ``folder``; reports on stderr. Returns the weights.

    Stopped and started again, it ends with the same weights as without a stop.
    """
    state = TrainState.create(apply_fn=losses, params=arrays, tx=optimiser(recipe))
    options = ocp.CheckpointManagerOptions(save_interval_steps=save_every, max_to_keep=1, create=True)
    with ocp.CheckpointManager(folder.resolve(), options=options) as manager:
        begun = manager.latest_step() or 0
        if begun:
            state = manager.restore(begun, args=ocp.args.StandardRestore(state))
        clock, seen = time.monotonic(), []
        for step in range(begun, recipe.steps):
            state, loss = update(state, jnp.array(batch(recipe, streams, cfg.context, step)), cfg=cfg)
            seen.append(loss)
            done = step + 1
            if done % 50 == 0 or done == recipe.steps:
                mean = float(np.mean(jax.device_get(seen)))
                spent = time.monotonic() - clock
                left = spent / (done - begun) * (recipe.steps - done) / 60
                print(f"{recipe.name}: step {done:,} of {recipe.steps:,}, loss {mean:.4f}, {left:.1f} min left",
                      file=sys.stderr, flush=True)  # fmt: skip
                seen = []
            manager.save(done, args=ocp.args.StandardSave(state), force=done == recipe.steps)
    return cast(Arrays, state.params)
