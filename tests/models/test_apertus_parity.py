"""Apertus against `transformers`, on tiny random models that show every part of the architecture.

Both sides compute in float32; they differ by rounding alone, about 1e-5 here.
"""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxcore.catalogue import open_reference
from jaxcore.sample import all_logits, generate
from jaxcore.sampling import Settings
from jaxcore.session import load
from models import decode
from models.blocks import rms_norm, rotate, xielu
from models.rotary import Bands, Rope, inverse_frequencies
from tests.models.test_parity import whole
from tests.reference import apertus, gemma3
from tests.reference.apertus import LLAMA3, ORIGINAL, PLAIN
from tests.reference.faults import with_blocks, with_config, with_final_norm

TOLERANCE = 1e-4
CASES = {
    "grouped heads": {},
    "one key/value head": {"num_key_value_heads": 1},
    "a key/value head for each head": {"num_key_value_heads": 4},
    "unscaled": {"rope_parameters": PLAIN},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}},
    "other bands": {"rope_parameters": {**LLAMA3, "low_freq_factor": 2.0, "high_freq_factor": 8.0, "factor": 32.0}},
    "another base": {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
    "tied": {"tie_word_embeddings": True},
    "heads as wide as the model": {"head_dim": 10},
    "one head, one layer": {"num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1},
    "the usual constants": {"own_constants": False},
    "another epsilon": {"rms_norm_eps": 1e-2},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 7, 150])
def test_logits_equal_those_of_transformers(make, case, length):
    reference, ours = make(apertus, **CASES[case])
    ids = gemma3.prompt(length)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


def test_prompts_cross_all_three_bands_of_wavelengths():
    """Else the parity above would say nothing of the scaling."""
    wavelengths = 2 * np.pi / inverse_frequencies(Rope(base=LLAMA3["rope_theta"]), 16)
    bands = np.digitize(wavelengths, [ORIGINAL / 4, ORIGINAL])
    assert np.bincount(bands).tolist() == [3, 3, 2]
    assert wavelengths[bands == 1].max() < 150


@pytest.mark.parametrize("case", ["grouped heads", "one key/value head", "tied"])
def test_a_prompt_of_several_pieces(make, case):
    reference, ours = make(apertus, **CASES[case])
    ids = gemma3.prompt(600, seed=1)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ["grouped heads", "one key/value head", "unscaled", "tied"])
def test_greedy_text_is_identical(make, case):
    reference, ours = make(apertus, **CASES[case])
    ids = gemma3.prompt(140, seed=2)
    ours = replace(ours, own_tokenizer=replace(ours.tokenizer, stop_ids=frozenset()))
    *_, (text,) = generate(ours, ids, Settings(temperature=0.0), steps=56)
    assert text.token_ids == gemma3.greedy(reference, ids, 56)


@pytest.mark.parametrize("case", CASES)
def test_attention_patterns_equal_those_of_transformers(make, case):
    reference, ours = make(apertus, **CASES[case])
    ids = gemma3.prompt(150, seed=3)
    pattern = whole(ours, ids, "pattern")[1].pattern
    np.testing.assert_allclose(pattern, gemma3.patterns(reference, ids), atol=2e-5)


def test_shards_give_the_same_parameters(make, tmp_path):
    reference, ours = make(apertus)
    sharded = gemma3.opened(reference, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    jax.tree.map(np.testing.assert_array_equal, sharded.params, ours.params)


@pytest.mark.parametrize("absent", [("act_fn.beta",), ("act_fn.eps",), ("act_fn.beta", "act_fn.eps")])
def test_constants_that_are_not_stored_are_those_of_the_definition(make, tmp_path, absent):
    reference, ours = make(apertus, own_constants=False)
    reference.save_pretrained(tmp_path)
    apertus.without(tmp_path, *absent)
    bare = load(open_reference(str(tmp_path)), dtype="float32")
    jax.tree.map(np.testing.assert_array_equal, bare.params, ours.params)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_scalars_may_be_stored_with_or_without_an_axis(make, tmp_path, shape):
    from safetensors.torch import load_file, save_file

    reference, ours = make(apertus)
    reference.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {n: t.reshape(shape) if "act_fn" in n else t for n, t in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})
    jax.tree.map(np.testing.assert_array_equal, load(open_reference(str(tmp_path))).params, ours.params)


def test_a_bfloat16_file_is_read_as_float32(tmp_path):
    """transformers keeps float32 values of what the file holds, scalars too; so do we."""
    apertus.make().to(torch.bfloat16).save_pretrained(tmp_path)
    reference, ours = apertus.from_folder(tmp_path), load(open_reference(str(tmp_path)), dtype="float32")
    assert {x.dtype for x in jax.tree.leaves(ours.params)} == {jnp.dtype(jnp.float32)}
    assert {info.dtype for info in ours.checkpoint.tensors.values()} == {"BF16"}
    ids = gemma3.prompt(150)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


def test_weights_in_bfloat16_stay_close_and_scalars_stay_float32(make, tmp_path):
    """bfloat16 keeps 8 bits: each logit may move by a few percent of their spread."""
    reference, exact = make(apertus)
    ours = gemma3.opened(reference, tmp_path, dtype="bfloat16")
    for field in ("alpha_p", "alpha_n", "beta", "eps"):
        scalars = getattr(ours.params.blocks, field)
        assert scalars.dtype == jnp.float32
        np.testing.assert_array_equal(scalars, getattr(exact.params.blocks, field))
    assert ours.params.blocks.W_up.dtype == ours.params.blocks.q_norm.dtype == jnp.bfloat16
    ids = gemma3.prompt(150)
    expected = gemma3.logits(reference, ids)
    difference = np.abs(all_logits(ours, ids) - expected)
    assert difference.mean() < 0.04 * expected.std()
    assert difference.max() > 0  # it is not float32 in disguise


def test_the_older_spelling_of_the_rotary_settings(make, tmp_path):
    reference, _ = make(apertus)
    reference.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    settings = dict(config.pop("rope_parameters"))
    path.write_text(json.dumps({**config, "rope_theta": settings.pop("rope_theta"), "rope_scaling": settings}))
    ours, ids = load(open_reference(str(tmp_path)), dtype="float32"), gemma3.prompt(150)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


def exchanged(a: str, b: str):
    def change(model):
        blocks = model.params.blocks
        blocks = blocks._replace(**{a: getattr(blocks, b), b: getattr(blocks, a)})
        return replace(model, params=model.params._replace(blocks=blocks))

    return change


def with_rope(**changes):
    return lambda model: replace(model, config=replace(model.config, rope=replace(model.config.rope, **changes)))


def llama_rows(w):
    return w.reshape(*w.shape[:2], 8, 2, -1).swapaxes(2, 3).reshape(w.shape)


NORMS = ("attention_norm", "q_norm", "k_norm", "mlp_norm")
FAULTS = {
    "alphas exchanged": exchanged("alpha_p", "alpha_n"),
    "layers' alphas in another order": with_blocks(alpha_p=lambda a: a[::-1], alpha_n=lambda a: a[::-1]),
    "one alpha for all layers": with_blocks(alpha_p=lambda a: 0 * a + a[0], alpha_n=lambda a: 0 * a + a[0]),
    "softplus applied before storing too": with_blocks(alpha_p=jax.nn.softplus, alpha_n=jax.nn.softplus),
    "layers' betas not read": with_blocks(beta=lambda b: 0 * b + 0.5),
    "layers' epsilons not read": with_blocks(eps=lambda e: 0 * e - 1e-6),
    "scaling left off": with_rope(factor=1.0),
    "all wavelengths scaled": with_rope(bands=None),
    "pretraining's context length taken from the model's": with_rope(bands=Bands(original=700, low=1.0, high=4.0)),
    "a low band of another width": with_rope(bands=Bands(original=ORIGINAL, low=2.0, high=4.0)),
    "a high band of another width": with_rope(bands=Bands(original=ORIGINAL, low=1.0, high=8.0)),
    "no blending between the bands": with_rope(bands=Bands(original=ORIGINAL, low=3.99, high=4.0)),
    "another base": with_rope(base=200.0),
    "norm epsilon of another size": with_config(norm_eps=1e-2),
    "final norm with Gemma's offset": with_final_norm(lambda w: w + 1),
    **{f"{norm} with Gemma's offset": with_blocks(**{norm: lambda w: w + 1}) for norm in NORMS},
    "the two block norms exchanged": exchanged("attention_norm", "mlp_norm"),
    "the norms of queries and keys exchanged": exchanged("q_norm", "k_norm"),
    "head tied to the embedding": lambda model: replace(model, params=model.params._replace(W_U=model.params.W_E)),
    "key/value heads shared in another order": with_blocks(W_K=lambda w: w[:, ::-1], W_V=lambda w: w[:, ::-1]),
    "query rows in Llama's GGUF order": with_blocks(W_Q=llama_rows, W_K=llama_rows),
}


def difference(model, reference) -> float:
    ids = gemma3.prompt(150)
    return np.abs(all_logits(model, ids) - gemma3.logits(reference, ids)).max()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices_each_fault_in_what_is_loaded(make, fault):
    """Puts a fault in and demands that the comparison above would fail, by a wide margin."""
    reference, ours = make(apertus)
    assert difference(FAULTS[fault](ours), reference) > 50 * TOLERANCE


def rotated_back(x, positions, inv_freq):
    return rotate(x, -positions, inv_freq)


def no_clamp(x, alpha_p, alpha_n, beta, eps):
    return xielu(x, alpha_p, alpha_n, beta, jnp.zeros(()))


def no_softplus(x, alpha_p, alpha_n, beta, eps):
    return jnp.where(x > 0, alpha_p * x * x, (beta + alpha_n) * (jnp.expm1(jnp.minimum(x, eps)) - x)) + beta * x


def no_beta_in_slope(x, alpha_p, alpha_n, beta, eps):
    below = jax.nn.softplus(alpha_n) * (jnp.expm1(jnp.minimum(x, eps)) - x)
    return jnp.where(x > 0, jax.nn.softplus(alpha_p) * x * x, below) + beta * x


CODE_FAULTS = {
    "eps clamp dropped": ("xielu", no_clamp),
    "softplus forgotten": ("xielu", no_softplus),
    "beta left out of the lower slope": ("xielu", no_beta_in_slope),
    "another activation": ("xielu", lambda x, *_: jax.nn.silu(x)),
    "rotation in the other direction": ("rotate", rotated_back),
}


@pytest.fixture
def faulty_code(monkeypatch):
    """Puts other functions into the model's module; what was compiled with the right ones is forgotten."""

    def put(**functions):
        for name, function in functions.items():
            monkeypatch.setattr(decode.FAMILIES["apertus"], name, function)
        jax.clear_caches()

    yield put
    jax.clear_caches()


@pytest.mark.parametrize("fault", CODE_FAULTS)
def test_the_comparison_notices_each_fault_in_the_code(make, faulty_code, fault):
    reference, ours = make(apertus)
    faulty_code(**dict([CODE_FAULTS[fault]]))
    assert difference(ours, reference) > 50 * TOLERANCE


def test_the_comparison_notices_a_norm_after_the_rotation(make, faulty_code):
    """The gains of q/k norms differ between the halves that turn into each other, so the order matters."""
    reference, ours = make(apertus)
    gains = []

    def postponed(x, gain, eps):
        if x.shape[-1] != ours.config.head_dim:
            return rms_norm(x, gain, eps)
        gains.append(gain)
        return x

    def norm_after(x, positions, inv_freq):
        return rms_norm(rotate(x, positions, inv_freq), gains.pop(), ours.config.norm_eps)

    faulty_code(rms_norm=postponed, rotate=norm_after)
    assert difference(ours, reference) > 50 * TOLERANCE
    assert gains == []
