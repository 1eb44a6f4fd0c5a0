"""How well a model predicts a given text, token by token."""

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
from jaxcore.sample import BUCKETS, all_logits, cache_for, check_prompt, pieces
from jaxcore.session import LoadedModel
from models import decode
from models.cache import KVCache
from models.errors import InputError

ROWS = 16
"""Positions whose logits are in memory at once."""


class Scores(NamedTuple):
    """Of the token that follows each position; the entropy is that of the prediction."""

    surprisal_nats: Float[Array, "*seq"]
    rank: Int[Array, "*seq"]
    entropy_nats: Float[Array, "*seq"]
    top1_id: Int[Array, "*seq"]
    top1_probability: Float[Array, "*seq"]


@dataclass(frozen=True)
class ScoredToken:
    """One token of a text and how it was predicted; the first has no prediction, so its numbers are None."""

    token_id: int
    token: str
    surprisal_nats: float | None = None
    rank: int | None = None
    entropy_nats: float | None = None
    top1: str | None = None
    top1_probability: float | None = None


@dataclass(frozen=True)
class ScoredText:
    """A text under a model; ``perplexity`` is exp of the mean surprisal over the predicted tokens."""

    tokens: tuple[ScoredToken, ...]
    mean_surprisal_nats: float
    perplexity: float


@jax.jit
def score_rows(logits: Float[Array, "seq vocab"], following: Int[Array, "seq"]) -> Scores:
    """Scores of the token that follows each position, from the logits there."""

    def one(logits, token_id):
        log_p = jax.nn.log_softmax(logits)
        p = jnp.exp(log_p)
        rank = sampling.rank(logits, token_id)
        return Scores(-log_p[token_id], rank, sampling.entropy(p), jnp.argmax(logits), jnp.max(p))

    return jax.vmap(one)(logits, following)


@partial(jax.jit, static_argnames=("cfg",), donate_argnames=("cache",))
def score_piece(
    params: Any,
    cache: KVCache,
    tokens: Int[Array, "seq"],
    positions: Int[Array, "seq"],
    following: Int[Array, "seq"],
    *,
    cfg: Any,
) -> tuple[Scores, KVCache]:
    """Scores of ``following``, the token after each new one. Only `ROWS` rows of logits exist at a time."""
    resid, cache, _ = decode.extend(params, cache, tokens, positions, cfg=cfg)

    def rows(block):
        resid, following = block
        return score_rows(decode.FAMILIES[cfg.family].unembed(params, resid, cfg), following)

    blocks = resid.reshape(-1, ROWS, resid.shape[-1]), following.reshape(-1, ROWS)
    return jax.tree.map(lambda x: x.reshape(-1), lax.map(rows, blocks)), cache


def score(model: LoadedModel, ids: Sequence[int]) -> ScoredText:
    """Surprisal (nats) and rank of every token after the first, each given those before it."""
    check_prompt(model, ids)
    if len(ids) < 2:
        raise InputError("There is nothing to predict: the text must have at least two tokens, BOS included.")
    if len(ids) > model.config.context:
        scores = _rowwise(all_logits(model, ids[:-1]), ids[1:])
    else:
        scores = _piecewise(model, ids)
    names = model.tokenizer.texts(ids)
    rows = zip(ids[1:], names[1:], *(column.tolist() for column in scores), strict=True)
    scored = [
        ScoredToken(token_id, name, surprisal, rank, entropy, model.tokenizer.text(top1), p)
        for token_id, name, surprisal, rank, entropy, top1, p in rows
    ]
    mean = float(scores.surprisal_nats.mean(dtype=np.float64))
    return ScoredText((ScoredToken(ids[0], names[0]), *scored), mean, float(np.exp(mean)))


def _piecewise(model: LoadedModel, ids: Sequence[int]) -> Scores:
    """Scores of all tokens but the first, a piece of the text at a time."""
    cache, found, start = cache_for(model, len(ids)), [], 0
    for tokens, positions in pieces(ids):
        n = int((positions >= 0).sum())
        following = np.zeros(len(tokens), np.int32)
        after = ids[start + 1 : start + n + 1]
        following[: len(after)] = after
        piece, cache = score_piece(model.params, cache, tokens, positions, jnp.asarray(following), cfg=model.config)
        found.append(jax.tree.map(lambda x, n=n: np.asarray(x)[:n], piece))
        start += n
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:-1], *found)


def _rowwise(logits: Float[np.ndarray, "seq vocab"], following: Sequence[int]) -> Scores:
    """Scores from logits that are there already, padded to a few lengths."""
    padding = -len(logits) % BUCKETS[-1]
    rows = jnp.asarray(np.pad(logits, ((0, padding), (0, 0))))
    found = score_rows(rows, jnp.asarray(np.pad(np.asarray(following, np.int32), (0, padding))))
    return jax.tree.map(lambda x: np.asarray(x)[: len(logits)], found)
