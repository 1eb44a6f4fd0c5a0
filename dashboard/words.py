"""Sentences built from numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcore.attention import Attended
from jaxcore.attribution import Parts
from jaxcore.chat import Spelled, Turn
from jaxcore.sample import StepRecord
from jaxcore.token_counts import Rival, Verdict
from jaxcore.tokenizer import visible
from jaxcore.tokens import Split
from jaxcore.whatif import Outcome, Removed

CLEAR, INDUCTION, LISTED = 0.5, 0.4, 6
"""Shares from which a head is said to do one thing, and how many heads a sentence names."""
NEAR, ONE_NAT = 10, 1
"""A rank that is near the first, and a KL that is near none."""
EXTREME = 30
"""Standard deviations from which an entry is named."""
STOPPED = {
    "steps": "wrote as many tokens as asked",
    "stop_token": "ended with the model's own stop token",
    "stop_string": "reached a stop string",
    "context": "filled the model's context",
    "stopped": "stopped by hand",
}


def amount(count: float, unit: str = "") -> str:
    """A large number in three figures: 268 M, 1.07 GB."""
    for size, letter in ((1e9, "G" if unit else "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}{unit}"
    return f"{count:,.0f} {unit}".strip()


def counted(number: int, thing: str) -> str:
    """A number of things: 1 tensor, 2 tensors."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def quoted(token: str) -> str:
    """A token as it is shown in a sentence."""
    return f"`{visible(token).replace('`', 'ˋ')}`"


def chosen(step: StepRecord, vocabulary: int) -> str:
    """Why a step has its token."""
    first = step.candidates[0]
    parts = [f"{quoted(step.token)} is rank {step.rank:,} of {vocabulary:,}"]
    if step.rank == 1:
        parts.append(f"the model's own first choice at {step.probability_raw:.1%}")
    else:
        parts.append(
            f"{quoted(first.token)} was likelier at {first.probability_raw:.1%} against {step.probability_raw:.1%}"
        )
    if step.probability_final == 0:
        parts.append("the filters had removed it, and it was picked by hand")
    elif step.kept_final == 1:
        parts.append("no other token survived the filters")
    else:
        parts.append(f"{step.kept_final:,} tokens survived; this one was drawn with {step.probability_final:.1%}")
    return "; ".join(parts) + "."


def prediction(step: StepRecord) -> str:
    """What the settings do to the next-token distribution."""
    first = step.candidates[0]
    change = step.top1_temperature - step.top1_raw
    direction = "sharpens" if change > 0.0005 else "flattens" if change < -0.0005 else "keeps"
    survivors = (
        "no other token survives the filters"
        if step.kept_final == 1
        else f"of the {step.kept_final:,} tokens that survive it would be drawn with {first.probability_final:.1%}"
    )
    return (
        f"The likeliest next token is {quoted(first.token)}. Temperature {direction} it "
        f"({step.top1_raw:.1%} → {step.top1_temperature:.1%}), and {survivors}."
    )


def lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def fewest_tokens(verdict: Verdict, asked: int) -> list[str]:
    """Which tokenizer needs fewest tokens for ``asked`` lines, by how much, on how many, and what that proves."""
    which = lines(asked) if verdict.words == asked else f"the {verdict.words:,} of {lines(asked)} that all can write"
    ties = [rival.name for rival in verdict.rivals if rival.total == verdict.total]
    best = " and ".join(f"**{name}**" for name in (verdict.best, *ties))
    needs = f"need {verdict.total:,} tokens each" if ties else f"needs {verdict.total:,} tokens"
    said = [f"Over {which}, {best} {needs}, the fewest of all.", *(_beside(verdict, r) for r in verdict.rivals)]
    if verdict.rivals:
        said.append(_proof(verdict, verdict.rivals[0]))
    return said


def _beside(verdict: Verdict, rival: Rival) -> str:
    more = rival.total / max(verdict.total, 1) - 1
    needs = f" needs {rival.total:,}, {more:.0%} more" if rival.total > verdict.total else ""
    by_line = f"more on {lines(rival.worse)}, fewer on {rival.better:,}, the same on {rival.same:,}"
    return f"**{rival.name}**{needs}: {by_line}."


def _proof(verdict: Verdict, rival: Rival) -> str:
    return (
        f"This says little about other texts: {lines(verdict.words)}, picked by hand, and the winner named afterwards. "
        f"If a coin decided each line on which {verdict.best} and {rival.name} differ, a result as uneven as "
        f"{rival.worse:,} to {rival.better:,} would come up {rival.chance:.1%} of the time."
    )


def split_numbers(split: Split) -> str:
    """How a tokenizer did on a text."""
    tokens = f"**{split.count:,}** {'token' if split.count == 1 else 'tokens'}"
    return f"{tokens} · {split.characters_per_token:.2f} characters and {split.bytes_per_token:.2f} bytes per token"


def token_facts(split: Split, at: int, raw: bytes) -> str:
    """Id, bytes and place of one token of a split text."""
    start, end = split.byte_spans[at]
    return f"id {split.ids[at]:,}, bytes {raw.hex(' ').upper()}, from byte {start:,} to {end:,}"


def largest_vocabulary(sizes: Mapping[str, int]) -> str:
    """How much larger one vocabulary is than the others, and what that costs."""
    first, *others = sorted(sizes, key=lambda name: -sizes[name])
    ratios = {name: sizes[first] / sizes[name] for name in others}
    times = ", ".join(f"{ratio:,.{1 if ratio < 10 else 0}f} times {name}'s" for name, ratio in ratios.items())
    return (f"**{first}**'s vocabulary is {times}. " if others else "") + (
        "A larger vocabulary tends to need fewer tokens for the same text; the model pays for each entry with an "
        "embedding row, and with a logit at every step."
    )


def spelled(token: Spelled, said: Sequence[Turn]) -> str:
    """What happens to a control token that somebody's text spells."""
    number = token.turn + (said[0].role != "system")
    where = f"Turn {number} ({said[token.turn].role})" if number else "The system prompt"
    return (
        f"{where} spells {quoted(token.token)}. The model reads it as that control token (id {token.token_id:,}), not "
        "as letters, so this text can end a turn or begin one. By default transformers does the same."
    )


def looks_at(token: str, position: int, keys: Sequence[Attended]) -> str:
    """What one token attends to, leading keys first."""
    if not keys:
        return f"{quoted(token)} ({position}) has nothing to look at but the first token, which is hidden."
    listed = ", ".join(f"{quoted(key.token)} ({key.position}) {key.share:.1%}" for key in keys[:3])
    return f"{quoted(token)} ({position}) looks at {listed}."


def head_facts(found: Mapping[str, np.ndarray]) -> list[str]:
    """What stands out among the heads, as far as the numbers carry it."""
    sentences = [f"The first token takes {found['first'].mean():.0%} of all attention of later tokens."]
    kinds = {"previous": "the token before", "own": "the token itself"}
    for field, what in kinds.items():
        layer, head = np.unravel_index(np.argmax(found[field]), found[field].shape)
        share = found[field][layer, head]
        if share >= CLEAR:
            sentences.append(f"L{layer}H{head} looks at {what} most: {share:.0%} of its attention.")
    scores = found["induction"]
    heads = [f"L{layer}H{head} ({scores[layer, head]:.2f})" for layer, head in np.argwhere(scores >= INDUCTION)]
    if heads:
        sentences.append(
            "Induction heads, which on random tokens written twice find what followed the earlier occurrence: "
            f"{', '.join(heads[:LISTED])}."
        )
    return sentences


def growth(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where in depth the answer appears, as far as the lens shows it; nothing where it does not."""
    ranks = [row["lens_rank_of_final"] for row in layers]
    answer, last = layers[-1]["lens"][0]["token"], len(layers) - 1
    settled = next(i for i in range(last, -1, -1) if i == 0 or ranks[i - 1] > 1)
    sentences = [
        f"The answer {quoted(answer)} is the lens's first choice from layer {settled} of {last} on."
        if settled < last
        else f"The answer {quoted(answer)} becomes first choice only in the last layer, {last}."
    ]
    close = next((i for i in range(last + 1) if all(rank <= NEAR for rank in ranks[i:])), last)
    if 0 < close < settled:
        sentences.append(
            f"It stays among the {NEAR} likeliest from layer {close} on; before, its rank was {ranks[close - 1]:,}."
        )
    far = [row["lens_kl_to_final"] for row in layers]
    half = next((i for i in range(last + 1) if all(kl <= ONE_NAT for kl in far[i:])), last)
    if half > 0:
        sentences.append(
            f"KL to the final prediction falls below {ONE_NAT} nat at layer {half}; one layer earlier it is "
            f"{far[half - 1]:.1f} nats."
        )
    return sentences


def logit_parts(parts: Parts, what: str) -> str:
    """What made a logit, in one sentence."""
    amounts = {
        "the embedding": float(parts.embedding),
        "attention": float(parts.heads.sum()),
        "the MLPs": float(parts.mlps.sum()),
    }
    if parts.bias:
        amounts["biases"] = float(parts.bias)
    listed = ", ".join(f"{name} {value:+.2f}" for name, value in amounts.items())
    layer, head = np.unravel_index(np.argmax(np.abs(parts.heads)), parts.heads.shape)
    return (
        f"{what} is {float(parts.logit):+.2f}: {listed}. The largest share of a head is L{layer}H{head}'s, "
        f"{parts.heads[layer, head]:+.2f}."
    )


def consequence(outcome: Outcome) -> str:
    """What an edit did to the next token."""
    before = max(outcome.changes, key=lambda change: change.before)
    after = max(outcome.changes, key=lambda change: change.after)
    told = f"{quoted(before.token)} goes from {before.before:.1%} to {before.after:.1%}"
    if after.token_id != before.token_id:
        told += f", and {quoted(after.token)} is likeliest now, with {after.after:.1%}"
    return f"{told}. KL from the model as it is: {outcome.kl:.3f} nats."


def most_needed(parts: Sequence[Removed]) -> str:
    """The parts whose removal changes the next token most."""
    listed = ", ".join(
        f"{f'L{part.layer} MLP' if part.head is None else f'L{part.layer}H{part.head}'} ({part.kl:.2f} nats)"
        for part in parts
    )
    return f"The next token depends most on {listed}: removing each alone moves it that far."


def layout(found: Mapping[str, Any]) -> list[str]:
    """How attention is laid out, in words and numbers."""
    width, kv, share = found["query_width"], found["key_value_width"], found["heads_per_key_value_head"]
    sharing = (
        f"{found['query_heads']} query heads share {counted(found['key_value_heads'], 'key/value head')}, {share} to "
        f"one: queries are {width:,} wide, keys and values {kv:,}."
        if share > 1
        else f"Each of {found['query_heads']} heads has keys and values of its own, {width:,} wide like the queries."
    )
    sizes = found["parameters"]
    parts = ", ".join(f"{role} {found['share_of_attention'][role]:.0%}" for role in sizes)
    sentences = [
        sharing,
        f"Attention holds {amount(sum(sizes.values()))} parameters, {found['share_of_model']:.1%} of the model: "
        f"{parts}.",
    ]
    if share > 1:
        saved = sum(sizes[role] * (share - 1) for role in ("W_K", "W_V"))
        sentences.append(f"Without sharing, W_K and W_V would take {amount(saved)} parameters more.")
    if found["local_layers"]:
        sentences.append(f"{found['local_layers']} of {found['layers']} layers see only a window of the text.")
    return sentences


def health(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with weights, each with its number; that nothing was found, only of what was looked at."""
    sentences = []
    broken = [row for row in rows if row["nonfinite"]]
    if broken:
        sentences.append(
            f":red[{counted(sum(row['nonfinite'] for row in broken), 'number')} NaN or infinite], in "
            f"{counted(len(broken), 'tensor')}: {_first(broken)}."
        )
    zero = [row for row in rows if row["sparsity"]["0"] == 1]
    if zero:
        sentences.append(f":orange[Nothing but zeros in {counted(len(zero), 'tensor')}]: {_first(zero)}.")
    for field, what in (("dead_rows", "row"), ("dead_columns", "column")):
        dead = [row for row in rows if row[field] and row not in zero]
        if dead:
            total = sum(row[field] for row in dead)
            sentences.append(
                f":orange[{counted(total, what)} of zeros], in {counted(len(dead), 'tensor')}: {_first(dead)}."
            )
    sharp = sorted(
        (row for row in rows if row["max"] is not None and row["std"] and _reach(row) >= EXTREME),
        key=lambda row: -_reach(row),
    )
    if sharp:
        sentences.append(
            f"{counted(len(sharp), 'tensor')} with an entry more than {EXTREME} standard deviations out; the furthest, "
            f"{_reach(sharp[0]):.0f} of them, is in {quoted(sharp[0]['name'])}. Low-precision formats lose most there."
        )
    if not sentences:
        sentences.append(
            f"Nothing stands out in {len(rows):,} tensors: no NaN or infinity, no row or column of zeros, no entry "
            f"more than {EXTREME} standard deviations out."
        )
    return sentences


def _first(rows: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return ", ".join(quoted(row["name"]) for row in rows[:3]) + more


def _reach(row: Mapping[str, Any]) -> float:
    """Standard deviations from the mean to the furthest entry."""
    return max(row["max"] - row["mean"], row["mean"] - row["min"]) / row["std"]
