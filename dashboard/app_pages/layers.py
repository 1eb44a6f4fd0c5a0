"""Layers: how the answer builds up."""

import streamlit as st

from dashboard import services
from dashboard.components import errors, needs_model, provenance
from dashboard.views.edits import edits
from dashboard.views.evolution import prediction, stream
from dashboard.views.logit import logit
from dashboard.views.prompt import plain_text

VIEWS = {"Prediction": prediction, "The stream": stream, "Where it came from": logit, "What if": edits}

st.title("Layers")
key = needs_model()
view = st.segmented_control(
    "View",
    list(VIEWS),
    default="Prediction",
    required=True,
    key="layers_view",
    bind="query-params",
    label_visibility="collapsed",
)
with errors():
    _, prompt_ids = plain_text(key)
    VIEWS[view](key, services.readable(key, prompt_ids))
provenance(key)
