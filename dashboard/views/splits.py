"""One text in the tokens of several tokenizers, side by side."""

from collections.abc import Sequence

import streamlit as st

from dashboard import services, words
from dashboard.chips import AMBER, BLUE, Chip, clickable_tokens, marked
from dashboard.components import errors
from jaxcore.tokenizer import Tokenizer
from jaxcore.tokens import Split

TEXT = "Die Krankenversicherung in Zürich kostet 412.50 Franken.\nGrüezi, the quick brown fox! 👩‍👩‍👧 東京"
SIDE_BY_SIDE = 2
SHOWN = 2000
"""Tokens of a text that are sent to the browser."""
STRENGTH = 0.45


@st.fragment
def splits(names: Sequence[str]) -> None:
    """A text to type, and one card a tokenizer; a click on a token reruns only this part."""
    text = st.text_area("Text", TEXT, key="sentence", bind="query-params", height=100)
    st.caption("Colours alternate from token to token. Hover over a token, or click it, for its id, bytes and place.")
    for start in range(0, len(names), SIDE_BY_SIDE):
        for name, column in zip(
            names[start : start + SIDE_BY_SIDE], st.columns(SIDE_BY_SIDE, gap="medium"), strict=False
        ):
            with column, st.container(border=True), errors():
                st.markdown(f"**{name}** · :gray[vocabulary {services.tokenizer(name).vocabulary:,}]")
                card(services.split_text(name, text), services.tokenizer(name))


def card(split: Split, tokenizer: Tokenizer) -> None:
    """The numbers and the tokens of one tokenizer."""
    selected = f"splits.selected.{split.name}"
    st.markdown(words.split_numbers(split))
    if not split.exact:
        st.caption("This tokenizer changes the text before it splits it: byte spans count in its own bytes.")
    facts = [words.token_facts(split, i, tokenizer.token_bytes(split.ids[i])) for i in range(min(split.count, SHOWN))]
    at = st.session_state.get(selected)
    clickable_tokens(
        [Chip(marked(split.tokens[i]), STRENGTH, fact, (BLUE, AMBER)[i % 2]) for i, fact in enumerate(facts)],
        prompt="",
        selected=at,
        key=f"splits.chips.{split.name}",
        on_click=lambda i: st.session_state.update({selected: i}),
    )
    if split.count > SHOWN:
        st.caption(f"The first {SHOWN:,} tokens are shown.")
    if at is not None and at < len(facts):
        st.markdown(f"Token {at + 1:,} is {words.quoted(split.tokens[at])}: {facts[at]}.")
