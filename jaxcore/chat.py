"""Chats as the model's own template writes them: turns in, token ids out."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxcore.checkpoint.gguf import read_header
from jaxcore.checkpoint.safetensors import read_json
from jaxcore.checkpoint.store import Checkpoint
from jaxcore.tokenizer import Tokenizer
from models.errors import CheckpointError, InputError

SECONDS, MEMORY, MOST = 5, 2**30, 1_000_000
"""Processor time and bytes of memory that a template may take, and characters that it may write."""
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
"""Variables of a template that stand for special tokens."""


@dataclass(frozen=True)
class Turn:
    """What one side says; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True)
class Template:
    """A chat template in Jinja's language, where it was found, and the special tokens that it may write."""

    source: str
    origin: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Spelled:
    """A control token that the text of turn number ``turn`` (from 0) spells out."""

    turn: int
    token_id: int
    token: str


def template_of(checkpoint: Checkpoint, tokenizer: Tokenizer) -> Template | None:
    """The template that a checkpoint brings; None if it brings none, as base models do.

    As in transformers, chat_template.jinja comes before the ``chat_template`` of tokenizer_config.json, which may be
    a list of named ones. Special tokens that are not named there are the tokenizer's own. Raises `CheckpointError` for
    a damaged file.
    """
    path = checkpoint.tokenizer
    if path is None:
        return None
    own = _own_tokens(checkpoint, tokenizer)
    if path.suffix == ".gguf":
        source = read_header(path)[0].get("tokenizer.chat_template")
        return Template(source, str(path), own) if isinstance(source, str) else None
    beside, settings = path.with_name("chat_template.jinja"), path.with_name("tokenizer_config.json")
    config = read_json(settings) if settings.is_file() else {}
    named = {name: _content(config.get(name)) for name in SPECIAL}
    variables = {**own, **{name: content for name, content in named.items() if content is not None}}
    if beside.is_file():
        try:
            return Template(beside.read_text("utf-8"), str(beside), variables)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{beside} cannot be read ({error}); download it again.") from None
    source = _default(config.get("chat_template"), settings)
    return None if source is None else Template(source, str(settings), variables)


def render(template: Template, turns: Sequence[Turn]) -> str:
    """The text that a template makes of turns, up to where the assistant begins its answer.

    Rendered in a process of its own (`jaxcore.chat_render`), bounded in time, memory and length. Raises `InputError`
    for turns that the template refuses, `CheckpointError` for a template that fails or goes beyond its bounds.
    """
    if not turns:
        raise InputError("The chat has no turns: add one.")
    variables = {"messages": [asdict(turn) for turn in turns], "tools": None, "documents": None}
    request = {
        "template": template.source,
        "variables": {**variables, "add_generation_prompt": True, **template.variables},
        "seconds": SECONDS,
        "memory": MEMORY,
        "most": MOST,
    }
    script = Path(__file__).with_name("chat_render.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(script)],
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            timeout=2 * SECONDS,
            check=False,
        )
        outcome: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):  # it was stopped, so there is no outcome
        outcome = {"error": f"it takes longer than {SECONDS} seconds or too much memory"}
    if "refused" in outcome:
        raise InputError(f"The model's chat template refuses these turns: {outcome['refused'].rstrip('.')}.")
    if "error" in outcome:
        raise CheckpointError(
            f"The chat template in {template.origin} cannot be used: {outcome['error']}. Use plain text instead."
        )
    return outcome["text"]


def encode(tokenizer: Tokenizer, rendered: str) -> list[int]:
    """The ids of a rendered chat: special tokens become their ids, and exactly one BOS stands in front."""
    return tokenizer.encode(rendered, bos=True)


def takes_system(template: Template) -> bool:
    """Whether a system prompt finds its way into what the template writes."""
    try:
        return "a system prompt" in render(template, [Turn("system", "a system prompt"), Turn("user", "x")])
    except InputError:
        return False


def spelled(tokenizer: Tokenizer, turns: Sequence[Turn]) -> list[Spelled]:
    """Control tokens that the turns' own text spells; the model reads them as such, not as letters."""
    return [
        Spelled(i, token_id, tokenizer.text(token_id))
        for i, turn in enumerate(turns)
        for token_id in dict.fromkeys(tokenizer.encode(turn.content))
        if token_id in tokenizer.control
    ]


def _own_tokens(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, str]:
    """BOS and EOS as the tokenizer and the configuration know them."""
    eos = checkpoint.config.get("eos_token_id")
    ids = {"bos_token": tokenizer.bos, "eos_token": eos[0] if isinstance(eos, list) and eos else eos}
    known = range(tokenizer.vocabulary)
    return {name: tokenizer.text(token_id) for name, token_id in ids.items() if token_id in known}


def _content(token: Any) -> str | None:
    """A special token in tokenizer_config.json: its text, or an object that holds it."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def _default(found: Any, path: Path) -> str | None:
    """One template, or of several the one named ``default``."""
    if isinstance(found, list):
        try:
            found = {entry["name"]: entry["template"] for entry in found}.get("default")
        except (KeyError, TypeError):
            raise CheckpointError(f"{path}: its list of chat templates is damaged; download it again.") from None
    if found is None or isinstance(found, str):
        return found
    raise CheckpointError(f"{path}: chat_template is neither text nor a list of templates; download it again.")
