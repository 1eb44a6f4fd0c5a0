"""The head study against plain numpy, and what it finds in models whose heads are known."""

import json
from typing import Any

import pytest
from safetensors.numpy import load_file

from jaxcore.__main__ import main
from jaxcore.catalogue import CHECKPOINTS, open_reference
from jaxcore.export import plain
from jaxcore.heads.study import study
from tests.reference import char, heads

CLOSE = 1e-8


def differences(got: Any, expected: Any, where: str = "") -> list[str]:
    """Every place where two results differ, with both values."""
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return [f"{where}: fields {list(got)} where {list(expected)} were expected"]
        return [d for key in expected for d in differences(got[key], expected[key], f"{where}.{key}")]
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return [f"{where}: another length"]
        pairs = zip(got, expected, strict=True)
        return [d for i, (a, b) in enumerate(pairs) for d in differences(a, b, f"{where}[{i}]")]
    if isinstance(expected, float) and isinstance(got, float | int):
        return [] if got == pytest.approx(expected, rel=CLOSE, abs=CLOSE) else [f"{where}: {got} not {expected}"]
    return [] if got == expected else [f"{where}: {got!r} not {expected!r}"]


def blocks_of(weights):
    around = ("tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out")
    return {name: array for name, array in weights.items() if name not in around}


CASES = {
    "random": lambda: char.make(48, layers=3),
    "blocks only": lambda: blocks_of(char.make(48, layers=3, seed=1)),
    "narrow heads": lambda: char.make(24, layers=2, seed=2),
    "one layer": lambda: char.make(24, layers=1, seed=3),
    "english": lambda: load_file(CHECKPOINTS / "char-english" / "model.safetensors"),
    "python": lambda: load_file(CHECKPOINTS / "char-python" / "model.safetensors"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_field_agrees_with_numpy(case, tmp_path):
    weights = CASES[case]()
    path = char.save(tmp_path / "m.safetensors", weights)
    got, expected = plain(study(open_reference(str(path)))), plain(heads.study(weights))
    assert got.pop("config")["blocks_only"] == (case == "blocks only")
    found = [d for name in expected for d in differences(got[name], expected[name], name)]
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize(("name", "previous", "copy"), [("char-english", "L0H3", "L1H3")])
def test_the_head_that_looks_back_and_the_one_that_copies_are_found_from_weights(name, previous, copy):
    """As measured when the model reads: the selector looks at the character before, the induction head copies."""
    found = study(open_reference(name))["selection"]
    assert found["selector_head"] == previous
    assert found["induction_head"] == copy


def test_the_command(tmp_path):
    out = tmp_path / "h.json"
    command = ["heads", "char-python", "--out", str(out), "--quiet", "--selector", "L0H1", "--group", "L0H0,L0H2"]
    assert main([*command, "--induction", "L2H3"]) == 0
    told = json.loads(out.read_text())
    assert told["schema"] == "clearbox.heads/1"
    assert told["selection"] == {
        "selector_head": "L0H1",
        "group": ["L0H0", "L0H2"],
        "group_is_similar": False,
        "induction_head": "L2H3",
    }
    assert told["qk_spectrum"]["head"] == "L0H1"
    assert len(told["measured_head_roles"]) == 24


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gemma3-mini-base"], "is no character transformer"),
        (["char-python", "--selector", "L1H0"], "not in the first layer"),
        (["char-python", "--selector", "L0H6"], "names no head of this model"),
        (["char-python", "--induction", "L0H1"], "in the first layer"),
        (["char-python", "--text", "/nowhere.txt"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line(capfd, arguments, sentence):
    assert main(["heads", *arguments, "--quiet"]) == 2
    assert sentence in capfd.readouterr().err.splitlines()[-1]
