"""How the next token is chosen: temperature, top-k, top-p, min-p, each exact for any setting.

The tokens that survive a filter are always the first so many of one order: falling logit, lower id first among
equals (temperature keeps that order). A filter is therefore a `Cut` in the order, found among the likeliest tokens or
else by bisecting on the bits of the logits, never by sorting the vocabulary; what lies before a cut is counted and
summed by masked reductions.

Order of filters and edge cases follow ``transformers``' logits warpers: temperature (Ackley et al. 1985),
top-k (Fan et al. 2018, arXiv 1805.04833), top-p on the renormalised top-k distribution (Holtzman et al. 2019,
arXiv 1904.09751), min-p (Nguyen et al. 2024, arXiv 2407.01082). Entropies are in nats.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from models.errors import InputError

CANDIDATES = 64
"""How many of the likeliest tokens a step lists."""
SMALLEST_TEMPERATURE = 1e-30
"""Above 0; smaller ones mean the same and would leave float32's range."""

Vocab = Float[Array, "vocab"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user chooses. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off; ``temperature`` 0 is greedy."""

    temperature: float = 0.7
    top_k: int = 50
    top_p: float = 0.9
    min_p: float = 0.0

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 2**31 - 1),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:  # also refuses NaN
                raise InputError(f"{name} is {value}; choose a number from {low:g} to {high:g}.")


class Filters(NamedTuple):
    """`Settings` as traced values, so that moving a slider compiles nothing."""

    temperature: Float[Array, ""]
    top_k: Int[Array, ""]
    top_p: Float[Array, ""]
    min_p: Float[Array, ""]


def filters(settings: Settings) -> Filters:
    """Traced values of ``settings``. Greedy is temperature 1 with the likeliest token alone."""
    if settings.temperature == 0:
        settings = Settings(temperature=1.0, top_k=1, top_p=1.0, min_p=0.0)
    return Filters(
        jnp.float32(max(settings.temperature, SMALLEST_TEMPERATURE)),
        jnp.int32(settings.top_k),
        jnp.float32(settings.top_p),
        jnp.float32(settings.min_p),
    )


def likeliest(logits: Vocab) -> tuple[Float[Array, "candidates"], Int[Array, "candidates"]]:
    """Logits and ids of the first tokens of the order."""
    values, ids = lax.top_k(one_zero(logits), min(CANDIDATES, len(logits)))
    return values, ids


class Cut(NamedTuple):
    """The last token kept, in the order of falling logit and rising id: its logit's key and its id."""

    key: Int[Array, ""]
    token_id: Int[Array, ""]


class Kept(NamedTuple):
    """What the filters leave of a next-token distribution."""

    mask: Bool[Array, "vocab"]
    probability_raw: Vocab
    probability_temperature: Vocab
    probability_final: Vocab
    kept_top_k: Int[Array, ""]
    kept_top_p: Int[Array, ""]
    kept_final: Int[Array, ""]
    mass_top_k: Float[Array, ""]
    mass_top_p: Float[Array, ""]
    mass_final: Float[Array, ""]


def one_zero(logits: Vocab) -> Vocab:
    """The logits with -0 as 0: equal values that are told apart by their bits."""
    return jnp.where(logits == 0, 0.0, logits)


def order_key(logits: Vocab) -> Int[Array, "vocab"]:
    """Integers in the order of the logits (IEEE 754 bits, negative ones mirrored)."""
    bits = lax.bitcast_convert_type(one_zero(logits), jnp.int32)
    return jnp.where(bits >= 0, bits, bits ^ jnp.int32(0x7FFFFFFF))


def cut_at(key: Int[Array, "vocab"], weight: Vocab, target: Float[Array, ""], leading: Int[Array, "candidates"]) -> Cut:
    """The shortest prefix of the order whose weight reaches ``target``, at least one token and at most all.

    ``leading`` holds the first tokens of the order: if the cut lies among them, nothing more is searched.
    """
    reached = jnp.cumsum(weight[leading]) >= target
    near = leading[jnp.argmax(reached)]
    return lax.cond(reached[-1], lambda: Cut(key[near], near), lambda: bisected(key, weight, target))


def bisected(key: Int[Array, "vocab"], weight: Vocab, target: Float[Array, ""]) -> Cut:
    """`cut_at` over the whole vocabulary."""

    def halve(_, bounds):
        low, high = bounds  # weight of keys >= low reaches the target, that of keys >= high does not
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = jnp.sum(jnp.where(key >= middle, weight, 0)) >= target
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    line, _ = lax.fori_loop(0, 32, halve, (jnp.min(key), jnp.max(key) + 1))
    # Tokens that tie at the line have one weight; as many of them as are needed are kept, lower ids first.
    tied = key == line
    above = jnp.sum(jnp.where(key > line, weight, 0))
    ties = jnp.cumsum(tied)
    needed = jnp.ceil((target - above) / jnp.max(jnp.where(tied, weight, 0)))
    needed = jnp.clip(jnp.nan_to_num(needed, nan=1.0), 1, ties[-1])
    return Cut(line, jnp.argmax(ties >= needed))


def within(cut: Cut, key: Int[Array, "vocab"]) -> Bool[Array, "vocab"]:
    """Which tokens lie before the cut, or on it."""
    return (key > cut.key) | ((key == cut.key) & (jnp.arange(len(key)) <= cut.token_id))


def keep(logits: Vocab, f: Filters) -> Kept:
    """Apply the filters in turn; ``probability_final`` is renormalised over the survivors."""
    key = order_key(logits)
    scaled = (logits - jnp.max(logits)) / f.temperature
    weight = jnp.exp(scaled)  # relative to the likeliest token
    total = jnp.sum(weight)
    everything = jnp.ones(logits.shape, bool)
    _, leading = likeliest(logits)

    top_k = jnp.where((f.top_k <= 0) | (f.top_k > len(logits)), len(logits), f.top_k)
    by_k = lax.cond(
        top_k < len(logits),
        lambda: within(cut_at(key, jnp.ones_like(logits), top_k.astype(jnp.float32), leading), key),
        lambda: everything,
    )
    weight_k = jnp.where(by_k, weight, 0)
    total_k = jnp.sum(weight_k)
    by_p = lax.cond(
        f.top_p < 1,
        lambda: within(cut_at(key, weight_k, f.top_p * total_k, leading), key) & by_k,
        lambda: by_k,
    )
    by_min = by_p & (weight >= f.min_p)

    final = jnp.where(by_min, weight, 0)
    return Kept(
        mask=by_min,
        probability_raw=jax.nn.softmax(logits),
        probability_temperature=weight / total,
        probability_final=final / jnp.sum(final),
        kept_top_k=top_k,
        kept_top_p=jnp.sum(by_p),
        kept_final=jnp.sum(by_min),
        mass_top_k=total_k / total,
        mass_top_p=jnp.sum(jnp.where(by_p, weight, 0)) / total_k,
        mass_final=jnp.sum(final) / total,
    )


def entropy(probability: Vocab) -> Float[Array, ""]:
    """Shannon entropy in nats."""
    return jnp.sum(jnp.where(probability > 0, -probability * jnp.log(jnp.maximum(probability, 1e-45)), 0))


def rank(logits: Vocab, token_id: Int[Array, ""]) -> Int[Array, ""]:
    """1-based place of a token in the order of falling logit, lower id first among equals."""
    key = order_key(logits)
    return jnp.sum(within(Cut(key[token_id], token_id), key))


def draw(key: Array, kept: Kept) -> Int[Array, ""]:
    """One token of the final distribution, by inverting its cumulative distribution at one uniform number."""
    cumulative = jnp.where(kept.mask, jnp.cumsum(kept.probability_final), 0)
    return jnp.argmax(cumulative > jax.random.uniform(key) * jnp.max(cumulative))


class Step(NamedTuple):
    """How one token was chosen. Ranks are 1-based and of the raw distribution; candidates come likeliest first."""

    token_id: Int[Array, ""]
    rank: Int[Array, ""]
    logit: Float[Array, ""]
    probability_raw: Float[Array, ""]
    probability_temperature: Float[Array, ""]
    probability_final: Float[Array, ""]
    entropy_raw_nats: Float[Array, ""]
    entropy_final_nats: Float[Array, ""]
    kept_top_k: Int[Array, ""]
    kept_top_p: Int[Array, ""]
    kept_final: Int[Array, ""]
    mass_top_k: Float[Array, ""]
    mass_top_p: Float[Array, ""]
    mass_final: Float[Array, ""]
    top1_raw: Float[Array, ""]
    top1_temperature: Float[Array, ""]
    candidates: "Candidates"


class Candidates(NamedTuple):
    """The likeliest tokens of a step."""

    token_id: Int[Array, "candidates"]
    logit: Float[Array, "candidates"]
    probability_raw: Float[Array, "candidates"]
    probability_temperature: Float[Array, "candidates"]
    probability_final: Float[Array, "candidates"]
    kept: Bool[Array, "candidates"]


def describe(logits: Vocab, kept: Kept, token_id: Int[Array, ""]) -> Step:
    """The record of choosing ``token_id``."""
    leading_logits, leading = likeliest(logits)
    return Step(
        token_id=token_id,
        rank=rank(logits, token_id),
        logit=logits[token_id],
        probability_raw=kept.probability_raw[token_id],
        probability_temperature=kept.probability_temperature[token_id],
        probability_final=kept.probability_final[token_id],
        entropy_raw_nats=entropy(kept.probability_raw),
        entropy_final_nats=entropy(kept.probability_final),
        kept_top_k=kept.kept_top_k,
        kept_top_p=kept.kept_top_p,
        kept_final=kept.kept_final,
        mass_top_k=kept.mass_top_k,
        mass_top_p=kept.mass_top_p,
        mass_final=kept.mass_final,
        top1_raw=jnp.max(kept.probability_raw),
        top1_temperature=jnp.max(kept.probability_temperature),
        candidates=Candidates(
            leading,
            leading_logits,
            kept.probability_raw[leading],
            kept.probability_temperature[leading],
            kept.probability_final[leading],
            kept.mask[leading],
        ),
    )


@jax.jit
def preview(logits: Vocab, f: Filters) -> Step:
    """What the filters leave of a distribution, described from its likeliest token."""
    return describe(logits, keep(logits, f), jnp.argmax(logits))


@jax.jit
def along_temperature(
    logits: Vocab, f: Filters, temperatures: Float[Array, "points"]
) -> tuple[Float[Array, "points"], Int[Array, "points"]]:
    """Entropy (nats) of the final distribution and number of survivors at each temperature, other filters as set."""

    def at(temperature):
        kept = keep(logits, f._replace(temperature=temperature))
        return entropy(kept.probability_final), kept.kept_final

    return lax.map(at, temperatures)
