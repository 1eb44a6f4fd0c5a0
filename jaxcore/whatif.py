"""What if a head or an MLP were not there, weaker, or as on another prompt: the next token before and after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxcore import sampling
from jaxcore.reading import read, readable
from jaxcore.sample import BUCKETS, pieces
from jaxcore.session import LoadedModel
from models import decode
from models.errors import InputError
from models.shapes import Positions
from models.trace import Edits, no_edits

OUTPUTS = frozenset({"z", "mlp_out"})
MOST = BUCKETS[-1]
"""Tokens of a prompt that can be edited."""


Kind = Literal["zero", "mean", "scale", "patch"]


@dataclass(frozen=True)
class Edit:
    """One change: a head of a layer, or its MLP where ``head`` is None.

    ``zero`` removes what it writes; ``mean`` puts its mean over the prompt's tokens in place; ``scale`` multiplies by
    ``factor``; ``patch`` takes what it writes on another prompt, tokens aligned from the end.
    """

    layer: int
    head: int | None
    kind: Kind = "zero"
    factor: float = 0.0


@dataclass(frozen=True)
class Change:
    """A token's probability before and after, its logit's change, and its ranks."""

    token_id: int
    token: str
    before: float
    after: float
    logit_change: float
    rank_before: int
    rank_after: int


@dataclass(frozen=True)
class Outcome:
    """The next token before and after; KL(before || after) in nats; tokens likeliest on either side."""

    kl: float
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Removed:
    """What removing one part alone does: KL(before || after) in nats, and the change of the answer's logit."""

    layer: int
    head: int | None
    kl: float
    logit_change: float


@partial(jax.jit, static_argnames=("cfg",))
def _edited(
    params: Any, tokens: Int[Array, "seq"], positions: Positions, edits: Edits | None, *, cfg: Any
) -> Float[Array, "vocab"]:
    return decode.step(params, decode.new_cache(cfg, 0), tokens, positions, cfg=cfg, edits=edits)[0]


def _outputs(model: LoadedModel, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """What every head and MLP gives for every token: ``z [layer seq n_heads head_dim]`` and ``mlp_out``."""
    (piece,) = read(model, ids, OUTPUTS)
    return np.asarray(piece.trace.z)[:, : len(ids)], np.asarray(piece.trace.mlp_out)[:, : len(ids)]


def checked(model: LoadedModel, ids: Sequence[int]) -> list[int]:
    """The ids that are read. Raises `InputError` for more than `MOST`."""
    ids = readable(model, ids)
    if len(ids) > MOST:
        raise InputError(f"The prompt has {len(ids):,} tokens; edits are made on up to {MOST}. Shorten it.")
    return ids


def arrays(model: LoadedModel, ids: Sequence[int], edits: Sequence[Edit], other: Sequence[int] = ()) -> Edits:
    """Edits as arguments of the forward pass over ``ids``, padded; ``other`` is the prompt that patches come from.

    Later edits of a part replace earlier ones. Raises `InputError` for parts that do not exist, or a patch from no
    prompt.
    """
    cfg = model.config
    patched = any(edit.kind == "patch" for edit in edits)
    rows = next(b for b in BUCKETS if b >= len(ids)) if patched else 1
    made = {name: np.array(x) for name, x in no_edits(cfg, rows)._asdict().items()}
    own = _outputs(model, ids) if any(edit.kind == "mean" for edit in edits) else None
    if patched and not other:
        raise InputError("A patch needs another prompt to come from: type one.")
    foreign = _outputs(model, checked(model, other)) if patched else None
    for edit in edits:
        if not 0 <= edit.layer < cfg.n_layers or not 0 <= (edit.head or 0) < cfg.n_heads:
            raise InputError(f"{edit} names no part of {cfg.n_layers} layers of {cfg.n_heads} heads; choose another.")
        add = np.zeros((rows, cfg.d_model if edit.head is None else cfg.head_dim), np.float32)
        if edit.kind == "mean":
            assert own is not None  # gathered above
            add = add + _of_part(own, edit).mean(axis=0)
        elif edit.kind == "patch":
            assert foreign is not None
            source = _of_part(foreign, edit)
            count = min(len(source), len(ids))
            add[len(ids) - count : len(ids)] = source[-count:]
        scale = edit.factor if edit.kind == "scale" else 0.0
        if edit.head is None:
            made["mlp_scale"][edit.layer], made["mlp_add"][edit.layer] = scale, add
        else:
            made["head_scale"][edit.layer, edit.head], made["head_add"][edit.layer, :, edit.head] = scale, add
    return Edits(**{name: jnp.asarray(x) for name, x in made.items()})


def _of_part(outputs: tuple[np.ndarray, np.ndarray], edit: Edit) -> np.ndarray:
    z, mlp_out = outputs
    return mlp_out[edit.layer] if edit.head is None else z[edit.layer, :, edit.head]


def what_if(
    model: LoadedModel, ids: Sequence[int], edits: Sequence[Edit], other: Sequence[int] = (), top: int = 10
) -> Outcome:
    """The next token after ``ids`` with all ``edits`` made, beside the one without. Raises `InputError`."""
    ids = checked(model, ids)
    ((tokens, positions),) = pieces(ids)
    edited = arrays(model, ids, edits, other)
    before = _edited(model.params, tokens, positions, None, cfg=model.config)
    after = _edited(model.params, tokens, positions, edited, cfg=model.config)
    kl, rows = _compared(before, after, top=min(top, model.config.vocab))
    text = model.tokenizer.text
    changes = [
        Change(int(i), text(int(i)), float(p), float(q), float(d), int(r), int(s))
        for i, p, q, d, r, s in zip(*jax.device_get(rows), strict=True)
    ]
    unique = {change.token_id: change for change in changes}
    return Outcome(float(max(kl, 0)), tuple(sorted(unique.values(), key=lambda c: -max(c.before, c.after))))


@partial(jax.jit, static_argnames=("top",))
def _compared(before: Float[Array, "vocab"], after: Float[Array, "vocab"], *, top: int):
    log_p, log_q = jax.nn.log_softmax(before), jax.nn.log_softmax(after)
    ids = jnp.concatenate([lax.top_k(before, top)[1], lax.top_k(after, top)[1]])
    ranks = jax.vmap(sampling.rank, in_axes=(None, 0))
    rows = (ids, jnp.exp(log_p[ids]), jnp.exp(log_q[ids]), (after - before)[ids], ranks(before, ids), ranks(after, ids))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q)), rows


def removals(model: LoadedModel, ids: Sequence[int]) -> Iterator[list[Removed]]:
    """Remove every head and MLP in turn, a layer at a time. Raises `InputError` as `what_if`."""
    ids = checked(model, ids)
    ((tokens, positions),) = pieces(ids)
    before = _edited(model.params, tokens, positions, None, cfg=model.config)
    for layer in range(model.config.n_layers):
        found = _without_each(model.params, tokens, positions, before, jnp.int32(layer), cfg=model.config)
        kl, change = jax.device_get(found)
        parts = [*range(model.config.n_heads), None]
        yield [Removed(layer, part, float(max(k, 0)), float(c)) for part, k, c in zip(parts, kl, change, strict=True)]


@partial(jax.jit, static_argnames=("cfg",))
def _without_each(
    params: Any,
    tokens: Int[Array, "seq"],
    positions: Positions,
    before: Float[Array, "vocab"],
    layer: Int[Array, ""],
    *,
    cfg: Any,
) -> tuple[Float[Array, "parts"], Float[Array, "parts"]]:
    """KL and change of the likeliest token's logit without each head of a layer, and without its MLP."""
    log_p, answer = jax.nn.log_softmax(before), jnp.argmax(before)
    same = no_edits(cfg)

    def without(part):
        heads = same.head_scale.at[layer].set(jnp.where(jnp.arange(cfg.n_heads) == part, 0.0, 1.0))
        mlps = same.mlp_scale.at[layer].set(jnp.where(part == cfg.n_heads, 0.0, 1.0))
        after = _edited(params, tokens, positions, same._replace(head_scale=heads, mlp_scale=mlps), cfg=cfg)
        return jnp.sum(jnp.exp(log_p) * (log_p - jax.nn.log_softmax(after))), (after - before)[answer]

    return lax.map(without, jnp.arange(cfg.n_heads + 1))
