"""The shape of a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from dashboard.charts.style import GLOBAL, LOCAL, MUTED, PARTS
from dashboard.words import amount

BLOCKS = {"gemma3": ("gated MLP", "norm"), "apertus": ("xIELU MLP", ""), "char": ("ReLU MLP", "")}
"""What a family calls its MLP, and what stands after each of its sublayers."""


def layers_chart(windows: Sequence[int]) -> alt.Chart:
    """Every layer in order, local ones (with a window smaller than the largest) apart from global ones."""
    kinds = {False: f"local: sees the last {min(windows):,} tokens", True: "global: sees every earlier token"}
    wide = [window == max(windows) for window in windows]
    data = [{"layer": i, "kind": kinds[w], "height": 1.0 if w else 0.7} for i, w in enumerate(wide)]
    return (
        alt.Chart(alt.Data(values=data))
        .mark_bar(cornerRadius=3)
        .encode(
            x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)),
            y=alt.Y("height:Q", axis=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(kinds.values()), range=[LOCAL, GLOBAL]),
                legend=alt.Legend(orient="top", labelLimit=300),
            ),
            tooltip=["layer:O", "kind:N"],
        )
        .properties(height=200)
    )


def parts_chart(parts: Mapping[str, int]) -> alt.LayerChart | alt.FacetChart:
    """Parameters by part of the model."""
    total = sum(parts.values())
    data = [{"part": p, "count": n, "label": f"{amount(n)} · {n / total:.1%}"} for p, n in parts.items()]
    order = sorted(parts, key=lambda part: -parts[part])
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("part:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False)),
        x=alt.X("count:Q", axis=None, scale=alt.Scale(domain=[0, max(parts.values()) * 1.9])),
    )
    bars = base.mark_bar(cornerRadiusEnd=3, height=22).encode(
        color=alt.Color("part:N", legend=None, scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values()))),
        tooltip=["part:N", alt.Tooltip("count:Q", format=",")],
    )
    text = base.mark_text(align="left", dx=6, fontSize=13, color=MUTED).encode(text="label:N")
    return alt.layer(bars, text).properties(height=36 * len(parts) + 10)


def block_drawing(cfg: Any) -> str:
    """The path of the residual stream through one layer, in Graphviz's language."""
    mlp, after = BLOCKS[cfg.family]
    return f"""digraph {{
        rankdir=LR; bgcolor="transparent"; nodesep=0.2; ranksep=0.3;
        node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11, color="{MUTED}"];
        edge [color="{MUTED}", fontcolor="{MUTED}", fontname="sans-serif", fontsize=10, arrowsize=0.6];
        into [label="residual\\nstream", fillcolor="#E2E8F0"]; out [label="next layer", fillcolor="#E2E8F0"];
        attention [label="attention\\n{cfg.n_heads} heads x {cfg.head_dim}", fillcolor="#BFDBFE"];
        mlp [label="{mlp}\\n{cfg.d_mlp:,} units", fillcolor="#FDE3B3"];
        node [label="+", shape=circle, width=0.25, fixedsize=true, fillcolor="#E2E8F0"]; add1; add2;
        into -> attention [label=" norm"]; attention -> add1 [label=" {after}"]; into -> add1;
        add1 -> mlp [label=" norm"]; mlp -> add2 [label=" {after}"]; add1 -> add2; add2 -> out;
    }}"""
