"""The command line as scripts use it: each command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.reference import gemma3

ROOT = Path(__file__).parent.parent.parent
PROMPTS = [
    "The capital of Switzerland is",
    "def quicksort(items):\n    if len(items) <= 1:\n",
    "Im Herbst fahren wir über den Gotthard nach Lugano, weil es dort noch warm ist.",
    "😀 emoji, 東京, and  double  spaces\n\n\tthen a tab",
]
STEP_KEYS = [
    "index",
    "token_id",
    "token",
    "rank",
    "logit",
    "probability_raw",
    "probability_temperature",
    "probability_final",
    "entropy_raw_nats",
    "entropy_final_nats",
    "kept_top_k",
    "kept_top_p",
    "kept_final",
    "mass_top_k",
    "mass_top_p",
    "top1_raw",
    "top1_temperature",
    "candidates",
]
CANDIDATE_KEYS = [
    "token_id",
    "token",
    "logit",
    "probability_raw",
    "probability_temperature",
    "probability_final",
    "kept",
]


def run(*arguments: object, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jaxcore", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, **options)


def result(*arguments: object) -> dict:
    """What a command prints, which must be JSON and nothing else."""
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments: object) -> str:
    """The last line of a refusal: exit code 2, one line that begins with ``error:``, no traceback."""
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("error: ")
    assert done.stderr.count("error: ") == 1
    return last


def test_models_lists_the_catalogue():
    found = result("models")
    assert found["schema"] == "clearbox.models/1"
    (entry,) = [m for m in found["models"] if m["name"] == "gemma3-270m"]
    assert list(entry) == ["name", "reference", "architecture", "parameters", "present", "note"]
    assert entry["parameters"] == 268_098_176
    assert entry["present"] is True


def test_inspect_counts_from_headers():
    found = result("inspect", "gemma3-270m")
    assert found["model"]["parameters"] == 268_098_176
    assert found["totals"]["parameters"] == 268_098_176
    assert found["missing"] == []
    assert len(found["tensors"]) == 236
    assert found["config"]["window"] == 512


def test_inspect_plans_for_a_mesh():
    """Four heads, one key/value head, 18 layers, width 640, MLP 2048: over 2 x 4 devices, by hand."""
    plan = result("inspect", "gemma3-270m", "--mesh", "2,4")["mesh"]
    attention = 2 * 640 * 256 * (1 + 1)  # a query head of four and its output; the key/value head is whole
    norms = 4 * 640 + 2 * 256
    held = 262_144 * 640 // 4 + 18 * (attention + 3 * 640 * 2048 // 4 + norms) + 640
    assert (plan["axes"], plan["devices"]) == ({"data": 2, "model": 4}, 8)
    assert plan["bytes_per_device"] == {"float32": 4 * held, "bfloat16": 2 * held}
    assert [(row["parameter"], row["axis"], row["size"]) for row in plan["replicated"]] == [
        ("blocks.W_K", "n_kv_heads", 1),
        ("blocks.W_V", "n_kv_heads", 1),
    ]
    (query,) = [row for row in plan["parameters"] if row["parameter"] == "blocks.W_Q"]
    assert query["partition"] == [None, "model", None, None]
    assert query["device_shape"] == [18, 1, 256, 640]


def test_convert_writes_a_folder_that_opens_like_its_source(tmp_path):
    converted = result("convert", "gemma3-270m", "--out", tmp_path / "made", "--dtype", "bfloat16")
    assert converted["schema"] == "clearbox.convert/1"
    assert (converted["out"], converted["tensors"]) == (str(tmp_path / "made"), 236)
    assert converted["bytes"] == 2 * 268_098_176
    assert converted["model"]["reference"] == "gemma3-270m"
    assert converted["elapsed_s"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    found, source = result("inspect", tmp_path / "made"), result("inspect", "gemma3-270m")
    assert (found["format"], found["config"], found["missing"]) == ("orbax", source["config"], [])
    assert found["notes"] == source["notes"]
    assert list(found["totals"]["by_dtype"]) == ["BF16"]


def test_tokens_splits_without_special_tokens():
    found = result("tokens", "--text", "Bundesgesundheitsamt", "--tokenizer", "gemma3")
    (split,) = found["tokenizers"]
    assert split["count"] == len(split["ids"]) == len(split["tokens"]) == len(split["byte_spans"]) == 5
    assert "".join(split["tokens"]) == "Bundesgesundheitsamt"
    assert split["vocabulary"] == 262_144
    assert split["characters_per_token"] == 4.0


def test_tokens_counts_are_those_of_the_real_tokenizers():
    words = ["Bundesgesundheitsamt", "Krankenversicherung", "Rechtsschutzversicherung", "Arbeitsplatzcomputer"]
    counts: dict[str, list[int]] = {"apertus": [], "gpt2": [], "gemma3": []}
    names = [part for name in counts for part in ("--tokenizer", name)]
    for word in [*words, "Donaudampfschifffahrt"]:
        for split in result("tokens", "--text", word, *names)["tokenizers"]:
            assert "".join(split["tokens"]) == word
            counts[split["name"]].append(split["count"])
    assert counts == {"apertus": [6, 5, 6, 5, 9], "gpt2": [9, 7, 9, 6, 9], "gemma3": [5, 4, 4, 5, 9]}


def test_sample_writes_the_trace_of_the_contract(tmp_path):
    out = tmp_path / "trace.json"
    done = run("sample", "gemma3-270m", "--prompt", PROMPTS[0], "--steps", 4, "--seed", 3, "--out", out)
    assert (done.returncode, done.stdout) == (0, "")
    trace = json.loads(out.read_text("utf-8"))
    assert trace["schema"] == "clearbox.sample/1"
    assert trace["model"]["reference"] == "gemma3-270m"
    assert trace["prompt_ids"] == [2, 818, 5279, 529, 24687, 563]
    assert trace["stop_reason"] == "steps"
    assert trace["text"] == "".join(step["token"] for step in trace["steps"])
    assert [step["index"] for step in trace["steps"]] == [0, 1, 2, 3]
    for step in trace["steps"]:
        assert [key for key in step if key in STEP_KEYS] == STEP_KEYS
        assert len(step["candidates"]) >= 20
        assert all([key for key in c if key in CANDIDATE_KEYS] == CANDIDATE_KEYS for c in step["candidates"])
        assert step["token_id"] in [c["token_id"] for c in step["candidates"]]
    again = result("sample", "gemma3-270m", "--prompt", PROMPTS[0], "--steps", 4, "--seed", 3)
    assert again["steps"] == trace["steps"]


def test_greedy_by_name_and_by_temperature_are_one():
    a = result("sample", "gemma3-270m", "--prompt", PROMPTS[0], "--steps", 3, "--greedy")
    b = result("sample", "gemma3-270m", "--prompt", PROMPTS[0], "--steps", 3, "--temperature", 0)
    assert a["steps"] == b["steps"]
    for step in a["steps"]:
        assert (step["kept_top_k"], step["kept_top_p"], step["kept_final"], step["rank"]) == (1, 1, 1, 1)
        assert step["probability_final"] == 1.0
        assert step["probability_raw"] == step["probability_temperature"]


def test_peak_memory_of_sample():
    """Measured by a small process between: a child's peak counts its parent's memory, and tests may hold much."""
    script = (
        "import resource, subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'jaxcore', *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", script, "sample", "gemma3-270m", "--prompt", PROMPTS[0], "--steps", "3"]
    peak = int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=300).stdout)
    assert 1e9 < peak * 1024 < 2.5e9  # in KiB on Linux; the weights alone are over 1 GB


def test_logits_agree_with_transformers(tmp_path, real_reference, real):
    long = " ".join(PROMPTS) * 18
    for number, text in enumerate([*PROMPTS, long]):
        out = tmp_path / f"{number}.npz"
        done = run("logits", "gemma3-270m", "--text", text, "--out", out)
        assert done.returncode == 0, done.stderr
        with np.load(out) as found:
            ids, logits = found["ids"], found["logits"]
        assert ids.dtype == np.int32
        assert logits.dtype == np.float32
        assert ids.tolist() == real.tokenizer.encode(text, bos=True)
        assert np.abs(logits - gemma3.logits(real_reference, ids.tolist())).max() < 2e-3
    assert len(ids) > 1000


def test_ids_are_used_as_they_are(tmp_path):
    out = tmp_path / "l.npz"
    assert run("logits", "gemma3-270m", "--ids", "818,5279", "--out", out).returncode == 0
    with np.load(out) as found:
        assert found["ids"].tolist() == [818, 5279]
        assert found["logits"].shape == (2, 262_144)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "gemma3-270m", "--prompt", ""], "prompt is empty"),
        (["sample", "gemma3-270m", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["sample", "gemma3-270m", "--prompt", "x", "--temperature", "nan"], "temperature"),
        (["sample", "gemma3-270m", "--prompt", "x", "--top-p", "1.5"], "top_p"),
        (["sample", "gemma3-270m", "--prompt", "x", "--top-k", "-3"], "top_k"),
        (["sample", "gemma3-270m", "--prompt", "x", "--min-p", "2"], "min_p"),
        (["sample", "gemma3-270m", "--prompt", "x", "--steps", "0"], "at least one"),
        (["sample", "gemma3-270m", "--prompt", "x", "--seed", "-1"], "seed"),
        (["sample", "gemma3-270m", "--prompt", "7" * 33_000], "at most 32,768"),
        (["sample", "gemma3-270m"], "--prompt"),
        (["sample", "no/such/folder", "--prompt", "x"], "no/such/folder"),
        (["sample", "gemma3-270m", "--prompt", "x", "--device", "gpu"], "gpu"),
        (["inspect", "hf:nonsense"], "hf:org/name"),
        (["inspect", "~nobody-of-this-name/model"], "~nobody-of-this-name"),
        (["inspect", "x" * 5000], "too long"),
        (["logits", "gemma3-270m", "--ids", "1,x", "--out", "F"], "'x'"),
        (["logits", "gemma3-270m", "--ids", "262144", "--out", "F"], "262144"),
        (["logits", "gemma3-270m", "--text", "x"], "--out"),
        (["tokens", "--text", "x", "--tokenizer", "no-such-one"], "no-such-one"),
        (["inspect", "gemma3-270m", "--mesh", "2"], "--mesh is '2'"),
        (["inspect", "gemma3-270m", "--mesh", "2,0"], "--mesh is '2,0'"),
        (["convert", "gemma3-270m"], "--out"),
        (["convert", "gemma3-270m", "--out", "models"], "models exists and is not an empty folder"),
        (["tokens", "--text", "ab Z", "--tokenizer", "char"], "character 4 of the text is 'Z'"),
        (["tokens", "--text", "x", "--tokenizer", "hf:nonsense"], "hf:org/name"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, tmp_path):
    out = tmp_path / "out"
    given = [str(out) if a == "F" else a for a in arguments]
    if arguments[0] in ("sample", "inspect", "tokens"):
        given += ["--out", str(out)]
    assert words in refused(*given)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "jaxcore", "sample", "char-english", "--prompt", "x", "--steps", "100000"]
    out = tmp_path / "trace.json"
    process = subprocess.Popen([*command, "--out", str(out)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    time.sleep(6)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["sample", "--help"],
        ["models"],
        ["inspect", "gemma3-270m", "--mesh", "2,4"],
        ["convert", "--help"],
        ["tokens", "--text", "x", "--tokenizer", "gemma3", "--tokenizer", "apertus", "--tokenizer", "gpt2"],
    ],
)
def test_what_needs_no_model_does_not_wait_for_jax(arguments):
    script = "import sys, jaxcore.__main__ as m\ntry: m.main(sys.argv[1:])\nfinally: assert 'jax' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
