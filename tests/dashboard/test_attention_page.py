"""The attention page as a user meets it."""

import pytest

from dashboard.views import heads
from dashboard.views.growing_text import WRITTEN
from tests.dashboard.test_pages import press, texts

pytestmark = pytest.mark.xdist_group("pages")
PAGE = "app_pages/attention.py"


@pytest.fixture
def page(app):
    """The page with a small model of local and global layers."""
    app.sidebar.selectbox(key="model").set_value("gemma3-mini-base").run()
    press(app, "Load")
    app.switch_page(PAGE).run()
    assert not app.exception
    return app


def test_without_a_model_it_says_what_to_do(app):
    app.switch_page(PAGE).run()
    assert not app.exception
    assert "Load a model" in texts(app.info)


def test_it_says_what_stands_out(page):
    assert "The first token takes" in texts(page.markdown)
    assert "looks at" in texts(page.markdown)
    assert "local: sees 64 tokens, key/value head 0" in texts(page.markdown)


def test_writing_keeps_the_text_and_looks_into_it(page):
    page.number_input(key="write_steps").set_value(5)
    press(page, "Write")
    assert not page.exception
    assert len(page.session_state[WRITTEN][1]) == 5
    assert "5 tokens written after the prompt" in texts(page.caption)
    page.toggle(key="hide_first").set_value(True).run()
    assert "5 tokens written after the prompt" in texts(page.caption)
    assert "The first token is hidden" in texts(page.caption)
    press(page, "Prompt alone")
    assert "tokens written after" not in texts(page.caption)


def test_a_layer_that_another_model_lacks_becomes_the_nearest(page):
    page.session_state[heads.LAYER], page.session_state[heads.HEAD] = 5, 3
    page.run()
    assert "**L5H3**" in texts(page.markdown)
    page.sidebar.selectbox(key="model").set_value("char-english").run()
    press(page, "Load")
    assert not page.exception
    assert "**L3H3**" in texts(page.markdown)


def test_a_long_text_is_shown_in_part(page):
    page.text_area(key="prompt").set_value("The program reads the file and " * 20).run()
    assert not page.exception
    slider = page.slider(key="first_shown")
    assert "of their attention lies on earlier ones" in texts(page.caption)
    slider.set_value(0).run()
    assert not page.exception
    assert "lies on earlier ones" not in texts(page.caption)


@pytest.mark.parametrize("prompt", ["", "x" * 20_000])
def test_a_prompt_that_cannot_be_read_is_explained_and_the_page_goes_on(page, prompt):
    page.text_area(key="prompt").set_value(prompt).run()
    assert not page.exception
    assert len(page.error) == 1
    page.text_area(key="prompt").set_value("The program").run()
    assert not page.error


def test_of_a_text_beyond_a_sliding_context_the_last_tokens_are_looked_into(page):
    page.sidebar.selectbox(key="model").set_value("char-english").run()
    press(page, "Load")
    page.text_area(key="prompt").set_value("and the lord said to the people of the " * 5).run()
    assert not page.exception
    assert not page.error
    assert "(127) looks at" in texts(page.markdown)
