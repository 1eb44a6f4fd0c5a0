"""Which axis of a device mesh splits each axis of a weight, in one table.

Tensor parallelism as in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053): heads, MLP units and the vocabulary are
split over ``model``; XLA adds the sums that this asks for. Weights are whole along ``data``. Plans are made from
sizes alone, so JAX is imported only where devices are named.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from models.tensors import TensorSpec

if TYPE_CHECKING:
    import jax.sharding

MESH_AXES = ("data", "model")
RULES: Mapping[str, str | None] = {
    "vocab": "model",
    "n_heads": "model",
    "n_kv_heads": "model",
    "d_mlp": "model",
    "d_model": None,
    "head_dim": None,
    "layer": None,
    "context": None,
}
"""The mesh axis for each axis of a weight; None for those that every device holds whole."""


def partition(axes: Sequence[str], shape: Sequence[int], mesh: Mapping[str, int]) -> tuple[str | None, ...]:
    """The mesh axis that splits each axis of an array, given the sizes of the mesh's axes.

    An axis that its mesh axis does not divide evenly is replicated: every device holds it whole. So is one whose mesh
    axis splits an earlier axis of the same array already, or is not in the mesh.
    """
    chosen: list[str | None] = []
    for axis, size in zip(axes, shape, strict=True):
        name = RULES[axis]
        splits = name is not None and name in mesh and name not in chosen and size % mesh[name] == 0
        chosen.append(name if splits else None)
    return tuple(chosen)


def shard_shape(shape: Sequence[int], split: Sequence[str | None], mesh: Mapping[str, int]) -> tuple[int, ...]:
    """What one device holds of an array that is split so."""
    return tuple(size // mesh[name] if name else size for size, name in zip(shape, split, strict=True))


def named_sharding(spec: TensorSpec, mesh: "jax.sharding.Mesh") -> "jax.sharding.NamedSharding":
    """Where the array of ``spec`` lies on a mesh of devices, by `RULES`.

    XLA is to split the computation by itself, so the mesh's axes are taken as automatic whatever type they have.
    """
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split = partition(spec.axes, spec.shape, mesh.shape)
    return NamedSharding(Mesh(mesh.devices, mesh.axis_names), PartitionSpec(*split))
