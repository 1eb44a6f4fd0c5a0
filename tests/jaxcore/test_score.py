"""Scoring a text: surprisals, ranks and perplexity against `transformers`' logits."""

import numpy as np
import pytest
from scipy.special import log_softmax

from jaxcore.score import score, score_piece
from models.errors import InputError
from tests.reference import filters, gemma3


@pytest.mark.parametrize("length", [2, 16, 17, 90, 520])
def test_scores_are_those_of_transformers_logits(make, length):
    reference, model = make()
    ids = gemma3.prompt(length, seed=4)
    result = score(model, ids)
    log_p = log_softmax(gemma3.logits(reference, ids).astype(np.float64), axis=-1)[:-1]
    expected = -log_p[np.arange(length - 1), ids[1:]]

    first, *tokens = result.tokens
    assert (first.token_id, first.token, first.surprisal_nats, first.rank) == (gemma3.BOS, "<bos>", None, None)
    assert [token.token_id for token in tokens] == ids[1:]
    np.testing.assert_allclose([t.surprisal_nats for t in tokens], expected, atol=1e-4)
    np.testing.assert_allclose([t.entropy_nats for t in tokens], [filters.entropy(np.exp(p)) for p in log_p], atol=1e-3)
    np.testing.assert_allclose([t.top1_probability for t in tokens], np.exp(log_p.max(axis=1)), atol=1e-4)
    assert [t.top1 for t in tokens] == [model.tokenizer.text(int(i)) for i in log_p.argmax(axis=1)]
    ranks = [filters.order(p).tolist().index(i) + 1 for p, i in zip(log_p, ids[1:], strict=True)]
    assert np.mean([t.rank != r for t, r in zip(tokens, ranks, strict=True)]) < 0.02  # rounding may swap neighbours
    assert result.mean_surprisal_nats == pytest.approx(expected.mean(), abs=1e-4)
    assert result.perplexity == pytest.approx(np.exp(expected.mean()), rel=1e-3)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no tokens to read"),
        ([256], "nothing to predict: the text must have at least two tokens"),
        (gemma3.prompt(700), "at most 700"),
        ([256, 999], "Token id 999 is outside the vocabulary"),
    ],
)
def test_what_cannot_be_scored_is_refused(tiny, ids, message):
    with pytest.raises(InputError, match=message):
        score(tiny, ids)


def test_bfloat16_weights_score_close(make, tmp_path):
    reference, full = make()
    narrow = gemma3.opened(reference, tmp_path, dtype="bfloat16")
    ids = gemma3.prompt(90)
    assert score(narrow, ids).mean_surprisal_nats == pytest.approx(score(full, ids).mean_surprisal_nats, rel=0.02)


def test_another_text_in_the_same_bucket_compiles_nothing(tiny):
    score(tiny, gemma3.prompt(20))
    before = score_piece._cache_size()
    score(tiny, gemma3.prompt(50))
    assert score_piece._cache_size() == before


def test_the_real_model_reads_english_better_than_noise(real):
    """Perplexity of plain English lies in the tens, that of shuffled words in the thousands; no BOS is far worse."""
    text = "The capital of Switzerland is Bern, and the largest city of the country is Zurich."
    words = text.split()
    shuffled = " ".join(np.random.default_rng(0).permutation(words))
    encode = real.tokenizer.encode
    plain = score(real, encode(text, bos=True)).perplexity
    assert plain < 30
    assert score(real, encode(shuffled, bos=True)).perplexity > 10 * plain
    assert score(real, encode(text)).perplexity > 3 * plain
