"""What each head attends to: patterns, where their weight lies, and what a token looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxcore.reading import read, readable
from jaxcore.session import LoadedModel
from models.char.config import SYMBOLS
from models.errors import InputError

PATTERN = frozenset({"pattern"})
LARGEST = 4 * 10**9
"""Bytes of patterns that are kept at once."""
SHOWN = 64
"""Tokens of a text that are shown at once."""
REPEATS, PERIOD = 8, 26
"""Random texts for induction scores, and different tokens in each."""


class HeadStatistics(NamedTuple):
    """Means over the queries of a text but the first, for every head.

    ``entropy_nats`` of the pattern's rows; ``entropy_share`` that over the logarithm of the number of keys in reach;
    ``distance`` to the keys in tokens, weighted; and the shares of attention on the text's first token, on the token
    before, and on the token itself.
    """

    entropy_nats: Float[Array, "layer n_heads"]
    entropy_share: Float[Array, "layer n_heads"]
    distance: Float[Array, "layer n_heads"]
    first: Float[Array, "layer n_heads"]
    previous: Float[Array, "layer n_heads"]
    own: Float[Array, "layer n_heads"]


@dataclass(frozen=True)
class Attended:
    """A key and its share of a query's attention."""

    position: int
    token: str
    share: float


def check_layers(model: LoadedModel, layers: Sequence[int]) -> None:
    """Raise `InputError` for layers that the model does not have, or twice the same."""
    count = model.config.n_layers
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(f"There is no layer {layer}: {model.reference} has layers 0 to {count - 1}.")
    if len(set(layers)) < len(layers):
        raise InputError(f"The layers {', '.join(map(str, layers))} hold one twice: name each once.")


def patterns(
    model: LoadedModel, ids: Sequence[int], layers: Sequence[int] | None = None, rows: Sequence[int] | None = None
) -> Float[np.ndarray, "layers n_heads query key"]:
    """Patterns of ``layers`` (all, if None) over ``ids``, of the queries at ``rows`` only if given.

    Query head h reads key/value head h // (n_heads / n_kv_heads). A layer with a window has zeros outside it. Where
    the context slides only its last tokens are read. Raises `InputError` for layers that do not exist and for more
    than `LARGEST` bytes.
    """
    ids, cfg = readable(model, ids), model.config
    chosen = list(range(cfg.n_layers)) if layers is None else list(layers)
    check_layers(model, chosen)
    queries = len(ids) if rows is None else len(rows)
    if 4 * len(chosen) * cfg.n_heads * queries * len(ids) > LARGEST:
        raise InputError(
            f"Patterns of {len(chosen)} layers over {len(ids):,} tokens take more than {LARGEST / 1e9:.0f} GB: name "
            "fewer layers with --layer, or shorten the text."
        )
    found = np.empty((len(chosen), cfg.n_heads, queries, len(ids)), np.float32)
    at = 0
    for piece in read(model, ids, PATTERN, rows):
        whole = piece.trace.pattern[np.array(chosen), :, : piece.count, : len(ids)]
        found[:, :, at : at + piece.count, : whole.shape[-1]] = whole
        at += piece.count
    return found


@partial(jax.jit, static_argnames=("windows",))
def _summed(
    pattern: Float[Array, "layer n_heads query key"],
    start: Int[Array, ""],
    count: Int[Array, ""],
    *,
    windows: tuple[int, ...],
) -> HeadStatistics:
    """Sums over the queries ``start`` to ``start + count`` of a text but its first."""
    keys = jnp.arange(pattern.shape[-1])

    def query(row, position, window):
        log = jnp.log(jnp.where(row > 0, row, 1))
        entropy = -jnp.sum(row * log)
        reach = jnp.log(jnp.minimum(position + 1, window))
        offset = position - keys
        numbers = HeadStatistics(
            entropy_nats=entropy,
            entropy_share=jnp.where(reach > 0, entropy / jnp.where(reach > 0, reach, 1), 0),
            distance=jnp.sum(row * jnp.abs(offset)),
            first=row[0],
            previous=jnp.sum(jnp.where(offset == 1, row, 0)),
            own=jnp.sum(jnp.where(offset == 0, row, 0)),
        )
        counts = (position > 0) & (position < start + count)
        return jax.tree.map(lambda x: jnp.where(counts, x, 0), numbers)

    def head(rows, window):
        positions = start + jnp.arange(len(rows))
        return jax.tree.map(jnp.sum, jax.vmap(query, in_axes=(0, 0, None))(rows, positions, window))

    over_heads = jax.vmap(head, in_axes=(0, None))
    return jax.vmap(over_heads)(pattern, jnp.array(windows))


def head_statistics(model: LoadedModel, ids: Sequence[int]) -> HeadStatistics:
    """Of all heads over a text of at least two tokens, on the host. Patterns are not kept. Raises `InputError`."""
    ids = readable(model, ids)
    if len(ids) < 2:
        raise InputError("There is nothing before the only token to attend to: give at least two tokens.")
    windows = tuple(model.config.windows)
    sums = [
        jax.device_get(_summed(piece.trace.pattern, jnp.int32(piece.start), jnp.int32(piece.count), windows=windows))
        for piece in read(model, ids, PATTERN)
    ]
    return HeadStatistics(*(np.sum(each, axis=0) / (len(ids) - 1) for each in zip(*sums, strict=True)))


def repeated(model: LoadedModel, seed: int) -> tuple[list[int], int]:
    """Different random tokens in random order, twice, after BOS if the model has one; and how many they are.

    Of a character model the letters, else ordinary tokens of the vocabulary.
    """
    rng, cfg, tokenizer = np.random.default_rng(seed), model.config, model.tokenizer
    before = [] if tokenizer.bos is None else [tokenizer.bos]
    period = min(PERIOD, (cfg.context - len(before)) // 2)
    if cfg.family == "char":
        tokens = rng.permutation(PERIOD)[:period] + SYMBOLS.index("a")
    else:
        special = {*tokenizer.stop_ids, *before, *range(4)}
        ordinary = np.setdiff1d(np.arange(cfg.vocab), list(special))
        tokens = rng.choice(ordinary, min(period, len(ordinary)), replace=False)
    return [*before, *np.tile(tokens, 2).tolist()], len(tokens)


def induction_scores(model: LoadedModel) -> Float[np.ndarray, "layer n_heads"]:
    """Mean attention from each repeated random token to the one that followed it before, over `REPEATS` texts.

    As in Olsson et al. 2022 (arXiv 2209.11895): 1 for a head that always finds the earlier occurrence's successor.
    """
    scores = []
    for seed in range(REPEATS):
        ids, period = repeated(model, seed)
        query = np.arange(len(ids) - period, len(ids))
        found = patterns(model, ids)
        scores.append(found[:, :, query, query - period + 1].mean(axis=-1))
    return np.mean(scores, axis=0)


def without_first(pattern: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
    """Rows whose first key is hidden and whose rest is brought to a sum of 1; NaN where nothing is left."""
    rest = np.array(pattern, copy=True)
    rest[..., 0] = 0
    total = rest.sum(axis=-1, keepdims=True)
    return np.divide(rest, total, out=np.full_like(rest, np.nan), where=total > 0)


def attended(row: Float[np.ndarray, "key"], tokens: Sequence[str], count: int = 8) -> list[Attended]:
    """The keys with the largest shares of one query's attention, descending, the earlier first among equals."""
    order = np.argsort(-np.nan_to_num(row), kind="stable")[:count]
    return [Attended(i, tokens[i], float(row[i])) for i in map(int, order) if row[i] > 0]


def saved(model: LoadedModel, ids: Sequence[int], layers: Sequence[int] | None) -> dict[str, Any]:
    """The arrays that the command writes: ``ids``, ``pattern``, ``layers``."""
    chosen = range(model.config.n_layers) if layers is None else layers
    return {
        "ids": np.array(readable(model, ids), np.int32),
        "pattern": patterns(model, ids, layers),
        "layers": np.array(chosen, np.int32),
    }
