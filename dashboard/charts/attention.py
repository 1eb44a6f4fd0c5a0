"""What heads attend to."""

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.charts.style import FAINT, HEAT, MUTED, RAW, TEMPERED, row_names
from jaxcore.attention import Attended
from jaxcore.tokenizer import visible

NUMBERED = 16
"""Heads whose cells are wide enough for a number."""


def attended_chart(keys: Sequence[Attended]) -> alt.LayerChart | alt.FacetChart:
    """The keys that take the largest shares of one token's attention, each with its position."""
    data = [{"row": i, "share": k.share, "label": f"{k.share:.1%}"} for i, k in enumerate(keys)]
    axis = row_names([f"{visible(k.token)}  {k.position}" for k in keys])
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("row:O", axis=axis),
        x=alt.X(
            "share:Q",
            title="share of attention",
            scale=alt.Scale(domain=[0, 1.12]),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        ),
    )
    bars = base.mark_bar(color=TEMPERED, cornerRadiusEnd=2)
    text = base.mark_text(align="left", dx=4, color=MUTED).encode(text="label:N")
    return alt.layer(bars, text).properties(height=26 * len(data) + 50)


def head_heatmap(
    values: Sequence[Sequence[float]], title: str, number: str, domain: tuple[float, float], local: Sequence[bool]
) -> alt.LayerChart | alt.FacetChart:
    """One number for every head, layers downwards; layers with a window are marked."""
    layers, heads = len(values), len(values[0])
    data: list[dict[str, Any]] = [
        {"layer": layer, "head": head, "value": float(value)}
        for layer, row in enumerate(values)
        for head, value in enumerate(row)
    ]
    marks = json.dumps([f"{i} {'local' if is_local else ''}".strip() for i, is_local in enumerate(local)])
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("layer:O", title="layer", axis=alt.Axis(labelExpr=f"{marks}[datum.value]", ticks=False, domain=False)),
        tooltip=["layer:O", "head:O", alt.Tooltip("value:Q", title=title, format=number)],
    )
    cells = base.mark_rect(stroke=RAW, strokeWidth=0.3, color=HEAT).encode(
        opacity=alt.Opacity(
            "value:Q",
            title=title,
            scale=alt.Scale(domain=domain, range=[FAINT, 1], clamp=True),
            legend=None if heads <= NUMBERED else alt.Legend(format=number),
        )
    )
    middle = (domain[0] + domain[1]) / 2
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=number),
        color=alt.condition(f"datum.value > {middle}", alt.value("#FFFFFF"), alt.value(MUTED)),
    )
    return alt.layer(cells, *([text] if heads <= NUMBERED else [])).properties(height=max(22 * layers, 110) + 50)
