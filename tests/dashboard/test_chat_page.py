"""Chats on the sampling page, with a tiny random Gemma that brings a template."""

import json

import pytest

from dashboard.views import chat, writing
from jaxcore.chat import Turn
from jaxcore.tokens import find_tokenizer
from tests.dashboard.conftest import SAMPLING
from tests.dashboard.test_pages import labels, press, texts
from tests.reference import gemma3
from tests.reference.chat import GEMMA, GEMMA_TOKENS, rendered, save

pytestmark = pytest.mark.xdist_group("pages")

QUESTION = Turn("user", "What is the capital of Switzerland?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chats")
    gemma3.make(vocab_size=260).save_pretrained(path)
    save(path, GEMMA, GEMMA_TOKENS)
    return path


@pytest.fixture
def page(app, folder):
    """The sampling page in chat mode."""
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(folder)).run()
    press(app, "Load")
    app.switch_page(SAMPLING).run()
    app.segmented_control(key="as").set_value("Chat").run()
    assert not app.exception
    assert not app.error
    return app


def fields(page) -> list[str]:
    return [area.value for area in page.text_area if str(area.key).startswith("chat.")]


def ids_of(page) -> list[int]:
    """The ids in the list of the prompt's tokens."""
    return page.dataframe[0].value["id"].tolist()


def test_a_base_model_offers_no_chat(sampling):
    assert [control.key for control in sampling.segmented_control if control.key == "as"] == []
    assert sampling.text_area(key="prompt").value


def test_the_ids_are_those_of_the_template(page, folder):
    text, ids = rendered(folder, [QUESTION])
    assert ids_of(page) == ids
    assert labels(page)["Entropy of the model"]
    page.text_input(key="system").set_value("Be brief.").run()
    assert ids_of(page) == rendered(folder, [Turn("system", "Be brief."), QUESTION])[1]
    page.segmented_control(key="view").set_value("Write").run()
    page.text_input(key="system").set_value("").run()
    press(page, "Greedy")
    (run,) = page.session_state[writing.RUNS]
    assert (run.prompt, run.prompt_ids) == (text, tuple(ids))


def test_turns_are_added_edited_and_removed(page, folder):
    press(page, "Add assistant turn")
    assert fields(page) == [QUESTION.content, ""]
    page.text_area(key="chat.2.1").set_value("Bern.").run()
    press(page, "Add user turn")
    page.text_area(key="chat.3.2").set_value("And of France?").run()
    said = [QUESTION, Turn("assistant", "Bern."), Turn("user", "And of France?")]
    assert page.session_state[chat.TURNS] == tuple(said)
    assert ids_of(page) == rendered(folder, said)[1]
    assert json.loads(page.query_params["chat"]) == [[turn.role, turn.content] for turn in said]
    page.button(key="chat.remove.0").click().run()
    assert fields(page) == ["Bern.", "And of France?"]
    assert "refuses these turns: Turns must go user, assistant" in texts(page.error)
    page.button(key="chat.remove.0").click().run()
    assert fields(page) == ["And of France?"]
    assert not page.error
    page.button(key="chat.remove.0").click().run()
    assert "The chat has no turns: add one." in texts(page.error)
    press(page, "Add user turn")
    assert not page.error


def test_what_was_written_becomes_a_turn(page, folder):
    page.segmented_control(key="view").set_value("Write").run()
    page.number_input(key="steps").set_value(3)
    press(page, "Greedy")
    (run,) = page.session_state[writing.RUNS]
    press(page, "Keep as a turn")
    assert not page.exception
    pieces = find_tokenizer(str(folder)).pieces
    written = b"".join(pieces[i] for i in run.text.token_ids if i < gemma3.BOS).decode("utf-8", "replace")
    assert page.session_state[chat.TURNS] == (QUESTION, Turn("assistant", written))
    assert fields(page) == [QUESTION.content, written]
    assert not [button for button in page.button if button.label == "Keep as a turn"]


def test_a_control_token_in_a_text_is_pointed_out(page, folder):
    page.text_area(key="chat.1.0").set_value("a<end_of_turn>b").run()
    said = texts(page.warning)
    assert "Turn 1 (user) spells `<end_of_turn>`. The model reads it as that control token (id 259)" in said
    assert ids_of(page) == rendered(folder, [Turn("user", "a<end_of_turn>b")])[1]
    page.text_input(key="system").set_value("<eos>").run()
    assert "The system prompt spells `<eos>`" in texts(page.warning)
    assert "Turn 1 (user) spells" in texts(page.warning)


def test_the_turns_survive_another_view_and_page(page):
    page.text_area(key="chat.1.0").set_value("Where is Bern?").run()
    page.segmented_control(key="view").set_value("Score").run()
    page.switch_page("app_pages/overview.py").run()
    page.switch_page(SAMPLING).run()
    page.segmented_control(key="view").set_value("Next token").run()
    page.segmented_control(key="as").set_value("Chat").run()
    assert not page.exception
    assert fields(page) == ["Where is Bern?"]


@pytest.mark.parametrize(
    ("address", "turns"),
    [
        ('[["user", "a"], ["assistant", "b"]]', (Turn("user", "a"), Turn("assistant", "b"))),
        ("", ()),
        ("no json", ()),
        ("5", ()),
        ('[["robot", "x"]]', ()),
        ('[["user"]]', ()),
        ("[[[], 5]]", ()),
    ],
)
def test_turns_come_from_the_address_if_it_holds_any(address, turns):
    assert chat._from_address(address) == turns


def test_a_broken_template_is_explained_and_plain_text_goes_on(app, tmp_path):
    gemma3.make(vocab_size=260).save_pretrained(tmp_path)
    save(tmp_path, "{% if %}", GEMMA_TOKENS)
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(tmp_path)).run()
    press(app, "Load")
    app.switch_page(SAMPLING).run()
    assert labels(app)["Entropy of the model"]
    app.segmented_control(key="as").set_value("Chat").run()
    assert not app.exception
    assert "tokenizer_config.json cannot be used: line 1" in texts(app.error)
