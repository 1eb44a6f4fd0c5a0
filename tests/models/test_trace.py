"""The view inside: parts add up to what they are parts of, and chosen rows are those rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcore.catalogue import open_reference
from jaxcore.session import load
from models import decode
from models.trace import TAPS, no_edits
from tests.reference import apertus, char, gemma3

IDS = np.array(gemma3.prompt(30)) % 28
CLOSE = 2e-4
"""Float32 sums of the same terms in another order, in logits of size 10."""


@pytest.fixture(scope="module", params=["gemma3", "apertus", "char"])
def model(request, make, tmp_path_factory):
    """A tiny model of each family."""
    if request.param == "char":
        path = char.save(tmp_path_factory.mktemp("char") / "m.safetensors", char.make(24, layers=3, context=40))
        return load(open_reference(str(path)), dtype="float32", device="cpu")
    return make({"gemma3": gemma3, "apertus": apertus}[request.param])[1]


def run(model, taps=TAPS, **options):
    resid, _, trace = decode.extend(
        model.params,
        decode.new_cache(model.config, 0),
        jnp.asarray(IDS),
        jnp.arange(len(IDS)),
        cfg=model.config,
        taps=taps,
        **options,
    )
    return resid, trace


def family(model):
    return decode.FAMILIES[model.config.family]


def logits(model, resid):
    return np.asarray(family(model).unembed(model.params, resid, model.config))


def test_sublayers_write_the_stream_and_heads_write_attention(model):
    resid, trace = run(model)
    np.testing.assert_allclose(trace.resid_pre + trace.attn_out, trace.resid_mid, atol=CLOSE)
    np.testing.assert_allclose(trace.resid_mid + trace.mlp_out, trace.resid_post, atol=CLOSE)
    np.testing.assert_array_equal(trace.resid_post[:-1], trace.resid_pre[1:])
    np.testing.assert_array_equal(trace.resid_post[-1], resid)
    np.testing.assert_allclose(trace.head_out.sum(axis=2), trace.attn_out, atol=CLOSE)


def test_writers_write_what_was_written(model):
    _, trace = run(model)
    writers = jax.vmap(family(model).writers)(model.params.blocks)
    heads = jnp.einsum("lshd,lmhd->lshm", trace.z, writers.W_O) * trace.attn_norm_scale[:, :, None, None]
    np.testing.assert_allclose(heads, trace.head_out, atol=CLOSE)
    mlp = jnp.einsum("lsu,lmu->lsm", trace.mlp_act, writers.W_down) * trace.mlp_norm_scale[:, :, None]
    np.testing.assert_allclose(mlp, trace.mlp_out, atol=CLOSE)


def test_patterns_and_values_make_z(model):
    _, trace = run(model)
    group = model.config.n_heads // model.config.n_kv_heads
    values = jnp.repeat(trace.v, group, axis=1)
    np.testing.assert_allclose(jnp.einsum("lhqk,lhkd->lqhd", trace.pattern, values), trace.z, atol=CLOSE)


def test_parts_of_the_stream_add_up_to_the_logits(model):
    resid, trace = run(model)
    parts = [trace.resid_pre[0], *trace.attn_out, *trace.mlp_out]
    read = sum(family(model).read_out(model.params, part, resid, model.config) for part in parts)
    total = read @ model.params.W_U.T + family(model).output_bias(model.params)
    np.testing.assert_allclose(total, logits(model, resid), atol=CLOSE)


def test_chosen_rows_are_those_rows(model):
    rows = jnp.array([3, 17, 29, 0])
    _, whole = run(model)
    _, some = run(model, rows=rows)
    for tap in TAPS:
        axis = {"pattern": 2, "v": None}.get(tap, 1)
        expected = getattr(whole, tap)
        expected = expected if axis is None else jnp.take(expected, rows, axis=axis)
        np.testing.assert_array_equal(getattr(some, tap), expected, err_msg=tap)


def test_no_edits_change_nothing(model):
    resid, _ = run(model)
    same, _ = run(model, edits=no_edits(model.config))
    np.testing.assert_allclose(resid, same, atol=CLOSE)


def with_block(model, **changes):
    return model.params._replace(blocks=model.params.blocks._replace(**changes))


def test_a_head_scaled_by_two_is_that_of_a_model_with_twice_its_output_weights(model):
    edits = no_edits(model.config)
    edits = edits._replace(head_scale=edits.head_scale.at[1, 2].set(2.0))
    got, _ = run(model, edits=edits)
    doubled = model.params.blocks.W_O.at[1, :, 2].multiply(2.0)
    expected, _, _ = decode.extend(
        with_block(model, W_O=doubled),
        decode.new_cache(model.config, 0),
        jnp.asarray(IDS),
        jnp.arange(len(IDS)),
        cfg=model.config,
    )
    np.testing.assert_allclose(logits(model, got), logits(model, expected), atol=CLOSE)


def test_patching_everything_from_another_text_gives_its_stream(model):
    """Each addition has its own row for every token."""
    _, other = run(model)
    edits = no_edits(model.config, rows=len(IDS))
    edits = edits._replace(
        head_scale=jnp.zeros_like(edits.head_scale),
        head_add=other.z,
        mlp_scale=jnp.zeros_like(edits.mlp_scale),
        mlp_add=other.mlp_out,
    )
    _, _, trace = decode.extend(
        model.params,
        decode.new_cache(model.config, 0),
        jnp.asarray(IDS[::-1].copy()),
        jnp.arange(len(IDS)),
        cfg=model.config,
        taps=frozenset({"attn_out", "mlp_out"}),
        edits=edits,
    )
    np.testing.assert_allclose(trace.attn_out, other.attn_out, atol=CLOSE)
    np.testing.assert_allclose(trace.mlp_out, other.mlp_out, atol=CLOSE)
