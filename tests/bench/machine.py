"""What the figures were taken on, and how they are taken."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "jaxcore", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def described() -> str:
    """Processor, cores and versions in one line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "torch", "transformers"))
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"


def alternated(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median time of each run in seconds; the runs take turns, after one turn that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in times.items()}


def command(*arguments: str) -> None:
    """Run our command line in a process of its own."""
    subprocess.run([sys.executable, "-m", "jaxcore", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def peak_memory(*arguments: str) -> int:
    """Bytes that our command line has in memory at most, mapped files included (Linux counts in KiB)."""
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], cwd=ROOT, check=True, capture_output=True)
    return int(done.stdout) * 1024
