"""Pieces that several pages share: error boxes, empty states, where numbers come from."""

from collections.abc import Iterator
from contextlib import contextmanager

import altair as alt
import streamlit as st

from dashboard import services, state
from models.errors import OUT_OF_MEMORY, ClearboxError, is_out_of_memory


@contextmanager
def errors() -> Iterator[None]:
    """Show what the user can mend as a box in place; the rest of the page goes on."""
    try:
        yield
    except ClearboxError as error:
        st.error(str(error), icon=":material/error:")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        st.error(OUT_OF_MEMORY, icon=":material/memory:")


def draw(chart: alt.TopLevelMixin) -> None:
    """Show a chart as wide as its place. It is not checked against Vega-Lite's schema again: that takes longer than
    all the rest of a slider move, and the tests do it."""
    st.vega_lite_chart(chart.to_dict(validate=False), width="stretch")


def needs_model() -> services.ModelKey:
    """The loaded model; without one, say what to do and end the page here."""
    key = state.active()
    if key is None:
        st.info("Load a model in the sidebar to begin.", icon=":material/arrow_back:")
        st.stop()
    return key


def provenance(key: services.ModelKey) -> None:
    """Where the numbers on a page come from."""
    model = services.model(key)
    revision = f" at {model.checkpoint.revision[:8]}" if model.checkpoint.revision else ""
    st.caption(f"Computed from {model.reference}{revision}, {model.dtype} on {model.device}.")
