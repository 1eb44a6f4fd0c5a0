"""Everything that pages compute, cached: pages call these functions and nothing of the backend."""

import csv
import io
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from dashboard.report.build import build
from jaxcore import (
    attention,
    attribution,
    catalogue,
    chat,
    export,
    inspect,
    layers,
    lens,
    reading,
    sampling,
    weights,
    whatif,
)
from jaxcore.attribution import Inside, Parts
from jaxcore.catalogue import Progress
from jaxcore.chat import Spelled, Template, Turn
from jaxcore.checkpoint import hub
from jaxcore.checkpoint.hub import Plan
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.families import family_of
from jaxcore.sample import Continuation, StepRecord, generate, prefill, prompt_ids, recorded, traced
from jaxcore.sampling import Settings
from jaxcore.score import ScoredText
from jaxcore.score import score as score_ids
from jaxcore.session import LoadedModel, default_dtype, described, load
from jaxcore.token_counts import count
from jaxcore.tokenizer import Tokenizer
from jaxcore.tokens import NAMED, Split, find_tokenizer, split
from jaxcore.whatif import Edit, Outcome, Removed
from models.errors import InputError

TEMPERATURES = tuple(round(0.1 * i, 1) for i in range(1, 31))
"""Where the curves along the temperature axis are computed."""
LISTED = 500
"""Tokens of a text that are listed or coloured; more are not sent to the browser."""
SHOWN_BYTES = 2**28
"""What the patterns on a page may take."""


@dataclass(frozen=True)
class ModelKey:
    """What identifies a model in memory: all that changes its numbers."""

    reference: str
    dtype: str
    stamp: str


@dataclass(frozen=True)
class Preview:
    """A checkpoint before it is loaded."""

    checkpoint: Checkpoint
    title: str
    config: Any
    parameters: int
    parts: dict[str, int]


def device() -> str:
    """The platform that models run on here."""
    import jax

    return jax.default_backend()


def preferred_dtype() -> str:
    return default_dtype(device())


def stamp(reference: str) -> str:
    """What changes when the files behind a path do; nothing for other references."""
    path = Path(os.path.expanduser(reference))
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
        return str([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files])
    except OSError:  # opening it will say what is wrong
        return ""


def preview(reference: str) -> Preview:
    """Open a reference: headers only (a hub name must have been downloaded). Raises `ClearboxError`."""
    return _preview(reference, stamp(reference))


@st.cache_resource(max_entries=16, show_spinner=False)
def _preview(reference: str, stamp: str) -> Preview:
    checkpoint = catalogue.open_reference(reference)
    family = family_of(checkpoint)
    parts = inspect.parameters_by_part(checkpoint)
    return Preview(checkpoint, family.title, family.config(checkpoint.config), sum(parts.values()), parts)


def make_ready(checkpoint: Checkpoint, progress: Progress) -> None:
    """Do the slow first-time work of a checkpoint, whose result stays on disk."""
    catalogue.ready(checkpoint, progress)


def key_of(checkpoint: Checkpoint, dtype: str) -> ModelKey:
    return ModelKey(checkpoint.reference, dtype, stamp(checkpoint.reference))


@st.cache_resource(max_entries=2, show_spinner="Loading weights")
def model(key: ModelKey) -> LoadedModel:
    """A model in memory, shared by all sessions."""
    return load(catalogue.open_reference(key.reference, converted=True), dtype=key.dtype)


def unload(key: ModelKey) -> None:
    """Give a model's memory back."""
    next_logits.clear()
    model.clear(key)


@st.cache_resource(max_entries=8, show_spinner="Reading the prompt")
def next_logits(key: ModelKey, ids: tuple[int, ...]) -> Any:
    """Logits of the token after a prompt, on the device."""
    logits, _ = prefill(model(key), ids, room=1)
    return logits


def encode(key: ModelKey, prompt: str, bos: bool) -> tuple[int, ...]:
    """Token ids of a prompt."""
    return tuple(prompt_ids(model(key), prompt, bos=bos))


@st.cache_data(max_entries=8, show_spinner=False)
def chat_template(key: ModelKey) -> Template | None:
    """The template of a model that chats. Raises `CheckpointError` for a damaged one."""
    loaded = model(key)
    return chat.template_of(loaded.checkpoint, loaded.own_tokenizer) if loaded.own_tokenizer else None


@st.cache_data(max_entries=8, show_spinner=False)
def takes_system(key: ModelKey) -> bool:
    """Whether the model's template has a place for a system prompt."""
    template = chat_template(key)
    return template is not None and chat.takes_system(template)


@st.cache_data(max_entries=64, show_spinner="Rendering the chat template")
def chat_prompt(key: ModelKey, turns: tuple[Turn, ...]) -> tuple[str, tuple[int, ...]]:
    """Text and token ids that the model's template makes of turns."""
    template = chat_template(key)
    assert template is not None  # pages offer chats only where there is one
    text = chat.render(template, turns)
    return text, tuple(chat.encode(model(key).tokenizer, text))


def spelled(key: ModelKey, turns: tuple[Turn, ...]) -> list[Spelled]:
    """Control tokens that the turns' own text spells."""
    return chat.spelled(model(key).tokenizer, turns)


def next_token(key: ModelKey, ids: tuple[int, ...], settings: Settings) -> StepRecord:
    """What the settings leave of the next-token distribution, described from its likeliest token."""
    import jax

    step = sampling.preview(next_logits(key, ids), sampling.filters(settings))
    return recorded(model(key), jax.device_get(step), index=0)


@st.cache_data(max_entries=64, show_spinner=False)
def temperature_curve(key: ModelKey, ids: tuple[int, ...], top_k: int, top_p: float, min_p: float) -> dict[str, list]:
    """Entropy in nats and number of survivors along the temperature axis."""
    import jax.numpy as jnp

    filters = sampling.filters(Settings(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p))
    entropy, kept = sampling.along_temperature(next_logits(key, ids), filters, jnp.asarray(TEMPERATURES))
    return {"temperature": list(TEMPERATURES), "entropy": entropy.tolist(), "kept": kept.tolist()}


@st.cache_data(max_entries=16, show_spinner="Scoring")
def score(key: ModelKey, ids: tuple[int, ...]) -> ScoredText:
    """Surprisal and rank of every token of a text."""
    return score_ids(model(key), ids)


@st.cache_data(ttl=600, max_entries=8, show_spinner="Asking the hub")
def download_needed(reference: str) -> Plan | None:
    """For a hub name that is not on this machine: what opening it would download. None if nothing."""
    return hub.plan(reference) if reference.startswith("hf:") and hub.cached(reference) is None else None


def download(plan: Plan, progress: Progress) -> None:
    """Fetch a model from the hub into the hub's cache."""
    hub.fetch(plan, progress)
    download_needed.clear()


def memory(checkpoint: Checkpoint, dtype: str) -> int:
    """Bytes that a checkpoint's weights take in memory."""
    return inspect.memory_bytes(checkpoint, dtype)


def continuations(key: ModelKey, ids: tuple[int, ...], settings: Settings, **options: Any) -> Iterator:
    """Texts as they are written, as `jaxcore.sample.generate`."""
    return generate(model(key), ids, settings, **options)


def trace_json(
    key: ModelKey, prompt: str, ids: tuple[int, ...], settings: Settings, text: Continuation, elapsed_s: float
) -> str:
    """The trace of a text, as the ``sample`` command writes it."""
    loaded = model(key)
    return export.to_json(
        export.result("sample", described(loaded), elapsed_s, traced(loaded, prompt, ids, settings, text))
    )


def readable(key: ModelKey, ids: tuple[int, ...]) -> tuple[int, ...]:
    """What one pass reads of a text: where the context slides, its last tokens. Raises `InputError`."""
    return tuple(reading.readable(model(key), ids))


def check_patterns(key: ModelKey, ids: tuple[int, ...]) -> None:
    """Raise `InputError` for a text whose patterns are too many for a page."""
    cfg = model(key).config
    most = SHOWN_BYTES // (4 * cfg.n_layers * cfg.n_heads * attention.SHOWN)
    if len(ids) > most:
        raise InputError(
            f"The text has {len(ids):,} tokens; this page shows patterns of up to {most:,} with this model. Shorten "
            "it, or write them with `python -m jaxcore attention`."
        )


@st.cache_resource(max_entries=4, show_spinner="Reading the text")
def patterns(key: ModelKey, ids: tuple[int, ...], start: int, stop: int) -> np.ndarray:
    """Attention of all heads, of the queries from ``start`` to ``stop``: ``[layer n_heads query key]``."""
    return attention.patterns(model(key), ids, rows=range(start, stop))


def patterns_npz(key: ModelKey, ids: tuple[int, ...]) -> bytes:
    """Patterns of all layers, as the ``attention`` command writes them."""
    file = io.BytesIO()
    np.savez(file, **attention.saved(model(key), ids, None))
    return file.getvalue()


def newest_pattern(key: ModelKey, ids: tuple[int, ...]) -> np.ndarray:
    """What the last token attends to: ``[layer n_heads key]``."""
    return attention.patterns(model(key), ids, rows=[len(ids) - 1])[:, :, 0]


@st.cache_data(max_entries=16, show_spinner="Measuring every head")
def head_statistics(key: ModelKey, ids: tuple[int, ...]) -> dict[str, np.ndarray]:
    """By statistic a number for every head; induction scores do not depend on the text."""
    return {**attention.head_statistics(model(key), ids)._asdict(), "induction": _induction(key)}


@st.cache_data(max_entries=8, show_spinner="Measuring induction on random tokens")
def _induction(key: ModelKey) -> np.ndarray:
    return attention.induction_scores(model(key))


@st.cache_data(max_entries=16, show_spinner="Following the stream")
def evolution(key: ModelKey, ids: tuple[int, ...]) -> dict[str, Any]:
    """Statistics and lens of every layer."""
    return layers.evolution(model(key), ids)


def evolution_json(key: ModelKey, ids: tuple[int, ...]) -> str:
    """The same as the ``layers`` command writes it."""
    start = time.perf_counter()
    content = evolution(key, ids)
    return export.to_json(export.result("layers", described(model(key)), time.perf_counter() - start, content))


@st.cache_data(max_entries=16, show_spinner="Looking through the lens")
def lens_grid(key: ModelKey, ids: tuple[int, ...], positions: tuple[int, ...]) -> lens.Grid:
    """What every layer would predict at some positions."""
    return lens.grid(model(key), ids, positions)


@st.cache_resource(max_entries=4, show_spinner="Reading the text")
def inside(key: ModelKey, ids: tuple[int, ...], position: int) -> Inside:
    """What led to the prediction after a position, on the device."""
    return attribution.inside(model(key), ids, position)


@st.cache_data(max_entries=16, show_spinner="Taking the logit apart")
def attributed(key: ModelKey, ids: tuple[int, ...], position: int, token: int, against: int | None) -> Parts:
    """Shares of a token's logit, or of its lead over another's."""
    return attribution.attribution(model(key), inside(key, ids, position), token, against)


@st.cache_data(max_entries=64, show_spinner=False)
def written_by(
    key: ModelKey, ids: tuple[int, ...], position: int, layer: int, head: int | None, unit: int | None
) -> list[tuple[str, float]]:
    """Tokens that a head, an MLP (no head) or one of its units raises and lowers most, with the change of logit."""
    loaded, found = model(key), inside(key, ids, position)
    if unit is not None:
        written = attribution.unit_write(loaded, found, layer, unit)
    elif head is not None:
        written = attribution.head_write(loaded, found, layer, head)
    else:
        written = attribution.mlp_write(loaded, found, layer)
    rows = [*zip(written.up_id, written.up, strict=True), *zip(written.down_id[::-1], written.down[::-1], strict=True)]
    return [(loaded.tokenizer.text(int(i)), float(change)) for i, change in rows]


@st.cache_data(max_entries=32, show_spinner=False)
def what_if(key: ModelKey, ids: tuple[int, ...], edits: tuple[Edit, ...], other: tuple[int, ...]) -> Outcome:
    """The next token with parts of the model changed."""
    return whatif.what_if(model(key), ids, edits, other)


def removals(key: ModelKey, ids: tuple[int, ...]) -> Iterator[list[Removed]]:
    """The effect of removing each part in turn, a layer at a time."""
    return whatif.removals(model(key), ids)


@st.cache_resource(max_entries=8, show_spinner="Opening the weights")
def _weights(reference: str, stamp: str) -> Checkpoint:
    return catalogue.open_reference(reference, converted=True)


def weight_names(reference: str) -> list[str]:
    """The tensors of a checkpoint, by layer."""
    return weights.chosen(_weights(reference, stamp(reference)))


def attention_layout(reference: str) -> dict[str, Any]:
    """Widths, sharing and shares of attention."""
    return weights.attention_layout(_weights(reference, stamp(reference)))


def tensor_statistics(reference: str, name: str) -> dict[str, Any]:
    """Statistics of one tensor, kept."""
    return _tensor_statistics(reference, stamp(reference), name)


@st.cache_data(max_entries=4096, show_spinner=False)
def _tensor_statistics(reference: str, stamp: str, name: str) -> dict[str, Any]:
    return weights.statistics(_weights(reference, stamp), name)


def tensor_spectrum(reference: str, name: str) -> dict[str, Any]:
    """Singular values of one matrix and what follows, kept."""
    return _tensor_spectrum(reference, stamp(reference), name)


@st.cache_data(max_entries=4096, show_spinner=False)
def _tensor_spectrum(reference: str, stamp: str, name: str) -> dict[str, Any]:
    return weights.spectrum(_weights(reference, stamp), name)


def weights_json(reference: str, rows: list[dict[str, Any]]) -> str:
    """Rows as the ``weights`` command writes them."""
    checkpoint = _weights(reference, stamp(reference))
    content = {"tensors": rows, "attention_layout": attention_layout(reference), "notes": list(checkpoint.notes)}
    return export.to_json(export.result("weights", inspect.described(checkpoint), 0.0, content))


def report(key: ModelKey, prompt: str, progress: Progress) -> str:
    """The report on a model and a prompt, as HTML."""
    return build(model(key), prompt, progress)


def trace_csv(text: Continuation) -> str:
    """One row a step, without the candidates."""
    file = io.StringIO()
    rows = [{k: v for k, v in vars(step).items() if k != "candidates"} for step in text.steps]
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def named_tokenizers() -> list[str]:
    """Tokenizers that need no path and are installed."""
    return [name for name, tokenizer in NAMED.items() if tokenizer.present()]


@st.cache_data(ttl=600, max_entries=8, show_spinner="Asking the hub")
def tokenizer_download(name: str) -> Plan | None:
    """For a hub name whose tokenizer is not on this machine: what fetching it would download. None if nothing."""
    if not name.startswith("hf:") or hub.cached_tokenizer(name) is not None:
        return None
    return hub.plan(name, tokenizer_only=True)


def fetch_tokenizer(plan: Plan, progress: Progress) -> None:
    """Fetch a tokenizer from the hub into the hub's cache."""
    hub.fetch(plan, progress)
    tokenizer_download.clear()


def tokenizer(name: str) -> Tokenizer:
    """A tokenizer by short name, path or hub name. Raises `ClearboxError`."""
    return _tokenizer(name, stamp(name))


@st.cache_resource(max_entries=8, show_spinner="Opening the tokenizer")
def _tokenizer(name: str, stamp: str) -> Tokenizer:
    return find_tokenizer(name)


def split_text(name: str, text: str) -> Split:
    """A text in a tokenizer's tokens."""
    return _split(name, stamp(name), text)


@st.cache_data(max_entries=64, show_spinner=False)
def _split(name: str, stamp: str, text: str) -> Split:
    return split(_tokenizer(name, stamp), text)


def token_counts(name: str, words: tuple[str, ...]) -> tuple[int | None, ...]:
    """Tokens of each word, None for one that the tokenizer cannot write."""
    return _counts(name, stamp(name), words)


@st.cache_data(max_entries=256, show_spinner=False)
def _counts(name: str, stamp: str, words: tuple[str, ...]) -> tuple[int | None, ...]:
    return count(_tokenizer(name, stamp), words)
