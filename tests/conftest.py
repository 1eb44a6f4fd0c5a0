"""What every test may use: tiny models, made with `transformers` and opened by us."""

from jaxcore import runtime

runtime.prepare()  # before anything imports JAX

from collections.abc import Callable  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402

from jaxcore.catalogue import open_reference  # noqa: E402
from jaxcore.session import LoadedModel, load  # noqa: E402
from tests.reference import gemma3  # noqa: E402


@pytest.fixture(scope="session")
def make(tmp_path_factory) -> Callable[..., tuple[Any, LoadedModel]]:
    """Makes a tiny model with the given changes to its configuration, once a session; gives both sides of it.

    It is a Gemma 3 unless the module of another family's reference comes first.
    """
    made = {}

    def make(source: ModuleType = gemma3, /, **changes):
        key = source.__name__ + repr(sorted(changes.items()))
        if key not in made:
            reference = source.make(**changes)
            made[key] = reference, gemma3.opened(reference, tmp_path_factory.mktemp("tiny"))
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny(make) -> LoadedModel:
    """The tiny model that tests use when any will do."""
    return make()[1]


@pytest.fixture(scope="session")
def real() -> LoadedModel:
    """Gemma 3 270M, its float32 weights where they are mapped; converted on first use."""
    return load(open_reference("gemma3-270m", converted=True), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def real_reference(real) -> gemma3.Reference:
    """The same weights in `transformers`: our converted copy is a folder that it opens."""
    return gemma3.from_folder(real.checkpoint.path)
