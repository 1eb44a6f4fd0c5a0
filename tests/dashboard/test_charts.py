"""What charts show is what records hold."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dashboard import words
from dashboard.charts.attention import attended_chart, head_heatmap
from dashboard.charts.layers import (
    STATES,
    along,
    depth_chart,
    dimensions_chart,
    heads_chart,
    lens_chart,
    outcome_chart,
    parts_of_logit_chart,
    written_chart,
)
from dashboard.charts.overview import block_drawing, layers_chart, parts_chart
from dashboard.charts.sampling import candidates_chart, funnel_chart, temperature_chart
from dashboard.charts.style import SERIES, to_svg
from dashboard.charts.tokenizers import bars_chart
from dashboard.charts.weights import by_depth_chart, histogram_chart, shares_chart, spectrum_chart
from jaxcore import lens
from jaxcore.attention import attended
from jaxcore.attribution import attribution, inside
from jaxcore.catalogue import open_reference
from jaxcore.layers import evolution
from jaxcore.sample import Candidate, StepRecord
from jaxcore.session import load
from jaxcore.token_counts import Rival, Verdict
from jaxcore.weights import chosen, health
from jaxcore.whatif import Edit, what_if

CANDIDATES = (
    Candidate(5, " a", 3.0, 0.5, 0.6, 0.7, True),
    Candidate(9, "\n", 2.0, 0.25, 0.2, 0.3, True),
    Candidate(7, " a", 1.0, 0.125, 0.1, 0.0, False),
)
STEP = StepRecord(
    index=0,
    token_id=9,
    token="\n",
    rank=2,
    logit=2.0,
    probability_raw=0.25,
    probability_temperature=0.2,
    probability_final=0.3,
    entropy_raw_nats=1.2,
    entropy_final_nats=0.6,
    kept_top_k=50,
    kept_top_p=2,
    kept_final=2,
    mass_top_k=0.9,
    mass_top_p=0.95,
    mass_final=0.8,
    top1_raw=0.5,
    top1_temperature=0.6,
    candidates=CANDIDATES,
)


def values(spec: dict) -> list[dict]:
    """The rows of a chart's first layer, which may stand on the whole chart."""
    return spec.get("data", spec["layer"][0].get("data"))["values"]


def test_candidates_keep_a_row_each_even_if_they_look_alike():
    spec = candidates_chart(STEP, 10, chosen=9).to_dict()
    rows = values(spec)
    assert len(rows) == 9
    assert [row["rank"] for row in rows[::3]] == [1, 2, 3]
    assert [row["probability"] for row in rows[:3]] == [0.5, 0.6, 0.7]
    axis = spec["layer"][0]["encoding"]["y"]["axis"]
    labels = json.loads(axis["labelExpr"].removesuffix("[floor(datum.value)]"))
    assert labels == ["·a", "→ ↵", "·a"]
    assert rows[-1]["kept"] == "cut"


def test_a_cut_line_stands_below_the_last_kept_row_of_the_filter_that_binds():
    lines = candidates_chart(STEP, 10).to_dict()["layer"][1]["data"]["values"]
    assert lines == [{"line": 2, "name": "top-p keeps 2", "filter": "top-p"}]


def test_without_a_cut_in_view_there_is_no_line():
    step = replace(STEP, kept_top_p=40, kept_final=40)
    assert len(candidates_chart(step, 10).to_dict()["layer"]) == 1


def test_the_funnel_counts_and_weighs_every_stage():
    rows = values(funnel_chart(STEP, 1000).to_dict())
    assert [(row["stage"], row["count"]) for row in rows] == [
        ("vocabulary", 1000),
        ("top-k", 50),
        ("top-p", 2),
        ("min-p", 2),
    ]
    assert [row["mass"] for row in rows] == pytest.approx([1.0, 0.9, 0.855, 0.8])


def test_the_curve_marks_the_present_temperature():
    curve = {"temperature": [0.5, 1.0], "entropy": [0.1, 0.2]}
    spec = temperature_chart(curve, "entropy", "entropy, nats", 0.7, log=False).to_dict()
    assert spec["layer"][1]["data"]["values"] == [{"temperature": 0.7}]
    assert [point["value"] for point in values(spec)] == [0.1, 0.2]


def test_a_chart_becomes_an_svg_image_with_its_labels():
    image = to_svg(candidates_chart(STEP, 10))
    assert image.startswith("<svg")
    assert "top-p keeps 2" in image


def test_layers_and_parts():
    rows = layers_chart([512, 2**30]).to_dict()["data"]["values"]
    assert [row["kind"] for row in rows] == ["local: sees the last 512 tokens", "global: sees every earlier token"]
    rows = values(parts_chart({"embedding": 3_000_000, "MLP": 1_000_000}).to_dict())
    assert [row["label"] for row in rows] == ["3 M · 75.0%", "1 M · 25.0%"]


def test_the_drawing_names_the_sizes():
    class Shape:
        family, n_heads, head_dim, d_mlp = "gemma3", 4, 256, 2048

    drawing = block_drawing(Shape)
    assert "4 heads x 256" in drawing
    assert "gated MLP\\n2,048 units" in drawing
    assert drawing.count('" norm"') == 4
    Shape.family = "apertus"
    assert "xIELU MLP" in block_drawing(Shape)
    assert block_drawing(Shape).count('" norm"') == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "`↵` is rank 2 of 262,144; `·a` was likelier at 50.0% against 25.0%; 2 tokens survived; this one was drawn "
            "with 30.0%.",
        ),
        (
            {"rank": 1, "kept_final": 1, "probability_final": 1.0},
            "`↵` is rank 1 of 262,144; the model's own first choice at 25.0%; no other token survived the filters.",
        ),
        (
            {"probability_final": 0.0},
            "`↵` is rank 2 of 262,144; `·a` was likelier at 50.0% against 25.0%; the filters had removed it, and it "
            "was picked by hand.",
        ),
    ],
)
def test_the_sentence_is_built_from_the_numbers(changes, sentence):
    assert words.chosen(replace(STEP, **changes), 262_144) == sentence


def test_bars_keep_a_row_each_and_leave_out_what_is_unknown():
    spec = bars_chart(['say "a"', "b", "b"], {"x": (3, None, 1), "y": (4, 2, 2)}, "tokens").to_dict()
    rows = [(row["row"], row["name"], row["series"], row["value"]) for row in values(spec)]
    assert rows == [
        (0, 'say "a"', "x", 3),
        (2, "b", "x", 1),
        (0, 'say "a"', "y", 4),
        (1, "b", "y", 2),
        (2, "b", "y", 2),
    ]
    axis = spec["layer"][0]["encoding"]["y"]["axis"]
    assert json.loads(axis["labelExpr"].removesuffix("[datum.value]")) == ['say "a"', "b", "b"]
    assert spec["layer"][0]["encoding"]["color"]["scale"] == {"domain": ["x", "y"], "range": list(SERIES[:2])}
    assert "say" in to_svg(bars_chart(['say "a"'], {"x": (3,)}, "tokens"))


def test_the_verdict_on_tokenizers_is_built_from_the_numbers():
    found = Verdict("gemma3", 62, 11, (Rival("apertus", 72, better=1, worse=7, same=3, chance=0.0703125),))
    assert words.fewest_tokens(found, 12) == [
        "Over the 11 of 12 lines that all can write, **gemma3** needs 62 tokens, the fewest of all.",
        "**apertus** needs 72, 16% more: more on 7 lines, fewer on 1, the same on 3.",
        "This says little about other texts: 11 lines, picked by hand, and the winner named afterwards. If a coin "
        "decided each line on which gemma3 and apertus differ, a result as uneven as 7 to 1 would come up 7.0% of the "
        "time.",
    ]
    tie = replace(found, words=12, rivals=(replace(found.rivals[0], total=62),))
    assert words.fewest_tokens(tie, 12)[:2] == [
        "Over 12 lines, **gemma3** and **apertus** need 62 tokens each, the fewest of all.",
        "**apertus**: more on 7 lines, fewer on 1, the same on 3.",
    ]


def test_the_sentence_on_vocabularies():
    said = words.largest_vocabulary({"char": 28, "gemma3": 262_144, "apertus": 131_072})
    assert said.startswith("**gemma3**'s vocabulary is 2.0 times apertus's, 9,362 times char's. ")
    assert words.largest_vocabulary({"char": 28}).startswith("A larger vocabulary")


@pytest.fixture(scope="module")
def small():
    return load(open_reference("gemma3-mini-base"), dtype="float32", device="cpu")


def test_charts_of_the_inside_are_valid_and_keep_equal_tokens_apart(small):
    """``to_dict`` checks them against Vega-Lite's schema."""
    ids = small.tokenizer.encode("the the the the")
    found, count = evolution(small, ids), len(ids)
    grid = lens.grid(small, ids, range(count))
    names = {i: small.tokenizer.text(i) for i in {*grid.after.top_id.ravel().tolist(), *grid.final_id.tolist()}}
    chart = lens_chart(grid, found["tokens"], names, "rank of the final choice").to_dict()
    assert {row["column"] for row in chart["data"]["values"]} == set(range(count))
    parts = attribution(small, inside(small, ids, count - 1), 300)
    rows = values(parts_of_logit_chart(parts).to_dict())
    assert sum(row["value"] for row in rows) == pytest.approx(float(parts.logit), abs=1e-3)
    heads_chart(np.asarray(parts.heads), "x").to_dict()
    depth_chart(along(found, "lens_rank_of_final"), "rank", STATES, "log").to_dict()
    dimensions_chart(found["layers"]).to_dict()
    written_chart([(" a", 1.0), (" a", -2.0)]).to_dict()
    outcome_chart(what_if(small, ids, [Edit(0, 1)])).to_dict()
    keys = attended(np.array([0.5, 0.25, 0.25]), ["a", "a", "a"])
    assert len(values(attended_chart(keys).to_dict())) == 3
    head_heatmap(np.zeros((6, 4)), "x", ".2f", (0.0, 1.0), [True] * 6).to_dict()


def test_charts_of_weights_are_valid(small):
    checkpoint = small.checkpoint
    rows = health(checkpoint, chosen(checkpoint, layer=1), spectra=True)["tensors"]
    by_depth_chart(rows, "std", "deviation", log=True).to_dict()
    matrix = next(row for row in rows if row["role"] == "W_up")
    spectrum_chart(matrix).to_dict()
    spectrum_chart({**matrix, "power_law_xmin": None}).to_dict()
    bars = values(histogram_chart({"a": matrix["histogram"], "b": matrix["histogram"]}).to_dict())
    assert sum(row["share"] for row in bars) == pytest.approx(2)
    shares_chart({"W_Q": 0.75, "W_K": 0.25}).to_dict()
