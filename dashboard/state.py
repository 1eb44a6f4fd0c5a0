"""Keys of session state and of the address; widgets that are bound to the address use these names."""

import streamlit as st

from dashboard import services

MODEL = "model"
DTYPE = "dtype"
PROMPT = "prompt"
ACTIVE = "active.model"
LOOKED = "looked.at"


def set_prompt(prompt: str) -> None:
    """Put a prompt into the sampling page."""
    st.session_state[PROMPT] = prompt


def active() -> services.ModelKey | None:
    """The model that pages show, if one is loaded."""
    return st.session_state.get(ACTIVE)


def looked_at() -> str | None:
    """The checkpoint that the sidebar names, loaded or not."""
    return st.session_state.get(LOOKED)


def look_at(reference: str | None) -> None:
    """Make a checkpoint the one that pages about weights show."""
    st.session_state[LOOKED] = reference


def use(key: services.ModelKey | None) -> None:
    """Make a model the one that pages show, and keep it in the address."""
    st.session_state[ACTIVE] = key
