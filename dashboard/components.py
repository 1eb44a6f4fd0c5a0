"""Pieces that several pages share: the model picker, error boxes, clickable tokens, empty states."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from math import log10
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from dashboard import services, state
from jaxcore.catalogue import CATALOGUE
from jaxcore.session import Progress
from jaxcore.tokenizer import visible
from models.errors import OUT_OF_MEMORY, ClearboxError, is_out_of_memory

ON_DISK, ON_HUB = "A folder or file", "Hugging Face hub"


@contextmanager
def errors() -> Iterator[None]:
    """Show what the user can mend as a box in place; the rest of the page goes on."""
    try:
        yield
    except ClearboxError as error:
        st.error(str(error), icon=":material/error:")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        st.error(OUT_OF_MEMORY, icon=":material/memory:")


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A bar that long work reports to."""
    bar = st.progress(0.0, what)

    def report(share: float, text: str) -> None:
        bar.progress(min(max(share, 0.0), 1.0), text)

    yield report
    bar.empty()


def amount(count: float, unit: str = "") -> str:
    """A large number in three figures: 268 M, 1.07 GB."""
    for size, letter in ((1e9, "G" if unit else "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}{unit}"
    return f"{count:,.0f} {unit}".strip()


def model_picker() -> None:
    """The sidebar's choice of a model: what it is and takes, load, unload."""
    with st.sidebar:
        options = [*CATALOGUE, ON_DISK, ON_HUB]
        choice = st.selectbox("Model", options, key=state.MODEL, bind="query-params")
        reference = choice
        if choice == ON_DISK:
            reference = st.text_input(
                "Path",
                key="path",
                bind="query-params",
                placeholder="/models/gemma-3-1b-it",
                help="A Hugging Face folder (config.json and .safetensors), or a .gguf file.",
            )
        elif choice == ON_HUB:
            name = st.text_input("Name", key="hub", bind="query-params", placeholder="google/gemma-3-270m")
            reference = f"hf:{name}" if name else ""
        if not reference:
            st.caption("Name a checkpoint to see what it holds and how much memory it takes.")
            return
        with errors():
            plan = services.download_needed(reference)
            if plan is not None:
                _offer_download(plan)
                return
            _offer_model(reference)


def _offer_download(plan: services.Plan) -> None:
    size = amount(plan.missing_bytes, "B")
    st.caption(f"{plan.repository} at {plan.revision[:8]}: {len(plan.files)} files, kept in {plan.cache}.")
    if st.button(f"Download {size}", type="primary", width="stretch"):
        with progress("Downloading") as report:
            services.download(plan, report)
        st.rerun()


def _offer_model(reference: str) -> None:
    found = services.preview(reference)
    dtypes = ["float32", "bfloat16"]
    dtype = st.segmented_control(
        "Weights in memory as",
        dtypes,
        default=services.preferred_dtype(),
        required=True,
        key=state.DTYPE,
        persist_state="session",
        help="float32 is exact and fastest on a CPU; bfloat16 halves the memory and suits a GPU.",
    )
    key = services.key_of(found.checkpoint, dtype)
    memory = amount(services.memory(found.checkpoint, dtype), "B")
    loaded = state.active() == key
    if not loaded:
        st.caption(f"{found.title}, {amount(found.parameters)} parameters. Takes **{memory}** of memory.")
    wanted = st.query_params.get("load") == "1" and state.active() is None
    if not loaded and (st.button("Load", type="primary", width="stretch", icon=":material/bolt:") or wanted):
        with progress("Preparing") as report:
            services.make_ready(found.checkpoint, report)
        services.model(key)
        state.use(key)
        st.rerun()
    if loaded:
        st.query_params["load"] = "1"  # going to another page drops it
        st.caption(
            f":material/check_circle: Loaded: {amount(found.parameters)} parameters, {memory}, {services.device()}."
        )
        if st.button("Unload", width="stretch", icon=":material/eject:"):
            services.unload(key)
            state.use(None)
            st.query_params.pop("load", None)
            st.rerun()


def needs_model() -> services.ModelKey:
    """The loaded model; without one, say what to do and end the page here."""
    key = state.active()
    if key is None:
        st.info("Load a model in the sidebar to begin.", icon=":material/arrow_back:")
        st.stop()
    return key


def provenance(key: services.ModelKey) -> None:
    """Where the numbers on a page come from."""
    model = services.model(key)
    revision = f" at {model.checkpoint.revision[:8]}" if model.checkpoint.revision else ""
    st.caption(f"Computed from {model.reference}{revision}, {model.dtype} on {model.device}.")


@dataclass(frozen=True)
class Chip:
    """A token in a text: what it shows, the strength of its tint from 0 to 1, and what hovering tells."""

    text: str
    tint: float
    hint: str


CHIP_CSS = """
.chips { line-height: 2.1; font-size: 1rem; overflow-wrap: anywhere; }
.chip { border-bottom: 2px solid transparent; border-radius: 3px; padding: 2px 0; white-space: pre-wrap; }
.chip[role] { cursor: pointer; }
.chip[role]:hover, .chip[role]:focus-visible, .chip[aria-pressed="true"] { border-color: currentColor; outline: none; }
.prompt { opacity: .6; white-space: pre-wrap; }
"""
CHIP_JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  let box = parentElement.querySelector(".chips");
  if (!box) { box = document.createElement("div"); box.className = "chips"; parentElement.appendChild(box); }
  const prompt = document.createElement("span");
  prompt.className = "prompt";
  prompt.textContent = data.prompt;
  box.replaceChildren(prompt, ...data.chips.map((chip, i) => {
    const button = document.createElement("span");
    button.className = "chip";
    button.role = "button";
    button.tabIndex = 0;
    button.textContent = chip.text;
    button.title = chip.hint;
    button.dataset.index = i;
    button.style.background = `rgba(245, 158, 11, ${0.75 * chip.tint})`;
    button.setAttribute("aria-pressed", String(i === data.selected));
    button.onclick = () => setTriggerValue("clicked", i);
    button.onkeydown = (event) => { if (event.key === "Enter") button.onclick(); };
    return button;
  }));
}
"""
_chips = component("clearbox_chips", css=CHIP_CSS, js=CHIP_JS)


def shown(text: str) -> str:
    """A token as it stands in running text: line breaks both marked and made, nothing invisible but spaces."""
    return text.replace("\n", "↵\n") if text.strip(" ") else visible(text)


def clickable_tokens(
    chips: Sequence[Chip], *, prompt: str, selected: int | None, key: str, on_click: Callable[[int], None]
) -> None:
    """A text whose tokens are tinted and can be clicked; ``on_click`` gets the token's index."""

    def clicked() -> None:
        index = st.session_state[key].get("clicked")
        if index is not None:
            on_click(int(index))

    data: dict[str, Any] = {"prompt": prompt, "chips": [asdict(chip) for chip in chips], "selected": selected}
    _chips(data=data, key=key, on_clicked_change=clicked)


def plain_tokens(place: Any, chips: Sequence[Chip], *, prompt: str) -> None:
    """The same text while it is being written, without clicks."""
    spans = "".join(
        f'<span class="chip" style="background: rgba(245, 158, 11, {0.75 * chip.tint:.3f})">{escape(chip.text)}</span>'
        for chip in chips
    )
    place.html(f'<style>{CHIP_CSS}</style><div class="chips"><span class="prompt">{escape(prompt)}</span>{spans}</div>')


def tint_of_rank(rank: int) -> float:
    """0 for the first choice, growing with the logarithm, 1 from rank 1,000 on."""
    return min(log10(rank) / 3, 1.0)
