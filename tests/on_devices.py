"""Loads a checkpoint onto a mesh of virtual CPU devices; run as a process of its own, whose devices XLA_FLAGS sets."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from jaxcore import runtime
from jaxcore.checkpoint.orbax import is_orbax

DEVICES = 8
STEPS = 6


def on_devices(folder: Path, sizes: tuple[int, int], ids: list[int], out: Path) -> tuple[dict[str, Any], Any]:
    """What `main` saw: shard shapes by parameter and greedy ids, and the arrays of every parameter and of logits."""
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    arguments = [str(folder), json.dumps(sizes), json.dumps(ids), str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.on_devices", *arguments],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), np.load(out)


def main(folder: str, sizes: list[int], ids: list[int], out: Path) -> None:
    """Load, run the forward pass, write greedily; arrays go to ``out``, the rest to stdout."""
    import jax
    import jax.numpy as jnp

    from jaxcore.catalogue import open_reference
    from jaxcore.sample import generate
    from jaxcore.sampling import Settings
    from jaxcore.session import load
    from models import decode
    from models.sharding import MESH_AXES

    assert len(jax.devices()) == DEVICES
    mesh = jax.make_mesh(sizes, MESH_AXES, devices=jax.devices()[: int(np.prod(sizes))])
    model = load(open_reference(folder), mesh=mesh)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(model.params)}
    for leaf in leaves.values():
        for shard in leaf.addressable_shards:
            np.testing.assert_array_equal(shard.data, np.asarray(leaf)[shard.index])
    restored = restored_by_orbax(Path(folder), leaves) if is_orbax(Path(folder)) else []
    logits, _, _ = decode.forward(
        model.params, decode.new_cache(model.config, 0), jnp.array(ids), jnp.arange(len(ids)), cfg=model.config
    )
    *_, (text,) = generate(model, ids, Settings(temperature=0.0), steps=STEPS)
    np.savez(out, logits=logits, **leaves)
    shards = {name: [shard.data.shape for shard in leaf.addressable_shards] for name, leaf in leaves.items()}
    print(json.dumps({"shards": shards, "greedy": text.token_ids, "restored": restored}))


def restored_by_orbax(folder: Path, leaves: dict[str, Any]) -> list[str]:
    """Let Orbax itself restore a folder to the same devices, and compare shard by shard; gives the names."""
    import jax
    import orbax.checkpoint as ocp

    named = {name.removeprefix("."): leaf for name, leaf in leaves.items()}
    named = {name: leaf for name, leaf in named.items() if (folder / name).is_dir()}  # a tied head is W_E
    with ocp.PyTreeCheckpointer() as checkpointer:
        stored = checkpointer.metadata(folder).item_metadata.tree
    targets = {n: jax.ShapeDtypeStruct(x.shape, stored[n].dtype, sharding=x.sharding) for n, x in named.items()}
    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(folder, targets)
    for name, array in tree.items():
        for theirs, ours in zip(array.addressable_shards, named[name].addressable_shards, strict=True):
            assert (theirs.device, theirs.index) == (ours.device, ours.index)
            np.testing.assert_array_equal(np.asarray(theirs.data, np.float32), ours.data)
    return list(tree)


if __name__ == "__main__":
    runtime.prepare()
    main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4]))
