"""Attention patterns that can be pointed at: all heads as small maps, and one head with its text."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import streamlit as st
from streamlit.components.v2 import component

Pick = Callable[[int], None]

COMMON = """
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
function paint(canvas, weights, columns, rows) {
  canvas.width = columns; canvas.height = rows;
  const image = new ImageData(columns, rows);
  weights.forEach((w, i) => image.data.set([13, 148, 136, w], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}
"""
GRID_CSS = """
.grid { display: grid; gap: 6px; align-items: center; font-size: .8rem; }
.grid .layer { opacity: .7; text-align: right; padding-right: 4px; white-space: nowrap; }
.grid canvas { width: 100%; aspect-ratio: 1; image-rendering: pixelated; border: 1px solid rgba(128, 128, 128, .35);
  border-radius: 3px; cursor: pointer; box-sizing: border-box; }
.grid canvas:hover, .grid canvas:focus-visible { border-color: currentColor; outline: none; }
.grid canvas[aria-pressed="true"] { border: 2px solid #F59E0B; }
.grid .head { text-align: center; opacity: .7; }
"""
GRID_JS = (
    COMMON
    + """
export default function ({ data, parentElement, setTriggerValue }) {
  let grid = parentElement.querySelector(".grid");
  if (!grid) { grid = document.createElement("div"); grid.className = "grid"; parentElement.appendChild(grid); }
  const all = bytes(data.weights), size = data.rows * data.columns;
  grid.style.gridTemplateColumns = `max-content repeat(${data.heads}, minmax(20px, 64px))`;
  const cells = [document.createElement("span")];
  for (let h = 0; h < data.heads; h++) {
    const head = document.createElement("span"); head.className = "head"; head.textContent = `H${h}`; cells.push(head);
  }
  data.layers.forEach((layer, l) => {
    const name = document.createElement("span"); name.className = "layer"; name.textContent = layer.name;
    name.title = layer.hint; cells.push(name);
    for (let h = 0; h < data.heads; h++) {
      const canvas = document.createElement("canvas"), at = l * data.heads + h;
      paint(canvas, all.subarray(at * size, (at + 1) * size), data.columns, data.rows);
      canvas.role = "button"; canvas.tabIndex = 0; canvas.title = `L${layer.number}H${h}`;
      canvas.setAttribute("aria-label", `Layer ${layer.number}, head ${h}`);
      canvas.setAttribute("aria-pressed", String(at === data.selected));
      canvas.onclick = () => setTriggerValue("clicked", at);
      canvas.onkeydown = (event) => { if (event.key === "Enter") canvas.onclick(); };
      cells.push(canvas);
    }
  });
  grid.replaceChildren(...cells);
}
"""
)
MAP_CSS = """
.map { display: flex; flex-wrap: wrap; gap: 1.25rem; font-size: .95rem; }
.map .picture { position: relative; flex: 1 1 20rem; max-width: 34rem; }
.map canvas { width: 100%; image-rendering: pixelated; border: 1px solid rgba(128, 128, 128, .35); cursor: crosshair;
  box-sizing: border-box; }
.map .axis { opacity: .7; font-size: .8rem; }
.map .texts { flex: 1 1 20rem; min-width: 0; }
.map .texts p { margin: .6rem 0 .2rem; opacity: .75; }
.map .line { line-height: 2; overflow-wrap: anywhere; }
.map .token { border-bottom: 2px solid transparent; border-radius: 3px; padding: 2px 0; white-space: pre-wrap;
  cursor: pointer; }
.map .token.at { border-color: #F59E0B; }
.map .cell { min-height: 1.5em; font-variant-numeric: tabular-nums; }
"""
MAP_JS = (
    COMMON
    + """
export default function ({ data, parentElement, setTriggerValue }) {
  let box = parentElement.querySelector(".map");
  if (!box) { box = document.createElement("div"); box.className = "map"; parentElement.appendChild(box); }
  const make = (tag, name) => { const e = document.createElement(tag); e.className = name; return e; };
  const weights = new Uint16Array(bytes(data.weights).buffer);
  const rows = data.queries.length, columns = data.keys.length;
  const share = (q, k) => weights[q * columns + k] / 65535;
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  const picture = make("div", "picture"), canvas = make("canvas", "");
  paint(canvas, bytes(data.shades), columns, rows);
  const axis = make("div", "axis"); axis.textContent = data.axis;
  const cell = make("div", "cell");
  picture.append(axis, canvas, cell);
  const texts = make("div", "texts");
  const line = (title, color) => {
    const p = make("p", ""), div = make("div", "line"); p.textContent = title; texts.append(p, div);
    const tokens = data.keys.map((text, k) => {
      const span = make("span", "token"); span.textContent = text;
      span.onmouseenter = () => show(k - data.offset, null);
      span.onclick = () => { const q = k - data.offset; if (q >= 0 && q < rows) setTriggerValue("clicked", q); };
      div.append(span); return span;
    });
    return { tokens, color };
  };
  const looks = line("Looks at", "13, 148, 136"), seen = line("Is looked at by", "59, 130, 246");
  const tint = (line, value, at) => line.tokens.forEach((span, k) => {
    const x = value(k); span.style.background = `rgba(${line.color}, ${0.85 * Math.sqrt(x)})`;
    span.title = percent(x); span.classList.toggle("at", k === at);
  });
  function show(q, k) {
    if (q < 0 || q >= rows) return;
    const at = q + data.offset;
    tint(looks, (key) => share(q, key), at);
    tint(seen, (key) => { const r = key - data.offset; return r >= 0 && r < rows ? share(r, at) : 0; }, at);
    const query = `“${data.queries[q]}” (${data.first_query + q})`;
    cell.textContent = k === null ? "" :
      `${query} looks at “${data.keys[k]}” (${data.first_key + k}): ${percent(share(q, k))}`;
  }
  const place = (event) => {
    const r = canvas.getBoundingClientRect();
    return [Math.min(rows - 1, Math.floor((event.clientY - r.top) / r.height * rows)),
            Math.min(columns - 1, Math.floor((event.clientX - r.left) / r.width * columns))];
  };
  canvas.onmousemove = (event) => show(...place(event));
  canvas.onclick = (event) => setTriggerValue("clicked", place(event)[0]);
  box.onmouseleave = () => show(data.selected, null);
  box.replaceChildren(picture, texts);
  show(data.selected, null);
}
"""
)
_grid = component("clearbox_heads", css=GRID_CSS, js=GRID_JS)
_map = component("clearbox_head", css=MAP_CSS, js=MAP_JS)


def shades(weights: np.ndarray, *, log: bool) -> np.ndarray:
    """How dark each weight is drawn, 0 to 255: its square root, or its logarithm from 1e-4 up; NaN is left blank."""
    clean = np.nan_to_num(weights)
    scaled = np.log10(np.maximum(clean, 1e-4)) / 4 + 1 if log else np.sqrt(clean)
    return np.rint(255 * np.clip(scaled, 0, 1)).astype(np.uint8)


def head_grid(
    weights: np.ndarray, layers: Sequence[tuple[int, str]], *, selected: int | None, log: bool, key: str, on_click: Pick
) -> None:
    """Small maps ``[layer head query key]`` of layers given as (number, what kind it is); a click gives the index."""
    data = {
        "weights": _packed(shades(weights, log=log)),
        "layers": [{"number": n, "name": f"L{n}", "hint": hint} for n, hint in layers],
        "heads": weights.shape[1],
        "rows": weights.shape[2],
        "columns": weights.shape[3],
        "selected": selected,
    }
    _grid(data=data, key=key, on_clicked_change=_clicked(key, on_click))


def head_map(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    first_query: int,
    first_key: int,
    selected: int,
    log: bool,
    key: str,
    on_click: Pick,
) -> None:
    """One head ``[query key]`` with the text; pointing at a cell or token shows weights both ways."""
    data: dict[str, Any] = {
        "weights": _packed(np.rint(65535 * np.nan_to_num(weights)).astype("<u2")),
        "shades": _packed(shades(weights, log=log)),
        "queries": list(queries),
        "keys": list(keys),
        "first_query": first_query,
        "first_key": first_key,
        "offset": first_query - first_key,
        "selected": selected,
        "axis": "queries downwards, keys to the right",
    }
    _map(data=data, key=key, on_clicked_change=_clicked(key, on_click))


def _packed(array: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _clicked(key: str, on_click: Pick) -> Callable[[], None]:
    def clicked() -> None:
        index = st.session_state[key].get("clicked")
        if index is not None:
            on_click(int(index))

    return clicked
