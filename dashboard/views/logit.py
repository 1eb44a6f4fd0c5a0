"""Where a logit came from: parts of the model, earlier tokens, and what a part writes."""

import numpy as np
import streamlit as st

from dashboard import services, words
from dashboard.charts.layers import heads_chart, parts_of_logit_chart, written_chart
from dashboard.chips import BLUE, Chip, plain_tokens, shown
from dashboard.components import draw, errors
from jaxcore.tokenizer import visible

CANDIDATES, UNITS, RED = 20, 8, "220, 38, 38"
NOTHING = "nothing"


@st.fragment
def logit(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """Attribution of the next token's logit."""
    with errors():
        tokenizer, position = services.model(key).tokenizer, len(ids) - 1
        found = services.inside(key, ids, position)
        likely = [int(i) for i in np.argsort(-found.logits, kind="stable")[:CANDIDATES]]
        names = {i: tokenizer.text(i) for i in likely}
        row = st.columns(2)

        def named(i: int | str) -> str:
            return i if isinstance(i, str) else f"{visible(names[i])}  ({found.logits[i]:.2f})"

        token = row[0].selectbox("Token", likely, format_func=named, help="The likeliest, with their logits.")
        rivals = [NOTHING, *(i for i in likely if i != token)]
        rival = row[1].selectbox("Against", rivals, format_func=named, help="Then its lead over the other is split.")
        against = rival if isinstance(rival, int) else None
        parts = services.attributed(key, ids, position, token, against)
        what = f"The logit of {words.quoted(names[token])}"
        if against is not None:
            what = f"The lead of {words.quoted(names[token])} over {words.quoted(names[against])}"
        st.markdown(words.logit_parts(parts, what))
        left, right = st.columns([3, 2], gap="large")
        with left:
            st.markdown("**By layer**")
            draw(parts_of_logit_chart(parts))
        with right:
            st.markdown("**By head**")
            draw(heads_chart(np.asarray(parts.heads).tolist(), "added to the logit"))
        _sources(key, ids, np.asarray(parts.sources))
        _written(key, ids, position, parts)


def _sources(key: services.ModelKey, ids: tuple[int, ...], sources: np.ndarray) -> None:
    by_token = sources.sum(axis=(0, 1))
    largest = float(np.abs(by_token).max()) or 1.0
    st.markdown(
        "**Which earlier tokens fed it, through attention**",
        help="What all heads moved from a token, summed. Blue: in favour, red: against. Direct effects only.",
    )
    texts = services.model(key).tokenizer.texts(ids)
    chips = [
        Chip(shown(text), abs(value) / largest, f"{value:+.3f}", BLUE if value > 0 else RED)
        for text, value in zip(texts, by_token.tolist(), strict=True)
    ]
    plain_tokens(st.container(), chips[-services.LISTED :], prompt="")


def _written(key: services.ModelKey, ids: tuple[int, ...], position: int, parts: services.Parts) -> None:
    layers, heads = parts.heads.shape
    st.markdown("**What a part writes here, in words**", help="Logits it raises and lowers directly, through the norm.")
    layer, head = (int(i) for i in np.unravel_index(np.argmax(np.abs(parts.heads)), parts.heads.shape))
    row = st.columns(3)
    layer = int(row[0].number_input("Layer", 0, layers - 1, layer))
    options = [*range(heads), "MLP"]
    part = row[1].selectbox("Part", options, head, format_func=lambda p: p if p == "MLP" else f"head {p}")
    unit = None
    if part == "MLP":
        order = np.argsort(-np.abs(parts.units[layer]))[:UNITS].tolist()
        chosen = row[2].selectbox(
            "Unit",
            ["all", *order],
            format_func=lambda u: u if u == "all" else f"{u}: {parts.units[layer, u]:+.2f}",
            help="Those with the largest shares.",
        )
        unit = chosen if isinstance(chosen, int) else None
    at = part if isinstance(part, int) else None
    draw(written_chart(services.written_by(key, ids, position, layer, at, unit)))
