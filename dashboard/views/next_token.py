"""The next token: what each filter leaves of the distribution, as sliders move."""

import streamlit as st

from dashboard import services, words
from dashboard.charts.sampling import candidates_chart, funnel_chart, temperature_chart
from dashboard.charts.style import to_svg
from dashboard.components import draw, errors
from dashboard.views.settings import sliders

ROWS, MORE_ROWS = 20, 40


@st.fragment
def next_token(key: services.ModelKey, ids: tuple[int, ...]) -> None:
    """Sliders and what they do; only this part reruns when one moves."""
    settings = sliders()
    with errors():
        step = services.next_token(key, ids, settings)
        vocabulary = services.model(key).config.vocab
        st.markdown(words.prediction(step))

        left, right = st.columns([3, 2], gap="large")
        with left:
            row = st.container(horizontal=True, vertical_alignment="center")
            more = row.toggle("Show more candidates", key="sampling.more")
            chart = candidates_chart(step, MORE_ROWS if more else ROWS)
            row.download_button(
                "SVG", lambda: to_svg(chart), "next-token.svg", type="tertiary", icon=":material/download:"
            )
            draw(chart)
        with right:
            top, bottom = st.columns(2), st.columns(2)
            top[0].metric("Entropy of the model", f"{step.entropy_raw_nats:.2f} nats", border=True)
            top[1].metric("Entropy after filters", f"{step.entropy_final_nats:.2f} nats", border=True)
            bottom[0].metric("First choice, model", f"{step.top1_raw:.1%}", border=True)
            bottom[1].metric(
                "First choice, final",
                f"{step.candidates[0].probability_final:.1%}",
                border=True,
                help=f"After temperature alone: {step.top1_temperature:.1%}.",
            )
            st.markdown("**From the whole vocabulary to the survivors**")
            draw(funnel_chart(step, vocabulary))
            _along_temperature(key, ids, settings)


def _along_temperature(key: services.ModelKey, ids: tuple[int, ...], settings: services.Settings) -> None:
    curve = services.temperature_curve(key, ids, settings.top_k, settings.top_p, settings.min_p)
    st.markdown(
        "**Along the temperature axis**", help="The other filters stay as set; the line marks the present value."
    )
    left, right = st.columns(2)
    with left:
        draw(temperature_chart(curve, "entropy", "entropy, nats", settings.temperature, False))
    with right:
        draw(temperature_chart(curve, "kept", "survivors", settings.temperature, True))
