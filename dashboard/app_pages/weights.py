"""Weights: whether they are sound, read from the files alone."""

import streamlit as st

from dashboard import state
from dashboard.views.health import health

st.title("Weights")
reference = state.looked_at()
if reference is None:
    st.info("Name a checkpoint in the sidebar; it need not be loaded.", icon=":material/arrow_back:")
else:
    health(reference)
    st.caption(f"Computed from the stored weights of {reference}.")
