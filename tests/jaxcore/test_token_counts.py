"""Counts of tokens over many words, and the conclusions from them."""

import pytest
from scipy.stats import binomtest

from jaxcore.char_tokenizer import char_tokenizer
from jaxcore.token_counts import Rival, characters_per_token, count, sign_test, verdict


def test_words_that_cannot_be_written_have_no_count():
    assert count(char_tokenizer(), ["abc", "Abc", "a b\n", ""]) == (3, None, 4, 0)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 0), (5, 0), (9, 1), (3, 3), (4, 3), (120, 80)])
def test_the_sign_test_is_scipys(a, b):
    expected = binomtest(a, a + b).pvalue if a + b else 1.0
    assert sign_test(a, b) == pytest.approx(expected)


def test_the_fewest_tokens_win_on_the_words_that_all_can_write():
    found = verdict({"x": (5, 4, None, 3), "y": (4, 5, 1, 9), "z": (4, 4, 1, 3)})
    assert found is not None
    assert (found.best, found.total, found.words) == ("z", 11, 3)
    assert found.rivals == (
        Rival("x", 12, better=0, worse=1, same=2, chance=1.0),
        Rival("y", 18, better=0, worse=2, same=1, chance=0.5),
    )


def test_without_a_shared_word_there_is_no_verdict():
    assert verdict({"x": (None, 4), "y": (3, None)}) is None
    assert verdict({}) is None


def test_alone_a_tokenizer_has_no_rival():
    found = verdict({"x": (5, 4)})
    assert found is not None
    assert found.rivals == ()


def test_characters_per_token_need_every_word():
    assert characters_per_token(("abcd", "éf"), (1, 2)) == 2.0
    assert characters_per_token(("abcd", "éf"), (1, None)) is None
    assert characters_per_token((), ()) is None
