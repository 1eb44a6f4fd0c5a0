"""Loading: what is used where it lies, what is converted, and what is refused."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxcore.catalogue import open_reference
from jaxcore.sample import all_logits
from jaxcore.session import default_dtype, described, load
from models.errors import CheckpointError, InputError, is_out_of_memory
from tests.reference import gemma3


def test_parameters_are_those_of_transformers(make):
    reference, model = make()
    stored = {name.removeprefix("model."): p.detach().numpy() for name, p in reference.named_parameters()}
    np.testing.assert_array_equal(model.params.W_E, stored["embed_tokens.weight"])
    np.testing.assert_array_equal(model.params.final_norm, stored["norm.weight"])
    assert model.params.W_U is model.params.W_E
    for layer in range(5):
        q, o = (stored[f"layers.{layer}.self_attn.{part}_proj.weight"] for part in "qo")
        np.testing.assert_array_equal(model.params.blocks.W_Q[layer], q.reshape(4, 16, 48))
        np.testing.assert_array_equal(model.params.blocks.W_O[layer], o.reshape(48, 4, 16))


@pytest.mark.parametrize(("changes", "extra"), [({}, 0), ({"tie_word_embeddings": False}, 258 * 48)])
def test_the_description_counts_a_tied_head_once(make, changes, extra):
    reference, model = make(**changes)
    told = described(model)
    assert told["parameters"] == sum(p.numel() for p in reference.parameters())
    assert told["parameters"] == described(make()[1])["parameters"] + extra
    assert (told["architecture"], told["dtype"], told["device"]) == ("gemma3", "float32", "cpu")
    assert told["reference"] == model.reference


def test_progress_rises(make):
    shares = []
    load(make()[1].checkpoint, progress=lambda share, what: shares.append((share, what)))
    assert [share for share, _ in shares] == sorted(share for share, _ in shares)
    assert shares[0] == (0, "Loading W_E")
    assert all(0 <= share < 1 for share, _ in shares)


def test_dtypes(tiny):
    assert (default_dtype("cpu"), default_dtype("gpu")) == ("float32", "bfloat16")
    assert load(tiny.checkpoint).dtype == "float32"
    with pytest.raises(InputError, match="dtype is 'float16'; choose float32 or bfloat16"):
        load(tiny.checkpoint, dtype="float16")


def test_a_device_that_is_not_there(tiny):
    with pytest.raises(InputError, match="There is no tpu that JAX can use here"):
        load(tiny.checkpoint, device="tpu")


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 5 bytes"), True),
        (MemoryError(), True),
        (jax.errors.JaxRuntimeError("INTERNAL: bug"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_failures(error, memory):
    assert is_out_of_memory(error) == memory


def mapped(path: Path) -> list[tuple[int, int]]:
    """Where this process has mapped a file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    return [(int(start, 16), int(end, 16)) for start, end in (line[0].split("-") for line in lines)]


def test_the_real_weights_are_used_where_they_are_mapped(real):
    ranges = mapped(real.checkpoint.path / "model.safetensors")
    assert ranges
    for leaf in jax.tree.leaves(real.params):
        address = leaf.unsafe_buffer_pointer()
        assert any(start <= address and address + leaf.nbytes <= end for start, end in ranges), leaf.shape


def test_a_second_load_of_the_same_file_gives_the_same_logits(make, tmp_path):
    reference, model = make()
    again = gemma3.opened(reference, tmp_path)
    assert open_reference(str(tmp_path)).path == tmp_path
    ids = gemma3.prompt(30)
    np.testing.assert_array_equal(all_logits(again, ids), all_logits(model, ids))


def test_without_a_tokenizer_ids_are_still_read(make, tmp_path):
    _, model = make()
    for file in model.checkpoint.path.iterdir():
        if not file.name.startswith("tokenizer"):
            (tmp_path / file.name).symlink_to(file)
    bare = load(open_reference(str(tmp_path)), dtype="float32", device="cpu")
    np.testing.assert_array_equal(all_logits(bare, [2, 3, 4]), all_logits(model, [2, 3, 4]))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        _ = bare.tokenizer
