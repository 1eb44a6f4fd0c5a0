"""The tokenizer in a GGUF file, as the file that its library reads.

Sources: llama.cpp's ``gguf-py`` (keys and token types) and ``src/llama-vocab.cpp`` (pre-tokenizers).
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from jaxcore.checkpoint.gguf_file import Numbers, Strings, damaged
from models.errors import ConfigError

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of tokens that are no ordinary part of a text."""
PATTERNS: Mapping[str, str | None] = {
    "gpt-2": None,
    "tekken": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""How byte-level vocabularies cut a text before they merge, by llama.cpp's name; None for GPT-2's own way."""


def tokenizer_file(path: Path, metadata: Mapping[str, Any]) -> tuple[str, bytes]:
    """The name and content of the file that holds a GGUF's tokenizer outside it.

    Raises `ConfigError` for a kind that is not supported, `CheckpointError` for one that is damaged.
    """
    if is_byte_level(metadata):
        return "tokenizer.json", byte_level_bpe(path, metadata).to_str().encode()
    return "tokenizer.model", sentencepiece_model(path, metadata)


def is_byte_level(metadata: Mapping[str, Any]) -> bool:
    """Whether the tokenizer is a byte-level BPE, as GPT-2's is."""
    return metadata.get("tokenizer.ggml.model") == "gpt2"


def byte_level_bpe(path: Path, metadata: Mapping[str, Any]) -> Any:
    """The tokenizer of a GGUF file as one of the ``tokenizers`` library."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre not in PATTERNS:
        raise ConfigError(
            f"{path}: its vocabulary cuts texts by the rules {str(pre)[:80]!r} (tokenizer.ggml.pre); supported: "
            f"{', '.join(PATTERNS)}. Put the model's tokenizer.json beside its .safetensors and open those instead."
        )
    tokens, merges, types = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges", "token_type"))
    if not (isinstance(tokens, Strings) and isinstance(merges, Strings) and isinstance(types, Numbers)):
        raise damaged(path, "its tokens, merges or token types are missing")
    vocab = {token: i for i, token in enumerate(tokens.values)}
    if not len(tokens) == len(types) == len(vocab):
        raise damaged(path, "its tokens and their types differ in number, or a token stands twice")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges.values)]
    lost = next((pair for pair in pairs if not {*pair, "".join(pair)} <= vocab.keys()), None)
    if lost is not None:
        raise damaged(path, f"the merge {' '.join(lost)[:80]!r} does not join two tokens to a third")
    _special(path, metadata, len(tokens), bos=None, eos=None)
    pattern = PATTERNS[pre]
    library = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=pattern is not None))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is not None:
        to_bytes = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), to_bytes])
    library.pre_tokenizer = to_bytes
    library.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens.values, types.values.tolist(), strict=True):
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            library.add_tokens([AddedToken(token, special=kind != USER_DEFINED, normalized=False)])
    return library


def _special(path: Path, metadata: Mapping[str, Any], size: int, **defaults: int | None) -> dict[str, int]:
    """The ids of special tokens by llama.cpp's names, those without id or default left out."""
    given = {name: metadata.get(f"tokenizer.ggml.{name}_token_id", default) for name, default in defaults.items()}
    found = {name: token_id for name, token_id in given.items() if token_id is not None}
    if not all(isinstance(token_id, int) and 0 <= token_id < size for token_id in found.values()):
        raise damaged(path, "a special token lies outside the vocabulary")
    return found


def sentencepiece_model(path: Path, metadata: Mapping[str, Any]) -> bytes:
    """The tokenizer of a GGUF file as a SentencePiece model."""
    proto: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # generated: its classes have no static types
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "llama":
        raise ConfigError(
            f"{path}: a tokenizer of kind {kind!r} is not supported in a GGUF file; SentencePiece (llama) and "
            "byte-level BPE (gpt2) are."
        )
    names = ("tokens", "scores", "token_type")
    tokens, scores, types = (metadata.get(f"tokenizer.ggml.{name}") for name in names)
    if not (isinstance(tokens, Strings) and isinstance(scores, Numbers) and isinstance(types, Numbers)):
        raise damaged(path, "its tokens, scores or token types are missing")
    if not len(tokens) == len(scores) == len(types):
        raise damaged(path, "its token list, scores and types differ in length")
    if not np.isfinite(scores.values).all() or not np.isin(types.values, range(1, 7)).all():
        raise damaged(path, "a token has a score that is not finite, or an unknown type")
    special = _special(path, metadata, len(tokens), bos=2, eos=1, unknown=3, padding=0)
    piece_type = proto.ModelProto.SentencePiece
    model = proto.ModelProto()
    for token_id, (piece, score, kind) in enumerate(
        zip(tokens.values, scores.values.tolist(), types.values.tolist(), strict=True)
    ):
        if kind == piece_type.USER_DEFINED:
            piece = piece.replace(" ", "\u2581")  # llama.cpp writes these with plain spaces
        model.pieces.add(piece=piece, score=score, type=piece_type.UNKNOWN if token_id == special["unknown"] else kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.vocab_size = len(tokens)
    model.trainer_spec.byte_fallback = True
    for name, token_id in special.items():
        field = {"unknown": "unk", "padding": "pad"}.get(name, name)
        setattr(model.trainer_spec, f"{field}_id", token_id)
        # SentencePiece finds its special tokens by these names and ignores the ids.
        setattr(model.trainer_spec, f"{field}_piece", tokens.values[token_id])
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    return model.SerializeToString()
