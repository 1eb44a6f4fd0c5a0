"""Chat templates in the style of two families of models, on a tiny tokenizer, and `transformers` rendering them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from jaxcore.chat import Turn
from tests.reference import gemma3

GEMMA_TOKENS = ("<start_of_turn>", "<end_of_turn>")
GEMMA = """\
{{ bos_token }}
{%- set prefix = '' -%}
{%- set rest = messages -%}
{%- if messages[0].role == 'system' -%}
    {%- set prefix = messages[0].content + '\\n\\n' -%}
    {%- set rest = messages[1:] -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Turns must go user, assistant, user, assistant") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {{ raise_exception('Content must be text') }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""
"""Gemma's chats: the assistant is ``model``, a system prompt stands before the first user's text, roles alternate."""

APERTUS_TOKENS = tuple(
    f"<|{who}_{end}|>" for who in ("system", "developer", "user", "assistant") for end in ("start", "end")
)
APERTUS = """\
{% macro block(name, text) %}
<|{{ name }}_start|>{{ text }}<|{{ name }}_end|>
{%- endmacro %}
{{ bos_token }}
{%- set state = namespace(open=false, first=0) %}
{%- if messages[0].role == 'system' %}
    {%- set state.first = 1 %}
    {{- block('system', messages[0].content) }}
{%- else %}
    {{- block('system', 'You are a tiny model in ' ~ strftime_now('%Y') ~ '.') }}
{%- endif %}
{{- block('developer', 'Deliberation: disabled\\nTools: ' ~ (tools or []) | tojson) }}
{%- for message in messages[state.first:] %}
    {%- if message.role == 'user' %}
        {%- if state.open %}
            {{- '<|assistant_end|>' }}
            {%- set state.open = false %}
        {%- endif %}
        {{- block('user', message.content) }}
    {%- elif message.role == 'assistant' %}
        {%- if not state.open %}
            {{- '<|assistant_start|>' }}
            {%- set state.open = true %}
        {%- endif %}
        {%- generation %}
            {{- message.content }}
        {%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {%- continue %}
    {%- else %}
        {{- raise_exception('No such role: ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{%- if state.open %}
    {{- '<|assistant_end|>' }}
{%- endif %}
{%- if add_generation_prompt %}
    {{- '<|assistant_start|>' }}
{%- endif %}
"""
"""Apertus's chats: a system and a developer block always stand first, every block has its own start and end."""
FAMILIES = {"gemma": (GEMMA, GEMMA_TOKENS), "apertus": (APERTUS, APERTUS_TOKENS)}


def save(folder: Path, template: Any, more: Sequence[str], settings: Mapping[str, Any] | None = None) -> None:
    """A tokenizer and its settings, with a chat template, beside whatever the folder holds."""
    gemma3.save_tokenizer(folder, more)
    config = {
        "bos_token": "<bos>",
        "eos_token": {"__type": "AddedToken", "content": "<eos>"},
        "chat_template": template,
        **(settings or {}),
    }
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def rendered(folder: Path, turns: Sequence[Turn]) -> tuple[str, list[int]]:
    """Text and ids of a chat as `transformers` makes them."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text, tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
