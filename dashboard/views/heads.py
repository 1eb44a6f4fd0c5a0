"""Heads: all of them small, one of them large, and what a token looks at."""

from typing import Any

import numpy as np
import streamlit as st

from dashboard import services, words
from dashboard.charts.attention import attended_chart, head_heatmap
from dashboard.chips import shown
from dashboard.components import draw, errors
from dashboard.patterns import head_grid, head_map
from jaxcore.attention import SHOWN, attended, without_first

LAYER, HEAD, QUERY = "attention.layer", "attention.head", "attention.query"
GRID_CELLS = 144
"""Heads drawn small at once."""
STATISTICS = {
    "first": ("Share on the first token", ".0%", 1.0),
    "previous": ("Share on the token before", ".0%", 1.0),
    "own": ("Share on the token itself", ".0%", 1.0),
    "induction": ("Induction score", ".2f", 1.0),
    "entropy_share": ("Entropy, share of the largest possible", ".0%", 1.0),
    "entropy_nats": ("Entropy, nats", ".1f", None),
    "distance": ("Mean distance, tokens", ".0f", None),
}
MEAN = "mean of all heads"


@st.fragment
def heads(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """Which tokens are shown, all heads, and the chosen one."""
    cfg = services.model(key).config
    tokens = [shown(text) for text in services.model(key).tokenizer.texts(ids)]
    start = 0
    if len(ids) > SHOWN:
        last = len(ids) - SHOWN
        start = st.slider("First token shown", 0, last, last, key="first_shown", help=f"{SHOWN} are shown at once.")
    stop = min(start + SHOWN, len(ids))
    row = st.container(horizontal=True, vertical_alignment="center")
    sink = row.toggle(
        "Hide the first token",
        key="hide_first",
        bind="query-params",
        help="Many heads rest on the first token when they have nothing to say. Hidden, the rest is brought to 100 %.",
    )
    log = row.toggle("Logarithmic colour", key="log_colour", bind="query-params", help="Else the square root.")
    with errors():
        row.download_button("NPZ", lambda: services.patterns_npz(key, ids), "attention.npz", icon=":material/download:")
        whole = services.patterns(key, ids, start, stop)
        weights = without_first(whole) if sink else whole
        if sink:
            st.caption(":orange[The first token is hidden and every row brought back to 100 %.]")
        left, right = st.columns([2, 3], gap="large")
        with left:
            _all_heads(cfg, weights[..., start:stop], log)
        with right:
            _one_head(cfg, weights, tokens, start, stop, log)


def chosen(cfg: Any) -> tuple[int, int]:
    """The layer and head on the page; of another model, the nearest."""
    layer, head = st.session_state.get(LAYER, 0), st.session_state.get(HEAD, 0)
    return min(layer, cfg.n_layers - 1), min(head, cfg.n_heads - 1)


def choose(layer: int, head: int) -> None:
    st.session_state[LAYER], st.session_state[HEAD] = layer, head


def _kind(cfg: Any, layer: int) -> str:
    return f"local: sees {cfg.windows[layer]:,} tokens" if cfg.windows[layer] < max(cfg.windows) else "sees all"


def _all_heads(cfg: Any, weights: np.ndarray, log: bool) -> None:
    at_once = max(1, GRID_CELLS // cfg.n_heads)
    layer, head = chosen(cfg)
    first = 0
    if at_once < cfg.n_layers:
        pages = list(range(0, cfg.n_layers, at_once))
        first = st.select_slider(
            "Layers",
            pages,
            layer // at_once * at_once,
            format_func=lambda n: f"{n} to {min(n + at_once, cfg.n_layers) - 1}",
        )
    numbers = range(first, min(first + at_once, cfg.n_layers))
    st.markdown("**All heads**", help="Queries downwards, keys to the right; darker is more. Click one to open it.")
    inside = first <= layer < first + len(numbers)
    head_grid(
        weights[first : first + len(numbers)],
        [(n, _kind(cfg, n)) for n in numbers],
        selected=(layer - first) * cfg.n_heads + head if inside else None,
        log=log,
        key="attention.grid",
        on_click=lambda at: choose(first + at // cfg.n_heads, at % cfg.n_heads),
    )


def _one_head(cfg: Any, weights: np.ndarray, tokens: list[str], start: int, stop: int, log: bool) -> None:
    layer, head = chosen(cfg)
    row = st.columns(2)
    new_layer = row[0].number_input("Layer", 0, cfg.n_layers - 1, layer)
    new_head = row[1].number_input("Head", 0, cfg.n_heads - 1, head)
    if (new_layer, new_head) != (layer, head):
        choose(int(new_layer), int(new_head))
        st.rerun(scope="fragment")
    kv = "" if cfg.n_kv_heads == cfg.n_heads else f", key/value head {head // (cfg.n_heads // cfg.n_kv_heads)}"
    st.markdown(f"**L{layer}H{head}** · {_kind(cfg, layer)}{kv}")
    query = min(max(st.session_state.get(QUERY, stop - 1), start), stop - 1)

    def pick(row: int) -> None:
        st.session_state[QUERY] = start + row

    head_map(
        weights[layer, head][:, start:stop],
        tokens[start:stop],
        tokens[start:stop],
        first_query=start,
        first_key=start,
        selected=query - start,
        log=log,
        key="attention.map",
        on_click=pick,
    )
    if start:
        outside = np.nansum(weights[layer, head][:, :start], axis=-1).mean()
        st.caption(f"Tokens {start} to {stop - 1} are shown; {outside:.0%} of their attention lies on earlier ones.")
    _one_query(weights, tokens, layer, head, query, start)


def _one_query(weights: np.ndarray, tokens: list[str], layer: int, head: int, query: int, start: int) -> None:
    over = st.segmented_control(
        "Of", [f"L{layer}H{head}", MEAN], default=f"L{layer}H{head}", required=True, label_visibility="collapsed"
    )
    rows = weights[:, :, query - start]
    row = np.nanmean(rows, axis=(0, 1)) if over == MEAN else rows[layer, head]
    leading = attended(row, tokens)
    st.markdown(words.looks_at(tokens[query], query, leading))
    if leading:
        draw(attended_chart(leading))


@st.fragment
def statistics(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """One number for every head over the whole text."""
    st.subheader("Every head in numbers", anchor=False)
    with errors():
        found, cfg = services.head_statistics(key, ids), services.model(key).config
        for sentence in words.head_facts(found):
            st.markdown(f"- {sentence}")
        field = st.selectbox(
            "Number",
            list(STATISTICS),
            format_func=lambda name: STATISTICS[name][0],
            key="statistic",
            bind="query-params",
        )
        title, number, largest = STATISTICS[field]
        values = found[field]
        left, right = st.columns([3, 2], gap="large")
        with left:
            local = [window < max(cfg.windows) for window in cfg.windows]
            draw(head_heatmap(values.tolist(), title, number, (0.0, largest or float(values.max()) or 1.0), local))
        rows = [
            {
                "head": f"L{layer}H{head}",
                **{STATISTICS[name][0]: float(found[name][layer, head]) for name in STATISTICS},
            }
            for layer in range(cfg.n_layers)
            for head in range(cfg.n_heads)
        ]
        columns = {
            title: st.column_config.NumberColumn(format="percent" if number.endswith("%") else "%.2f")
            for title, number, _ in STATISTICS.values()
        }
        right.dataframe(rows, hide_index=True, height=420, column_config=columns)
