"""Write: text as it is generated, every token open to a click, branches side by side."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from dashboard import services, words
from dashboard.charts.sampling import candidates_chart
from dashboard.chips import Chip, clickable_tokens, plain_tokens, shown, tint_of_rank
from dashboard.components import draw, errors
from dashboard.views.settings import sliders
from jaxcore.sample import Candidate, Continuation, StepRecord, summary
from jaxcore.sampling import Settings
from jaxcore.tokenizer import visible

RUNS, REQUEST, SELECTED = "writing.runs", "writing.request", "writing.selected"
SIDE_BY_SIDE = 2
LARGEST_SEED = 2**32 - 5  # the texts written with it use the seeds after it too
TINTS = {"rank": "Darker: further down the model's own ranking.", "surprise": "Darker: less probable to the model."}


@dataclass(frozen=True)
class Run:
    """One text on the page, and what it was written from; ``branch`` names the run and step it left."""

    key: services.ModelKey
    prompt: str
    prompt_ids: tuple[int, ...]
    settings: Settings
    text: Continuation
    elapsed_s: float = 0.0
    branch: tuple[int, int] | None = None


@dataclass(frozen=True)
class Request:
    """What to write: fresh texts, one a seed, or a branch of a run with another token at one step."""

    settings: Settings
    seeds: tuple[int, ...]
    steps: int
    stop_strings: tuple[str, ...] = ()
    branch: tuple[int, int] | None = None
    forced_id: int | None = None


def writing(
    key: services.ModelKey, prompt: str, ids: tuple[int, ...], keep: Callable[[str], None] | None = None
) -> None:
    """Controls, the texts, and the step that was clicked; ``keep`` takes an answer to a chat as its next turn."""
    settings = sliders()
    _controls(settings)
    request = st.session_state.pop(REQUEST, None)
    if request is not None:
        with errors():
            _write(key, prompt, ids, request)
            st.rerun()
    runs = _runs(key)
    if not runs:
        st.info("Press **Write** to see the model continue the prompt, token by token.", icon=":material/edit_note:")
        return
    tint = st.segmented_control("Tint tokens by", list(TINTS), default="rank", required=True, key="writing.tint")
    st.caption(f"{TINTS[tint]} Click a token to see how it was chosen, and to continue with another.")
    for start in range(0, len(runs), SIDE_BY_SIDE):
        width = min(SIDE_BY_SIDE, len(runs))
        for i, column in enumerate(st.columns(width, gap="large")[: len(runs) - start], start):
            with column:
                _show_run(i, runs[i], tint, keep if runs[i].prompt_ids == ids else None)
    selected = st.session_state.get(SELECTED)
    if selected and selected[0] < len(runs) and selected[1] < len(runs[selected[0]].text.steps):
        _show_step(selected[0], selected[1], runs[selected[0]])


def _runs(key: services.ModelKey) -> tuple[Run, ...]:
    """The texts that this model wrote."""
    return tuple(run for run in st.session_state.get(RUNS, ()) if run.key == key)


def _controls(settings: Settings) -> None:
    row = st.columns([1, 1, 1, 2], vertical_alignment="bottom")
    steps = row[0].number_input("Tokens", 1, 2000, 40, key="steps", bind="query-params")
    count = row[1].number_input("Texts at once", 1, 4, 1, key="texts", bind="query-params")
    seed = row[2].number_input("Seed", 0, LARGEST_SEED, 0, key="seed", bind="query-params")
    stop = row[3].text_input("Stop strings, separated by |", key="stop", bind="query-params", placeholder="none")
    stops = tuple(part.replace("\\n", "\n") for part in stop.split("|") if part)
    asked = Request(settings, tuple(range(seed, seed + count)), steps, stops)
    buttons = st.container(horizontal=True)
    if buttons.button("Write", type="primary", icon=":material/play_arrow:"):
        _ask(asked)
    buttons.button("New seed", icon=":material/casino:", on_click=_new_seed, args=(asked,))
    if buttons.button("Greedy", icon=":material/trending_flat:", help="The likeliest token at every step."):
        _ask(replace(asked, settings=replace(settings, temperature=0.0), seeds=(seed,)))
    if st.session_state.get(REQUEST) is not None:
        buttons.button("Stop", icon=":material/stop:", help="Keeps what has been written.")
    elif buttons.button("Clear", icon=":material/delete:", disabled=not st.session_state.get(RUNS)):
        st.session_state.update({RUNS: (), SELECTED: None})
        st.rerun()


def _ask(request: Request) -> None:
    st.session_state[REQUEST] = request


def _new_seed(asked: Request) -> None:
    seed = (asked.seeds[-1] + 1) % LARGEST_SEED
    st.session_state["seed"] = seed
    _ask(replace(asked, seeds=tuple(range(seed, seed + len(asked.seeds)))))


def _write(key: services.ModelKey, prompt: str, ids: tuple[int, ...], request: Request) -> None:
    """Generate, keeping the texts so far in the session, so that stopping loses nothing."""
    before: tuple[Run, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    if request.branch is not None:
        before = _runs(key)
        parent = before[request.branch[0]]
        prompt, ids, steps = parent.prompt, parent.prompt_ids, parent.text.steps[: request.branch[1]]
    places = [column.empty() for column in st.columns(len(request.seeds), gap="large")]
    start = time.perf_counter()
    written = services.continuations(
        key,
        ids,
        request.settings,
        seeds=request.seeds,
        steps=request.steps,
        stop_strings=request.stop_strings,
        kept=steps,
        forced_id=request.forced_id,
    )
    for texts in written:
        elapsed = time.perf_counter() - start
        runs = tuple(Run(key, prompt, ids, request.settings, text, elapsed, request.branch) for text in texts)
        st.session_state.update({RUNS: (*before, *runs)})
        for place, run in zip(places, runs, strict=True):
            plain_tokens(place, _chips(run, "rank"), prompt=prompt)
    if request.branch is None:
        st.session_state[SELECTED] = None


def _chips(run: Run, tint: str) -> list[Chip]:
    texts = services.model(run.key).tokenizer.texts(run.text.token_ids)
    tints = [tint_of_rank(step.rank) if tint == "rank" else 1 - step.probability_raw for step in run.text.steps]
    return [
        Chip(shown(text), strength, f"rank {step.rank:,}, {step.probability_raw:.1%}")
        for text, strength, step in zip(texts, tints, run.text.steps, strict=True)
    ]


def _show_run(i: int, run: Run, tint: str, keep: Callable[[str], None] | None) -> None:
    title = f"Text {i + 1}" + (" · greedy" if run.settings.temperature == 0 else f" · seed {run.text.seed}")
    if run.branch is not None:
        title += f" · branch of text {run.branch[0] + 1} at token {run.branch[1] + 1}"
    selected = st.session_state.get(SELECTED)
    with st.container(border=True):
        st.markdown(f"**{title}**")
        clickable_tokens(
            _chips(run, tint),
            prompt=run.prompt,
            selected=selected[1] if selected and selected[0] == i else None,
            key=f"writing.chips.{i}",
            on_click=lambda step: st.session_state.update({SELECTED: (i, step)}),
        )
        numbers = summary(run.text)
        speed = (numbers.tokens - (run.branch[1] if run.branch else 0)) / max(run.elapsed_s, 1e-9)
        st.caption(
            f"{numbers.tokens} tokens, {speed:.0f} a second; {words.STOPPED[run.text.stop_reason or 'stopped']}. First "
            f"choices {numbers.share_first_choice:.0%}, mean rank {numbers.mean_rank:.1f}, mean confidence "
            f"{numbers.mean_probability_final:.0%}, mean entropy {numbers.mean_entropy_raw_nats:.2f} nats, perplexity "
            f"{numbers.perplexity:.1f}."
        )
        row = st.container(horizontal=True)
        name = f"trace-{run.text.seed}"
        row.download_button("JSON", lambda: _trace(run), f"{name}.json", key=f"writing.json.{i}")
        row.download_button("CSV", lambda: services.trace_csv(run.text), f"{name}.csv", key=f"writing.csv.{i}")
        if keep is not None:
            reply = services.model(run.key).tokenizer.decode(run.text.token_ids)
            row.button("Keep as a turn", icon=":material/forum:", key=f"writing.keep.{i}", on_click=keep, args=(reply,))


def _show_step(i: int, at: int, run: Run) -> None:
    step = run.text.steps[at]
    with st.container(border=True):
        st.markdown(f"**Token {at + 1} of text {i + 1}**: {words.chosen(step, services.model(run.key).config.vocab)}")
        draw(candidates_chart(step, 12, chosen=step.token_id))
        others = [c for c in step.candidates if c.token_id != step.token_id]
        row = st.columns([3, 1], vertical_alignment="bottom")
        other = row[0].selectbox("Take another token here", others, format_func=_option, key=f"writing.other.{i}.{at}")
        if row[1].button("Branch", icon=":material/call_split:", width="stretch"):
            _ask(
                Request(
                    settings=run.settings,
                    seeds=(run.text.seed,),
                    steps=max(st.session_state["steps"], at + 2),
                    branch=(i, at),
                    forced_id=other.token_id,
                )
            )
            st.rerun()


def _trace(run: Run) -> str:
    return services.trace_json(run.key, run.prompt, run.prompt_ids, run.settings, run.text, run.elapsed_s)


def _option(candidate: Candidate) -> str:
    kept = "" if candidate.kept else ", cut by the filters"
    return f"{visible(candidate.token)}   {candidate.probability_raw:.1%}{kept}"
