"""Imports go dashboard -> jaxcore -> models, never back."""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {"jax", "jaxtyping", "flax", "numpy", "models"}
ALLOWED_TO_TRAIN = ALLOWED | {"optax", "orbax", "tokenizers", "safetensors"}
FRONT_END = {"streamlit", "altair", "vl_convert"}


def modules(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    return names_in(ast.walk(ast.parse(path.read_text("utf-8"))))


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import is relative"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", modules("models"), ids=lambda p: str(p.relative_to(ROOT)))
def test_models_import_little(path):
    allowed = ALLOWED_TO_TRAIN if ROOT / "models/training" in path.parents else ALLOWED
    assert imported(path) - set(sys.stdlib_module_names) <= allowed


@pytest.mark.parametrize("path", modules("jaxcore"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_backend_knows_no_front_end(path):
    assert not imported(path) & (FRONT_END | {"dashboard", "tests"})


@pytest.mark.parametrize("path", modules("dashboard/charts"), ids=lambda p: str(p.relative_to(ROOT)))
def test_charts_draw_and_do_nothing_else(path):
    assert not imported(path) & {"streamlit", "jax", "numpy"}


def test_what_headers_need_imports_no_jax():
    """`models` and `inspect` answer at once because nothing on their way imports JAX or Orbax at a module's top."""
    light = [ROOT / "jaxcore" / f"{name}.py" for name in ("catalogue", "inspect", "families", "tokenizer", "__main__")]
    for path in [*light, ROOT / "models" / "sharding.py", *modules("jaxcore/checkpoint")]:
        top = [
            node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert not names_in(top) & {"jax", "orbax"}, path
