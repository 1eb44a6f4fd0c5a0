"""Configurations: published sizes, both spellings of the rotary settings, and refusals that name the field."""

from copy import deepcopy
from math import prod

import jax
import jax.numpy as jnp
import pytest
from transformers import ApertusConfig

from models import decode
from models.apertus.config import from_hf
from models.apertus.tensors import tensor_table
from models.errors import ConfigError
from models.rotary import Bands, Rope
from models.windows import UNLIMITED

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
PUBLISHED_8B = {
    "model_type": "apertus",
    "architectures": ["ApertusForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "xielu",
    "hidden_size": 4096,
    "intermediate_size": 21_504,
    "max_position_embeddings": 65_536,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "post_norm": False,
    "qk_norm": True,
    "rms_norm_eps": 1e-5,
    "rope_scaling": LLAMA3,
    "rope_theta": 12_000_000,
    "tie_word_embeddings": False,
    "vocab_size": 131_072,
}
SCALED = Rope(base=12e6, factor=8.0, bands=Bands(original=8192, low=1.0, high=4.0))
SIZES = {
    "8B": PUBLISHED_8B,
    "70B": PUBLISHED_8B
    | {"hidden_size": 8192, "intermediate_size": 43_008, "num_hidden_layers": 80, "num_attention_heads": 64},
    "8B while it was pretrained": PUBLISHED_8B
    | {"rope_scaling": None, "rope_theta": 500_000, "max_position_embeddings": 4096},
    "4B, tied": PUBLISHED_8B
    | {"hidden_size": 3072, "intermediate_size": 16_384, "num_hidden_layers": 24, "num_attention_heads": 24}
    | {"rope_scaling": None, "rope_theta": 500_000, "max_position_embeddings": 4096, "tie_word_embeddings": True},
}
# parameters, heads, key/value heads, head_dim, context, tied, rotary embedding
FACTS = {
    "8B": (8_053_338_176, 32, 8, 128, 65_536, False, SCALED),
    "70B": (70_599_864_480, 64, 8, 128, 65_536, False, SCALED),
    "8B while it was pretrained": (8_053_338_176, 32, 8, 128, 4096, False, Rope(base=5e5)),
    "4B, tied": (3_422_708_784, 24, 8, 128, 4096, True, Rope(base=5e5)),
}


def shapes(cfg, constants: bool = True) -> dict[str, jax.ShapeDtypeStruct]:
    """The arrays of a model, without their contents."""
    return {
        field: jax.ShapeDtypeStruct((cfg.n_layers, *spec.shape) if "{layer}" in spec.name else spec.shape, jnp.float32)
        for field, spec in tensor_table(cfg).items()
        if constants or not spec.optional
    }


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size):
    cfg = from_hf(SIZES[size])
    parameters = sum(prod(x.shape) for x in shapes(cfg, constants=False).values())
    facts = cfg.n_heads, cfg.n_kv_heads, cfg.head_dim, cfg.context, cfg.tied, cfg.rope
    assert (parameters, *facts) == FACTS[size]
    assert (cfg.norm_eps, cfg.attention_scale) == (1e-5, 128**-0.5)
    assert cfg.windows == (UNLIMITED,) * cfg.n_layers


@pytest.mark.parametrize("constants", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_runs_as_far_as_shapes_go(size, constants):
    cfg = from_hf(SIZES[size])
    cache = jax.eval_shape(lambda: decode.new_cache(cfg, 2048))
    tokens = jax.ShapeDtypeStruct((64,), jnp.int32)
    taps = frozenset({"pattern", "resid_post"})

    def run(arrays, cache, tokens, positions):
        params = decode.FAMILIES["apertus"].params(arrays)
        return decode.forward(params, cache, tokens, positions, cfg=cfg, taps=taps)

    logits, grown, trace = jax.eval_shape(run, shapes(cfg, constants), cache, tokens, tokens)
    assert logits.shape == (64, cfg.vocab)
    assert trace.pattern.shape == (cfg.n_layers, cfg.n_heads, 64, 2048)
    assert trace.resid_post.shape == (cfg.n_layers, 64, cfg.d_model)
    assert jax.tree.map(jnp.shape, grown) == jax.tree.map(jnp.shape, cache)


def test_transformers_completes_a_file_to_the_same():
    """What transformers writes after reading a file, in its newer spelling of the rotary settings."""
    completed = ApertusConfig(**deepcopy(PUBLISHED_8B))  # which writes into what it is given
    written = completed.to_dict()
    assert written["rope_parameters"]["rope_type"] == "llama3"
    assert from_hf(written) == from_hf(PUBLISHED_8B)


def without(*names, **changes):
    return {name: value for name, value in PUBLISHED_8B.items() if name not in names} | changes


@pytest.mark.parametrize(
    "spelling",
    [
        without("rope_theta", "rope_scaling", rope_parameters={**LLAMA3, "rope_theta": 12e6}),
        without("rope_scaling", rope_parameters=LLAMA3),
        without("rope_theta", rope_scaling={**LLAMA3, "rope_theta": 12_000_000}),
        without(rope_scaling={"type": "llama3", **{k: v for k, v in LLAMA3.items() if k != "rope_type"}}),
        without("hidden_act", "qk_norm", "post_norm", "attention_bias", "mlp_bias"),
        without("rms_norm_eps", "tie_word_embeddings"),
        without(rms_norm_eps=None, tie_word_embeddings=None, head_dim=None, hidden_act=None, qk_norm=None),
        without(head_dim=128),
    ],
)
def test_spellings_of_one_configuration_are_equal(spelling):
    assert from_hf(spelling) == from_hf(PUBLISHED_8B)


@pytest.mark.parametrize(
    ("spelling", "rope"),
    [
        ({"rope_scaling": None}, Rope(base=12e6)),
        ({"rope_scaling": {"rope_type": "default"}}, Rope(base=12e6)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, Rope(base=5e5)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, Rope(base=12e6, factor=4.0)),
    ],
)
def test_rotary_settings_without_bands(spelling, rope):
    assert from_hf(without("rope_scaling", **spelling)).rope == rope


SIZES_IN_FILE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)


@pytest.mark.parametrize("name", SIZES_IN_FILE)
def test_a_missing_size_is_named_and_never_filled_in(name):
    for config in (without(name), without(**{name: None})):
        with pytest.raises(ConfigError, match=f"Apertus config: {name} is missing; it must be a whole number above 0"):
            from_hf(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without("rope_scaling"), "rope_parameters and rope_scaling are both missing"),
        (without("rope_theta", "rope_scaling"), "rope_parameters and rope_scaling are both missing"),
        (without("rope_theta"), "rope_theta is missing"),
        (without("rope_theta", "rope_scaling", rope_parameters={"rope_type": "default"}), "rope_theta is missing"),
        *[
            (without(rope_scaling={k: v for k, v in LLAMA3.items() if k != gone}), f"{gone} is missing")
            for gone in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        ],
        (without(rope_scaling={**LLAMA3, "factor": "8"}), "factor is '8'; it must be a number above 0"),
        (without(rope_scaling={**LLAMA3, "factor": 0}), "factor is 0"),
        (without(rope_scaling={**LLAMA3, "low_freq_factor": 4}), "low_freq_factor is 4; it must be below .* 4"),
        (without(rope_scaling={**LLAMA3, "original_max_position_embeddings": 8192.5}), r"8192\.5; .* a whole number"),
        (without(rope_scaling={"rope_type": "yarn", "factor": 8.0}), "'yarn' is not supported"),
        (without(rope_scaling={"rope_type": ["llama3"]}), "is not supported"),
        (without(rope_scaling="llama3"), "rope_scaling is 'llama3'; it must be a table"),
        (without(rope_scaling=[8]), r"rope_scaling is \[8\]; it must be a table"),
        (without(rope_parameters=3), "rope_parameters is 3; it must be a table"),
        (without(rope_theta="big"), "rope_theta is 'big'; it must be a number"),
        (without(rope_theta=float("inf")), "rope_theta is inf"),
        (without(hidden_act="silu"), "hidden_act is 'silu'; only Apertus models with 'xielu' are supported"),
        (without(hidden_act=["xielu"]), "hidden_act is"),
        (without(qk_norm=False), "qk_norm is False"),
        (without(post_norm=True), "post_norm is True"),
        (without(attention_bias=True), "attention_bias is True"),
        (without(mlp_bias=True), "mlp_bias is True"),
        (without(num_hidden_layers=10**9), "num_hidden_layers is 1,000,000,000; at most 10,000"),
        (without(num_hidden_layers="32"), "num_hidden_layers is '32'; it must be a whole number"),
        (without(hidden_size=4096.0), r"hidden_size is 4096\.0"),
        (without(hidden_size=-1), "hidden_size is -1"),
        (without(num_attention_heads=0), "num_attention_heads is 0"),
        (without(num_attention_heads=True), "num_attention_heads is True"),
        (without(vocab_size=[]), r"vocab_size is \[\]"),
        (without(tie_word_embeddings="false"), "tie_word_embeddings is 'false'; it must be true or false"),
        (without(rms_norm_eps="1e-5"), "rms_norm_eps is '1e-5'"),
        (without(hidden_size=4095), "hidden_size is 4095, which 32 heads cannot share evenly; give head_dim"),
        (without(head_dim=127), "head_dim is 127; rotary embeddings need an even number"),
        (without(head_dim="128"), "head_dim is '128'"),
        (without(num_key_value_heads=5), "32 heads cannot share 5 key/value heads"),
    ],
)
def test_what_cannot_run_is_refused_by_name(config, message):
    with pytest.raises(ConfigError, match=f"Apertus config: .*{message}"):
        from_hf(config)
