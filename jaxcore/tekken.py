"""Mistral's Tekken files (tekken.json): a byte-level BPE whose ids begin with a block of special tokens.

Format as read by mistral-common, tokens/tokenizers/tekken.py. The pieces are merged by ``tiktoken``.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxcore.tokenizer import Tokenizer
from models.errors import CheckpointError, InputError

SPECIAL = ({"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}, {"rank": 2, "token_str": "</s>"})
"""Special tokens of a file that lists none: those that all models with such files agree on."""
LONGEST_BLANK = 100_000
"""Characters of white space in a row; tiktoken's regular expressions overflow between 500,000 and a million."""


def tekken_tokenizer(path: Path, description: Mapping[str, Any], stop_ids: frozenset[int], name: str) -> Tokenizer:
    """The tokenizer in a parsed tekken.json; special tokens spelled out in a text become their ids.

    Special tokens without a name of their own are called ``<SPECIAL_n>``, as in mistral-common. Raises
    `CheckpointError` if the tokens do not stand in the order of their ranks, and `KeyError` if a field is absent.
    """
    from tiktoken import Encoding

    config = description["config"]
    reserved, size = config["default_num_special_tokens"], config["default_vocab_size"]
    entries = description["vocab"][: size - reserved]
    if [entry["rank"] for entry in entries] != list(range(size - reserved)):
        raise CheckpointError(f"{path}: its tokens do not stand in the order of their ranks; download it again.")
    named = {entry["rank"]: entry["token_str"] for entry in description.get("special_tokens") or SPECIAL}
    special = {named.get(i, f"<SPECIAL_{i}>"): i for i in range(reserved)}
    pieces = [b64decode(entry["token_bytes"]) for entry in entries]
    encoding = Encoding(
        name,
        pat_str=config["pattern"],
        mergeable_ranks={piece: rank + reserved for rank, piece in enumerate(pieces)},
        special_tokens=special,
    )
    blank = re.compile(rf"\s{{{LONGEST_BLANK + 1}}}")

    def split(text: str) -> list[int]:
        if blank.search(text):
            raise InputError(f"The text holds over {LONGEST_BLANK:,} spaces or line breaks in a row; shorten it.")
        return encoding.encode(text, allowed_special="all")

    return Tokenizer(
        name=name,
        kind="BPE (Tekken)",
        pieces=(*(token.encode() for token in special), *pieces),
        control=frozenset(special.values()),
        bos=special.get("<s>"),
        stop_ids=stop_ids | ({special["</s>"]} if "</s>" in special else set()),
        split=split,
    )
