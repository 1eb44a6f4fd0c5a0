"""The cache and the trace: however a sequence is cut up, each token sees the same."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from models import decode
from models.blocks import rms_norm
from models.trace import TAPS
from tests.reference import apertus, gemma3

LENGTH = 60
EXACT = 2e-5
"""Float32 sums of the same terms in another order, in logits of size 10."""


FINAL_GAIN = {"gemma3": lambda weight: 1 + weight, "apertus": lambda weight: weight}


@pytest.fixture(scope="module", params=[gemma3, apertus], ids=["gemma3", "apertus"])
def pair(make, request):
    """A tiny model of each family, in `transformers` and here."""
    return make(request.param)


@pytest.fixture(scope="module")
def tiny(pair):
    return pair[1]


def final_norm(model, resid):
    gain = FINAL_GAIN[model.config.family](model.params.final_norm)
    return rms_norm(resid, gain, model.config.norm_eps)


@pytest.fixture(scope="module")
def full(tiny):
    """Logits and full trace of one sequence, run at once without a cache."""
    return run(tiny, [LENGTH], capacity=0, taps=TAPS)


def run(model, lengths, *, capacity, padding=0, taps=frozenset()):
    """A sequence in pieces of the given lengths, each followed by padding: logits and a trace for every piece."""
    ids = np.array(gemma3.prompt(sum(lengths)), np.int32)
    cache, start, logits, traces = decode.new_cache(model.config, capacity), 0, [], []
    for n in lengths:
        tokens = jnp.array(np.pad(ids[start : start + n], (0, padding)))
        positions = jnp.array(np.pad(np.arange(start, start + n), (0, padding), constant_values=-1))
        out, cache, trace = decode.forward(model.params, cache, tokens, positions, cfg=model.config, taps=taps)
        logits.append(np.asarray(out)[:n])
        traces.append(trace)
        start += n
    return np.concatenate(logits), traces


@pytest.mark.parametrize("lengths", [[LENGTH], [1] * LENGTH, [5, 1, 1, 13, 40], [47, *[1] * 13], [6, 6, 6, 42]])
@pytest.mark.parametrize("capacity", [LENGTH, 200])
def test_cached_decode_equals_the_whole_forward(tiny, full, lengths, capacity):
    np.testing.assert_allclose(run(tiny, lengths, capacity=capacity)[0], full[0], atol=EXACT)


@pytest.mark.parametrize("lengths", [[5, 1, 14, 40], [47, 13], [3, *[1] * 57]])
@pytest.mark.parametrize("padding", [9])
def test_padding_changes_nothing(tiny, full, lengths, padding):
    np.testing.assert_allclose(run(tiny, lengths, capacity=64, padding=padding)[0], full[0], atol=EXACT)


def test_local_layers_keep_only_their_window(make):
    narrow, wide = decode.new_cache(make(gemma3)[1].config, 64)
    (all_alike,) = decode.new_cache(make(apertus)[1].config, 64)
    assert all_alike.k.shape == (3, 2, 64, 16)
    assert narrow.k.shape == (3, 2, gemma3.WINDOW, 16)
    assert wide.k.shape == (2, 2, 64, 16)


def test_step_gives_the_last_real_row(tiny, full):
    ids = gemma3.prompt(LENGTH)
    tokens, positions = jnp.array([*ids, 0, 0, 0]), jnp.array([*range(LENGTH), -1, -1, -1])
    row, _, trace = decode.step(tiny.params, decode.new_cache(tiny.config, 64), tokens, positions, cfg=tiny.config)
    np.testing.assert_allclose(row, full[0][-1], atol=EXACT)
    assert all(value is None for value in trace)


def test_several_sequences_under_vmap(tiny):
    texts = np.array([gemma3.prompt(20, seed=s) for s in range(3)], np.int32)
    cache = jax.tree.map(lambda x: jnp.repeat(x[None], 3, 0), decode.new_cache(tiny.config, 32))

    def one(cache, tokens):
        return decode.forward(tiny.params, cache, tokens, jnp.arange(20), cfg=tiny.config)[0]

    together = jax.vmap(one)(cache, texts)
    for text, row in zip(texts, together, strict=True):
        alone, *_ = decode.forward(
            tiny.params, decode.new_cache(tiny.config, 32), jnp.array(text), jnp.arange(20), cfg=tiny.config
        )
        np.testing.assert_allclose(row, alone, atol=EXACT)


def test_the_residual_stream_adds_up(full):
    (trace,) = full[1]
    np.testing.assert_allclose(trace.resid_mid, trace.resid_pre + trace.attn_out, atol=1e-5)
    np.testing.assert_allclose(trace.resid_post, trace.resid_mid + trace.mlp_out, atol=1e-5)
    np.testing.assert_array_equal(trace.resid_post[:-1], trace.resid_pre[1:])
    np.testing.assert_allclose(trace.head_out.sum(axis=2), trace.attn_out, atol=1e-5)


def test_the_trace_is_the_stream_that_transformers_sees(pair):
    """Its hidden states: before each layer, and after the last one through the final norm."""
    reference, ours = pair
    ids = gemma3.prompt(LENGTH)
    with torch.no_grad():
        states = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states
    (trace,) = run(ours, [LENGTH], capacity=0, taps=frozenset({"resid_pre", "resid_post"}))[1]
    for layer, state in enumerate(states[:-1]):
        np.testing.assert_allclose(trace.resid_pre[layer], state[0], atol=1e-4)
    last = final_norm(ours, trace.resid_post[-1])
    np.testing.assert_allclose(last, states[-1][0], atol=1e-4)


def test_the_tapped_stream_gives_the_logits_with_one_final_norm(tiny, full):
    (trace,) = full[1]
    unembed = decode.FAMILIES[tiny.config.family].unembed
    logits = unembed(tiny.params, trace.resid_post[-1], tiny.config)
    np.testing.assert_allclose(logits, full[0], atol=EXACT)
    twice = unembed(tiny.params, final_norm(tiny, trace.resid_post[-1]), tiny.config)
    assert np.abs(twice - full[0]).max() > 0.1  # the norm's random gain shows a second application


def test_pattern_rows_are_distributions_with_exact_zeros(tiny, full):
    pattern = np.asarray(full[1][0].pattern)
    assert pattern.shape == (tiny.config.n_layers, 4, LENGTH, LENGTH)
    np.testing.assert_allclose(pattern.sum(-1), 1, atol=1e-5)
    query, key = np.mgrid[:LENGTH, :LENGTH]
    for layer, window in enumerate(tiny.config.windows):
        seen = (key <= query) & (key > query - window)
        assert (pattern[layer][:, ~seen] == 0).all()
        assert (pattern[layer][:, seen] > 0).all()


@pytest.mark.parametrize("lengths", [[1] * LENGTH, [23, *[1] * 37], [30, 30]])
def test_the_pattern_during_decode_is_a_row_of_the_whole_one(tiny, full, lengths):
    traces, start = run(tiny, lengths, capacity=64, padding=2, taps=frozenset({"pattern"}))[1], 0
    for n, trace in zip(lengths, traces, strict=True):
        expected = full[1][0].pattern[:, :, start : start + n]
        np.testing.assert_allclose(trace.pattern[:, :, :n, :LENGTH], expected, atol=1e-5)
        assert (np.asarray(trace.pattern)[:, :, :n, LENGTH:] == 0).all()
        start += n


@pytest.mark.parametrize("taps", [{"pattern"}, {"z"}, {"resid_pre", "mlp_out"}, TAPS])
def test_taps_change_no_logits_and_give_only_what_was_asked(tiny, full, taps):
    logits, (trace,) = run(tiny, [LENGTH], capacity=0, taps=frozenset(taps))
    np.testing.assert_allclose(logits, full[0], atol=EXACT)
    assert {name for name, value in trace._asdict().items() if value is not None} == set(taps)


def test_a_second_call_does_not_trace_again(tiny):
    run(tiny, [16, 16], capacity=64)
    before = decode.forward._cache_size()
    run(tiny, [16, 16, 16], capacity=64)
    assert decode.forward._cache_size() == before
    run(tiny, [17], capacity=64)
    assert decode.forward._cache_size() == before + 1  # the counter counts


def test_shapes_are_checked_in_tests():
    with pytest.raises(TypeCheckError, match="rms_norm"):
        rms_norm(jnp.ones((3, 8)), jnp.ones(7), 1e-6)


def test_a_fault_in_the_query_to_key_head_map_would_show(tiny):
    """Query head h reads key/value head h // group: exchanging key/value heads moves the patterns of all heads."""
    blocks = tiny.params.blocks
    exchanged = blocks._replace(W_K=blocks.W_K[:, ::-1], W_V=blocks.W_V[:, ::-1])
    faulty = replace(tiny, params=tiny.params._replace(blocks=exchanged))
    taps = frozenset({"pattern"})
    right, wrong = (run(m, [20], capacity=0, taps=taps)[1][0].pattern for m in (tiny, faulty))
    assert (np.abs(right - wrong).max(axis=(2, 3))[0] > 0.05).all()
