"""What if: parts of the model removed, weakened, or as on another prompt."""

import numpy as np
import streamlit as st

from dashboard import services, words
from dashboard.charts.layers import heads_chart, outcome_chart
from dashboard.components import draw, errors
from jaxcore.whatif import Edit, Kind, Removed

EDITS, REMOVED = "whatif.edits", "whatif.removed"
KINDS: dict[Kind, str] = {
    "zero": "removed",
    "mean": "its mean over the prompt instead",
    "scale": "scaled",
    "patch": "as on another prompt",
}


def spelled(edit: Edit) -> str:
    """An edit in words."""
    part = f"L{edit.layer} MLP" if edit.head is None else f"L{edit.layer}H{edit.head}"
    return f"{part} {KINDS[edit.kind]}" + (f" by {edit.factor:g}" if edit.kind == "scale" else "")


@st.fragment
def edits(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """Choose changes, see the next token before and after."""
    cfg = services.model(key).config
    row = st.columns([1, 1, 2, 2], vertical_alignment="bottom")
    layer = int(row[0].number_input("Layer", 0, cfg.n_layers - 1, 0, key="whatif_layer"))
    part = row[1].selectbox(
        "Part", [*range(cfg.n_heads), "MLP"], format_func=lambda p: p if p == "MLP" else f"head {p}", key="whatif_part"
    )
    kind: Kind = row[2].selectbox("Becomes", list(KINDS), format_func=KINDS.__getitem__, key="whatif_kind")
    factor, other = 0.0, ()
    if kind == "scale":
        factor = row[3].slider("Factor", -2.0, 3.0, 0.5, 0.1, key="whatif_factor")
    other_prompt = ""
    if kind == "patch" or any(edit.kind == "patch" for edit in _made(key)):
        other_prompt = row[3].text_input("Other prompt", key="whatif_other", placeholder="aligned from the end")
    edit = Edit(layer, None if part == "MLP" else int(part), kind, factor)
    buttons = st.container(horizontal=True)
    if buttons.button("Add", icon=":material/add:", type="primary"):
        kept = [e for e in _made(key) if (e.layer, e.head) != (edit.layer, edit.head)]
        st.session_state[EDITS] = key, (*kept, edit)
    if buttons.button("Undo all", icon=":material/undo:"):
        st.session_state.pop(EDITS, None)
    sweep = buttons.button("Remove each part in turn", icon=":material/search:")
    made = _made(key)
    with errors():
        if other_prompt:
            other = services.encode(key, other_prompt, services.model(key).tokenizer.bos is not None)
        if made:
            outcome = services.what_if(key, ids, made, other)
            st.markdown(f"With {'; '.join(map(spelled, made))}: {words.consequence(outcome)}")
            draw(outcome_chart(outcome))
        else:
            st.info("Choose a part and press **Add** to see the next token without it.", icon=":material/science:")
        if sweep:
            _sweep(key, ids)
        done = st.session_state.get(REMOVED)
        if done and done[0] == (key, ids):
            _show(done[1], cfg.n_heads)


def _made(key: services.ModelKey) -> tuple[Edit, ...]:
    """The edits made to this model."""
    owner, made = st.session_state.get(EDITS, (None, ()))
    return made if owner == key else ()


def _sweep(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    layers, found = services.model(key).config.n_layers, []
    bar = st.progress(0.0, "Removing each part")
    for done, parts in enumerate(services.removals(key, ids), 1):
        found += parts
        bar.progress(done / layers, f"Layer {done} of {layers}")
        st.session_state[REMOVED] = (key, ids), tuple(found)
    bar.empty()


def _show(found: tuple[Removed, ...], heads: int) -> None:
    strongest = sorted(found, key=lambda part: -part.kl)
    st.markdown(words.most_needed(strongest[:3]))
    left, right = st.columns([3, 2], gap="large")
    changes = np.array([part.logit_change for part in found if part.head is not None]).reshape(-1, heads)
    with left:
        st.markdown("**Without each head: change of the answer's logit**")
        draw(heads_chart(changes.tolist(), "change of the logit"))
    right.dataframe(
        [
            {
                "part": f"L{part.layer} MLP" if part.head is None else f"L{part.layer}H{part.head}",
                "KL, nats": part.kl,
                "answer's logit": part.logit_change,
            }
            for part in strongest
        ],
        hide_index=True,
        height=420,
    )
