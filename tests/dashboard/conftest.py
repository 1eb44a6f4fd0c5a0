"""The app under Streamlit's own test runner, with the real model."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).parent.parent.parent
SAMPLING = "app_pages/sampling.py"


@pytest.fixture
def app() -> AppTest:
    """A new session on the overview, no model loaded."""
    at = AppTest.from_file(ROOT / "dashboard" / "app.py", default_timeout=120).run()
    assert not at.exception
    return at


@pytest.fixture
def loaded(app) -> AppTest:
    """A session with the catalogue's Gemma 3 loaded."""
    app.sidebar.button[0].click().run()
    assert not app.exception
    return app


@pytest.fixture
def sampling(loaded) -> AppTest:
    """The sampling page on its first view."""
    loaded.switch_page(SAMPLING).run()
    assert not loaded.exception
    return loaded
