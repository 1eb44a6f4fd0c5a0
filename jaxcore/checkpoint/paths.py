"""Where files that can be made again are kept."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The user's cache folder for this program; the environment variable CLEARBOX_CACHE moves it."""
    chosen = os.environ.get("CLEARBOX_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("clearbox")
