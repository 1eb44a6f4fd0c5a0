"""What a model runs on, and how long one pass takes there."""

import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import jax

from jaxcore.sample import pieces, prefill
from jaxcore.session import LoadedModel

PASSES = 5


@dataclass(frozen=True)
class Machine:
    """The device, and measurements on it.

    ``memory_bytes`` is what the device says is in use, or on a CPU the largest resident size of this process so far.
    ``forward_s`` is the median of `PASSES` passes over ``forward_tokens`` tokens (padding included), compilation left
    out.
    """

    system: str
    device: str
    cores: int
    memory_bytes: int | None
    forward_s: float
    forward_tokens: int


def measured(model: LoadedModel, ids: Sequence[int]) -> Machine:
    """Facts of this machine, and the time of a forward pass over ``ids``. Raises `InputError` as `prefill` does."""
    times = []
    for _ in range(PASSES + 1):
        start = time.perf_counter()
        jax.block_until_ready(prefill(model, ids, room=1)[0])
        times.append(time.perf_counter() - start)
    device = jax.tree.leaves(model.params)[0].devices().pop()
    return Machine(
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        device=_processor() if device.platform == "cpu" else device.device_kind,
        cores=os.cpu_count() or 1,
        memory_bytes=_memory(device),
        forward_s=median(times[1:]),
        forward_tokens=sum(len(tokens) for tokens, _ in pieces(ids[-model.config.context :])),
    )


def _memory(device: jax.Device) -> int | None:
    stats = device.memory_stats()
    if stats:
        return stats.get("bytes_in_use")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
