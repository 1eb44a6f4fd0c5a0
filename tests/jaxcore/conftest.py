"""Models that several tests open."""

from pathlib import Path

import pytest

from jaxcore.catalogue import open_reference, ready
from jaxcore.checkpoint.store import Checkpoint
from tests.jaxcore.checkpoint import tiny


@pytest.fixture(scope="session")
def model():
    return tiny.make()


@pytest.fixture(scope="session")
def saved(model, tmp_path_factory) -> Path:
    """The tiny model as transformers saves it."""
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLEARBOX_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def gemma() -> Checkpoint:
    """The catalogue's Gemma 3 270M, as its package brings it."""
    return open_reference("gemma3-270m")


@pytest.fixture(scope="session")
def gemma_ready(gemma) -> Checkpoint:
    return ready(gemma)
