"""Gemma 3 against `transformers`, on tiny random models that show every part of the architecture.

Both sides compute in float32; they differ by rounding alone, about 1e-5 here.
"""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcore.sample import all_logits, generate
from jaxcore.sampling import Settings
from models import decode
from models.gemma3.config import Rope
from tests.reference import gemma3
from tests.reference.faults import with_blocks, with_config, with_final_norm
from tests.reference.gemma3 import LOCAL

TOLERANCE = 1e-4
PLAIN = {"rope_type": "default", "rope_theta": 500.0}
CASES = {
    "grouped heads": {},
    "one key/value head": {"num_key_value_heads": 1},
    "a key/value head for each head": {"num_key_value_heads": 4},
    "unscaled": {"rope_parameters": {"sliding_attention": LOCAL, "full_attention": PLAIN}},
    "untied": {"tie_word_embeddings": False},
    "query scalar of head_dim": {"query_pre_attn_scalar": 16},
    "last layer local": {"num_hidden_layers": 4, "layer_types": gemma3.CONFIG["layer_types"][:4]},
    "all layers global": {"layer_types": ["full_attention"] * 5},
    "all layers local": {"layer_types": ["sliding_attention"] * 5},
    "window of one": {"sliding_window": 1},
    "one head, one layer": {
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
    },
    "another epsilon": {"rms_norm_eps": 1e-2},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 6, 7, 150])
def test_logits_equal_those_of_transformers(make, case, length):
    reference, ours = make(**CASES[case])
    ids = gemma3.prompt(length)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ["grouped heads", "one key/value head"])
def test_a_prompt_of_several_pieces(make, case):
    reference, ours = make(**CASES[case])
    ids = gemma3.prompt(600, seed=1)
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("case", ["grouped heads", "one key/value head", "untied", "window of one"])
def test_greedy_text_is_identical(make, case):
    reference, ours = make(**CASES[case])
    ids = gemma3.prompt(20, seed=2)
    ours = replace(ours, own_tokenizer=replace(ours.tokenizer, stop_ids=frozenset()))
    *_, (text,) = generate(ours, ids, Settings(temperature=0.0), steps=40)
    assert text.token_ids == gemma3.greedy(reference, ids, 40)


@pytest.mark.parametrize("case", CASES)
def test_attention_patterns_equal_those_of_transformers(make, case):
    reference, ours = make(**CASES[case])
    ids = gemma3.prompt(30, seed=3)
    pattern = whole(ours, ids, "pattern")[1].pattern
    np.testing.assert_allclose(pattern, gemma3.patterns(reference, ids), atol=1e-5)


def whole(model, ids, *taps):
    """Logits and trace of a whole sequence, without a cache."""
    cache, positions = decode.new_cache(model.config, 0), jnp.arange(len(ids))
    run = decode.forward(model.params, cache, jnp.array(ids), positions, cfg=model.config, taps=frozenset(taps))
    return np.asarray(run[0]), run[2]


def test_old_and_new_rotary_settings_give_the_same_logits(make, tmp_path):
    """A configuration as transformers 4 wrote it: rope_theta, rope_local_base_freq and rope_scaling."""
    reference, _ = make()
    reference.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 500.0, "rope_local_base_freq": 30.0}
    config["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    ids = gemma3.prompt(90)
    gemma3.save_tokenizer(tmp_path)
    path.write_text(json.dumps(config))
    ours = gemma3.load(gemma3.open_reference(str(tmp_path)), dtype="float32")
    np.testing.assert_allclose(all_logits(ours, ids), gemma3.logits(reference, ids), atol=TOLERANCE, rtol=0)


NORMS = ("attention_norm", "q_norm", "k_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm")
LOCAL_ROPE, WIDE_ROPE = Rope(base=30.0), Rope(base=500.0, factor=8.0)
FAULTS = {
    "scaling left off global layers": with_config(rope_global=Rope(base=500.0)),
    "scaling also on local layers": with_config(rope_local=Rope(base=30.0, factor=8.0)),
    "the rotary bases exchanged": with_config(rope_local=WIDE_ROPE, rope_global=LOCAL_ROPE),
    "one base for all layers": with_config(rope_local=Rope(base=500.0)),
    "scores divided by sqrt(head_dim)": with_config(query_scalar=16.0),
    "window one too wide": with_config(window=7),
    "window one too narrow": with_config(window=5),
    "local and global layers exchanged": with_config(is_global=(True, True, False, True, False)),
    "global layers one place early": with_config(is_global=(False, True, False, True, False)),
    "norm epsilon of another family": with_config(norm_eps=1e-2),
    "final norm's offset not applied": with_final_norm(lambda w: w - 1),
    "final norm's offset applied twice": with_final_norm(lambda w: w + 1),
    "key/value heads shared in another order": with_blocks(W_K=lambda w: w[:, ::-1], W_V=lambda w: w[:, ::-1]),
    "query rows in Llama's GGUF order": with_blocks(
        W_Q=lambda w: w.reshape(*w.shape[:2], 8, 2, -1).swapaxes(2, 3).reshape(w.shape),
        W_K=lambda w: w.reshape(*w.shape[:2], 8, 2, -1).swapaxes(2, 3).reshape(w.shape),
    ),
    "gate and up exchanged": lambda model: replace(
        model,
        params=model.params._replace(
            blocks=model.params.blocks._replace(W_gate=model.params.blocks.W_up, W_up=model.params.blocks.W_gate)
        ),
    ),
    **{f"{norm}: offset not applied": with_blocks(**{norm: lambda w: w - 1}) for norm in NORMS},
    **{f"{norm}: offset applied twice": with_blocks(**{norm: lambda w: w + 1}) for norm in NORMS},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices_each_fault_that_leaves_text_fluent(make, fault):
    """Puts a fault in and demands that the comparison above would fail, by a wide margin."""
    reference, ours = make()
    ids = gemma3.prompt(150)
    difference = np.abs(all_logits(FAULTS[fault](ours), ids) - gemma3.logits(reference, ids)).max()
    assert difference > 50 * TOLERANCE


def test_weights_in_bfloat16_stay_close(make, tmp_path):
    """bfloat16 keeps 8 bits: each logit may move by a few percent of their spread."""
    reference, _ = make()
    ours = gemma3.opened(reference, tmp_path, dtype="bfloat16")
    assert {x.dtype for x in jax.tree.leaves(ours.params)} == {jnp.dtype(jnp.bfloat16)}
    ids = gemma3.prompt(150)
    expected = gemma3.logits(reference, ids)
    difference = np.abs(all_logits(ours, ids) - expected)
    assert difference.mean() < 0.02 * expected.std()
    assert difference.max() > 0  # it is not float32 in disguise
