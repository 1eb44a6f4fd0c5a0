"""The character transformer against the same network written out in numpy."""

import numpy as np
import pytest

from jaxcore.catalogue import open_reference
from jaxcore.sample import all_logits, generate
from jaxcore.sampling import Settings
from jaxcore.score import score
from jaxcore.session import load
from models.char.config import Config, from_table
from models.errors import ConfigError
from tests.reference import char

CLOSE = 1e-4


def opened(folder, weights, **metadata):
    path = char.save(folder / "model.safetensors", weights, **metadata)
    return load(open_reference(str(path)), dtype="float32", device="cpu")


def letters(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 28, length).tolist()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The network at full size, and our side of it."""
    weights = char.make()
    return weights, opened(tmp_path_factory.mktemp("char"), weights)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A short context, so that texts go far beyond it."""
    weights = char.make(24, layers=2, context=10)
    return weights, opened(tmp_path_factory.mktemp("small"), weights)


@pytest.mark.parametrize("length", [1, 60, 128])
def test_logits_at_full_size(full, length):
    weights, ours = full
    ids = letters(length)
    np.testing.assert_allclose(all_logits(ours, ids), char.logits(ids, weights), atol=CLOSE)


def test_a_text_longer_than_the_context_is_read_from_its_last_positions(full):
    weights, ours = full
    ids = letters(140)
    expected = char.logits(ids, weights)
    np.testing.assert_allclose(all_logits(ours, ids), expected, atol=CLOSE)
    (text,) = list(generate(ours, ids, Settings(temperature=0.0), steps=1))[-1]
    assert text.steps[0].token_id == expected[-1].argmax()
    assert text.steps[0].logit == pytest.approx(expected[-1].max(), abs=CLOSE)


@pytest.mark.parametrize("length", [9, 10, 11, 95])
def test_every_length_around_and_far_beyond_a_short_context(small, length):
    weights, ours = small
    ids = letters(length)
    np.testing.assert_allclose(all_logits(ours, ids), char.logits(ids, weights), atol=CLOSE)


@pytest.mark.parametrize("length", [1, 7, 9, 10, 11, 40])
def test_greedy_text_goes_on_past_the_context(small, length):
    weights, ours = small
    ids = letters(length, seed=3)
    (text,) = list(generate(ours, ids, Settings(temperature=0.0), steps=30))[-1]
    assert text.token_ids == char.greedy(ids, weights, 30)
    assert text.stop_reason == "steps"


def test_several_texts_go_on_past_the_context_each_on_its_own(small):
    _, ours = small
    together = list(generate(ours, letters(8), Settings(), seeds=(1, 2), steps=25))[-1]
    for text in together:
        (alone,) = list(generate(ours, letters(8), Settings(), seeds=(text.seed,), steps=25))[-1]
        assert text.token_ids == alone.token_ids
    assert together[0].token_ids != together[1].token_ids


def test_a_text_that_stops_early_does_not_disturb_the_others(small):
    _, ours = small
    options = {"seeds": (1, 2), "steps": 25}
    free = list(generate(ours, letters(8), Settings(), **options))[-1]
    stop = ours.tokenizer.decode(free[0].token_ids[:3])
    stopped = list(generate(ours, letters(8), Settings(), **options, stop_strings=(stop,)))[-1]
    assert stopped[0].token_ids == free[0].token_ids[:3]
    assert stopped[0].stop_reason == "stop_string"
    assert stop in ours.tokenizer.decode(free[1].token_ids) or stopped[1].token_ids == free[1].token_ids


def test_scores_follow_the_logits_past_the_context(small):
    weights, ours = small
    ids = letters(50)
    rows = char.logits(ids, weights)[:-1]
    log_p = rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    expected = -log_p[np.arange(49), ids[1:]]
    scored = score(ours, ids)
    np.testing.assert_allclose([t.surprisal_nats for t in scored.tokens[1:]], expected, atol=CLOSE)
    assert [t.rank for t in scored.tokens[1:]] == [
        1 + (row > row[i]).sum() for row, i in zip(rows, ids[1:], strict=True)
    ]


def test_other_sizes_and_heads_from_the_metadata(tmp_path):
    weights = char.make(40, layers=3, context=17, seed=5)
    ours = opened(tmp_path, weights, n_heads="4", context_length="17")
    assert ours.config == Config(vocab=28, d_model=40, n_layers=3, n_heads=4, d_mlp=160, context=17)
    ids = letters(30)
    np.testing.assert_allclose(all_logits(ours, ids), char.logits(ids, weights, heads=4), atol=CLOSE)


@pytest.mark.parametrize(
    "fault",
    [
        {"W_q.1": lambda w: w[::-1]},
        {"pos_emb": lambda w: np.roll(w, 1, axis=0)},
        {"ln1_b.0": np.zeros_like},
        {"lnf_b": np.zeros_like},
        {"b_out": np.zeros_like},
        {"W_proj.1": lambda w: -w},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_each_tensor_matters(small, tmp_path, fault):
    weights, _ = small
    ids = letters(10)
    changed = {**weights, **{name: np.ascontiguousarray(change(weights[name])) for name, change in fault.items()}}
    assert np.abs(all_logits(opened(tmp_path, changed), ids) - char.logits(ids, weights)).max() > 0.01


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_heads": 5}, "5 heads cannot share a width of 24"),
        ({"n_heads": 0}, "n_heads is '0'"),
        ({"d_model": "24"}, "d_model is '24'"),
        ({"context": None}, "context is 'None'"),
        ({"n_layers": True}, "n_layers is 'True'"),
    ],
)
def test_a_configuration_that_makes_no_sense(change, says):
    table = {"vocab": 28, "d_model": 24, "n_layers": 2, "n_heads": 6, "d_mlp": 96, "context": 10}
    with pytest.raises(ConfigError, match=says):
        from_table({**table, **change})
