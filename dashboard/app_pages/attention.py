"""Attention: what each head looks at."""

import streamlit as st

from dashboard import services
from dashboard.charts.attention import attended_chart
from dashboard.chips import shown
from dashboard.components import draw, errors, needs_model, provenance
from dashboard.views.growing_text import growing_text
from dashboard.views.heads import chosen, heads, statistics
from dashboard.views.prompt import plain_text
from dashboard.words import looks_at
from jaxcore.attention import attended

st.title("Attention")
key = needs_model()
with errors():
    _, prompt_ids = plain_text(key)
    live = st.empty()

    def newest(ids: tuple[int, ...]) -> None:
        """What the token just written looks at."""
        ids = services.readable(key, ids)
        layer, head = chosen(services.model(key).config)
        tokens = [shown(text) for text in services.model(key).tokenizer.texts(ids)]
        leading = attended(services.newest_pattern(key, ids)[layer, head], tokens)
        with live.container():
            st.markdown(f"L{layer}H{head}: {looks_at(tokens[-1], len(ids) - 1, leading)}")
            draw(attended_chart(leading))

    ids = services.readable(key, growing_text(key, prompt_ids, newest))
    services.check_patterns(key, ids)
    heads(key, ids)
    statistics(key, ids)
provenance(key)
