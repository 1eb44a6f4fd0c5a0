"""The sliders, shared by all sampling views."""

import streamlit as st

from jaxcore.sampling import Settings

SLIDERS = (
    {
        "label": "Temperature",
        "key": "temperature",
        "max_value": 3.0,
        "value": 0.7,
        "step": 0.05,
        "help": "Divides the logits. Below 1 sharpens, above 1 flattens; 0 always takes the likeliest token (greedy).",
    },
    {"label": "Top-k", "key": "top_k", "max_value": 200, "value": 50, "help": "Keeps the k likeliest tokens. 0: off."},
    {
        "label": "Top-p",
        "key": "top_p",
        "max_value": 1.0,
        "value": 0.9,
        "step": 0.01,
        "help": "Keeps the fewest tokens whose probability, renormalised after top-k, reaches p. 1: off.",
    },
    {
        "label": "Min-p",
        "key": "min_p",
        "max_value": 1.0,
        "value": 0.0,
        "step": 0.01,
        "help": "Drops tokens less likely than this share of the likeliest one. 0: off.",
    },
)


def sliders() -> Settings:
    """Temperature, top-k, top-p and min-p, kept in the address."""
    columns = st.columns(len(SLIDERS), gap="medium")
    values = {
        slider["key"]: column.slider(**slider, min_value=type(slider["value"])(0), bind="query-params")
        for column, slider in zip(columns, SLIDERS, strict=True)
    }
    return Settings(**values)
