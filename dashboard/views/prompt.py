"""The prompt that a model continues, and the tokens it has become."""

from typing import Any

import streamlit as st

from dashboard import services, state
from dashboard.chips import shown
from dashboard.examples import examples, is_example_of_others


def plain_text(key: services.ModelKey) -> tuple[str, tuple[int, ...]]:
    """A prompt as it is typed, and its tokens."""
    model = services.model(key)
    own = examples(model)
    first = next(iter(own.values()))
    if is_example_of_others(st.session_state.get(state.PROMPT), own):
        state.set_prompt(first)
    prompt = st.text_area("Prompt", first, key=state.PROMPT, bind="query-params", height=80)
    row = st.container(horizontal=True, vertical_alignment="center")
    bos = model.tokenizer.bos is not None and row.toggle(
        "BOS token in front", True, key="bos", bind="query-params", help="Models trained with it are lost without it."
    )
    with row.popover("Examples", icon=":material/lightbulb:"):
        for name, example in own.items():
            st.button(name, help=example, width="stretch", on_click=state.set_prompt, args=(example,))
    ids = services.encode(key, prompt, bos)
    token_list(row, key, ids)
    return prompt, ids


def token_list(place: Any, key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """A button that opens the list of a prompt's tokens."""
    with place.popover(f"{len(ids):,} tokens"):
        names = services.model(key).tokenizer.texts(ids[: services.LISTED])
        rows = [{"id": i, "token": shown(t)} for i, t in zip(ids, names, strict=False)]
        st.dataframe(rows, hide_index=True, height=min(38 * (len(rows) + 1), 400))
