"""Reading a text with a view inside: in however many pieces, the same."""

import numpy as np
import pytest

from jaxcore import reading
from jaxcore.catalogue import open_reference
from jaxcore.reading import read, readable
from jaxcore.session import load
from models.errors import InputError
from tests.reference import gemma3

TAPS = frozenset({"resid_mid", "pattern", "v"})


def whole(pieces, tap, axis):
    """A tap of all pieces, padding left out."""
    return np.concatenate(
        [np.take(np.asarray(getattr(p.trace, tap)), np.arange(p.count), axis=axis) for p in pieces], axis=axis
    )


@pytest.fixture
def narrow(monkeypatch):
    """Memory for 16 queries at a time."""
    monkeypatch.setattr(reading, "PATTERN_BYTES", 1)


def test_small_pieces_show_what_one_shows(tiny, narrow, monkeypatch):
    ids = gemma3.prompt(50)
    cut = list(read(tiny, ids, TAPS))
    monkeypatch.setattr(reading, "PATTERN_BYTES", 2**30)
    (one,) = read(tiny, ids, TAPS)
    assert [(piece.start, piece.count) for piece in cut] == [(0, 16), (16, 16), (32, 16), (48, 2)]
    np.testing.assert_allclose(whole(cut, "resid_mid", 1), one.trace.resid_mid[:, :50], atol=2e-5)
    np.testing.assert_allclose(whole(cut, "v", 2), one.trace.v[:, :, :50], atol=2e-5)
    np.testing.assert_allclose(whole(cut, "pattern", 2)[..., :50], one.trace.pattern[:, :, :50, :50], atol=2e-5)


def test_chosen_rows_over_several_pieces(tiny, narrow):
    ids, rows = gemma3.prompt(50), [2, 15, 16, 49]
    all_rows = whole(list(read(tiny, ids, TAPS)), "resid_mid", 1)
    pieces = list(read(tiny, ids, TAPS, rows))
    assert [piece.count for piece in pieces] == [2, 1, 0, 1]
    np.testing.assert_allclose(whole(pieces, "resid_mid", 1), all_rows[:, rows], atol=2e-5)
    last = np.asarray(pieces[-1].resid[0])
    np.testing.assert_allclose(last, list(read(tiny, ids, TAPS))[-1].resid[1], atol=2e-5)


def test_a_model_that_only_looks_back_a_window_says_how_long_a_text_may_be(make):
    _, model = make(layer_types=["sliding_attention"] * 5)
    with pytest.raises(InputError, match=r"sees at most 6 tokens back: patterns of a text of 600 tokens are not kept"):
        list(read(model, gemma3.prompt(600), TAPS))
    assert sum(piece.count for piece in read(model, gemma3.prompt(600), frozenset({"resid_post"}))) == 600


def test_of_a_sliding_context_the_last_tokens_are_read(tiny):
    model = load(open_reference("char-english"), dtype="float32", device="cpu")
    ids = list(range(28)) * 5
    assert readable(model, ids) == ids[-128:]
    with pytest.raises(InputError, match="reads at most 700"):
        readable(tiny, [0] * 700)
