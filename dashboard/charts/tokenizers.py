"""How many tokens tokenizers need."""

import json
from collections.abc import Mapping, Sequence

import altair as alt

from dashboard.charts.style import MUTED, SERIES

BAR, AROUND = 15, 110
"""Pixels for one bar and the gap after it, and for legend, axis and title."""


def bars_chart(
    rows: Sequence[str], values: Mapping[str, Sequence[float | None]], title: str, number: str = ","
) -> alt.LayerChart | alt.FacetChart:
    """One group of bars a row and one bar a series, with its number; where there is none, no bar.

    Rows keep their order, at integer places, so that rows that look alike stay apart.
    """
    data = [
        {"row": i, "name": name, "series": series, "value": column[i]}
        for series, column in values.items()
        for i, name in enumerate(rows)
        if column[i] is not None
    ]
    names = list(values)
    largest = max((row["value"] for row in data), default=1)
    labels = alt.Axis(
        labelExpr=f"{json.dumps(list(rows), ensure_ascii=False)}[datum.value]",
        labelLimit=210,
        labelFontSize=13,
        ticks=False,
        domain=False,
    )
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("row:O", title=None, axis=labels, scale=alt.Scale(paddingInner=0.25)),
        yOffset=alt.YOffset("series:N", sort=names, scale=alt.Scale(paddingInner=0.15)),
        x=alt.X("value:Q", title=title, scale=alt.Scale(domain=[0, largest * 1.15]), axis=alt.Axis(tickMinStep=1)),
        tooltip=[
            "name:N",
            alt.Tooltip("series:N", title="tokenizer"),
            alt.Tooltip("value:Q", title=title, format=number),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=2).encode(
        color=alt.Color(
            "series:N",
            title=None,
            scale=alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))]),
            legend=alt.Legend(orient="top", labelLimit=260),
        )
    )
    text = base.mark_text(align="left", dx=4, color=MUTED, fontSize=11).encode(text=alt.Text("value:Q", format=number))
    return alt.layer(bars, text).properties(height=len(rows) * (BAR * len(names) + 8) + AROUND)
