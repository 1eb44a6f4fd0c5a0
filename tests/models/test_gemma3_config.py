"""Configurations: every official size, both spellings of the rotary settings, and refusals that name the field."""

from math import prod

import jax
import jax.numpy as jnp
import pytest
from transformers import Gemma3TextConfig

from models import decode
from models.errors import ConfigError
from models.gemma3.config import UNLIMITED, Config, Rope, from_hf
from models.gemma3.tensors import tensor_table

FULL = {
    "model_type": "gemma3_text",
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32_768,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 10_000,
    "rope_scaling": None,
    "rope_theta": 1_000_000,
    "sliding_window": 512,
    "vocab_size": 262_144,
}
SCALED = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}


def vision(**text):
    """What the official files of the vision sizes say of their text model; the rest is left to defaults."""
    return {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "image_token_index": 262_144,
        "eos_token_id": [1, 106],
        "text_config": {"model_type": "gemma3_text", **SCALED, **text},
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16},
    }


OFFICIAL = {
    "270M": {**FULL, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18}
    | {"_sliding_window_pattern": 6, "use_bidirectional_attention": False},
    "1B": {
        **FULL,
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_hidden_layers": 26,
        "sliding_window_pattern": 6,
    },
    "4B": vision(hidden_size=2560, intermediate_size=10_240, num_hidden_layers=34),
    "12B": vision(
        hidden_size=3840, intermediate_size=15_360, num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=8
    ),
    "27B": vision(
        hidden_size=5376,
        intermediate_size=21_504,
        num_hidden_layers=62,
        num_attention_heads=32,
        num_key_value_heads=16,
        head_dim=128,
        query_pre_attn_scalar=168,
    ),
}
# parameters, heads, key/value heads, head_dim, window, context, query scalar, global rotary embedding
FACTS = {
    "270M": (268_098_176, 4, 1, 256, 512, 32_768, 256, Rope(base=1e6)),
    "1B": (999_885_952, 4, 1, 256, 512, 32_768, 256, Rope(base=1e6)),
    "4B": (3_880_263_168, 8, 4, 256, 1024, 131_072, 256, Rope(base=1e6, factor=8.0)),
    "12B": (11_766_034_176, 16, 8, 256, 1024, 131_072, 256, Rope(base=1e6, factor=8.0)),
    "27B": (27_009_346_304, 32, 16, 128, 1024, 131_072, 168, Rope(base=1e6, factor=8.0)),
}


def shapes(cfg: Config) -> dict[str, jax.ShapeDtypeStruct]:
    """The arrays of a model, without their contents."""
    stacked = {
        field: (cfg.n_layers, *spec.shape) if "{layer}" in spec.name else spec.shape
        for field, spec in tensor_table(cfg).items()
    }
    return {field: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for field, shape in stacked.items()}


@pytest.mark.parametrize("size", OFFICIAL)
def test_official_sizes(size):
    cfg = from_hf(OFFICIAL[size])
    parameters = sum(prod(x.shape) for x in shapes(cfg).values())
    facts = cfg.n_heads, cfg.n_kv_heads, cfg.head_dim, cfg.window, cfg.context, cfg.query_scalar, cfg.rope_global
    assert (parameters, *facts) == FACTS[size]
    assert cfg.rope_local == Rope(base=10_000.0)
    assert (cfg.norm_eps, cfg.tied) == (1e-6, True)
    assert [i for i, wide in enumerate(cfg.is_global) if wide] == list(range(5, cfg.n_layers, 6))
    assert {w for w, wide in zip(cfg.windows, cfg.is_global, strict=True) if wide} == {UNLIMITED}


@pytest.mark.parametrize("size", OFFICIAL)
def test_every_size_runs_as_far_as_shapes_go(size):
    cfg = from_hf(OFFICIAL[size])
    cache = jax.eval_shape(lambda: decode.new_cache(cfg, 2048))
    tokens = jax.ShapeDtypeStruct((64,), jnp.int32)
    taps = frozenset({"pattern", "resid_post"})

    def run(arrays, cache, tokens, positions):
        params = decode.FAMILIES["gemma3"].params(arrays)
        return decode.forward(params, cache, tokens, positions, cfg=cfg, taps=taps)

    logits, grown, trace = jax.eval_shape(run, shapes(cfg), cache, tokens, tokens)
    assert logits.shape == (64, cfg.vocab)
    assert trace.pattern.shape == (cfg.n_layers, cfg.n_heads, 64, 2048)
    assert trace.resid_post.shape == (cfg.n_layers, 64, cfg.d_model)
    assert jax.tree.map(jnp.shape, grown) == jax.tree.map(jnp.shape, cache)


@pytest.mark.parametrize("size", OFFICIAL)
def test_transformers_completes_the_official_files_to_the_same(size):
    """What transformers writes after reading a file, in its newer spelling of the rotary settings."""
    told = OFFICIAL[size].get("text_config", OFFICIAL[size])
    written = Gemma3TextConfig(**told).to_dict()
    assert "full_attention" in written["rope_parameters"]
    assert from_hf(written) == from_hf(OFFICIAL[size])


SMALL = {"num_hidden_layers": 7, "rope_theta": 5e5, "rope_local_base_freq": 2e4}
TYPES = [*["sliding_attention"] * 5, "full_attention", "sliding_attention"]
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    "spelling",
    [
        {**SMALL, "rope_scaling": LINEAR},
        {**SMALL, "rope_scaling": {"type": "linear", "factor": 4}},
        {**SMALL, "rope_parameters": {**LINEAR, "rope_theta": 5e5}},
        {
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {**LINEAR, "rope_theta": 5e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
        },
        {"text_config": {**SMALL, "rope_scaling": LINEAR}},
        {**SMALL, "text_config": {"rope_scaling": LINEAR}},
        {**SMALL, "rope_scaling": LINEAR, "layer_types": TYPES},
        {**SMALL, "rope_scaling": LINEAR, "_sliding_window_pattern": 6, "sliding_window_pattern": 3},
        {**SMALL, "rope_scaling": LINEAR, "head_dim": None, "text_config": None},
    ],
)
def test_spellings_of_one_configuration_are_equal(spelling):
    cfg = from_hf(spelling)
    assert (cfg.rope_local, cfg.rope_global) == (Rope(base=2e4), Rope(base=5e5, factor=4.0))
    assert cfg == from_hf({**SMALL, "rope_scaling": LINEAR})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_activation": "relu"}, "hidden_activation is 'relu'"),
        ({"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping is 50\.0"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attention_bias": True}, "attention_bias"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "llama3"}}}, "'llama3' is not supported"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, "is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "8"}}, "factor is '8'; it must be a number"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": [8]}, r"rope_scaling is \[8\]; it must be a table"),
        ({"rope_parameters": [1]}, "rope_parameters is .* a table"),
        ({"rope_parameters": "linear"}, "rope_parameters is 'linear'; it must be a table"),
        ({"rope_parameters": {"full_attention": 5}}, "full_attention is 5; it must be a table"),
        ({"rope_parameters": {"sliding_attention": "x"}}, "sliding_attention is 'x'"),
        ({"rope_parameters": {"rope_theta": "1e6"}}, "rope_theta is '1e6'"),
        ({"text_config": ["x"]}, "text_config is .* a table"),
        ({"text_config": 3}, "text_config is 3"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention'; it must be a list"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 26 layers"),
        ({"layer_types": ["chunked_attention"] * 26}, "layer_types holds 'chunked_attention'"),
        ({"layer_types": [None, {}] * 13}, "layer_types holds None"),
        ({"layer_types": [{}] * 26}, "layer_types holds {}"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"_sliding_window_pattern": 0}, "_sliding_window_pattern is 0"),
        ({"sliding_window_pattern": "6"}, "sliding_window_pattern is '6'"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ({"query_pre_attn_scalar": -256}, "query_pre_attn_scalar is -256"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6'; it must be a number above 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rope_theta": "big"}, "rope_theta is 'big'"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rope_local_base_freq": 0}, "rope_local_base_freq is 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000; at most 10,000"),
        ({"num_hidden_layers": 10**400}, "num_hidden_layers is 1000000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"hidden_size": 640.0}, r"hidden_size is 640\.0; it must be a whole number"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"sliding_window": 2**40}, "sliding_window is 1099511627776"),
        ({"max_position_embeddings": []}, r"max_position_embeddings is \[\]"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
        ({"head_dim": 255}, "head_dim is 255; rotary embeddings need an even number"),
        ({"num_attention_heads": 8, "num_key_value_heads": 3}, "8 heads cannot share 3 key/value heads"),
    ],
)
def test_what_cannot_run_is_refused_by_name(changes, message):
    for config in (changes, {"text_config": changes} if "text_config" not in changes else changes):
        with pytest.raises(ConfigError, match=f"Gemma 3 config: .*{message}"):
            from_hf(config)
