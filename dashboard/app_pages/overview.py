"""Overview: which model this is, how it is built, and where to begin."""

import streamlit as st

from dashboard import services, state
from dashboard.charts.overview import block_drawing, layers_chart, parts_chart
from dashboard.components import draw, errors, provenance
from dashboard.examples import examples
from dashboard.words import amount
from jaxcore.catalogue import CATALOGUE, Shipped

SAMPLING = "app_pages/sampling.py"


def welcome() -> None:
    """What a person sees before a model is loaded."""
    st.markdown(
        "Open a language model up: see how it chooses each word while you move temperature, top-k, top-p and min-p, "
        "and follow every token it writes back to the numbers behind it."
    )
    st.info(
        "**Load a model in the sidebar to begin.** `gemma3-270m` is the real Gemma 3 270M; the small ones were trained "
        "for this program and load at once; none needs a network. A checkpoint of your own opens from a folder, a "
        "file, or the Hugging Face hub.",
        icon=":material/arrow_back:",
    )


def facts(key: services.ModelKey) -> None:
    """Sizes, structure and origin of the loaded model."""
    found, model = services.preview(key.reference), services.model(key)
    cfg = model.config
    st.subheader(f"{found.title} · {key.reference}", anchor=False)
    row = st.columns(6)
    row[0].metric("Parameters", amount(found.parameters), border=True)
    row[1].metric("Layers", cfg.n_layers, border=True)
    row[2].metric("Heads", f"{cfg.n_heads} / {cfg.n_kv_heads}", border=True, help="Query heads / key-value heads.")
    row[3].metric("Width", f"{cfg.d_model:,}", border=True, help="Of the residual stream (d_model).")
    row[4].metric("Vocabulary", f"{cfg.vocab:,}", border=True)
    row[5].metric("Context", f"{cfg.context:,}", border=True, help="Tokens it can read at once.")

    if len(set(cfg.windows)) > 1:
        st.markdown("**Layers**")
        draw(layers_chart(cfg.windows))
    left, right = st.columns([2, 3], gap="large")
    with left:
        st.markdown("**Parameters by part**")
        draw(parts_chart(found.parts))
    with right:
        st.markdown(f"**One of {cfg.n_layers} layers**")
        st.graphviz_chart(block_drawing(cfg), width="stretch")
    prompts(key)
    with st.expander("Where it came from, and every setting"):
        memory = amount(services.memory(found.checkpoint, key.dtype), "B")
        st.markdown(f"{memory} of weights as {model.dtype} on {model.device}; files in `{model.checkpoint.path}`.")
        entry = CATALOGUE.get(key.reference)
        if isinstance(entry, Shipped):
            st.markdown(entry.card.replace("# ", "#### ", 1))
        for note in model.checkpoint.notes:
            st.markdown(f"- {note}")
        settings = {name: str(value) for name, value in vars(cfg).items() if name != "is_global"}
        st.dataframe([{"setting": n, "value": v} for n, v in settings.items()], hide_index=True)


def prompts(key: services.ModelKey) -> None:
    """Prompts to begin with."""
    st.markdown("**Begin with a prompt**")
    row = st.container(horizontal=True)
    for name, prompt in examples(services.model(key)).items():
        if row.button(name, help=prompt):
            state.set_prompt(prompt)
            st.switch_page(SAMPLING)


st.title("Clearbox")
key = state.active()
if key is None:
    welcome()
else:
    with errors():
        facts(key)
        provenance(key)
