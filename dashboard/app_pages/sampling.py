"""Sampling: how the model chooses each word."""

import streamlit as st

from dashboard import services, state
from dashboard.chips import shown
from dashboard.components import errors, needs_model, provenance
from dashboard.views.next_token import next_token
from dashboard.views.scoring import scoring
from dashboard.views.writing import writing

NEXT, WRITE, SCORE = "Next token", "Write", "Score"
LISTED = 500
"""Tokens of a prompt that are listed; more are not sent to the browser."""

st.title("Sampling")
key = needs_model()
view = st.segmented_control(
    "View",
    [NEXT, WRITE, SCORE],
    default=NEXT,
    required=True,
    key="view",
    bind="query-params",
    label_visibility="collapsed",
)

if view == SCORE:
    scoring(key)
else:
    first = next(iter(state.EXAMPLES.values()))
    prompt = st.text_area("Prompt", first, key=state.PROMPT, bind="query-params", height=80)
    row = st.container(horizontal=True, vertical_alignment="center")
    bos = row.toggle("BOS token in front", True, key="bos", bind="query-params", help="Gemma is lost without it.")
    with row.popover("Examples", icon=":material/lightbulb:"):
        for name, example in state.EXAMPLES.items():
            st.button(name, help=example, width="stretch", on_click=state.set_prompt, args=(example,))
    with errors():
        ids = services.encode(key, prompt, bos)
        with row.popover(f"{len(ids):,} tokens"):
            names = services.model(key).tokenizer.texts(ids[:LISTED])
            rows = [{"id": i, "token": shown(t)} for i, t in zip(ids, names, strict=False)]
            st.dataframe(rows, hide_index=True, height=min(38 * (len(rows) + 1), 400))
        if view == NEXT:
            next_token(key, ids)
        else:
            writing(key, prompt, ids)
provenance(key)
