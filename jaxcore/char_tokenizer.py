"""The characters of the character transformer as a tokenizer."""

from jaxcore.tokenizer import Tokenizer
from models.char.config import SYMBOLS
from models.errors import InputError


def char_tokenizer(name: str = "char") -> Tokenizer:
    """One token a character: newline, space, a to z; no special tokens. Encoding anything else is an `InputError`."""
    ids = {symbol: i for i, symbol in enumerate(SYMBOLS)}

    def split(text: str) -> list[int]:
        at = next((i for i, character in enumerate(text) if character not in ids), None)
        if at is not None:
            raise InputError(
                f"The text holds {text[at]!r} as character {at + 1}; {name} knows only newline, space and the letters "
                "a to z. Write it in lower case, without digits, marks or accents."
            )
        return [ids[character] for character in text]

    return Tokenizer(
        name=name,
        kind="characters",
        pieces=tuple(symbol.encode() for symbol in SYMBOLS),
        control=frozenset(),
        bos=None,
        stop_ids=frozenset(),
        split=split,
    )
