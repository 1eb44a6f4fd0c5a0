"""Sampling: how the model chooses each word."""

import streamlit as st

from dashboard import services, state
from dashboard.components import errors, needs_model, provenance, shown
from dashboard.views.next_token import next_token
from dashboard.views.scoring import scoring
from dashboard.views.writing import writing

VIEWS = {
    "next": ":material/bar_chart: Next token",
    "write": ":material/edit_note: Write",
    "score": ":material/query_stats: Score",
}

st.title("Sampling")
key = needs_model()
view = st.segmented_control(
    "View",
    list(VIEWS),
    format_func=VIEWS.__getitem__,
    default="next",
    required=True,
    key="view",
    bind="query-params",
    label_visibility="collapsed",
)

if view == "score":
    scoring(key)
else:
    first = next(iter(state.EXAMPLES.values()))
    prompt = st.text_area("Prompt", first, key=state.PROMPT, bind="query-params", height=80)
    row = st.container(horizontal=True, vertical_alignment="center")
    bos = row.toggle("BOS token in front", True, key="bos", bind="query-params", help="Gemma is lost without it.")
    tokenizer = services.model(key).tokenizer
    with errors():
        ids = tuple(tokenizer.encode(prompt, bos=bos))
        with row.popover(f"{len(ids)} tokens"):
            rows = [{"id": i, "token": shown(t)} for i, t in zip(ids, tokenizer.texts(ids), strict=True)]
            st.dataframe(rows, hide_index=True, height=min(38 * (len(rows) + 1), 400))
        if view == "next":
            next_token(key, ids)
        else:
            writing(key, prompt, ids)
provenance(key)
