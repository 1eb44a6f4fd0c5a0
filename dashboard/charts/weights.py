"""The health of weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from dashboard.charts.style import FINAL, PARTS, ROLES, SERIES

Chart = alt.LayerChart | alt.FacetChart


def shares_chart(shares: Mapping[str, float]) -> Chart:
    """Share of the model's parameters by role."""
    data = [{"role": role, "share": share, "label": f"{share:.1%}"} for role, share in shares.items()]
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("role:N", sort=list(shares), title=None, axis=alt.Axis(ticks=False, domain=False)),
        x=alt.X("share:Q", axis=None, scale=alt.Scale(domain=[0, max(shares.values()) * 1.25])),
    )
    bars = base.mark_bar(cornerRadiusEnd=3, color=PARTS["embedding"], height=14)
    text = base.mark_text(align="left", dx=5, color="#8A94A3").encode(text="label:N")
    return alt.layer(bars, text).properties(height=22 * len(data) + 10)


def by_depth_chart(rows: Sequence[Mapping[str, Any]], field: str, title: str, log: bool) -> Chart:
    """One number of every layer's tensors, a line a role; a gap where there is no number."""
    data = [{"layer": row["layer"], "role": row["role"], "value": row[field], "name": row["name"]} for row in rows]
    used = [role for role in ROLES if any(row["role"] == role for row in rows)]
    scale = alt.Scale(type="log" if log else "linear", zero=False)
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=24))
        .encode(
            x=alt.X("layer:Q", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=6)),
            detail="name_group:N",
            color=alt.Color(
                "role:N",
                title=None,
                scale=alt.Scale(domain=used, range=[ROLES[role] for role in used]),
                legend=alt.Legend(orient="top", columns=4),
            ),
            tooltip=["name:N", "layer:Q", alt.Tooltip("value:Q", title=title, format=".4~g")],
        )
        .transform_calculate(name_group="replace(datum.name, /[0-9]+/, '')")
    )
    return alt.layer(chart).properties(height=320)


def histogram_chart(named: Mapping[str, Mapping[str, Sequence[float]]]) -> Chart:
    """How a tensor's numbers are spread, as shares of all, logarithmic; several lie over each other."""
    data, least = [], 0.5 / max(sum(histogram["counts"]) for histogram in named.values())
    for name, histogram in named.items():
        total = sum(histogram["counts"])
        edges = histogram["edges"]
        data += [
            {"tensor": name, "from": a, "to": b, "share": count / total, "least": least}
            for a, b, count in zip(edges, edges[1:], histogram["counts"], strict=False)
            if count
        ]
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_bar(opacity=0.6)
        .encode(
            x=alt.X("from:Q", title="value", axis=alt.Axis(format="~g")),
            x2="to:Q",
            y=alt.Y(
                "share:Q",
                title="share",
                scale=alt.Scale(type="log", domain=[least, 1], nice=False),
                axis=alt.Axis(format="~%", values=[10.0**-k for k in range(9)]),
                stack=None,
            ),
            y2="least:Q",
            color=alt.Color(
                "tensor:N",
                title=None,
                scale=alt.Scale(domain=list(named), range=list(SERIES)),
                legend=alt.Legend(orient="top", labelLimit=300) if len(named) > 1 else None,
            ),
            tooltip=[
                "tensor:N",
                alt.Tooltip("from:Q", format=".3~g"),
                alt.Tooltip("to:Q", format=".3~g"),
                alt.Tooltip("share:Q", format=".4%"),
            ],
        )
    )
    return alt.layer(chart).properties(height=220)


def spectrum_chart(row: Mapping[str, Any]) -> Chart:
    """Singular values by rank on two logarithmic axes, with the smallest that the power law was fitted to."""
    values = [s for s in row["singular_values"] if s > 0]
    data = [{"rank": i + 1, "value": s} for i, s in enumerate(values)]
    base = (
        alt.Chart(alt.Data(values=data))
        .mark_line(color=SERIES[0], point=alt.OverlayMarkDef(size=12))
        .encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log"), title="rank"),
            y=alt.Y("value:Q", scale=alt.Scale(type="log"), title="singular value", axis=alt.Axis(format="~g")),
            tooltip=["rank:Q", alt.Tooltip("value:Q", format=".4~g")],
        )
    )
    if row["power_law_xmin"] is None:
        return alt.layer(base).properties(height=240)
    start = alt.Chart(alt.Data(values=[{"value": row["power_law_xmin"] ** 0.5}]))
    return alt.layer(base, start.mark_rule(color=FINAL, strokeDash=[5, 3]).encode(y="value:Q")).properties(height=240)
