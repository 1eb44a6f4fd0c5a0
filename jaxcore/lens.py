"""The logit lens (nostalgebraist 2020): what a state inside would predict if the last block had already passed.

The final norm and output layer are applied to each state itself, with its own scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxcore import sampling
from jaxcore.reading import read, readable
from jaxcore.session import LoadedModel
from models import decode
from models.errors import InputError

STREAM = frozenset({"resid_pre", "resid_mid", "resid_post"})
MOST = 64
"""Positions in one grid."""
BLOCK = 32
"""States whose logits are in memory at once."""


class Seen(NamedTuple):
    """What a state predicts, compared with what the last one predicts."""

    top_id: Int[Array, "*rows top"]
    top_probability: Float[Array, "*rows top"]
    final_rank: Int[Array, "*rows"]
    final_probability: Float[Array, "*rows"]
    kl_to_final: Float[Array, "*rows"]


@dataclass(frozen=True)
class Grid:
    """The lens over layers and positions; arrays are ``[layer position ...]``, layer 0 the embedding.

    ``final_id`` is the likeliest token after the last layer at each position, whose rank and probability the others
    give; KL(final || layer) in nats.
    """

    positions: tuple[int, ...]
    final_id: np.ndarray
    after: Seen
    between: Seen | None


def _compared(logits: Float[Array, "vocab"], final: Float[Array, "vocab"], top: int) -> Seen:
    log_p, log_final = jax.nn.log_softmax(logits), jax.nn.log_softmax(final)
    answer = jnp.argmax(final)
    values, ids = lax.top_k(logits, top)
    return Seen(
        top_id=ids,
        top_probability=jnp.exp(values - jax.nn.logsumexp(logits)),
        final_rank=sampling.rank(logits, answer),
        final_probability=jnp.exp(log_p[answer]),
        kl_to_final=jnp.sum(jnp.exp(log_final) * (log_final - log_p)),
    )


@partial(jax.jit, static_argnames=("cfg", "top"))
def _through(
    params: Any, states: Float[Array, "state rows d_model"], final: Float[Array, "rows d_model"], *, cfg: Any, top: int
) -> tuple[Seen, Int[Array, "rows"]]:
    """The lens on states of the same rows; a block of logits at a time is in memory, so that W_U is read seldom."""
    unembed = partial(decode.FAMILIES[cfg.family].unembed, params, cfg=cfg)
    final_logits = unembed(final)
    count, rows = states.shape[:2]
    flat = states.reshape(count * rows, -1)
    padding = -len(flat) % BLOCK
    row = jnp.pad(jnp.tile(jnp.arange(rows), count), (0, padding)).reshape(-1, BLOCK)
    blocks = jnp.pad(flat, ((0, padding), (0, 0))).reshape(-1, BLOCK, flat.shape[-1])

    def block(scanned):
        resid, row = scanned
        each = jax.vmap(lambda logits, row: _compared(logits, final_logits[row], top))
        return each(unembed(resid), row)

    seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(block, (blocks, row)))
    seen = jax.tree.map(lambda x: x[: len(flat)].reshape(count, rows, *x.shape[1:]), seen)
    return seen, jnp.argmax(final_logits, axis=-1)


def at_last(model: LoadedModel, states: Float[Array, "state d_model"], top: int) -> list[dict[str, Any]]:
    """Of every state of one position the likeliest tokens, and how far they are from the last layer's."""
    layers, cfg = model.config.n_layers, model.config
    seen, _ = _through(model.params, states[:, None], states[layers][None], cfg=cfg, top=min(top, cfg.vocab))
    seen = jax.device_get(jax.tree.map(lambda x: x[:, 0], seen))
    text = model.tokenizer.text
    return [
        {
            "lens": [
                {"token_id": int(i), "token": text(int(i)), "probability": float(p)}
                for i, p in zip(seen.top_id[state], seen.top_probability[state], strict=True)
            ],
            "lens_kl_to_final": float(max(seen.kl_to_final[state], 0)),
            "lens_rank_of_final": int(seen.final_rank[state]),
        }
        for state in range(len(states))
    ]


def grid(model: LoadedModel, ids: Sequence[int], positions: Sequence[int], top: int = 5, between: bool = False) -> Grid:
    """The lens at ``positions`` (ascending, at most `MOST`) after every layer, and ``between`` attention and MLP too.

    Raises `InputError` for too many positions or a text that the model cannot read.
    """
    ids = readable(model, ids)
    if not positions or len(positions) > MOST or not all(0 <= p < len(ids) for p in positions):
        raise InputError(f"The lens shows 1 to {MOST} positions of the text's {len(ids):,} at once; choose others.")
    parts = []
    for piece in read(model, ids, STREAM, positions):
        trace = jax.tree.map(lambda x: x[:, : piece.count], piece.trace)  # noqa: B023 - used at once
        parts.append((jnp.concatenate([trace.resid_pre[:1], trace.resid_post]), trace.resid_mid))
    after, mid = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    cfg, top = model.config, min(top, model.config.vocab)
    seen, final = _through(model.params, after, after[-1], cfg=cfg, top=top)
    inner = _through(model.params, mid, after[-1], cfg=cfg, top=top)[0] if between else None
    return Grid(tuple(positions), np.asarray(final), jax.device_get(seen), jax.device_get(inner))
