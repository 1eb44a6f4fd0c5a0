"""Settings of JAX that have to be in place before it is first imported."""

import os

from jaxcore.checkpoint.paths import cache_folder


def prepare() -> None:
    """Keep compiled programs on disk, and take GPU memory as needed instead of most of it at once.

    What the user has set in the environment stays.
    """
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder() / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
