"""How the next token is chosen."""

import json
from collections.abc import Mapping, Sequence

import altair as alt

from dashboard.charts.style import CUTS, FINAL, MUTED, RAW, TEMPERED
from jaxcore.sample import StepRecord
from jaxcore.tokenizer import visible

Layers = alt.LayerChart | alt.FacetChart
STAGES = {"model": ("probability_raw", RAW), "after temperature": ("probability_temperature", TEMPERED)}
STAGES["after all filters"] = ("probability_final", FINAL)


def candidates_chart(step: StepRecord, rows: int, chosen: int | None = None) -> Layers:
    """Probability of the likeliest tokens in three stages, and where each filter cuts.

    One row a token, at the integer place of its rank, so that tokens that look alike stay apart.
    """
    shown = step.candidates[:rows]
    marks = {c.token_id: "→ " if c.token_id == chosen else "" for c in shown}
    labels = json.dumps([f"{marks[c.token_id]}{visible(c.token)}" for c in shown], ensure_ascii=False)
    data = [
        {
            "top": row + 0.08 + 0.28 * place,
            "bottom": row + 0.36 + 0.28 * place,
            "probability": getattr(candidate, field),
            "stage": stage,
            "token": visible(candidate.token),
            "id": candidate.token_id,
            "rank": row + 1,
            "logit": candidate.logit,
            "kept": "kept" if candidate.kept else "cut",
        }
        for row, candidate in enumerate(shown)
        for place, (stage, (field, _)) in enumerate(STAGES.items())
    ]
    axis = alt.Axis(
        values=[i + 0.5 for i in range(len(shown))],
        labelExpr=f"{labels}[floor(datum.value)]",
        labelLimit=160,
        labelOverlap=False,
        labelFontSize=13,
        ticks=False,
        grid=False,
        domain=False,
    )
    scale = alt.Scale(domain=[0, len(shown)], reverse=True, nice=False)
    bars = (
        alt.Chart(alt.Data(values=data))
        .mark_rect(cornerRadius=2)
        .encode(
            x=alt.X("zero:Q", axis=alt.Axis(format="%", tickCount=6), title="probability"),
            x2="probability:Q",
            y=alt.Y("top:Q", scale=scale, axis=axis, title=None),
            y2="bottom:Q",
            color=alt.Color(
                "stage:N",
                title=None,
                scale=alt.Scale(domain=list(STAGES), range=[color for _, color in STAGES.values()]),
                legend=alt.Legend(orient="top", labelLimit=200),
            ),
            opacity=alt.condition("datum.kept == 'kept'", alt.value(1), alt.value(0.35)),
            tooltip=[
                alt.Tooltip("token:N"),
                alt.Tooltip("id:Q", format=","),
                alt.Tooltip("rank:Q", format=","),
                alt.Tooltip("logit:Q", format=".3f"),
                alt.Tooltip("stage:N"),
                alt.Tooltip("probability:Q", format=".3%"),
                alt.Tooltip("kept:N"),
            ],
        )
        .transform_calculate(zero="0")
    )
    layers = alt.layer(bars, *_cut_lines(step, len(shown), axis)).resolve_scale(color="independent")
    return layers.properties(height=26 * len(shown) + 60)


def _cut_lines(step: StepRecord, rows: int, axis: alt.Axis) -> list[alt.Chart]:
    """A line below the last token that each filter keeps, where that is among the rows; equal cuts share a line."""
    cuts = {"top-k": step.kept_top_k, "top-p": step.kept_top_p, "min-p": step.kept_final}
    binding = [name for i, name in enumerate(cuts) if i == 0 or cuts[name] < list(cuts.values())[i - 1]]
    data = [
        {"line": cuts[name], "name": f"{name} keeps {cuts[name]:,}", "filter": name}
        for name in binding
        if cuts[name] <= rows
    ]
    if not data:
        return []
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("line:Q", axis=axis, title=None),
        color=alt.Color("filter:N", scale=alt.Scale(domain=list(CUTS), range=list(CUTS.values())), legend=None),
    )
    text = base.mark_text(align="right", baseline="top", dy=4, fontSize=12, fontWeight="bold")
    return [
        base.mark_rule(strokeDash=[5, 3], strokeWidth=1.5),
        text.encode(text="name:N", x=alt.value("width")),
    ]


def funnel_chart(step: StepRecord, vocabulary: int) -> Layers:
    """How many tokens each filter leaves (logarithmic), and the share of the tempered distribution they hold."""
    mass_p = step.mass_top_k * step.mass_top_p
    stages = [
        ("vocabulary", vocabulary, 1.0),
        ("top-k", step.kept_top_k, step.mass_top_k),
        ("top-p", step.kept_top_p, mass_p),
        ("min-p", step.kept_final, step.mass_final),
    ]
    data = [
        {
            "stage": name,
            "count": count,
            "mass": mass,
            "label": f"{count:,} token{'' if count == 1 else 's'} · {mass:.1%}",
            "one": 0.8,
        }
        for name, count, mass in stages
    ]
    y = alt.Y("stage:N", sort=[name for name, _, _ in stages], title=None, axis=alt.Axis(ticks=False, domain=False))
    base = alt.Chart(alt.Data(values=data)).encode(y=y)
    scale = alt.Scale(type="log", domain=[0.8, float(vocabulary) ** 2])
    bars = base.mark_bar(color=FINAL, opacity=0.85, cornerRadiusEnd=3, height=18).encode(
        x=alt.X("one:Q", scale=scale, axis=None),
        x2="count:Q",
        tooltip=["stage:N", alt.Tooltip("count:Q", format=","), alt.Tooltip("mass:Q", format=".3%")],
    )
    text = base.mark_text(align="left", dx=6, color=MUTED, fontSize=13).encode(
        x=alt.X("count:Q", scale=scale), text="label:N"
    )
    return alt.layer(bars, text).properties(height=140)


def temperature_chart(curve: Mapping[str, Sequence[float]], field: str, title: str, at: float, log: bool) -> Layers:
    """A quantity along the temperature axis, with the present temperature marked."""
    points = [{"temperature": t, "value": v} for t, v in zip(curve["temperature"], curve[field], strict=True)]
    scale = alt.Scale(type="log", nice=True) if log else alt.Scale(zero=True)
    x = alt.X("temperature:Q", title="temperature", scale=alt.Scale(domain=[0, 3]))
    line = (
        alt.Chart(alt.Data(values=points))
        .mark_line(color=TEMPERED, strokeWidth=2.5, point=alt.OverlayMarkDef(size=12, color=TEMPERED))
        .encode(
            x=x,
            y=alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, format="~s" if log else "~g")),
            tooltip=[alt.Tooltip("temperature:Q", format=".1f"), alt.Tooltip("value:Q", title=title, format=",.3~f")],
        )
    )
    rule = alt.Chart(alt.Data(values=[{"temperature": at}])).mark_rule(color=FINAL, strokeWidth=2).encode(x=x)
    return alt.layer(line, rule).properties(height=190)
