"""Texts whose tokens are tinted and can be clicked."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from math import log10
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from jaxcore.tokenizer import visible

AMBER, BLUE = "245, 158, 11", "59, 130, 246"
"""Tints that differ for colour-blind eyes too and leave text legible, on light and on dark ground."""


@dataclass(frozen=True)
class Chip:
    """A token in a text: what it shows, the strength of its tint from 0 to 1, and what hovering tells."""

    text: str
    tint: float
    hint: str
    color: str = AMBER


CHIP_CSS = """
.chips { line-height: 2.1; font-size: 1rem; overflow-wrap: anywhere; }
.chip { border-bottom: 2px solid transparent; border-radius: 3px; padding: 2px 0; white-space: pre-wrap; }
.chip[role] { cursor: pointer; }
.chip[role]:hover, .chip[role]:focus-visible, .chip[aria-pressed="true"] { border-color: currentColor; outline: none; }
.prompt { opacity: .6; white-space: pre-wrap; }
"""
CHIP_JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  let box = parentElement.querySelector(".chips");
  if (!box) { box = document.createElement("div"); box.className = "chips"; parentElement.appendChild(box); }
  const prompt = document.createElement("span");
  prompt.className = "prompt";
  prompt.textContent = data.prompt;
  box.replaceChildren(prompt, ...data.chips.map((chip, i) => {
    const button = document.createElement("span");
    button.className = "chip";
    button.role = "button";
    button.tabIndex = 0;
    button.textContent = chip.text;
    button.title = chip.hint;
    button.dataset.index = i;
    button.style.background = `rgba(${chip.color}, ${0.75 * chip.tint})`;
    button.setAttribute("aria-pressed", String(i === data.selected));
    button.onclick = () => setTriggerValue("clicked", i);
    button.onkeydown = (event) => { if (event.key === "Enter") button.onclick(); };
    return button;
  }));
}
"""
_chips = component("clearbox_chips", css=CHIP_CSS, js=CHIP_JS)


def shown(text: str) -> str:
    """A token as it stands in running text: line breaks both marked and made, nothing invisible but spaces."""
    return text.replace("\n", "↵\n") if text.strip(" ") else visible(text)


def marked(text: str) -> str:
    """A token with every white space in it marked, and its line breaks made."""
    return visible(text.replace("\n", "\0")).replace("\0", "↵\n")


def clickable_tokens(
    chips: Sequence[Chip], *, prompt: str, selected: int | None, key: str, on_click: Callable[[int], None]
) -> None:
    """A text whose tokens are tinted and can be clicked; ``on_click`` gets the token's index."""

    def clicked() -> None:
        index = st.session_state[key].get("clicked")
        if index is not None:
            on_click(int(index))

    data: dict[str, Any] = {"prompt": prompt, "chips": [asdict(chip) for chip in chips], "selected": selected}
    _chips(data=data, key=key, on_clicked_change=clicked)


def plain_tokens(place: Any, chips: Sequence[Chip], *, prompt: str) -> None:
    """The same text while it is being written, without clicks."""
    spans = "".join(
        f'<span class="chip" title="{escape(chip.hint)}" '
        f'style="background: rgba({chip.color}, {0.75 * chip.tint:.3f})">{escape(chip.text)}</span>'
        for chip in chips
    )
    place.html(f'<style>{CHIP_CSS}</style><div class="chips"><span class="prompt">{escape(prompt)}</span>{spans}</div>')


def tint_of_rank(rank: int) -> float:
    """0 for the first choice, growing with the logarithm, 1 from rank 1,000 on."""
    return min(log10(rank) / 3, 1.0)
