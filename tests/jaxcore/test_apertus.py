"""Apertus folders as users have them: what is said of them, counted, and refused by name."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from jaxcore.catalogue import open_reference, parameters
from jaxcore.families import FAMILIES
from jaxcore.inspect import inspect, memory_bytes, parameters_by_part
from jaxcore.session import described, load
from models import decode
from models.errors import CheckpointError, ConfigError
from models.training.recipes import CHAR
from tests.reference import apertus, gemma3

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(make, tmp_path) -> Path:
    """A saved model, of which a test may change the files."""
    reference, _ = make(apertus)
    reference.save_pretrained(tmp_path)
    gemma3.save_tokenizer(tmp_path)
    return tmp_path


def configure(folder: Path, remove: tuple[str, ...] = (), **changes) -> None:
    path = folder / "config.json"
    config = {name: value for name, value in json.loads(path.read_text()).items() if name not in remove}
    path.write_text(json.dumps(config | changes))


def rewrite(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def test_every_family_that_opens_can_run():
    sizes = {"gemma3": gemma3.CONFIG, "gemma3_text": gemma3.CONFIG, "apertus": apertus.CONFIG, "char": CHAR}
    assert {FAMILIES[kind].config(sizes[kind]).family for kind in FAMILIES} == decode.FAMILIES.keys()


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}])
def test_parameters_are_counted_as_transformers_does(make, changes):
    """xIELU's two slopes of each layer are parameters, its two constants are not."""
    reference, model = make(apertus, **changes)
    counted = sum(p.numel() for p in reference.parameters())
    told = inspect(model.checkpoint)
    assert parameters(model.checkpoint) == described(model)["parameters"] == told["totals"]["parameters"] == counted
    by_part = parameters_by_part(model.checkpoint)
    assert sum(by_part.values()) == counted
    assert by_part["MLP"] == 3 * (2 * 40 * 72 + 2)
    assert by_part["norms"] == 3 * (2 * 40 + 2 * 16) + 40
    assert memory_bytes(model.checkpoint, "bfloat16") == 2 * counted
    assert (told["architecture"], told["missing"], described(model)["architecture"]) == ("apertus", [], "apertus")
    assert told["config"]["rope"]["bands"] == {"original": 128, "low": 1.0, "high": 4.0}


def test_a_note_names_what_the_family_fills_in(folder):
    assert open_reference(str(folder)).notes == ()
    configure(folder, remove=("rms_norm_eps", "tie_word_embeddings"))
    (note,) = open_reference(str(folder)).notes
    assert note == (
        "config.json leaves these out, so Apertus's defaults (as in transformers) are used: rms_norm_eps = 1e-05, "
        "tie_word_embeddings = False."
    )


@pytest.mark.parametrize("name", ["hidden_size", "num_key_value_heads", "intermediate_size", "rope_parameters"])
def test_a_size_that_is_left_out_is_asked_for(folder, name):
    configure(folder, remove=(name,))
    with pytest.raises(ConfigError, match=f"Apertus config: {name} .*missing"):
        open_reference(str(folder))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("apertus2", "of the Apertus family only the first is supported"),
        ("apertus1p5", "Apertus 1.5 reads images and audio and has a smaller output than input vocabulary"),
        ("apertus1p5_text", "Apertus 1.5 has a smaller output than input vocabulary"),
    ],
)
def test_relatives_are_refused_by_name(folder, kind, why):
    configure(folder, model_type=kind)
    with pytest.raises(ConfigError, match=f"is of model_type '{kind}', which does not run here: {why}; supported"):
        open_reference(str(folder))


@pytest.mark.parametrize("kind", ["llama", None, ["apertus"], {}])
def test_other_types_are_refused(folder, kind):
    configure(folder, model_type=kind)
    with pytest.raises(ConfigError, match="which does not run here; supported: gemma3, gemma3_text, apertus"):
        open_reference(str(folder))


MISSING = {
    "layers.1.mlp.act_fn.alpha_p": "Missing: layers.1.mlp.act_fn.alpha_p.",
    "layers.2.mlp.act_fn.alpha_n": "Missing: layers.2.mlp.act_fn.alpha_n.",
    "layers.0.mlp.act_fn.beta": "Missing: layers.0.mlp.act_fn.beta.",  # the other layers have theirs
    "layers.2.mlp.act_fn.eps": "Missing: layers.2.mlp.act_fn.eps.",
    "layers.0.feedforward_layernorm.weight": "Missing: layers.0.feedforward_layernorm.weight.",
    "lm_head.weight": "Missing: lm_head.weight.",
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named_with_its_layer(folder, name):
    apertus.without(folder, name)
    checkpoint = open_reference(str(folder))
    assert inspect(checkpoint)["missing"] == [MISSING[name]]
    with pytest.raises(CheckpointError, match=MISSING[name]):
        load(checkpoint)


@pytest.mark.parametrize("length", [2, 72])
def test_a_scalar_of_another_shape_is_named_with_its_layer(folder, length):
    name = "model.layers.1.mlp.act_fn.alpha_n"
    rewrite(folder, lambda tensors: tensors | {name: torch.ones(length)})
    told = rf"layers.1.mlp.act_fn.alpha_n is \({length},\) where the configuration asks for \(\)"
    with pytest.raises(CheckpointError, match=told):
        load(open_reference(str(folder)))


def test_a_gate_has_no_place(folder):
    name = "model.layers.0.mlp.gate_proj.weight"
    rewrite(folder, lambda tensors: tensors | {name: tensors["model.layers.0.mlp.up_proj.weight"].clone()})
    with pytest.raises(CheckpointError, match=r"no place for: layers\.0\.mlp\.gate_proj\.weight"):
        load(open_reference(str(folder)))


def test_another_wrappers_prefix_changes_nothing(make, folder):
    rewrite(folder, lambda tensors: {n.replace("model.", "model.language_model.", 1): t for n, t in tensors.items()})
    np.testing.assert_array_equal(load(open_reference(str(folder))).params.W_E, make(apertus)[1].params.W_E)


def test_the_command_line_inspects_and_samples(folder):
    def run(*arguments):
        command = [sys.executable, "-m", "jaxcore", *arguments, "--quiet"]
        return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    sampled = run("sample", str(folder), "--prompt", "Grüezi", "--greedy", "--steps", "3")
    assert sampled["model"]["architecture"] == "apertus"
    reference = apertus.from_folder(folder)
    assert [step["token_id"] for step in sampled["steps"]] == gemma3.greedy(reference, sampled["prompt_ids"], 3)
