"""What heads of a character transformer attend to when it reads: the roles that readings of weights are checked by."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxcore.heads.naming import places, row
from jaxcore.reading import read
from jaxcore.session import LoadedModel
from models.char.config import SYMBOLS

FIRST = 8
"""The first query that counts: before it, everything is near."""
LOCAL = 8
"""The largest distance that is local."""
WINDOWS, TEXTS, LETTERS = 16, 8, 26
PATTERN = frozenset({"pattern"})


class Weights(NamedTuple):
    """Sums over queries of one window, for every head."""

    self_weight: Float[Array, "layer n_heads"]
    previous_weight: Float[Array, "layer n_heads"]
    local_weight: Float[Array, "layer n_heads"]
    far_weight: Float[Array, "layer n_heads"]
    normalized_entropy: Float[Array, "layer n_heads"]
    effective_keys: Float[Array, "layer n_heads"]


@jax.jit
def summed(pattern: Float[Array, "layer n_heads seq seq"], length: int | Array) -> Weights:
    """Where the queries from `FIRST` up to ``length`` look, added up."""
    i, j = jnp.arange(pattern.shape[2])[:, None], jnp.arange(pattern.shape[3])[None]
    offset, counts = i - j, ((i >= FIRST) & (i < length))[:, 0]

    def total(rows):
        return jnp.sum(jnp.where(counts, rows, 0), axis=-1)

    def weight(mask):
        return total(jnp.sum(jnp.where(mask, pattern, 0), axis=-1))

    entropy = -jnp.sum(jnp.where(pattern > 0, pattern * jnp.log(jnp.where(pattern > 0, pattern, 1)), 0), axis=-1)
    return Weights(
        self_weight=weight(offset == 0),
        previous_weight=weight(offset == 1),
        local_weight=weight((offset >= 2) & (offset <= LOCAL)),
        far_weight=weight(offset > LOCAL),
        normalized_entropy=total(entropy / jnp.log(jnp.maximum(i[:, 0], 1) + 1.0)),
        effective_keys=total(jnp.exp(entropy)),
    )


def windows(model: LoadedModel, text: str) -> list[list[int]]:
    """The windows of a text that are read: at most `WINDOWS` of the context's length, a last short one if it counts."""
    ids, length = model.tokenizer.encode(text), model.config.context
    cut = [ids[start : start + length] for start in range(0, len(ids), length)][:WINDOWS]
    return [window for window in cut if len(window) == length or len(window) > FIRST + 1]


def _pattern(model: LoadedModel, ids: Sequence[int]) -> Float[Array, "layer n_heads seq seq"]:
    (piece,) = read(model, ids, PATTERN)
    assert piece.trace.pattern is not None  # it was asked for
    return piece.trace.pattern


def mean_weights(model: LoadedModel, text: str) -> Weights:
    """Means over all queries of all windows, on the host."""
    read_windows = windows(model, text)
    sums = [summed(_pattern(model, window), len(window)) for window in read_windows]
    queries = sum(len(window) - FIRST for window in read_windows)
    return Weights(*(np.sum(jax.device_get(each), axis=0) / queries for each in zip(*sums, strict=True)))


def induction_scores(model: LoadedModel) -> np.ndarray:
    """Mean attention to what followed the same letter before, in random letters written twice: ``[layer n_heads]``.

    Each of `TEXTS` texts is a random order of different letters, as many as fit the context twice (Olsson et al. 2022,
    arXiv 2209.11895, for scores on repeated random tokens).
    """
    period = min(LETTERS, model.config.context // 2)
    i = np.arange(period, 2 * period)
    scores = []
    for seed in range(TEXTS):
        letters = np.random.default_rng(seed).permutation(LETTERS)[:period] + SYMBOLS.index("a")
        pattern = np.asarray(_pattern(model, np.tile(letters, 2).tolist()))
        scores.append(pattern[:, :, i, i - period + 1].mean(axis=-1))
    return np.mean(scores, axis=0)


def role(previous: float, local: float, far: float, entropy: float, induction: float) -> str:
    """The first description that holds."""
    if induction >= 0.4:
        return "copy"
    if previous >= 0.5:
        return "previous"
    if previous + local >= 0.6:
        return "local"
    return "broad" if entropy >= 0.7 or far >= 0.5 else "unclear"


def measured_head_roles(model: LoadedModel, text: str) -> list[dict[str, Any]]:
    """Every head's role and the weights it follows from, over a text of more than ten characters."""
    means, induction = mean_weights(model, text), induction_scores(model)
    listed = []
    for at in places(induction.shape):
        fields = {field: float(getattr(means, field)[at]) for field in Weights._fields}
        named = role(
            fields["previous_weight"],
            fields["local_weight"],
            fields["far_weight"],
            fields["normalized_entropy"],
            induction[at],
        )
        listed.append(row(at, role=named, **fields, induction_score=float(induction[at])))
    return listed
