"""A chat as turns to edit, and the tokens that the model's template makes of them."""

import json
from dataclasses import replace

import streamlit as st

from dashboard import services, words
from dashboard.chips import Chip, plain_tokens, shown
from dashboard.views.prompt import token_list
from jaxcore.chat import Turn

PLAIN, CHAT = "Plain text", "Chat"
TURNS, ADDRESS = "chat.turns", "chat"
FIRST = (Turn("user", "What is the capital of Switzerland?"),)
ROLES = ("user", "assistant")
LOW, SHORT = 68, 150
"""Pixels of the field of a turn with fewer characters than ``SHORT``; longer ones are as high as they need."""
SHOWN = 1500
"""Tokens of a chat that are shown as tinted text."""


def turns() -> tuple[Turn, ...]:
    """The turns of this session with what was typed into them, at first those in the address."""
    if TURNS not in st.session_state:
        st.session_state[TURNS] = _from_address(st.query_params.get(ADDRESS, "")) or FIRST
    kept = st.session_state[TURNS]
    return tuple(
        replace(turn, content=st.session_state.get(_field(i, len(kept)), turn.content)) for i, turn in enumerate(kept)
    )


def add(role: str, content: str = "") -> None:
    """Put a turn at the end."""
    st.session_state[TURNS] = (*turns(), Turn(role, content))


def remove(at: int) -> None:
    st.session_state[TURNS] = tuple(turn for i, turn in enumerate(turns()) if i != at)


def add_reply(reply: str) -> None:
    """Keep what the model wrote as the assistant's turn."""
    add("assistant", reply)


def chat_chosen(key: services.ModelKey) -> bool:
    """Whether the user wants to chat; asked only of models that bring a template."""
    if services.chat_template(key) is None:
        return False
    choice = st.segmented_control(
        "Prompt as", [PLAIN, CHAT], default=PLAIN, required=True, key="as", bind="query-params"
    )
    return choice == CHAT


def chat(key: services.ModelKey) -> tuple[str, tuple[int, ...]]:
    """Turns to edit; returns the chat as the model's template writes it, and its tokens."""
    system = ""
    if services.takes_system(key):
        system = st.text_input("System prompt", key="system", bind="query-params", placeholder="none")
    count = len(turns())
    for i, turn in enumerate(turns()):
        _draw(i, count, turn)
    row = st.container(horizontal=True)
    for role in ROLES:
        row.button(f"Add {role} turn", icon=":material/add:", on_click=add, args=(role,))
    said = st.session_state[TURNS] = turns()
    _put_into_address(said)
    if system:
        said = (Turn("system", system), *said)
    text, ids = services.chat_prompt(key, said)
    token_list(row, key, ids)
    _as_read(key, said, ids)
    return text, ids


def _as_read(key: services.ModelKey, said: tuple[Turn, ...], ids: tuple[int, ...]) -> None:
    """What the model reads: the template's tokens, control tokens tinted, and a word on those that a text spells."""
    tokenizer = services.model(key).tokenizer
    for token in services.spelled(key, said):
        st.warning(words.spelled(token, said), icon=":material/warning:")
    with st.expander("What the model reads", expanded=True):
        chips = [
            Chip(shown(text), 0.6 if token_id in tokenizer.control else 0.0, f"id {token_id:,}")
            for text, token_id in zip(tokenizer.texts(ids[:SHOWN]), ids, strict=False)
        ]
        plain_tokens(st.empty(), chips, prompt="")
        more = f" The first {SHOWN:,} are shown." if len(ids) > SHOWN else ""
        st.caption(f"Control tokens are tinted; the model writes on after the last one.{more}")


def _field(i: int, count: int) -> str:
    """The key of a turn's text field: another one whenever turns were added or removed, so that none keeps old text."""
    return f"chat.{count}.{i}"


def _draw(i: int, count: int, turn: Turn) -> None:
    st.session_state.setdefault(_field(i, count), turn.content)
    with st.chat_message(turn.role), st.container(horizontal=True):
        st.text_area(
            f"Turn {i + 1}, {turn.role}",
            key=_field(i, count),
            height=LOW if len(turn.content) < SHORT and "\n" not in turn.content else "content",
            label_visibility="collapsed",
            placeholder=f"What the {turn.role} says",
        )
        st.button(
            "",
            key=f"chat.remove.{i}",
            icon=":material/close:",
            type="tertiary",
            help="Remove this turn",
            on_click=remove,
            args=(i,),
        )


def _put_into_address(said: tuple[Turn, ...]) -> None:
    if said == FIRST:
        st.query_params.pop(ADDRESS, None)
    else:
        st.query_params[ADDRESS] = json.dumps([[turn.role, turn.content] for turn in said], ensure_ascii=False)


def _from_address(text: str) -> tuple[Turn, ...]:
    """Turns as the address holds them; none if it holds anything else."""
    try:
        pairs = json.loads(text or "[]")
        return tuple(Turn(role, content) for role, content in pairs if role in ROLES and isinstance(content, str))
    except (ValueError, TypeError):
        return ()
