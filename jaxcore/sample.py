"""Writing text and keeping the record of how every token was chosen."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, log
from operator import itemgetter
from statistics import fmean
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.lib.stride_tricks import sliding_window_view

from jaxcore import sampling
from jaxcore.sampling import Filters, Settings, Step
from jaxcore.session import LoadedModel
from models import decode
from models.blocks import each
from models.cache import KVCache
from models.errors import InputError

BUCKETS = (16, 64, 256, 512)
"""Lengths to which pieces of a prompt are padded, so that few shapes are ever compiled."""
CACHE_SIZE = 256
"""Tokens in the smallest cache; larger ones double."""
WINDOWS = 32
"""Windows of a sliding context that are read at once."""


@dataclass(frozen=True)
class Candidate:
    """One of the likeliest tokens of a step; probabilities before and after temperature, and after the filters."""

    token_id: int
    token: str
    logit: float
    probability_raw: float
    probability_temperature: float
    probability_final: float
    kept: bool


@dataclass(frozen=True)
class StepRecord:
    """How the token at one step was chosen; fields as in `jaxcore.sampling.Step`."""

    index: int
    token_id: int
    token: str
    rank: int
    logit: float
    probability_raw: float
    probability_temperature: float
    probability_final: float
    entropy_raw_nats: float
    entropy_final_nats: float
    kept_top_k: int
    kept_top_p: int
    kept_final: int
    mass_top_k: float
    mass_top_p: float
    mass_final: float
    top1_raw: float
    top1_temperature: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Continuation:
    """One text written after a prompt. ``stop_reason`` is None while it is still being written."""

    seed: int
    steps: tuple[StepRecord, ...] = ()
    stop_reason: str | None = None

    @property
    def token_ids(self) -> list[int]:
        return [step.token_id for step in self.steps]


def prompt_ids(model: LoadedModel, text: str, *, bos: bool) -> list[int]:
    """Token ids of a prompt, with the model's BOS in front if wanted. Raises `InputError` if there is no text."""
    if not text:
        raise InputError("The prompt is empty: type the beginning of a text for the model to continue.")
    return model.tokenizer.encode(text, bos=bos)


def check_prompt(model: LoadedModel, ids: Sequence[int]) -> None:
    """Raise `InputError` for a prompt that the model cannot read."""
    if not ids:
        raise InputError("There are no tokens to read: give at least one.")
    if len(ids) >= model.config.context and not model.config.context_slides:
        raise InputError(
            f"The prompt has {len(ids):,} tokens; {model.reference} reads at most {model.config.context:,} with room "
            "for one more. Shorten it."
        )
    wrong = [i for i in ids if not 0 <= i < model.config.vocab]
    if wrong:
        raise InputError(f"Token id {wrong[0]} is outside the vocabulary of {model.config.vocab:,} tokens.")


def cache_for(model: LoadedModel, tokens: int) -> KVCache:
    """An empty cache of the smallest size that holds ``tokens``."""
    capacity = CACHE_SIZE
    while capacity < tokens:
        capacity *= 2
    return decode.new_cache(model.config, min(capacity, model.config.context))


def pieces(
    ids: Sequence[int], longest: int = BUCKETS[-1]
) -> Iterator[tuple[Int[Array, "bucket"], Int[Array, "bucket"]]]:
    """The tokens and positions of a prompt in pieces of at most ``longest`` (a bucket), the last one padded."""
    for start in range(0, len(ids), longest):
        piece = np.asarray(ids[start : start + longest], np.int32)
        padding = next(b for b in BUCKETS if b >= len(piece)) - len(piece)
        positions = np.arange(start, start + len(piece), dtype=np.int32)
        yield (
            jnp.asarray(np.pad(piece, (0, padding))),
            jnp.asarray(np.pad(positions, (0, padding), constant_values=-1)),
        )


def prefill(model: LoadedModel, ids: Sequence[int], room: int) -> tuple[Float[Array, "vocab"], KVCache]:
    """Logits of the token after ``ids``, and a cache with ``room`` for that many more.

    A model whose context slides reads only the last ``context`` tokens, at positions from 0.
    """
    check_prompt(model, ids)
    ids = ids[-model.config.context :]
    cache, logits = cache_for(model, len(ids) + room), None
    for tokens, positions in pieces(ids):
        logits, cache, _ = decode.step(model.params, cache, tokens, positions, cfg=model.config)
    assert logits is not None  # the prompt is not empty
    return logits, cache


def all_logits(model: LoadedModel, ids: Sequence[int]) -> Float[np.ndarray, "seq vocab"]:
    """Logits after every token of ``ids``; past a sliding context each from the last ``context`` tokens."""
    check_prompt(model, ids)
    cfg, found = model.config, np.empty((len(ids), model.config.vocab), np.float32)
    begun = ids[: cfg.context]
    cache = cache_for(model, len(begun))
    for start, (tokens, positions) in zip(range(0, len(begun), BUCKETS[-1]), pieces(begun), strict=True):
        logits, cache, _ = decode.forward(model.params, cache, tokens, positions, cfg=cfg)
        rows = found[start : min(start + BUCKETS[-1], len(begun))]
        rows[:] = logits[: len(rows)]
    if len(ids) > len(begun):
        windows = sliding_window_view(np.asarray(ids, np.int32), cfg.context)[1:]
        for start in range(0, len(windows), WINDOWS):
            rows = found[len(begun) + start :][:WINDOWS]
            some = np.resize(windows[start : start + WINDOWS], (WINDOWS, cfg.context))
            rows[:] = read_windows(model.params, jnp.asarray(some), cfg=cfg)[: len(rows)]
    return found


@partial(jax.jit, static_argnames=("cfg",))
def read_windows(params: Any, windows: Int[Array, "windows context"], *, cfg: Any) -> Float[Array, "windows vocab"]:
    """Logits after each of several windows of tokens, read on their own."""

    def one(window):
        return decode.step(params, decode.new_cache(cfg, 0), window, jnp.arange(len(window)), cfg=cfg)[0]

    return jax.vmap(one)(windows)


def choose(logits: Float[Array, "vocab"], f: Filters, key: Array, index: Int[Array, ""]) -> Step:
    """Draw the token number ``index`` of a text with the key of that text."""
    kept = sampling.keep(logits, f)
    return sampling.describe(logits, kept, sampling.draw(jax.random.fold_in(key, index), kept))


@jax.jit
def first(logits: Float[Array, "vocab"], f: Filters, keys: Array, index: Int[Array, ""]) -> Step:
    """One draw for each key from the same logits."""
    return jax.vmap(choose, in_axes=(None, None, 0, None))(logits, f, keys, index)


@jax.jit
def forced(logits: Float[Array, "vocab"], f: Filters, token_id: Int[Array, "texts"]) -> Step:
    """The record of a token that the user picked."""
    kept = sampling.keep(logits, f)
    return jax.vmap(sampling.describe, in_axes=(None, None, 0))(logits, kept, token_id)


@partial(jax.jit, static_argnames=("cfg",), donate_argnames=("cache",))
def advance(
    params: Any,
    cache: KVCache,
    token_ids: Int[Array, "texts"],
    position: Int[Array, ""],
    f: Filters,
    keys: Array,
    index: Int[Array, ""],
    *,
    cfg: Any,
) -> tuple[Step, KVCache]:
    """Read the last token of each text and draw the next; every text has its own cache and key."""

    def one(cache, token_id, key):
        logits, cache, _ = decode.step(params, cache, token_id[None], position[None], cfg=cfg)
        return choose(logits, f, key, index), cache

    return each(one, cache, token_ids, keys)


@partial(jax.jit, static_argnames=("cfg",))
def advance_sliding(
    params: Any,
    behind: Int[Array, "texts before"],
    token_ids: Int[Array, "texts"],
    f: Filters,
    keys: Array,
    index: Int[Array, ""],
    *,
    cfg: Any,
) -> Step:
    """As `advance` where the context is full: every position shifts, so the last tokens are read anew."""
    logits = read_windows(params, jnp.concatenate([behind, token_ids[:, None]], axis=1), cfg=cfg)
    return jax.vmap(choose, in_axes=(0, None, 0, None))(logits, f, keys, index)


def recorded(model: LoadedModel, step: Step, index: int) -> StepRecord:
    """A step on the host, with its tokens spelled out; the chosen token is always among the candidates."""
    text = model.tokenizer.text
    fields = {name: value.item() for name, value in step._asdict().items() if name != "candidates"}
    rows = zip(*(column.tolist() for column in step.candidates), strict=True)
    candidates = [Candidate(token_id, text(token_id), *numbers) for token_id, *numbers in rows]
    chosen = fields["token_id"]
    if all(candidate.token_id != chosen for candidate in candidates):
        shared = {name: fields[name] for name in Candidate.__dataclass_fields__ if name in fields}
        candidates.append(Candidate(**shared, token=text(chosen), kept=fields["probability_final"] > 0))
    return StepRecord(index=index, token=text(chosen), candidates=tuple(candidates), **fields)


def ending(model: LoadedModel, text: Continuation, room: int, steps: int, stop_strings: Sequence[str]) -> str | None:
    """Why a text ends with its last token, or None if it goes on; ``room`` tokens fit into the context."""
    if text.token_ids[-1] in model.tokenizer.stop_ids:
        return "stop_token"
    if stop_strings and any(s in model.tokenizer.decode(text.token_ids) for s in stop_strings):
        return "stop_string"
    if len(text.steps) >= steps:
        return "steps"
    return "context" if len(text.steps) >= room else None


def generate(
    model: LoadedModel,
    prompt_ids: Sequence[int],
    settings: Settings,
    *,
    seeds: Sequence[int] = (0,),
    steps: int = 20,
    stop_strings: Sequence[str] = (),
    kept: Sequence[StepRecord] = (),
    forced_id: int | None = None,
) -> Iterator[tuple[Continuation, ...]]:
    """Write one text a seed, yielding all of them after every token; the same seed gives the same text.

    ``steps`` counts the tokens of the whole continuation. To branch, give the steps to keep of an earlier
    continuation and ``forced_id``, the token to go on with. Raises `InputError` for a prompt that is empty or longer
    than the context.
    """
    if not seeds or len(kept) >= steps:
        raise InputError(f"{steps - len(kept)} new tokens for {len(seeds)} seeds: ask for at least one of each.")
    if any(not 0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"The seeds are {list(seeds)}; choose whole numbers from 0 to {2**32 - 1:,}.")
    f, keys = sampling.filters(settings), jnp.stack([jax.random.key(seed) for seed in seeds])
    texts = tuple(Continuation(seed, tuple(kept)) for seed in seeds)
    logits, cache = prefill(model, [*prompt_ids, *texts[0].token_ids], room=steps - len(kept))
    cache = jax.tree.map(lambda x: jnp.repeat(x[None], len(seeds), axis=0), cache)
    if forced_id is None:
        step = first(logits, f, keys, jnp.int32(len(kept)))
    else:
        step = forced(logits, f, jnp.full(len(seeds), forced_id, jnp.int32))

    cfg = model.config
    room = steps if cfg.context_slides else cfg.context - len(prompt_ids)
    for index in range(len(kept), steps):
        done = step
        if index + 1 < steps:  # the next step runs on the device while this one is recorded here
            position, following = len(prompt_ids) + index, jnp.int32(index + 1)
            if position < cfg.context:
                step, cache = advance(
                    model.params, cache, step.token_id, jnp.int32(position), f, keys, following, cfg=cfg
                )
            else:  # a text that has ended is shorter; what comes out for it is not used
                before = cfg.context - 1
                behind = [np.resize([*prompt_ids, *text.token_ids][-before:], before) for text in texts]
                step = advance_sliding(model.params, jnp.array(behind), step.token_id, f, keys, following, cfg=cfg)
        host = jax.device_get(done)
        grown = []
        for i, text in enumerate(texts):
            if text.stop_reason is None:
                text = replace(text, steps=(*text.steps, recorded(model, jax.tree.map(itemgetter(i), host), index)))
                text = replace(text, stop_reason=ending(model, text, room, steps, stop_strings))
            grown.append(text)
        yield (texts := tuple(grown))
        if all(text.stop_reason for text in texts):
            return


def traced(
    model: LoadedModel, prompt: str, prompt_ids: Sequence[int], settings: Settings, text: Continuation
) -> dict[str, Any]:
    """The sampling trace as it is written to JSON."""
    return {
        "prompt": prompt,
        "prompt_ids": list(prompt_ids),
        "settings": {**asdict(settings), "greedy": settings.temperature == 0, "seed": text.seed},
        "text": model.tokenizer.decode(text.token_ids),
        "stop_reason": text.stop_reason or "stopped",
        "steps": text.steps,
    }


@dataclass(frozen=True)
class Summary:
    """A continuation in a few numbers; perplexity is that of the text under the raw distribution."""

    tokens: int
    mean_probability_final: float
    mean_entropy_raw_nats: float
    mean_rank: float
    share_first_choice: float
    perplexity: float


def summary(text: Continuation) -> Summary:
    """Means over the steps of a continuation that has at least one."""
    steps = text.steps
    return Summary(
        tokens=len(steps),
        mean_probability_final=fmean(step.probability_final for step in steps),
        mean_entropy_raw_nats=fmean(step.entropy_raw_nats for step in steps),
        mean_rank=fmean(step.rank for step in steps),
        share_first_choice=fmean(step.rank == 1 for step in steps),
        perplexity=exp(-fmean(log(max(step.probability_raw, 1e-45)) for step in steps)),
    )
