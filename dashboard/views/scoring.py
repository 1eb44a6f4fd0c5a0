"""Score: how well the model predicts a pasted text."""

from math import log

import streamlit as st

from dashboard import services
from dashboard.chips import Chip, clickable_tokens, shown
from dashboard.components import errors
from dashboard.words import quoted
from jaxcore.score import ScoredToken

SELECTED = "scoring.selected"
SAMPLE = "Zurich is the largest city in Switzerland. The capital of Switzerland, however, is the city of Bern."


def scoring(key: services.ModelKey) -> None:
    """A text, each token tinted by how much it surprised the model."""
    text = st.text_area("Text to score", SAMPLE, key="text", bind="query-params", height=140)
    with errors():
        ids = services.model(key).tokenizer.encode(text, bos=True)
        scored = services.score(key, tuple(ids))
        predicted = scored.tokens[1:]
        row = st.columns(4)
        row[0].metric("Perplexity", f"{scored.perplexity:,.1f}", border=True, help="exp of the mean surprisal.")
        row[1].metric("Mean surprisal", f"{scored.mean_surprisal_nats / log(2):.2f} bits", border=True)
        row[2].metric("First choices", f"{sum(t.rank == 1 for t in predicted) / len(predicted):.0%}", border=True)
        row[3].metric("Tokens", f"{len(predicted):,}", border=True)
        st.caption("Darker: more surprising. Click a token for its numbers.")
        selected = min(st.session_state.get(SELECTED, _most_surprising(predicted)), len(predicted) - 1)
        chips = [Chip(shown(t.token), _tint(t), f"{_bits(t)}, rank {t.rank:,}") for t in predicted]
        with st.container(border=True):
            clickable_tokens(
                chips,
                prompt="",
                selected=selected,
                key="scoring.chips",
                on_click=lambda i: st.session_state.update({SELECTED: i}),
            )
        token = predicted[selected]
        st.markdown(
            f"{quoted(token.token)} carries **{_bits(token)}** (rank {token.rank:,}). The model expected "
            f"{quoted(token.top1 or '')} at {token.top1_probability:.1%}; its prediction had an entropy of "
            f"{token.entropy_nats:.2f} nats."
        )


def _most_surprising(tokens: tuple[ScoredToken, ...]) -> int:
    return max(range(len(tokens)), key=lambda i: tokens[i].surprisal_nats or 0)


def _tint(token: ScoredToken) -> float:
    return min((token.surprisal_nats or 0) / 10, 1.0)


def _bits(token: ScoredToken) -> str:
    return f"{(token.surprisal_nats or 0) / log(2):.1f} bits"
