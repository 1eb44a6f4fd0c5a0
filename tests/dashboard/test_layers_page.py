"""The layers page as a user meets it."""

import json

import pytest

from dashboard import services, state
from dashboard.views import edits
from jaxcore.whatif import Edit
from tests.dashboard.test_pages import press, texts

pytestmark = pytest.mark.xdist_group("pages")
PAGE = "app_pages/layers.py"


@pytest.fixture
def page(app):
    app.sidebar.selectbox(key="model").set_value("gemma3-mini-tuned").run()
    press(app, "Load")
    app.switch_page(PAGE).run()
    assert not app.exception
    return app


def view(page, name: str):
    page.segmented_control(key="layers_view").set_value(name).run()
    assert not page.exception
    return page


def test_where_the_answer_appears(page):
    assert "The answer" in texts(page.markdown)
    assert "KL to the final prediction falls below 1 nat" in texts(page.markdown)


def test_the_stream_gives_the_commands_json(page):
    view(page, "The stream")
    key = page.session_state[state.ACTIVE]
    ids = services.encode(key, page.text_area(key="prompt").value, False)
    told = json.loads(services.evolution_json(key, ids))
    assert told["schema"] == "clearbox.layers/1"
    assert len(told["layers"]) == 7


def test_the_logit_is_taken_apart(page):
    view(page, "Where it came from")
    assert "The logit of" in texts(page.markdown)
    parts = [box for box in page.selectbox if box.label == "Part"]
    parts[0].set_value("MLP").run()
    assert not page.exception
    units = [box for box in page.selectbox if box.label == "Unit"]
    assert len(units[0].options) > 2


def test_edits_add_up_and_belong_to_their_model(page):
    view(page, "What if")
    assert "press **Add**" in texts(page.info)
    press(page, "Add")
    assert "With L0H0 removed: " in texts(page.markdown)
    page.selectbox(key="whatif_part").set_value("MLP").run()
    page.selectbox(key="whatif_kind").set_value("scale").run()
    press(page, "Add")
    assert page.session_state[edits.EDITS][1] == (Edit(0, 0), Edit(0, None, "scale", 0.5))
    assert "L0 MLP scaled by 0.5" in texts(page.markdown)
    press(page, "Remove each part in turn")
    assert "The next token depends most on" in texts(page.markdown)
    press(page, "Undo all")
    assert "press **Add**" in texts(page.info)


def test_a_patch_without_a_prompt_is_explained(page):
    view(page, "What if")
    page.selectbox(key="whatif_kind").set_value("patch").run()
    press(page, "Add")
    assert not page.exception
    assert "A patch needs another prompt" in texts(page.error)
    page.text_input(key="whatif_other").set_value("Is a whale bigger than an ant? Answer:").run()
    assert not page.error


@pytest.mark.parametrize("name", ["Prediction", "The stream", "Where it came from", "What if"])
def test_another_model_and_an_empty_prompt_do_no_harm(page, name):
    view(page, name)
    page.text_area(key="prompt").set_value("").run()
    assert not page.exception
    assert "The prompt is empty" in texts(page.error)
    page.sidebar.selectbox(key="model").set_value("char-english").run()
    press(page, "Load")
    page.text_area(key="prompt").set_value("the lord").run()
    assert not page.exception
    assert not page.error


def test_tokens_of_the_real_model_are_spelled_one_by_one(loaded):
    """Likely tokens do not follow each other, so none may be shown as a part of the one before."""
    loaded.switch_page(PAGE).run()
    view(loaded, "Where it came from")
    options = next(box.options for box in loaded.selectbox if box.label == "Token")
    assert options[0].startswith("·the ")
    assert not any("⟨" in option for option in options)
