"""A prompt and what the model wrote after it: the text that a page looks into."""

from collections.abc import Callable

import streamlit as st

from dashboard import services
from dashboard.components import errors
from jaxcore.sampling import Settings

WRITTEN = "inside.written"
MOST = 200


def growing_text(
    key: services.ModelKey, ids: tuple[int, ...], each: Callable[[tuple[int, ...]], None] | None = None
) -> tuple[int, ...]:
    """The prompt's tokens and those written after it with the usual settings; ``each`` sees the text as it grows."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    steps = row.number_input("Tokens to write", 1, MOST, 20, key="write_steps", bind="query-params", width=160)
    begun, before = st.session_state.get(WRITTEN, (None, ())), (key, ids)
    written = begun[1] if begun[0] == before else ()
    if row.button("Write", icon=":material/edit:", help="Let the model go on, and look into prompt and text together."):
        place = st.container()
        with errors(), place:
            st.button("Stop", icon=":material/stop:", key="stop_writing")
            for (text,) in services.continuations(key, ids, Settings(), steps=int(steps)):
                written = tuple(text.token_ids)
                st.session_state[WRITTEN] = before, written  # kept, should Stop end this run here
                if each is not None:
                    each(ids + written)
        st.rerun()
    if written and row.button("Prompt alone", icon=":material/undo:"):
        del st.session_state[WRITTEN]
        st.rerun()
    if written:
        st.caption(f"{len(written)} tokens written after the prompt of {len(ids)}.")
    return ids + written
