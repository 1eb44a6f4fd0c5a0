"""Clearbox's pages: ``streamlit run dashboard/app.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # streamlit puts only this file's folder on the path

import streamlit as st

from jaxcore import runtime

runtime.prepare()

from dashboard.picker import model_picker

# Columns side by side would be crushed on a narrow window beside the sidebar: let them wrap.
NARROW = """
@media (max-width: 1100px) {
  .stColumn { min-width: min(100%, 8.5rem); flex-grow: 1; }
  .stColumn:has(.stMetric) { min-width: min(100%, 10rem); }
  .stColumn:has(.stVegaLiteChart, .stGraphVizChart, .stHtml, .stBidiComponent) { min-width: min(100%, 22rem); }
  .stColumn .stColumn:has(.stVegaLiteChart) { min-width: min(100%, 11rem); }
}
"""

st.set_page_config(page_title="Clearbox", page_icon=str(Path(__file__).parent / "static" / "icon.png"), layout="wide")
page = st.navigation(
    [
        st.Page("app_pages/overview.py", title="Overview", icon=":material/home:", default=True),
        st.Page("app_pages/sampling.py", title="Sampling", icon=":material/casino:"),
        st.Page("app_pages/attention.py", title="Attention", icon=":material/visibility:"),
        st.Page("app_pages/layers.py", title="Layers", icon=":material/layers:"),
        st.Page("app_pages/weights.py", title="Weights", icon=":material/monitor_heart:"),
        st.Page("app_pages/tokenizers.py", title="Tokenizers", icon=":material/data_array:"),
        st.Page("app_pages/report.py", title="Report", icon=":material/description:"),
    ]
)
st.html(f"<style>{NARROW}</style>")
model_picker()
page.run()
