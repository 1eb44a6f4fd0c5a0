"""How the residual stream and its prediction grow."""

import json
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any, Literal

import altair as alt

from dashboard.charts.style import AGAINST, FAINT, FAVOUR, HEAT, MUTED, PARTS, RAW, TEMPERED, row_names
from jaxcore.attribution import Parts
from jaxcore.lens import Grid
from jaxcore.tokenizer import visible
from jaxcore.whatif import Outcome

Chart = alt.LayerChart | alt.FacetChart
STATES = {"after the layer": TEMPERED, "after its attention": "#F59E0B"}
CELL = 30


def along(found: Mapping[str, Any], field: str) -> dict[str, list[tuple[float, float]]]:
    """A field of the states after layers, and of those between attention and MLP, half a layer earlier."""
    after, between = STATES
    return {
        after: [(row["layer"], float(row[field])) for row in found["layers"]],
        between: [(row["layer"] - 0.5, float(row[field])) for row in found["resid_mid"]],
    }


def depth_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    colors: Mapping[str, str],
    scale: Literal["linear", "log", "symlog"] = "linear",
) -> Chart:
    """Quantities along depth: for each name points (layer, value); a layer's attention stands half before it."""
    data = [{"layer": x, "value": y, "what": name} for name, points in series.items() for x, y in points]
    ticks = [0, 1, 10, 100, 1_000, 10_000, 100_000]
    axis = alt.Axis(format="~s", tickCount=6) if scale == "linear" else alt.Axis(format="~s", values=ticks)
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=22))
        .encode(
            x=alt.X("layer:Q", title="layer (0: embedding)", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(type=scale), axis=axis),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=list(colors), range=list(colors.values())),
                legend=alt.Legend(orient="top", labelLimit=260) if len(series) > 1 else None,
            ),
            tooltip=["what:N", "layer:Q", alt.Tooltip("value:Q", title=title, format=",.4~g")],
        )
    )
    return alt.layer(chart).properties(height=230)


def lens_chart(grid: Grid, tokens: Sequence[str], text_of: Mapping[int, str], colour: str) -> Chart:
    """The likeliest token of every layer at every shown position; columns are positions, so equal tokens stay apart."""
    seen = grid.after
    layers, columns = seen.final_rank.shape
    strength = {
        "probability of its first choice": lambda layer, column: seen.top_probability[layer, column, 0],
        "probability of the final choice": lambda layer, column: seen.final_probability[layer, column],
        "rank of the final choice": lambda layer, column: 1 - min(log10(seen.final_rank[layer, column]) / 4, 1),
    }[colour]
    data: list[dict[str, Any]] = [
        {
            "layer": layer,
            "column": column,
            "token": visible(text_of[int(seen.top_id[layer, column, 0])])[:12],
            "probability": float(seen.top_probability[layer, column, 0]),
            "rank": int(seen.final_rank[layer, column]),
            "final": float(seen.final_probability[layer, column]),
            "kl": float(seen.kl_to_final[layer, column]),
            "answer": visible(text_of[int(grid.final_id[column])]),
            "strength": float(strength(layer, column)),
        }
        for layer in range(layers)
        for column in range(columns)
    ]
    labels = json.dumps(
        [f"{visible(token)[:12]} {p}" for token, p in zip(tokens, grid.positions, strict=True)], ensure_ascii=False
    )
    x = alt.X(
        "column:O",
        title="the model has read up to",
        axis=alt.Axis(
            labelExpr=f"{labels}[datum.value]",
            labelAngle=-35,
            labelOverlap=False,
            ticks=False,
            domain=False,
            labelLimit=110,
        ),
    )
    y = alt.Y("layer:O", title="layer", sort="descending", axis=alt.Axis(ticks=False, domain=False))
    base = alt.Chart(alt.Data(values=data)).encode(
        x=x,
        y=y,
        tooltip=[
            "layer:O",
            alt.Tooltip("token:N", title="would say"),
            alt.Tooltip("probability:Q", format=".1%"),
            alt.Tooltip("answer:N", title="the last layer says"),
            alt.Tooltip("rank:Q", title="its rank here", format=","),
            alt.Tooltip("final:Q", title="its probability here", format=".2%"),
            alt.Tooltip("kl:Q", title="KL to the last layer, nats", format=".2f"),
        ],
    )
    cells = base.mark_rect(stroke=RAW, strokeWidth=0.3, color=HEAT).encode(
        opacity=alt.Opacity("strength:Q", scale=alt.Scale(domain=[0, 1], range=[FAINT, 1]), legend=None)
    )
    text = base.mark_text(fontSize=12).encode(
        text="token:N", color=alt.condition("datum.strength > 0.5", alt.value("#FFFFFF"), alt.value(MUTED))
    )
    return alt.layer(cells, text).properties(height=CELL * layers * 0.8 + 90)


def parts_of_logit_chart(parts: Parts) -> Chart:
    """What embedding, attention and MLP of every layer add to the logit."""
    rows = [("embedding", "emb.", float(parts.embedding))]
    for layer, (heads, mlp) in enumerate(zip(parts.heads, parts.mlps, strict=True)):
        rows += [("attention", str(layer), float(heads.sum())), ("MLP", str(layer), float(mlp))]
    data = [{"part": part, "layer": layer, "value": value} for part, layer, value in rows]
    names = ["embedding", "attention", "MLP"]
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_bar()
        .encode(
            x=alt.X("layer:N", title="layer", sort=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("part:N", sort=names),
            y=alt.Y("value:Q", title="added to the logit"),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=names, range=[PARTS[name] for name in names]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=["part:N", "layer:N", alt.Tooltip("value:Q", format="+.3f")],
        )
    )
    return alt.layer(chart).properties(height=240)


def heads_chart(values: Sequence[Sequence[float]], title: str) -> Chart:
    """A signed number for every head; blue in favour, red against."""
    layers, heads = len(values), len(values[0])
    largest = max(abs(float(value)) for row in values for value in row) or 1.0
    data = [
        {"layer": i, "head": j, "value": float(value), "size": abs(float(value)) / largest}
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    ]
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("layer:O", title="layer", axis=alt.Axis(ticks=False, domain=False)),
        tooltip=["layer:O", "head:O", alt.Tooltip("value:Q", title=title, format="+.3f")],
    )
    cells = base.mark_rect(stroke=RAW, strokeWidth=0.3).encode(
        color=alt.condition("datum.value > 0", alt.value(FAVOUR), alt.value(AGAINST)),
        opacity=alt.Opacity("size:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
    )
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format="+.1f"),
        color=alt.condition("datum.size > 0.5", alt.value("#FFFFFF"), alt.value(MUTED)),
    )
    return alt.layer(cells, *([text] if heads <= 16 else [])).properties(height=max(22 * layers, 110) + 50)


def written_chart(tokens: Sequence[tuple[str, float]]) -> Chart:
    """Tokens with the change of their logits; blue up, red down."""
    data = [{"row": i, "value": value, "label": f"{value:+.2f}"} for i, (_, value) in enumerate(tokens)]
    bars = (
        alt.Chart(alt.Data(values=data))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            y=alt.Y("row:O", axis=row_names([visible(token) for token, _ in tokens])),
            x=alt.X("value:Q", title="change of the logit"),
            color=alt.condition("datum.value > 0", alt.value(FAVOUR), alt.value(AGAINST)),
            tooltip=[alt.Tooltip("value:Q", format="+.4f")],
        )
    )
    return alt.layer(bars).properties(height=20 * len(data) + 50)


def outcome_chart(outcome: Outcome) -> Chart:
    """The likeliest next tokens before and after an edit."""
    shown = outcome.changes[:12]
    stages = {"before": RAW, "after": TEMPERED}
    data = [
        {"row": i, "what": what, "probability": getattr(change, what)}
        for i, change in enumerate(shown)
        for what in stages
    ]
    bars = (
        alt.Chart(alt.Data(values=data))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            y=alt.Y("row:O", axis=row_names([visible(change.token) for change in shown])),
            yOffset=alt.YOffset("what:N", sort=list(stages)),
            x=alt.X("probability:Q", axis=alt.Axis(format="%")),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=list(stages), range=list(stages.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=["what:N", alt.Tooltip("probability:Q", format=".2%")],
        )
    )
    return alt.layer(bars).properties(height=26 * len(shown) + 70)


def dimensions_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """The leading coordinates of the stream by layer: the same ones over and over, in most models."""
    data = [
        {"layer": row["layer"], "dimension": str(d["dimension"]), "value": d["value"]}
        for row in rows
        for d in row["top_dimensions"][:5]
    ]
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("layer:O", title="layer (0: embedding)", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("dimension:N", title="dimension", sort=None, axis=alt.Axis(labelOverlap=False)),
        tooltip=["layer:O", "dimension:N", alt.Tooltip("value:Q", title="mean |x|", format=",.2f")],
    )
    cells = base.mark_rect(color=HEAT).encode(
        opacity=alt.Opacity(
            "value:Q",
            title="mean |x|",
            scale=alt.Scale(type="log", range=[FAINT, 1]),
            legend=alt.Legend(format="~s"),
        )
    )
    return alt.layer(cells).properties(height=14 * len({row["dimension"] for row in data}) + 60)
