"""Inspecting: from headers alone, without JAX, and without raising for what is missing."""

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from jaxcore.catalogue import open_reference
from jaxcore.inspect import described, inspect
from tests.jaxcore.checkpoint import tiny

ROOT = Path(__file__).parents[2]


def test_a_saved_model_is_described_by_its_headers(saved, model):
    seen = inspect(open_reference(str(saved)))
    expected = tiny.arrays(model)
    assert {row["name"]: tuple(row["shape"]) for row in seen["tensors"]} == {n: a.shape for n, a in expected.items()}
    parameters = sum(a.size for a in expected.values())
    assert seen["totals"] == {
        "tensors": len(expected),
        "parameters": parameters,
        "bytes": 4 * parameters,
        "by_dtype": {"F32": {"tensors": len(expected), "parameters": parameters, "bytes": 4 * parameters}},
    }
    assert seen["config"]["d_model"] == 64
    assert seen["architecture"] == "gemma3"
    assert seen["tokenizer"] is None
    assert len(seen["missing"]) == 1
    assert "tokenizer.json" in seen["missing"][0]
    json.dumps(seen, allow_nan=False)


def test_what_is_missing_is_listed_and_does_not_raise(saved):
    checkpoint = open_reference(str(saved))
    tensors = {name: info for name, info in checkpoint.tensors.items() if name != "norm.weight"}
    assert "Missing: norm.weight." in inspect(replace(checkpoint, tensors=tensors))["missing"]


def test_the_real_gguf(gemma):
    seen = inspect(gemma)
    assert seen["missing"] == []
    assert seen["tokenizer"] == "inside the GGUF file"
    assert seen["totals"]["parameters"] == 268_098_176
    assert described(gemma) == {
        "reference": "gemma3-270m",
        "architecture": "gemma3",
        "parameters": 268_098_176,
        "dtype": "Q8_0",
    }


SCRIPT = """
import json, re, sys
from jaxcore.catalogue import open_reference
from jaxcore.inspect import inspect
seen = inspect(open_reference(sys.argv[1]))
heavy = [name for name in ("jax", "flax", "torch", "transformers", "streamlit") if name in sys.modules]
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
print(json.dumps({"totals": seen["totals"], "missing": seen["missing"], "heavy": heavy, "peak": peak}))
"""


def test_a_checkpoint_of_16_gb_is_inspected_without_reading_it_and_without_jax(tmp_path):
    """The 8-billion-parameter file is sparse: its tensors take no disk, but reading them would take memory."""
    config = {
        "model_type": "gemma3_text",
        "vocab_size": 262_144,
        "hidden_size": 4096,
        "intermediate_size": 16_384,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
    }
    from models.gemma3.config import from_hf
    from models.gemma3.tensors import tensor_table

    parsed, table, offset = from_hf(config), {}, 0
    for spec in tensor_table(parsed).values():
        layers = range(parsed.n_layers) if "{layer}" in spec.name else [0]
        size = 1
        for axis in spec.shape:
            size *= axis
        for layer in layers:
            entry = {"dtype": "BF16", "shape": list(spec.shape), "data_offsets": [offset, offset + 2 * size]}
            table["model." + spec.name.format(layer=layer)] = entry
            offset += 2 * size
    raw = json.dumps(table).encode()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + offset)
    assert offset > 16e9

    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seen = json.loads(result.stdout)
    assert seen["totals"]["bytes"] == offset
    assert seen["heavy"] == []
    assert seen["peak"] < 500_000  # kilobytes
    assert len(seen["missing"]) == 1  # the tokenizer
