"""The parts of a report: each computes from a loaded model and a prompt, and gives what is shown and its numbers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dashboard import words
from dashboard.charts.attention import attended_chart, head_heatmap
from dashboard.charts.layers import STATES, along, depth_chart, lens_chart, parts_of_logit_chart
from dashboard.charts.overview import layers_chart, parts_chart
from dashboard.charts.sampling import candidates_chart, funnel_chart
from dashboard.charts.weights import by_depth_chart, shares_chart
from dashboard.report.document import Figure, Table
from jaxcore import lens
from jaxcore.attention import attended, head_statistics, induction_scores, patterns
from jaxcore.attribution import attribution, inside
from jaxcore.inspect import parameters_by_part
from jaxcore.layers import evolution
from jaxcore.machine import measured
from jaxcore.reading import readable
from jaxcore.sample import generate, prompt_ids, summary, traced
from jaxcore.sampling import Settings
from jaxcore.session import LoadedModel
from jaxcore.tokenizer import visible
from jaxcore.weights import chosen, health

CANDIDATES, STEPS, TOKENS, LENS = 20, 20, 200, 12
"""Candidates shown of the next token, tokens written, tokens of the prompt listed, and those under the lens."""


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    model: LoadedModel
    prompt: str
    ids: Sequence[int]


Content = list[str | Table | Figure]
Part = tuple[Content, Mapping[str, Any]]
"""What is shown, and the same numbers as JSON under the commands' own names."""


def subject(model: LoadedModel, prompt: str) -> Subject:
    """A model and a prompt, with the model's BOS in front. Raises `InputError` for a prompt it cannot read."""
    return Subject(model, prompt, prompt_ids(model, prompt, bos=True))


def model_and_machine(about: Subject) -> Part:
    """Sizes, structure, device, memory, time of a pass."""
    model, cfg = about.model, about.model.config
    machine = measured(model, about.ids)
    parts = parameters_by_part(model.checkpoint)
    rows = [
        ("Parameters", f"{sum(parts.values()):,}"),
        ("Layers", f"{cfg.n_layers}"),
        ("Heads", f"{cfg.n_heads} query, {cfg.n_kv_heads} key/value, {cfg.head_dim} wide"),
        ("Width", f"{cfg.d_model:,} in the residual stream, {cfg.d_mlp:,} MLP units"),
        ("Vocabulary", f"{cfg.vocab:,} tokens"),
        ("Context", f"{cfg.context:,} tokens"),
        ("Weights", f"{model.dtype} on {model.device}"),
        ("Device", f"{machine.device}, {machine.cores} cores seen"),
        ("System", machine.system),
        ("Memory", "not told" if machine.memory_bytes is None else words.amount(machine.memory_bytes, "B")),
        ("One forward pass", f"{machine.forward_s * 1000:.1f} ms over {machine.forward_tokens} tokens"),
    ]
    content: Content = [
        Table(("", ""), rows),
        Figure("Parameters by part of the model.", parts_chart(parts)),
    ]
    if len(set(cfg.windows)) > 1:
        content.append(Figure("Which layers see everything, and which a window.", layers_chart(cfg.windows)))
    # The file may be sent to others, whom a path of this machine does not concern.
    content += [note for note in model.checkpoint.notes if str(model.checkpoint.path) not in note]
    return content, {"machine": machine, "parts": parts, "config": asdict(cfg)}


def tokens(about: Subject) -> Part:
    """How the prompt was split."""
    names = about.model.tokenizer.texts(about.ids)
    sentence = f"The prompt is {len(about.prompt):,} characters and became {len(about.ids):,} tokens."
    if len(names) > TOKENS:
        sentence += f" The first {TOKENS} are listed."
    rows = [(str(i), visible(name), f"{token:,}") for i, (name, token) in enumerate(zip(names, about.ids, strict=True))]
    return [sentence, Table(("position", "token", "id"), rows[:TOKENS])], {
        "tokens": {"ids": list(about.ids), "tokens": names}
    }


def sampling(about: Subject) -> Part:
    """A text written with the usual settings, and how its first token was chosen."""
    model, settings = about.model, Settings()
    (text,) = list(generate(model, about.ids, settings, steps=STEPS))[-1]
    first, told = text.steps[0], summary(text)
    rows = [
        (
            str(step.index + 1),
            visible(step.token),
            f"{step.rank:,}",
            f"{step.probability_raw:.1%}",
            f"{step.probability_final:.1%}",
            f"{step.entropy_raw_nats:.2f}",
            f"{step.kept_final:,}",
        )
        for step in text.steps
    ]
    heads = ("step", "token", "rank", "probability, model", "after filters", "entropy, nats", "survivors")
    content: Content = [
        f"Temperature {settings.temperature}, top-k {settings.top_k}, top-p {settings.top_p}, seed {text.seed}: "
        f"{about.prompt}{model.tokenizer.decode(text.token_ids)}",
        words.prediction(first).replace("`", "'"),
        Figure("The likeliest first tokens, in three stages.", candidates_chart(first, CANDIDATES, first.token_id)),
        Figure("How many tokens each filter leaves.", funnel_chart(first, model.config.vocab)),
        Table(heads, rows, "Every token written: its rank and probability before and after the filters."),
        f"First choices {told.share_first_choice:.0%}, mean rank {told.mean_rank:.1f}, perplexity "
        f"{told.perplexity:.1f} under the model's own distribution.",
    ]
    return content, {"sample": traced(model, about.prompt, about.ids, settings, text)}


def attention(about: Subject) -> Part:
    """What stands out among the heads, and one number for each."""
    model, ids = about.model, readable(about.model, about.ids)
    found = {**head_statistics(model, ids)._asdict(), "induction": induction_scores(model)}
    local = [window < max(model.config.windows) for window in model.config.windows]
    tokens = model.tokenizer.texts(ids)
    rows = patterns(model, ids, rows=[len(ids) - 1])[:, :, 0]
    leading = attended(rows.mean(axis=(0, 1)), tokens)
    titles = {"first": "share on the first token", "previous": "share on the token before", "induction": "induction"}
    content: Content = [
        *words.head_facts(found),
        "The mean of all heads: " + words.looks_at(tokens[-1], len(ids) - 1, leading).replace("`", "'"),
        Figure("What the last token looks at, mean of all heads.", attended_chart(leading)),
        *(
            Figure(f"Every head: {title}.", head_heatmap(found[field].tolist(), title, ".2f", (0.0, 1.0), local))
            for field, title in titles.items()
        ),
    ]
    return content, {"attention": {"statistics": found, "last_token": leading}}


def layers(about: Subject) -> Part:
    """Where in depth the answer appears, what the stream does, and where the logit came from."""
    model, ids = about.model, readable(about.model, about.ids)
    found = evolution(model, ids)
    positions = tuple(range(max(0, len(ids) - LENS), len(ids)))
    grid = lens.grid(model, ids, positions)
    wanted = {*grid.after.top_id[:, :, 0].ravel().tolist(), *grid.final_id.tolist()}
    names = {i: model.tokenizer.text(i) for i in wanted}
    parts = attribution(model, inside(model, ids, len(ids) - 1), int(grid.final_id[-1]))
    answer = f"The logit of {words.quoted(names[int(grid.final_id[-1])])}"
    shown = [found["tokens"][p] for p in positions]
    content: Content = [
        *(sentence.replace("`", "'") for sentence in words.growth(found["layers"])),
        Figure(
            "The logit lens: what each layer would say next. Darker: the final choice is likelier.",
            lens_chart(grid, shown, names, "probability of the final choice"),
        ),
        Figure("Norm of the residual stream.", depth_chart(along(found, "l2_norm_mean"), "mean L2 norm", STATES)),
        words.logit_parts(parts, answer).replace("`", "'"),
        Figure("What embedding, attention and MLP of every layer add to that logit.", parts_of_logit_chart(parts)),
    ]
    return content, {"layers": found, "attribution": parts._replace(units=None)._asdict()}


def weights(about: Subject) -> Part:
    """Whether the weights are sound, and how attention is laid out."""
    checkpoint = about.model.checkpoint
    found = health(checkpoint, chosen(checkpoint), spectra=False)
    rows = found["tensors"]
    plotted = [row for row in rows if row["layer"] is not None and len(row["shape"]) == 2]
    plain = [re.sub(r":\w+\[(.*?)\]", r"\1", sentence).replace("`", "'") for sentence in words.health(rows)]
    content: Content = [
        *plain,
        *words.layout(found["attention_layout"]),
        Figure("Share of the parameters.", shares_chart(found["attention_layout"]["share_by_role"])),
        Figure("Standard deviation of every matrix.", by_depth_chart(plotted, "std", "standard deviation", log=False)),
    ]
    return content, {"weights": found}


PARTS: Mapping[str, Callable[[Subject], Part]] = {
    "Model and machine": model_and_machine,
    "Tokens": tokens,
    "How each word was chosen": sampling,
    "What heads look at": attention,
    "How the answer builds up": layers,
    "The health of the weights": weights,
}
"""By title, in their order."""
