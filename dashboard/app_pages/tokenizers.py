"""Tokenizers: how real ones split the same text."""

import streamlit as st

from dashboard import services, state
from dashboard.components import errors
from dashboard.picker import progress
from dashboard.views.splits import splits
from dashboard.views.word_counts import vocabularies, word_counts
from dashboard.words import amount

ONE, MANY, VOCABULARIES = "One text", "Many words", "Vocabularies"
NOT_AT_FIRST = "char"  # it cannot write most texts


def chosen() -> list[str]:
    """The tokenizers to compare, which all open; what is wrong with others stands in their place."""
    named = services.named_tokenizers()
    active = state.active()
    own = [active.reference] if active and active.reference != "gemma3-270m" else []
    row = st.columns([3, 2], vertical_alignment="bottom")
    names = row[0].multiselect(
        "Tokenizers",
        [*named, *own],
        default=[name for name in named if name != NOT_AT_FIRST],
        wrap=True,
        key="tokenizers",
        bind="query-params",
    )
    others = row[1].text_input(
        "Others, separated by |",
        key="others",
        bind="query-params",
        placeholder="/models/x/tokenizer.json | hf:org/name",
        help="A tokenizer.json, tokenizer.model or tekken.json, a folder or .gguf that holds one, or a name on the "
        "Hugging Face hub, of which only the tokenizer is fetched.",
    )
    wanted = dict.fromkeys([*names, *(part.strip() for part in others.split("|") if part.strip())])
    return [name for name in wanted if opens(name)]


def opens(name: str) -> bool:
    """Whether a tokenizer can be used; offers to download one that is on the hub only."""
    with errors():
        plan = services.tokenizer_download(name)
        if plan is None:
            services.tokenizer(name)
            return True
        if st.button(f"Download {name}, {amount(plan.missing_bytes, 'B')}", key=f"download.{name}"):
            with progress("Downloading") as report:
                services.fetch_tokenizer(plan, report)
            st.rerun()
    return False


st.title("Tokenizers")
view = st.segmented_control(
    "View",
    [ONE, MANY, VOCABULARIES],
    default=ONE,
    required=True,
    key="show",
    bind="query-params",
    label_visibility="collapsed",
)
names = chosen()
if not names:
    st.info("Choose at least one tokenizer.", icon=":material/data_array:")
elif view == ONE:
    splits(names)
elif view == MANY:
    word_counts(names)
else:
    vocabularies(names)
st.caption("Computed with each tokenizer's own files. No special tokens are added.")
