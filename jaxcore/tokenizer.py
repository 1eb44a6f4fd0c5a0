"""Text to token ids and back, exactly: every token is a string of bytes, and a text is their concatenation.

Decoding joins bytes instead of calling a library's decoder, which may drop or move spaces.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from jaxcore.checkpoint.gguf_file import read_header
from jaxcore.checkpoint.gguf_tokenizer import byte_level_bpe, is_byte_level, sentencepiece_model
from jaxcore.checkpoint.safetensors import read_json
from models.errors import CheckpointError, ClearboxError, InputError

VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}
"""How white space is shown in single tokens."""
END_OF_TURN = ("<end_of_turn>", "<|assistant_end|>")
"""What ends an answer in Gemma's chats and in Apertus's."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """One model's tokenizer. ``pieces`` holds the bytes of every token; control tokens have those of their name."""

    name: str
    kind: str
    pieces: tuple[bytes, ...]
    control: frozenset[int]
    bos: int | None
    stop_ids: frozenset[int]
    split: Callable[[str], list[int]]

    @property
    def vocabulary(self) -> int:
        return len(self.pieces)

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        """Token ids of a text; with ``bos`` exactly one beginning-of-sequence token stands in front."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError("The text holds half of a surrogate pair, which is no character; remove it.") from None
        ids = self.split(text)
        if bos and self.bos is not None:
            start = next((i for i, token_id in enumerate(ids) if token_id != self.bos), len(ids))
            ids = [self.bos, *ids[start:]]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token. Raises `InputError` for an id outside the vocabulary."""
        if not 0 <= token_id < len(self.pieces):
            raise InputError(f"Token id {token_id} does not exist: {self.name} has {len(self.pieces):,} tokens.")
        return self.pieces[token_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, control tokens left out; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(i) for i in ids if i not in self.control).decode("utf-8", "replace")

    def text(self, token_id: int) -> str:
        """One token as text; if it is not whole characters, its bytes as ``⟨E2⟩⟨82⟩``."""
        return self.texts([token_id])[0]

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Each token as the text it completes; a token within a character shows its bytes until that is complete."""
        shown, waiting = [], b""
        for token_id in ids:
            piece = self.token_bytes(token_id)
            try:
                shown.append((waiting + piece).decode("utf-8"))
                waiting = b""
            except UnicodeDecodeError as error:
                shown.append("".join(f"⟨{byte:02X}⟩" for byte in piece))
                waiting = waiting + piece if error.reason == "unexpected end of data" else b""
        return shown

    def byte_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where each token begins and ends in the UTF-8 of its text."""
        spans, start = [], 0
        for token_id in ids:
            end = start + len(self.token_bytes(token_id))
            spans.append((start, end))
            start = end
        return spans


def visible(text: str) -> str:
    """A token's text with spaces, tabs and newlines made visible."""
    return text.translate(str.maketrans(VISIBLE))


def no_tokenizer(name: str) -> NoReturn:
    """Say that a model came without its tokenizer."""
    raise CheckpointError(
        f"{name} has no tokenizer: put the model's tokenizer.json or tokenizer.model into its folder."
    )


def load_tokenizer(path: Path | None, config: Mapping[str, Any], name: str) -> Tokenizer:
    """Open a ``tokenizer.json``, a ``tekken.json``, a ``tokenizer.model`` or the tokenizer in a ``.gguf``.

    Stop tokens are those that ``config`` and a generation_config.json beside the file name, and those that end a turn.
    Raises `CheckpointError` if the file is absent or damaged, or has more tokens than the model embeds. Special tokens
    past the model's (images, in text-only Gemma 3) are dropped, and using one raises `InputError`. Rows that the model
    embeds for no token (padding, in Gemma 3 with vision) become control tokens.
    """
    if path is None:
        no_tokenizer(name)
    try:
        config = {**config, "generation_config": _generation_config(path)}
        tokenizer = OPENERS.get(path.suffix, _from_sentencepiece)(path, config, name)
    except ClearboxError:
        raise
    except Exception as error:  # the libraries raise bare exceptions
        raise CheckpointError(f"{path} cannot be read as a tokenizer ({error}); download it again.") from None
    vocab = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    if vocab is None or tokenizer.vocabulary == vocab:
        return tokenizer
    if tokenizer.vocabulary < vocab:
        padding = range(tokenizer.vocabulary, vocab)
        pieces = (*tokenizer.pieces, *(f"<padding {i}>".encode() for i in padding))
        return replace(tokenizer, pieces=pieces, control=tokenizer.control.union(padding))
    if not tokenizer.control.issuperset(range(vocab, tokenizer.vocabulary)):
        raise CheckpointError(
            f"{path} has {tokenizer.vocabulary:,} tokens, the model embeds {vocab:,}: it belongs to another model."
        )
    return _without(tokenizer, vocab)


def _without(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    """The tokenizer without the tokens from ``vocab`` on."""

    def split(text: str) -> list[int]:
        ids = tokenizer.split(text)
        beyond = next((i for i in ids if i >= vocab), None)
        if beyond is not None:
            raise InputError(
                f"The text holds {tokenizer.pieces[beyond].decode()}, a token that {tokenizer.name} cannot read; "
                "remove it."
            )
        return ids

    control = frozenset(i for i in tokenizer.control if i < vocab)
    return replace(tokenizer, pieces=tokenizer.pieces[:vocab], control=control, split=split)


def _generation_config(path: Path) -> dict[str, Any]:
    """The generation_config.json beside a tokenizer, which names a chat model's stop tokens; empty if there is none."""
    beside = path.with_name("generation_config.json")
    return read_json(beside) if beside.is_file() else {}


def _stop_ids(config: Mapping[str, Any], *found: int | None) -> frozenset[int]:
    """All ids that end a text: those the configuration names, and those the tokenizer is known to have."""
    places = (config, config.get("text_config", {}), config.get("generation_config", {}))
    named = [*(place.get("eos_token_id") for place in places), *found]
    flat = [i for value in named for i in (value if isinstance(value, list) else [value])]
    return frozenset(i for i in flat if isinstance(i, int))


def _from_gguf(path: Path, config: Mapping[str, Any], name: str) -> Tokenizer:
    metadata, _ = read_header(path)
    if is_byte_level(metadata):
        return from_library(byte_level_bpe(path, metadata), "BPE", True, config, name)
    return _from_sentencepiece(path, config, name, sentencepiece_model(path, metadata))


def _from_sentencepiece(path: Path, config: Mapping[str, Any], name: str, proto: bytes | None = None) -> Tokenizer:
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_proto=proto) if proto else SentencePieceProcessor(model_file=str(path))
    names = model.id_to_piece(list(range(model.vocab_size())))
    control = [i for i in range(len(names)) if model.is_control(i) or model.is_unknown(i)]
    by_name = {names[i]: i for i in control}
    pattern = re.compile("(" + "|".join(re.escape(piece) for piece in by_name) + ")")

    def split(text: str) -> list[int]:
        ids: list[int] = []
        for part in pattern.split(text):
            ids += [by_name[part]] if part in by_name else model.encode(part)
        return ids

    def as_bytes(token_id: int) -> bytes:
        if model.is_byte(token_id):
            return bytes([int(names[token_id][3:5], 16)])
        return names[token_id].replace("▁", " ").encode()

    eos = model.eos_id() if model.eos_id() >= 0 else None
    return Tokenizer(
        name=name,
        kind="SentencePiece",
        pieces=tuple(as_bytes(i) for i in range(len(names))),
        control=frozenset(control),
        bos=model.bos_id() if model.bos_id() >= 0 else None,
        stop_ids=_stop_ids(config, eos, *map(by_name.get, END_OF_TURN)),
        split=split,
    )


def _from_json(path: Path, config: Mapping[str, Any], name: str) -> Tokenizer:
    from tokenizers import Tokenizer as Library

    description = json.loads(path.read_text("utf-8"))
    if "vocab" in description:
        from jaxcore.tekken import tekken_tokenizer  # imports this module

        return tekken_tokenizer(path, description, _stop_ids(config), name)
    library = Library.from_file(str(path))
    kind = description["model"]["type"]
    if kind == "WordPiece":
        raise CheckpointError(f"{path}: a WordPiece tokenizer changes the text, so its tokens have no exact bytes.")
    byte_level = '"ByteLevel"' in json.dumps(description.get("decoder"))
    return from_library(library, kind, byte_level, config, name)


OPENERS = {".json": _from_json, ".gguf": _from_gguf}
"""By ending; a file of any other is SentencePiece's."""


def from_library(library: Any, kind: str, byte_level: bool, config: Mapping[str, Any], name: str) -> Tokenizer:
    """A tokenizer of the ``tokenizers`` library; ``byte_level`` says how its vocabulary spells bytes."""
    added = library.get_added_tokens_decoder()
    special = {i: token.content for i, token in added.items() if token.special}
    alphabet = {character: byte for byte, character in _byte_alphabet().items()}

    def as_bytes(piece: str, token_id: int) -> bytes:
        if token_id in added:
            return added[token_id].content.encode()
        if byte_level:
            return bytes(alphabet[character] for character in piece)
        if re.fullmatch(r"<0x[0-9A-F]{2}>", piece):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()

    size = max(library.get_vocab(with_added_tokens=True).values()) + 1
    by_name = {content: i for i, content in special.items()}
    bos = config.get("bos_token_id")
    if bos is None:
        bos = by_name.get("<bos>", by_name.get("<s>"))
    return Tokenizer(
        name=name,
        kind=f"{kind} ({'byte level' if byte_level else 'tokenizer.json'})",
        pieces=tuple(as_bytes(library.id_to_token(i) or "", i) for i in range(size)),
        control=frozenset(special),
        bos=bos,
        stop_ids=_stop_ids(config, by_name.get("<eos>", by_name.get("</s>")), *map(by_name.get, END_OF_TURN)),
        split=lambda text: library.encode(text, add_special_tokens=False).ids,
    )


def _byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2, openai/gpt-2 encoder.py)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
