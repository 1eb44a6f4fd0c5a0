"""What heads of a character transformer attend to when it reads: the roles that readings of weights are checked by."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxcore.attention import induction_scores
from jaxcore.catalogue import CHECKPOINTS
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.heads.naming import places, row
from jaxcore.reading import read
from jaxcore.session import LoadedModel, load
from models.errors import InputError

FIRST = 8
"""The first query that counts: before it, everything is near."""
LOCAL = 8
"""The largest distance that is local."""
WINDOWS = 16
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
    return piece.trace.pattern


def mean_weights(model: LoadedModel, text: str) -> Weights:
    """Means over all queries of all windows, on the host."""
    read_windows = windows(model, text)
    sums = [summed(_pattern(model, window), len(window)) for window in read_windows]
    queries = sum(len(window) - FIRST for window in read_windows)
    return Weights(*(np.sum(jax.device_get(each), axis=0) / queries for each in zip(*sums, strict=True)))


def role(previous: float, local: float, far: float, entropy: float, induction: float) -> str:
    """The first description that holds."""
    if induction >= 0.4:
        return "copy"
    if previous >= 0.5:
        return "previous"
    if previous + local >= 0.6:
        return "local"
    return "broad" if entropy >= 0.7 or far >= 0.5 else "unclear"


def read_text(checkpoint: Checkpoint, path: Path | None) -> str:
    """The text of a file, or the held-out text beside the model, or else that of ``char-english``.

    Raises `InputError` for a file that cannot be read or is too short.
    """
    if path is None:
        beside = Path(checkpoint.path) / "held_out.txt"
        path = beside if beside.is_file() else CHECKPOINTS / "char-english" / "held_out.txt"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): name a text file in UTF-8.") from None
    if len(text) <= FIRST + 1:
        raise InputError(f"{path} holds {len(text)} characters; roles are measured on at least {FIRST + 2}.")
    return text


def measured(checkpoint: Checkpoint, text: str) -> list[dict[str, Any]] | None:
    """Roles measured on a text; None for a file of blocks only, which cannot read."""
    if checkpoint.config["vocab"] == 0:
        return None
    return measured_head_roles(load(checkpoint, dtype="float32"), text)


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
