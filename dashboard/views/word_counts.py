"""Many words under several tokenizers: counts, what they say, and how large the vocabularies are."""

from collections.abc import Sequence

import streamlit as st

from dashboard import services, words
from dashboard.charts.tokenizers import bars_chart
from dashboard.components import draw
from dashboard.word_sets import WORD_SETS
from jaxcore.token_counts import characters_per_token, verdict
from jaxcore.tokens import NAMED

OWN = "Your own"
LARGEST = 200
"""Lines of the user's own that are compared."""


def word_counts(names: Sequence[str]) -> None:
    """Tokens of every line of a set, the conclusions, and all sets at a glance."""
    chosen = st.pills(
        "Set", [*WORD_SETS, OWN], default=next(iter(WORD_SETS)), required=True, key="lines", bind="query-params"
    )
    lines = WORD_SETS[chosen] if chosen != OWN else own_lines()
    if not lines:
        st.info("Write one word or phrase a line.", icon=":material/edit_note:")
        return
    counts = {name: services.token_counts(name, lines) for name in names}
    left, right = st.columns([3, 2], gap="large")
    with left:
        draw(bars_chart(lines, counts, "tokens"))
        with st.expander("As a table"):
            st.dataframe([{"line": line, **row(counts, i)} for i, line in enumerate(lines)], hide_index=True)
    with right:
        found = verdict(counts)
        if found is None:
            st.warning(f"There is no line that all of {', '.join(names)} can write.", icon=":material/block:")
        elif found.rivals:
            for sentence in words.fewest_tokens(found, len(lines)):
                st.markdown(sentence)
        for name, column in counts.items():
            if None in column:
                st.caption(f"{name} cannot write {column.count(None):,} of {words.lines(len(lines))}.")
        st.markdown(
            "**All sets at a glance**", help="Characters of a set divided by its tokens: longer bars are better."
        )
        draw(glance(names))


def own_lines() -> tuple[str, ...]:
    """What the user wrote, each line once."""
    text = st.text_area("One word or phrase a line", "Rindfleischetikettierung", key="own", bind="query-params")
    lines = tuple(dict.fromkeys(line for line in text.splitlines() if line.strip()))
    if len(lines) > LARGEST:
        st.caption(f"The first {LARGEST:,} of {len(lines):,} lines are compared.")
    return lines[:LARGEST]


def row(counts: dict[str, tuple[int | None, ...]], i: int) -> dict[str, int | None]:
    return {name: column[i] for name, column in counts.items()}


def glance(names: Sequence[str]):
    """Characters a token in every set."""
    values = {
        name: [characters_per_token(lines, services.token_counts(name, lines)) for lines in WORD_SETS.values()]
        for name in names
    }
    writers = {name: column for name, column in values.items() if any(column)}
    return bars_chart(list(WORD_SETS), writers, "characters per token", ".2f")


def vocabularies(names: Sequence[str]) -> None:
    """How large each vocabulary is, what kind it is, and where it comes from."""
    tokenizers = {name: services.tokenizer(name) for name in names}
    draw(bars_chart(["tokens"], {name: [t.vocabulary] for name, t in tokenizers.items()}, "vocabulary"))
    rows = [
        {
            "tokenizer": name,
            "vocabulary": t.vocabulary,
            "special tokens": len(t.control),
            "longest token, bytes": max(len(t.pieces[i]) for i in range(t.vocabulary) if i not in t.control),
            "kind": t.kind,
            "origin": NAMED[name].note if name in NAMED else name,
        }
        for name, t in tokenizers.items()
    ]
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in ("vocabulary", "special tokens")}
    st.dataframe(rows, hide_index=True, column_config=numbers)
    st.markdown(words.largest_vocabulary({name: t.vocabulary for name, t in tokenizers.items()}))
