"""The tokenizer whose tokens are characters: newline, space and the letters a to z."""

from jaxcore.tokenizer import Tokenizer, visible
from models.char.config import SYMBOLS
from models.errors import InputError


def char_tokenizer(name: str = "char") -> Tokenizer:
    """One token a character, no special tokens. Encoding any other character raises `InputError`."""
    ids = {symbol: token_id for token_id, symbol in enumerate(SYMBOLS)}

    def split(text: str) -> list[int]:
        at = next((i for i, character in enumerate(text) if character not in ids), None)
        if at is not None:
            raise InputError(
                f"{name} knows only newline, space and the letters a to z; character {at + 1:,} of the text is "
                f"{visible(text[at])!r} (U+{ord(text[at]):04X}). Leave it out or write it in other letters."
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
