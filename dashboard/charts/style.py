"""Colours with a meaning, legible on light and on dark ground; charts as files."""

import json
from collections.abc import Sequence

import altair as alt
import vl_convert

RAW, TEMPERED, FINAL = "#94A3B8", "#3B82F6", "#F59E0B"
"""The model's own distribution, after temperature, and after all filters."""
CUTS = {"top-k": "#DC2626", "top-p": "#9333EA", "min-p": "#059669"}
"""Where each filter cuts."""
LOCAL, GLOBAL = "#60A5FA", "#F59E0B"
"""Layers with a sliding window, and layers that see everything."""
PARTS = {"embedding": "#0F766E", "attention": "#3B82F6", "MLP": "#F59E0B", "norms": "#94A3B8", "output head": "#DC2626"}
SERIES = ("#3B82F6", "#F59E0B", "#10B981", "#A855F7", "#EF4444", "#94A3B8")
"""Things compared side by side, in the order in which they were chosen."""
MUTED = "#8A94A3"
ROLES = {
    "W_Q": "#1D4ED8",
    "W_K": "#38BDF8",
    "W_V": "#6366F1",
    "W_O": "#A855F7",
    "W_gate": "#B45309",
    "W_up": "#F59E0B",
    "W_down": "#DC2626",
    "norm": "#94A3B8",
    "activation": "#10B981",
}
"""Tensors of a layer: attention in blues, MLP in warm colours."""
HEAT = "#0F766E"
FAINT = 0.06
"""Heat maps are this colour, from nearly clear to full, so that nothing is nothing on light and on dark ground."""
FAVOUR, AGAINST = "#2563EB", "#DC2626"


def row_names(names: Sequence[str]) -> alt.Axis:
    """An axis for rows at integer places, so that names that look alike stay apart."""
    return alt.Axis(
        labelExpr=f"{json.dumps(list(names), ensure_ascii=False)}[datum.value]",
        labelLimit=200,
        labelFontSize=13,
        labelOverlap=False,
        ticks=False,
        domain=False,
        title=None,
    )


def to_svg(chart: alt.LayerChart | alt.FacetChart, width: int = 900) -> str:
    """A chart as an SVG image of this width in pixels."""
    return vl_convert.vegalite_to_svg(chart.properties(width=width).to_dict())
