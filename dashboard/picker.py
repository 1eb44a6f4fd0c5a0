"""The sidebar's choice of a model: what it is and takes, download, load, unload."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from dashboard import services, state
from dashboard.components import errors
from dashboard.words import amount
from jaxcore.catalogue import CATALOGUE, Progress

ON_DISK, ON_HUB = "A folder or file", "Hugging Face hub"


def model_picker() -> None:
    """Everything in the sidebar below the list of pages."""
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
                help="A Hugging Face folder (config.json and .safetensors), an Orbax folder, or a .gguf file.",
            )
        elif choice == ON_HUB:
            name = st.text_input("Name", key="hub", bind="query-params", placeholder="google/gemma-3-270m")
            reference = f"hf:{name}" if name else ""
        state.look_at(None)
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
    state.look_at(reference)
    if found.config.vocab == 0:
        st.caption(
            f"{found.title}, {amount(found.parameters)} parameters: blocks alone, without embedding and output. "
            "There is nothing to run; the page *Weights* shows what they hold."
        )
        return
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
        if reference in CATALOGUE:
            st.caption(CATALOGUE[reference].note)
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


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A bar that long work reports to."""
    bar = st.progress(0.0, what)

    def report(share: float, text: str) -> None:
        bar.progress(min(max(share, 0.0), 1.0), text)

    yield report
    bar.empty()
