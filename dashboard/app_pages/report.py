"""Report: what the pages show, as one file to send."""

import streamlit as st

from dashboard import services
from dashboard.components import errors, needs_model, provenance
from dashboard.picker import progress
from dashboard.views.prompt import plain_text

REPORT = "report.html"

st.title("Report")
st.markdown(
    "One HTML file with model and machine, tokens, how each word was chosen, attention, layers and weights, its charts "
    "alive and every number inside as JSON. It opens from an e-mail, without a network."
)
key = needs_model()
with errors():
    prompt, ids = plain_text(key)
    if st.button("Build the report", type="primary", icon=":material/description:"):
        with progress("Building the report") as report:
            st.session_state[REPORT] = key, prompt, services.report(key, prompt, report)
built = st.session_state.get(REPORT)
if built:
    key_then, prompt_then, html = built
    st.download_button(
        "Download the report", html, f"clearbox-{key_then.reference.split('/')[-1]}.html", icon=":material/download:"
    )
    st.caption(f"{key_then.reference}, {prompt_then[:80]!r}: {len(html) / 1e6:.1f} MB.")
provenance(key)
