"""Weights: read once with progress, then looked at by depth, one by one, and two layers side by side."""

from typing import Any

import streamlit as st

from dashboard import services, words
from dashboard.charts.weights import by_depth_chart, histogram_chart, shares_chart, spectrum_chart
from dashboard.components import draw, errors

Rows = list[dict[str, Any]]
READ, SPECTRA = "weights.read", "weights.spectra"
AT_ONCE = 20_000_000
"""Parameters up to which weights are read without being asked."""
NUMBERS = {
    "std": ("Standard deviation", False),
    "max_abs": ("Largest |x|", True),
    "excess_kurtosis": ("Excess kurtosis (0: normal)", False),
    "zeros": ("Share of exact zeros", False),
    "small": ("Share with |x| at most 0.01", False),
    "outliers": ("Entries beyond 6 deviations", False),
    "l2_norm": ("L2 norm", False),
}
SPECTRAL = {
    "spectral_norm": ("Spectral norm", False),
    "stable_rank": ("Stable rank", False),
    "effective_rank": ("Effective rank", False),
    "power_law_alpha": ("Power-law exponent", False),
    "power_law_ks": ("Distance of the power law (KS)", False),
}


def rows_of(reference: str) -> Rows | None:
    """Statistics of all tensors, once they were asked for; with spectra if those were."""
    names = services.weight_names(reference)
    small = services.preview(reference).parameters <= AT_ONCE
    row = st.container(horizontal=True, vertical_alignment="center")
    if not small and st.session_state.get(READ) != reference:
        if not row.button("Read the weights", type="primary", icon=":material/monitor_heart:"):
            st.info("Every tensor is read once, block by block; it takes some seconds for each GB.")
            return None
        st.session_state[READ] = reference
        st.rerun()
    if row.button("Singular values too", icon=":material/ssid_chart:", help="Slower; what is finished is kept."):
        st.session_state[SPECTRA] = reference
    spectra = st.session_state.get(SPECTRA) == reference
    rows: Rows = []
    bar = st.progress(0.0, "Reading the weights")
    for done, name in enumerate(names, 1):
        found = dict(services.tensor_statistics(reference, name))
        if spectra and len(found["shape"]) == 2:
            found |= services.tensor_spectrum(reference, name)
        rows.append(found)
        bar.progress(done / len(names), f"{name}, {done} of {len(names)}; any click stops it, and nothing is lost")
    bar.empty()
    return rows


def first_screen(reference: str, rows: Rows) -> None:
    """What a person should know."""
    layout = services.attention_layout(reference)
    left, right = st.columns([3, 2], gap="large")
    with left:
        for sentence in [*words.health(rows), *words.layout(layout)]:
            st.markdown(f"- {sentence}")
    with right:
        st.markdown("**Share of the parameters**")
        draw(shares_chart(layout["share_by_role"]))


def _plotted(rows: Rows) -> Rows:
    """Rows of layers with the numbers that charts show."""
    return [
        {
            **row,
            "max_abs": None if row["max"] is None else max(abs(row["min"]), abs(row["max"])),
            "zeros": row["sparsity"]["0"],
            "small": row["sparsity"]["1e-2"],
        }
        for row in rows
    ]


@st.fragment
def by_depth(rows: Rows) -> None:
    """One number along depth for every role."""
    numbers = NUMBERS | (SPECTRAL if any("singular_values" in row for row in rows) else {})
    kinds = {"matrices": lambda row: len(row["shape"]) == 2, "norms and scalars": lambda row: len(row["shape"]) < 2}
    left, right = st.columns([3, 2])
    field = left.selectbox("Number", list(numbers), format_func=lambda name: numbers[name][0], key="weights_number")
    kind = right.segmented_control("Of", list(kinds), default="matrices", required=True, key="weights_kind")
    title, log = numbers[field]
    chosen = [row for row in _plotted(rows) if row["layer"] is not None and kinds[kind](row) and field in row]
    if field == "power_law_alpha":
        st.caption("An exponent alone is no verdict: read it with its KS distance, and mind where no fit was possible.")
    draw(by_depth_chart(chosen, field, title, log and all(row[field] for row in chosen)))


@st.fragment
def table(reference: str, rows: Rows) -> None:
    """Every tensor; a click opens it."""
    shown = [
        {
            "tensor": row["name"],
            "role": row["role"],
            "layer": row["layer"],
            "shape": " x ".join(map(str, row["shape"])),
            "dtype": row["dtype"],
            "parameters": row["parameters"],
            "mean": row["mean"],
            "std": row["std"],
            "min": row["min"],
            "max": row["max"],
            "zeros": row["sparsity"]["0"],
            "kurtosis": row["excess_kurtosis"],
            "outliers": row["outliers"],
            "dead rows": row["dead_rows"],
            "dead columns": row["dead_columns"],
            "NaN, inf": row["nonfinite"],
            **{field: row[field] for field in SPECTRAL if field in row},
        }
        for row in rows
    ]
    event = st.dataframe(
        shown,
        hide_index=True,
        height=360,
        on_select="rerun",
        selection_mode="single-row",
        key="weights.table",
        column_config={"zeros": st.column_config.NumberColumn(format="percent")},
    )
    st.download_button(
        "JSON", lambda: services.weights_json(reference, rows), "weights.json", icon=":material/download:"
    )
    picked = event["selection"]["rows"]
    if not picked or picked[0] >= len(rows):
        st.caption("Select a row to see how its numbers are spread.")
        return
    row = rows[picked[0]]
    st.markdown(f"**{row['name']}**")
    left, right = st.columns(2, gap="large")
    with left:
        if row["histogram"] is None:
            st.warning(
                f"It holds {row['nonfinite']:,} numbers that are NaN or infinite, so there is no spread to show."
            )
        else:
            percentiles = ", ".join(f"{q} %: {value:.3g}" for q, value in row["abs_percentiles"].items())
            st.caption(f"Percentiles of |x|: {percentiles}.")
            draw(histogram_chart({row["name"]: row["histogram"]}))
    with right:
        if row.get("singular_values"):
            law = row["power_law_status"]
            if row["power_law_alpha"] is not None:
                law = f"exponent {row['power_law_alpha']:.2f}, KS distance {row['power_law_ks']:.3f}, {law}"
            st.caption(f"Power law of the squared values: {law}.")
            draw(spectrum_chart(row))
        elif len(row["shape"]) == 2:
            st.caption("Press **Singular values too** above for its spectrum.")


@st.fragment
def side_by_side(rows: Rows) -> None:
    """The same tensor of two layers."""
    layers = sorted({row["layer"] for row in rows if row["layer"] is not None})
    families = sorted({row["name"].split(".", 2)[2] for row in rows if row["layer"] is not None})
    row = st.columns([2, 1, 1])
    family = row[0].selectbox("Tensor", families, key="weights_family")
    pair = [
        int(row[1].number_input("Layer", layers[0], layers[-1], layers[0])),
        int(row[2].number_input("and layer", layers[0], layers[-1], layers[-1])),
    ]
    found = [r for layer in pair for r in rows if r["name"] == f"layers.{layer}.{family}"]
    spread = {r["name"]: r["histogram"] for r in found if r["histogram"] is not None}
    if spread:
        draw(histogram_chart(spread))
    numbers = ["mean", "std", "min", "max", "l2_norm", "excess_kurtosis", "outliers", "nonfinite"]
    st.dataframe([{"number": n, **{f"layer {r['layer']}": r[n] for r in found}} for n in numbers], hide_index=True)


def health(reference: str) -> None:
    """All of it."""
    with errors():
        rows = rows_of(reference)
        if rows is None:
            return
        first_screen(reference, rows)
        st.subheader("By depth", anchor=False)
        by_depth(rows)
        st.subheader("Every tensor", anchor=False)
        table(reference, rows)
        st.subheader("Two layers side by side", anchor=False)
        side_by_side(rows)
