"""All weights of a model, as families with a token embedding, stacked blocks and a final norm have them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Float


class Params(NamedTuple):
    """``blocks`` is the family's own, its layers stacked; with tied embeddings ``W_U`` is the same array as ``W_E``."""

    W_E: Float[Array, "vocab d_model"]
    blocks: Any
    final_norm: Float[Array, "d_model"]
    W_U: Float[Array, "vocab d_model"]


def assembled(arrays: Mapping[str, Array], block: Any) -> Params:
    """Parameters from the arrays of a family's tensor table; ``block`` is the type of its blocks."""
    return Params(
        W_E=arrays["W_E"],
        blocks=block(**{field: arrays[f"blocks.{field}"] for field in block._fields}),
        final_norm=arrays["final_norm"],
        W_U=arrays.get("W_U", arrays["W_E"]),
    )
