"""How the stream grows: norms, spread, what sublayers write, and the lens."""

import streamlit as st

from dashboard import services, words
from dashboard.charts.layers import STATES, along, depth_chart, dimensions_chart, lens_chart
from dashboard.charts.style import PARTS
from dashboard.components import draw, errors
from jaxcore.lens import MOST

COLOURS = ("probability of its first choice", "probability of the final choice", "rank of the final choice")
SHOWN = 12
"""Positions whose tokens fit side by side."""
QUANTITIES = {
    "l2_norm_mean": "mean L2 norm",
    "std": "standard deviation",
    "max": "largest entry",
    "min": "smallest entry",
    "mean": "mean entry",
    "sparsity": "share below 0.1 % of the deviation",
}


@st.fragment
def prediction(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """What each layer would say."""
    with errors():
        found = services.evolution(key, ids)
        for sentence in words.growth(found["layers"]):
            st.markdown(f"- {sentence}")
        left, right = st.columns(2, gap="large")
        with left:
            st.markdown("**Rank of the answer**", help="1: the lens's first choice. Logarithmic.")
            draw(depth_chart(along(found, "lens_rank_of_final"), "rank", STATES, "log"))
        with right:
            st.markdown("**Distance from the final prediction**", help="KL(final || layer).")
            draw(depth_chart(along(found, "lens_kl_to_final"), "nats", STATES, "symlog"))
        st.markdown(
            "**The lens over the text**",
            help="Each cell: what the layer would say next, had the rest of the model been skipped.",
        )
        count = len(ids)
        row = st.columns([2, 3])
        colour = row[0].selectbox("Darker", COLOURS, 1, key="lens_colour", bind="query-params")
        first = max(count - SHOWN, 0)
        if count > SHOWN:
            first = row[1].slider("First token shown", 0, count - SHOWN, first, key="lens_first")
        positions = tuple(range(first, min(first + min(SHOWN, MOST), count)))
        grid, tokenizer = services.lens_grid(key, ids, positions), services.model(key).tokenizer
        wanted = {*grid.after.top_id[:, :, 0].ravel().tolist(), *grid.final_id.tolist()}
        names = {i: tokenizer.text(i) for i in wanted}
        draw(lens_chart(grid, [found["tokens"][p] for p in positions], names, colour))


@st.fragment
def stream(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """The stream in numbers."""
    with errors():
        found = services.evolution(key, ids)
        field = st.selectbox("Quantity", list(QUANTITIES), format_func=QUANTITIES.__getitem__, key="stream_quantity")
        left, right = st.columns(2, gap="large")
        with left:
            st.markdown(f"**The stream: {QUANTITIES[field]}**")
            draw(depth_chart(along(found, field), QUANTITIES[field], STATES))
        with right:
            st.markdown("**What each sublayer writes**", help="Mean L2 norm of what joins the stream.")
            wrote = {
                "attention": [(row["layer"], float(row["attn_out_norm_mean"])) for row in found["resid_mid"]],
                "MLP": [(row["layer"], float(row["mlp_out_norm_mean"])) for row in found["layers"][1:]],
            }
            draw(depth_chart(wrote, "mean L2 norm", {name: PARTS[name] for name in wrote}))
        left, right = st.columns(2, gap="large")
        with left:
            st.markdown("**Does a sublayer add to the stream or turn it?**", help="Cosine of what it writes with it.")
            cosines = {
                "attention": [(row["layer"], float(row["attn_out_cosine_with_stream"])) for row in found["resid_mid"]],
                "MLP": [(row["layer"], float(row["mlp_out_cosine_with_stream"])) for row in found["layers"][1:]],
            }
            draw(depth_chart(cosines, "cosine", {name: PARTS[name] for name in cosines}))
        with right:
            st.markdown("**Leading dimensions**", help="The five with the largest mean |x| of every layer.")
            draw(dimensions_chart(found["layers"]))
        st.download_button("JSON", lambda: services.evolution_json(key, ids), "layers.json", icon=":material/download:")
