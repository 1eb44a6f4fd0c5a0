"""The filters against `transformers`' warpers and against a float64 version of the contract."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from jaxcore import sampling
from jaxcore.sampling import Settings, filters
from models.errors import InputError
from tests.reference import filters as reference

keep = jax.jit(sampling.keep)
NEAR = 1e-6
"""Masses this near to a line may fall on either side of it."""
PROBABILITIES = {"rtol": 2e-5, "atol": 1e-7}


def ours(logits, **settings):
    return jax.device_get(keep(jnp.asarray(logits, jnp.float32), filters(Settings(**settings))))


def check(logits, **settings):
    """Ours equals the reference in every number."""
    logits = np.asarray(logits, np.float32)
    settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **settings}
    kept, expected = ours(logits, **settings), reference.keep(logits, **settings)
    np.testing.assert_array_equal(kept.mask, expected.mask)
    for count in ("kept_top_k", "kept_top_p", "kept_final"):
        assert getattr(kept, count) == getattr(expected, count), count
    for number in (
        "probability_raw",
        "probability_temperature",
        "probability_final",
        "mass_top_k",
        "mass_top_p",
        "mass_final",
    ):
        np.testing.assert_allclose(getattr(kept, number), getattr(expected, number), **PROBABILITIES, err_msg=number)
    return kept


def warped(logits, temperature, top_k, top_p, min_p):
    """What transformers' warpers leave finite, in float64."""
    scores = torch.tensor(np.asarray(logits, np.float64))[None]
    for warper, wanted in (
        (TemperatureLogitsWarper(temperature), True),
        (top_k and TopKLogitsWarper(top_k), top_k > 0),
        (TopPLogitsWarper(top_p), top_p < 1),
        (MinPLogitsWarper(min_p), min_p > 0),
    ):
        if wanted:
            scores = warper(None, scores)
    return torch.isfinite(scores[0]).numpy(), torch.softmax(scores[0], 0).numpy()


@st.composite
def distributions(draw):
    """Logits without ties, from nearly flat to nearly certain, some with a long tail."""
    vocab = draw(st.sampled_from([2, 50, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from([rng.normal, rng.laplace, rng.uniform, rng.gumbel]))
    logits = np.asarray(shape(size=vocab) * draw(st.sampled_from([0.01, 0.3, 1, 3, 30])), np.float32)
    assume(len(np.unique(logits)) == vocab)
    return logits + np.float32(draw(st.sampled_from([0, -20, 7])))


choices = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 10),
        "top_k": st.one_of(st.just(0), st.integers(1, 60), st.integers(1, 1200)),
        "top_p": st.one_of(st.just(1.0), st.floats(0.001, 0.9999)),
        "min_p": st.one_of(st.just(0.0), st.floats(0.0001, 1)),
    }
)


@run_with(max_examples=10_000, deadline=None, derandomize=True, database=None)
@given(distributions(), choices)
def test_the_filters_keep_what_the_warpers_of_transformers_keep(logits, chosen):
    assume(len(np.unique(logits)) == len(logits))
    assume(reference.keep(logits, **chosen).margin > NEAR)
    kept = ours(logits, **chosen)
    mask, final = warped(logits, **chosen)
    np.testing.assert_array_equal(kept.mask, mask)
    np.testing.assert_allclose(kept.probability_final, final, rtol=5e-5, atol=1e-7)


ties = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@run_with(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(ties, choices)
def test_the_filters_follow_the_contract_with_ties(logits, chosen):
    padded = np.full(12, -4.0, np.float32)  # one shape for the compiler
    padded[: len(logits)] = logits
    assume(reference.keep(padded, **chosen).margin > NEAR)
    check(padded, **chosen)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("setting", [{}, {"top_k": 100_000}, {"top_p": 0.3}, {"top_p": 0.999}, {"min_p": 0.01}])
def test_the_real_vocabulary_is_cut_exactly(temperature, setting):
    """262,144 nearly equal masses of 4e-6 each: sums in float32 must still find the very token."""
    rng = np.random.default_rng(5)
    for scale in (0.5, 3.0):
        logits = (rng.normal(size=262_144) * scale).astype(np.float32)
        chosen = {"temperature": temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **setting}
        kept, expected = ours(logits, **chosen), reference.keep(logits, **chosen)
        ids = reference.order(logits)
        weights = expected.probability_temperature[ids] / expected.mass_top_k
        allowed = 1 + NEAR / weights[expected.kept_top_p - 1]  # tokens within 1e-6 of the line
        assert abs(int(kept.kept_top_p) - expected.kept_top_p) <= allowed
        assert kept.kept_top_k == expected.kept_top_k
        np.testing.assert_array_equal(np.flatnonzero(kept.mask), np.sort(ids[: kept.kept_final]))
        np.testing.assert_allclose(kept.probability_final.sum(dtype=np.float64), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("logits", "settings", "survivors"),
    [
        ([1.0, 3.0, 3.0, 2.0], {"temperature": 0.0}, [1]),
        ([0.0, -0.0, 0.0], {"temperature": 0.0}, [0]),
        ([-0.0, 0.0, -1.0], {"top_k": 1}, [0]),
        ([-0.0, 0.0, -0.0, 0.0], {"top_k": 3}, [0, 1, 2]),
        ([2.0, 2.0, 2.0, 2.0, 1.0], {"top_k": 2}, [0, 1]),
        ([1.0, 2.0, 1.0, 2.0, 1.0], {"top_k": 3}, [0, 1, 3]),
        ([1.0, 2.0, 3.0], {"top_k": 0}, [0, 1, 2]),
        ([1.0, 2.0, 3.0], {"top_k": 3}, [0, 1, 2]),
        ([1.0, 2.0, 3.0], {"top_k": 2**31 - 1}, [0, 1, 2]),
        ([5.0, 5.0, 5.0, 5.0], {"top_p": 0.5}, [0, 1]),
        ([5.0, 5.0, 5.0, 5.0], {"top_p": 0.51}, [0, 1, 2]),
        ([5.0, 5.0, 5.0, 5.0], {"top_k": 2, "top_p": 0.5}, [0]),
        ([5.0, 5.0, 5.0, 5.0], {"top_p": 1.0}, [0, 1, 2, 3]),
        ([1.0, 9.0, 2.0], {"top_p": 0.0}, [1]),
        ([1.0, 9.0, 9.0], {"top_p": 1e-30}, [1]),
        ([0.0, 9.0, 9.0], {"min_p": 1.0}, [1, 2]),
        ([0.0, 1.0, 2.0], {"min_p": 1.0}, [2]),
        ([0.0, 1.0, 2.0], {"min_p": 0.0}, [0, 1, 2]),
        ([0.0, 0.0, 0.0, 0.0], {"top_k": 3, "min_p": 1.0}, [0, 1, 2]),
        ([3.0e38, -3.0e38, 2.9e38], {}, [0, 1, 2]),
        ([-3.0e38, -3.0e38, -3.1e38], {"top_p": 0.5}, [0]),
        ([1e-30, 2e-30, 0.0], {"top_k": 2}, [0, 1]),
        ([-1e-30, -2e-30, -3e-30], {"top_k": 2}, [0, 1]),
        ([7.0], {"temperature": 0.3, "top_k": 5, "top_p": 0.1, "min_p": 0.9}, [0]),
        ([7.0], {"temperature": 0.0}, [0]),
        ([1.0, 2.0, 2.0], {"temperature": 1e-6}, [0, 1, 2]),
        ([1.0, 2.0, 2.0], {"temperature": 1e-6, "top_p": 0.9}, [1, 2]),
        ([1.0, 2.0, 2.0], {"temperature": 1e-40, "top_p": 0.9}, [1, 2]),
        ([1.0, 2.0, 2.0], {"temperature": 100.0, "top_p": 0.5}, [1, 2]),
    ],
)
def test_edges(logits, settings, survivors):
    kept = check(logits, **settings)
    assert np.flatnonzero(kept.mask).tolist() == survivors


def test_greedy_reports_the_plain_distribution():
    logits = np.array([0.5, 2.0, 1.0], np.float32)
    kept = ours(logits, temperature=0.0, top_k=0, top_p=0.2, min_p=0.7)
    np.testing.assert_allclose(kept.probability_raw, reference.softmax(logits), rtol=1e-6)
    np.testing.assert_allclose(kept.probability_temperature, reference.softmax(logits), rtol=1e-6)
    np.testing.assert_array_equal(kept.probability_final, [0, 1, 0])
    assert (kept.kept_top_k, kept.kept_top_p, kept.kept_final) == (1, 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": 101.0},
        {"top_k": -1},
        {"top_k": 2**31},
        {"top_p": 1.01},
        {"top_p": -0.5},
        {"top_p": float("nan")},
        {"min_p": 2.0},
        {"min_p": -0.01},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name} is .*choose a number from 0"):
        Settings(**wrong)


def test_ranks_count_ties_by_id():
    logits = jnp.array([1.0, 3.0, -0.0, 3.0, 0.0, -2.0])
    ranks = [int(sampling.rank(logits, jnp.int32(i))) for i in range(6)]
    assert ranks == [3, 1, 4, 2, 5, 6]


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_entropies(scale):
    logits = np.random.default_rng(0).normal(size=1000).astype(np.float32) * np.float32(scale)
    step = sampling.preview(jnp.asarray(logits), filters(Settings(temperature=0.8, top_k=40, top_p=0.95)))
    expected = reference.keep(logits, 0.8, 40, 0.95, 0.0)
    np.testing.assert_allclose(step.entropy_raw_nats, reference.entropy(expected.probability_raw), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        step.entropy_final_nats, reference.entropy(expected.probability_final), rtol=1e-4, atol=1e-6
    )


SETTINGS = [
    Settings(),
    Settings(temperature=0.0),
    Settings(temperature=2.0, top_k=0, top_p=1.0),
    Settings(temperature=1.0, top_k=3, top_p=1.0),
    Settings(temperature=1.3, top_k=0, top_p=0.8),
    Settings(temperature=1.3, top_k=0, top_p=1.0, min_p=0.2),
]


@pytest.mark.parametrize("chosen", SETTINGS)
def test_draws_follow_the_final_distribution(chosen):
    logits = jnp.array([0.1, 2.0, -1.0, 1.5, 0.7, 1.9, -3.0, 0.0, 1.0, -0.5])
    kept = keep(logits, filters(chosen))
    n = 20_000
    drawn = jax.vmap(partial(sampling.draw, kept=kept))(jax.random.split(jax.random.key(7), n))
    counts = np.bincount(np.asarray(drawn), minlength=len(logits))
    assert (counts[~np.asarray(kept.mask)] == 0).all()
    expected = np.asarray(kept.probability_final, np.float64)[np.asarray(kept.mask)]
    expected *= n / expected.sum()
    assert chisquare(counts[np.asarray(kept.mask)], expected).pvalue > 0.001 or len(expected) == 1


def test_draws_from_the_real_vocabulary_stay_inside():
    logits = jnp.asarray(np.random.default_rng(1).normal(size=262_144), jnp.float32)
    kept = keep(logits, filters(Settings(temperature=1.0, top_k=0, top_p=0.1)))
    drawn = jax.lax.map(partial(sampling.draw, kept=kept), jax.random.split(jax.random.key(0), 200))
    assert np.asarray(kept.mask)[np.asarray(drawn)].all()
    assert len(np.unique(drawn)) > 150  # thousands of tokens survive, so most draws differ


@pytest.mark.parametrize("chosen", SETTINGS)
def test_preview_agrees_with_keep(chosen):
    logits = jnp.asarray(np.random.default_rng(2).normal(size=300) * 2, jnp.float32)
    kept, step = keep(logits, filters(chosen)), sampling.preview(logits, filters(chosen))
    best = int(jnp.argmax(logits))
    assert (int(step.token_id), int(step.rank), float(step.logit)) == (best, 1, float(logits[best]))
    for field in ("kept_top_k", "kept_top_p", "kept_final", "mass_top_k", "mass_top_p", "mass_final"):
        np.testing.assert_allclose(getattr(step, field), getattr(kept, field), rtol=1e-6)
    assert float(step.top1_raw) == float(step.probability_raw)
    assert float(step.top1_temperature) == float(step.probability_temperature)
    rows = step.candidates
    assert rows.token_id.tolist() == reference.order(np.asarray(logits))[: sampling.CANDIDATES].tolist()
    for field in ("probability_raw", "probability_temperature", "probability_final"):
        np.testing.assert_allclose(getattr(rows, field), getattr(kept, field)[rows.token_id], rtol=1e-5)
    assert rows.kept.tolist() == kept.mask[rows.token_id].tolist()


def test_candidates_of_a_small_vocabulary_are_all_of_it():
    step = sampling.preview(jnp.array([1.0, 2.0, 2.0]), filters(Settings()))
    assert step.candidates.token_id.tolist() == [1, 2, 0]


def test_zeros_of_either_sign_are_one_value_to_every_part_of_a_step():
    logits = jnp.array([-0.0, 0.0, -0.0, -1.0])
    step = sampling.preview(logits, filters(Settings(temperature=0.0)))
    assert (int(step.token_id), int(step.rank), float(step.probability_final)) == (0, 1, 1.0)
    assert step.candidates.token_id.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("chosen", SETTINGS[2:])
def test_the_curve_along_temperature_agrees_with_keep(chosen):
    logits = jnp.asarray(np.random.default_rng(3).normal(size=300) * 2, jnp.float32)
    temperatures = jnp.array([0.1, 0.7, 1.0, 2.5])
    entropies, survivors = sampling.along_temperature(logits, filters(chosen), temperatures)
    for t, entropy, count in zip(temperatures, entropies, survivors, strict=True):
        kept = keep(logits, filters(chosen)._replace(temperature=t))
        assert int(count) == int(kept.kept_final)
        expected = reference.entropy(np.asarray(kept.probability_final, np.float64))
        np.testing.assert_allclose(entropy, expected, rtol=1e-4, atol=1e-6)


def test_moving_a_slider_compiles_nothing():
    logits, temperatures = jnp.arange(77.0), jnp.linspace(0.1, 2, 5)
    sampling.preview(logits, filters(SETTINGS[0]))
    sampling.along_temperature(logits, filters(SETTINGS[0]), temperatures)
    before = sampling.preview._cache_size(), sampling.along_temperature._cache_size()
    for chosen in [*SETTINGS, Settings(temperature=1.0, top_k=7, top_p=1.0)]:
        sampling.preview(logits, filters(chosen))
        sampling.along_temperature(logits, filters(chosen), temperatures)
    assert (sampling.preview._cache_size(), sampling.along_temperature._cache_size()) == before
    sampling.preview(jnp.arange(78.0), filters(SETTINGS[0]))
    assert sampling.preview._cache_size() == before[0] + 1  # the counter counts
