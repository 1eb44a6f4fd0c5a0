"""The sliders, shared by all sampling views."""

import streamlit as st

from jaxcore.sampling import Settings


def sliders() -> Settings:
    """Temperature, top-k, top-p and min-p, kept in the address."""
    columns = st.columns(4, gap="medium")
    with columns[0]:
        temperature = st.slider(
            "Temperature",
            0.0,
            3.0,
            0.7,
            0.05,
            key="temperature",
            bind="query-params",
            help="Divides the logits. Below 1 sharpens, above 1 flattens; 0 always takes the likeliest token (greedy).",
        )
    with columns[1]:
        top_k = st.slider(
            "Top-k",
            0,
            200,
            50,
            key="top_k",
            bind="query-params",
            help="Keeps the k likeliest tokens. 0: off.",
        )
    with columns[2]:
        top_p = st.slider(
            "Top-p",
            0.0,
            1.0,
            0.9,
            0.01,
            key="top_p",
            bind="query-params",
            help="Keeps the fewest tokens whose probability, renormalised after top-k, reaches p. 1: off.",
        )
    with columns[3]:
        min_p = st.slider(
            "Min-p",
            0.0,
            1.0,
            0.0,
            0.01,
            key="min_p",
            bind="query-params",
            help="Drops tokens less likely than this share of the likeliest one. 0: off.",
        )
    return Settings(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
