"""Sampling: how the model chooses each word."""

import streamlit as st

from dashboard.components import errors, needs_model, provenance
from dashboard.views.chat import add_reply, chat, chat_chosen
from dashboard.views.next_token import next_token
from dashboard.views.prompt import plain_text
from dashboard.views.scoring import scoring
from dashboard.views.writing import writing

NEXT, WRITE, SCORE = "Next token", "Write", "Score"

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
    chatting = False
    with errors():
        chatting = chat_chosen(key)
    with errors():
        prompt, ids = chat(key) if chatting else plain_text(key)
        if view == NEXT:
            next_token(key, ids)
        else:
            writing(key, prompt, ids, keep=add_reply if chatting else None)
provenance(key)
