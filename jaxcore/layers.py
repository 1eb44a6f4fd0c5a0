"""How the residual stream grows from the embedding to the last block, and what it would predict on the way."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxcore import lens
from jaxcore.reading import Piece, read, readable
from jaxcore.session import LoadedModel
from models.trace import Trace

TAPS = frozenset({"resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"})
SPARSE = 1e-3
"""Entries below this share of their layer's standard deviation count as sparse."""
DIMENSIONS = 10


class Moments(NamedTuple):
    """Of each state over the tokens of a piece; ``squares`` are squared deviations from the mean, added up."""

    mean: Float[Array, "state"]
    squares: Float[Array, "state"]
    min: Float[Array, "state"]
    max: Float[Array, "state"]
    absolute: Float[Array, "state d_model"]
    norm: Float[Array, "state seq"]


class Written(NamedTuple):
    """What each sublayer adds, token by token: its norm, and its cosine with the stream it joins."""

    attn_norm: Float[Array, "layer seq"]
    attn_cosine: Float[Array, "layer seq"]
    mlp_norm: Float[Array, "layer seq"]
    mlp_cosine: Float[Array, "layer seq"]


def states(trace: Trace) -> Float[Array, "state seq d_model"]:
    """The stream at the embedding, after every block, then between attention and MLP of every block."""
    assert trace.resid_pre is not None  # all three are asked for
    assert trace.resid_mid is not None
    assert trace.resid_post is not None
    return jnp.concatenate([trace.resid_pre[:1], trace.resid_post, trace.resid_mid])


@jax.jit
def _measured(trace: Trace, count: Int[Array, ""]) -> tuple[Moments, Written]:
    x = states(trace)
    real = (jnp.arange(x.shape[1]) < count)[:, None]

    def state(x):
        mean = jnp.sum(jnp.where(real, x, 0)) / (count * x.shape[-1])
        return Moments(
            mean=mean,
            squares=jnp.sum(jnp.where(real, jnp.square(x - mean), 0)),
            min=jnp.min(jnp.where(real, x, jnp.inf)),
            max=jnp.max(jnp.where(real, x, -jnp.inf)),
            absolute=jnp.sum(jnp.where(real, jnp.abs(x), 0), axis=0),
            norm=jnp.linalg.norm(x, axis=-1),
        )

    def written(out, before):
        norm = jnp.linalg.norm(out, axis=-1)
        product = norm * jnp.linalg.norm(before, axis=-1)
        return norm, jnp.sum(out * before, axis=-1) / jnp.where(product > 0, product, 1)

    attn, mlp = written(trace.attn_out, trace.resid_pre), written(trace.mlp_out, trace.resid_mid)
    return jax.vmap(state)(x), Written(*attn, *mlp)


@jax.jit
def _below(trace: Trace, count: Int[Array, ""], threshold: Float[Array, "state"]) -> Int[Array, "state"]:
    """How many entries of each state are smaller than its threshold."""
    x = states(trace)
    real = (jnp.arange(x.shape[1]) < count)[:, None]
    return jnp.sum((jnp.abs(x) < threshold[:, None, None]) & real, axis=(1, 2))


def evolution(model: LoadedModel, ids: Sequence[int], top: int = 10) -> dict[str, Any]:
    """``tokens``, ``layers`` and ``resid_mid`` as the command ``layers`` writes them; nats, population deviations.

    ``layer`` 0 is the embedding. Beside the stream's statistics each record has what its sublayer wrote
    (``attn_out_*`` in ``resid_mid``, ``mlp_out_*`` in ``layers``), and the logit lens at the last position: the final
    norm and output layer applied to the state itself. A text of several pieces is read twice, so that none is kept.
    Raises `InputError` for a text that the model cannot read.
    """
    ids = readable(model, ids)
    held: list[Piece] = []

    def pieces() -> Iterator[Piece]:
        return iter(held) if held else read(model, ids, TAPS)

    moments, written, last, several = [], [], None, False
    for piece in pieces():
        measured = jax.device_get(_measured(piece.trace, jnp.int32(piece.count)))
        moments.append((piece.count, measured[0]))
        written.append((piece.count, measured[1]))
        several = several or piece.count < len(ids)
        last = piece
    assert last is not None  # a text has a token
    if not several:
        held.append(last)
    total = _combined(moments, model.config.d_model)
    threshold = jnp.asarray(SPARSE * total["std"], jnp.float32)
    sparse = np.sum([_below(piece.trace, jnp.int32(piece.count), threshold) for piece in pieces()], axis=0)
    seen = lens.at_last(model, states(last.trace)[:, last.count - 1], top)
    names = model.tokenizer.texts(ids)
    wrote = {f: np.concatenate([getattr(w, f)[:, :n] for n, w in written], axis=1) for f in Written._fields}
    entries, layers = len(ids) * model.config.d_model, model.config.n_layers

    def record(state: int, layer: int) -> dict[str, Any]:
        leading = np.argsort(-total["absolute"][state], kind="stable")[:DIMENSIONS]
        return {
            "layer": layer,
            "l2_norm_mean": total["norm"][state].mean(),
            "l2_norm_per_position": total["norm"][state],
            "l2_norm_total": np.sqrt(np.sum(np.square(total["norm"][state]))),
            **{field: total[field][state] for field in ("mean", "std", "min", "max")},
            "sparsity": sparse[state] / entries,
            "top_dimensions": [{"dimension": int(d), "value": total["absolute"][state, d] / len(ids)} for d in leading],
            **seen[state],
        }

    def sublayer(prefix: str, norms: np.ndarray, cosines: np.ndarray, layer: int) -> dict[str, Any]:
        return {
            f"{prefix}_norm_mean": norms[layer - 1].mean(),
            f"{prefix}_norm_per_position": norms[layer - 1],
            f"{prefix}_cosine_with_stream": cosines[layer - 1].mean(),
        }

    after = [record(0, 0)]
    for layer in range(1, layers + 1):
        after.append({**record(layer, layer), **sublayer("mlp_out", wrote["mlp_norm"], wrote["mlp_cosine"], layer)})
    between = [
        {**record(layers + layer, layer), **sublayer("attn_out", wrote["attn_norm"], wrote["attn_cosine"], layer)}
        for layer in range(1, layers + 1)
    ]
    return {"tokens": names, "layers": after, "resid_mid": between}


def _combined(pieces: Sequence[tuple[int, Moments]], width: int) -> dict[str, Any]:
    """Moments of a whole text from those of its pieces (Chan et al. 1979), in float64."""
    counts = np.array([count * width for count, _ in pieces], np.float64)[:, None]
    means = np.array([m.mean for _, m in pieces], np.float64)
    mean = np.sum(counts * means, axis=0) / counts.sum()
    squares = np.sum([m.squares for _, m in pieces], axis=0, dtype=np.float64)
    squares = squares + np.sum(counts * np.square(means - mean), axis=0)
    return {
        "mean": mean,
        "std": np.sqrt(squares / counts.sum()),
        "min": np.min([m.min for _, m in pieces], axis=0),
        "max": np.max([m.max for _, m in pieces], axis=0),
        "absolute": np.sum([m.absolute for _, m in pieces], axis=0, dtype=np.float64),
        "norm": np.concatenate([m.norm[:, :count] for count, m in pieces], axis=1).astype(np.float64),
    }
