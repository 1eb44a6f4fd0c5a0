"""Splitting weights over devices: the table, and that the forward pass neither notices nor changes."""

import jax
import numpy as np
import pytest

from jaxcore.sample import all_logits
from models.gemma3.config import from_hf
from models.gemma3.tensors import tensor_table
from models.sharding import RULES, named_sharding, partition, shard_shape
from models.tensors import TensorSpec
from tests.on_devices import STEPS, on_devices
from tests.reference import gemma3

EXACT = 1e-5
"""Float32 sums of the same terms in another order, in logits of size 10."""
EVEN = {"vocab_size": 260, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    ("axes", "shape", "mesh", "expected"),
    [
        (("layer", "n_heads", "head_dim", "d_model"), (3, 8, 16, 48), {"data": 2, "model": 4}, "-m--"),
        (("layer", "n_kv_heads", "head_dim", "d_model"), (3, 2, 16, 48), {"data": 2, "model": 4}, "----"),
        (("layer", "d_mlp", "d_model"), (3, 80, 48), {"data": 1, "model": 8}, "-m-"),
        (("layer", "d_mlp", "d_model"), (3, 80, 48), {"data": 1, "model": 3}, "---"),
        (("vocab", "d_model"), (258, 48), {"model": 2}, "m-"),
        (("vocab", "d_model"), (258, 48), {"data": 2}, "--"),
        (("n_heads", "n_kv_heads"), (8, 4), {"model": 4}, "m-"),
        (("n_heads", "n_kv_heads"), (6, 4), {"model": 4}, "-m"),
        (("context", "d_model"), (512, 48), {"data": 2, "model": 4}, "--"),
        ((), (), {"data": 2, "model": 4}, ""),
    ],
)
def test_an_axis_is_split_if_its_mesh_axis_is_free_and_divides_it(axes, shape, mesh, expected):
    names = {"m": "model", "-": None}
    assert partition(axes, shape, mesh) == tuple(names[c] for c in expected)


def test_the_shape_on_a_device():
    assert shard_shape((3, 8, 16), (None, "model", None), {"data": 2, "model": 4}) == (3, 2, 16)


def test_every_axis_of_a_family_has_a_rule():
    specs = tensor_table(from_hf({**gemma3.CONFIG, "tie_word_embeddings": False})).values()
    assert {axis for spec in specs for axis in spec.stacked(5).axes} <= RULES.keys()


def test_an_unknown_axis_is_not_placed_silently():
    with pytest.raises(KeyError, match="n_experts"):
        partition(("n_experts",), (8,), {"model": 4})


def test_layers_are_stacked_on_an_axis_of_their_own():
    spec = TensorSpec("layers.{layer}.x.weight", ("d_mlp",), (80,))
    assert spec.stacked(5) == TensorSpec("layers.{layer}.x.weight", ("layer", "d_mlp"), (5, 80))
    assert TensorSpec("x.weight", ("d_mlp",), (80,)).stacked(5).shape == (80,)


@pytest.mark.parametrize("kind", jax.sharding.AxisType)
def test_a_mesh_of_any_type_leaves_the_computation_to_xla(kind):
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(kind, kind), devices=jax.devices()[:1])
    found = named_sharding(TensorSpec("x", ("layer", "d_mlp"), (5, 80)), mesh)
    assert found.spec == jax.sharding.PartitionSpec(None, "model")
    assert set(found.mesh.axis_types) == {jax.sharding.AxisType.Auto}


def sharded_shapes(config, model):
    """What one device holds of some parameters, worked out by hand."""

    def over(size):
        return size // model if size % model == 0 else size

    heads, kv = over(config.n_heads), over(config.n_kv_heads)
    return {
        ".W_E": [over(config.vocab), 48],
        ".final_norm": [48],
        ".blocks.W_Q": [5, heads, 16, 48],
        ".blocks.W_V": [5, kv, 16, 48],
        ".blocks.W_O": [5, 48, heads, 16],
        ".blocks.W_down": [5, 48, over(config.d_mlp)],
        ".blocks.q_norm": [5, 16],
    }


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [(EVEN, (2, 4)), ({}, (2, 4)), ({}, (1, 3)), ({"tie_word_embeddings": False}, (4, 2))],
    ids=["all divide", "some do not divide", "few divide", "untied"],
)
def test_the_forward_pass_on_eight_devices_is_that_on_one(make, tmp_path, changes, sizes):
    _, model = make(**changes)
    ids = gemma3.prompt(30)
    seen, arrays = on_devices(model.checkpoint.path, sizes, ids, tmp_path / "seen.npz")
    np.testing.assert_allclose(arrays["logits"], all_logits(model, ids), atol=EXACT)
    assert seen["greedy"] == gemma3.greedy(make(**changes)[0], ids, STEPS)
    expected = sharded_shapes(model.config, sizes[1])
    devices = sizes[0] * sizes[1]
    assert {name: seen["shards"][name] for name in expected} == {n: [s] * devices for n, s in expected.items()}
    for path, leaf in jax.tree.leaves_with_path(model.params):
        np.testing.assert_array_equal(arrays[jax.tree_util.keystr(path)], leaf)
