"""Every page as a user meets it: what it says, what widgets change, what bad input does."""

import json
import pickle

import pytest

from dashboard import words
from dashboard.views import writing
from jaxcore.catalogue import CATALOGUE, Shipped
from jaxcore.sampling import Settings
from tests.dashboard.conftest import SAMPLING
from tests.reference import char

pytestmark = pytest.mark.xdist_group("pages")


def texts(elements) -> str:
    return "\n".join(element.value for element in elements)


def labels(at) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}


def press(at, label: str):
    button = next(b for b in at.button if b.label == label)
    return button.click().run()


def test_without_a_model_every_page_says_what_to_do(app):
    assert "Load a model in the sidebar to begin." in texts(app.info)
    app.switch_page(SAMPLING).run()
    assert not app.exception
    assert "Load a model in the sidebar to begin." in texts(app.info)


def test_the_picker_says_what_it_will_load_and_takes_before_loading(app):
    assert "Gemma 3, 268 M parameters. Takes **1.07 GB** of memory." in texts(app.sidebar.caption)


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if isinstance(entry, Shipped)])
def test_every_shipped_model_loads_and_samples(app, name):
    app.sidebar.selectbox(key="model").set_value(name).run()
    assert CATALOGUE[name].note in texts(app.sidebar.caption)
    press(app, "Load")
    assert not app.exception
    assert "To make it again" in texts(app.markdown)
    app.switch_page(SAMPLING).run()
    assert not app.exception
    assert 0 < float(labels(app)["Entropy of the model"].split()[0]) < 6
    (run,) = write(app, steps=5)
    assert len(run.text.steps) == 5


def test_blocks_alone_are_not_offered_to_load(app, tmp_path):
    around = ("tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out")
    blocks = {name: array for name, array in char.make(24, layers=2).items() if name not in around}
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(char.save(tmp_path / "blocks.safetensors", blocks))).run()
    assert not app.exception
    assert "blocks alone, without embedding and output" in texts(app.sidebar.caption)
    assert "Load" not in [button.label for button in app.sidebar.button]


def test_overview_shows_the_models_own_sizes(loaded):
    found = labels(loaded)
    assert found == {
        "Parameters": "268 M",
        "Layers": "18",
        "Heads": "4 / 1",
        "Width": "640",
        "Vocabulary": "262,144",
        "Context": "32,768",
    }
    assert "quantised" in texts(loaded.markdown)


def test_unloading_returns_to_the_beginning(loaded):
    press(loaded, "Unload")
    assert not loaded.exception
    assert "Load a model in the sidebar" in texts(loaded.info)


def test_an_example_opens_on_the_sampling_page(loaded):
    press(loaded, "German")
    assert not loaded.exception
    assert loaded.text_area(key="prompt").value.startswith("Die Schweiz")


def test_sliders_change_what_survives(sampling):
    before = labels(sampling)
    assert "`·the`" in texts(sampling.markdown)
    sampling.slider(key="temperature").set_value(1.5).run()
    sampling.slider(key="top_k").set_value(5).run()
    assert not sampling.exception
    after = labels(sampling)
    assert after["Entropy of the model"] == before["Entropy of the model"]
    assert after["First choice, final"] != before["First choice, final"]
    assert "flattens" in texts(sampling.markdown)
    sampling.slider(key="temperature").set_value(0.0).run()
    assert labels(sampling)["First choice, final"] == "100.0%"
    assert labels(sampling)["Entropy after filters"] == "0.00 nats"


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ("", "The prompt is empty: type the beginning of a text for the model to continue."),
        ("Bern " * 40_000, "reads at most 32,768"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_explained_and_the_page_goes_on(sampling, prompt, sentence):
    sampling.text_area(key="prompt").set_value(prompt).run()
    assert not sampling.exception
    assert sentence in texts(sampling.error)
    sampling.text_area(key="prompt").set_value("Bern is").run()
    assert not sampling.error
    assert labels(sampling)


def write(at, **values):
    at.segmented_control(key="view").set_value("Write").run()
    for key, value in values.items():
        at.number_input(key=key).set_value(value)
    press(at, "Write")
    assert not at.exception
    return at.session_state[writing.RUNS]


def test_writing_keeps_a_trace_that_greedy_and_seeds_change(sampling):
    (run,) = write(sampling, steps=6)
    assert run.text.stop_reason == "steps"
    assert len(run.text.steps) == 6
    assert "6 tokens" in texts(sampling.caption)
    press(sampling, "New seed")
    assert sampling.session_state[writing.RUNS][0].text.seed == 1
    press(sampling, "Greedy")
    greedy = sampling.session_state[writing.RUNS][0]
    assert greedy.settings == Settings(temperature=0.0)
    assert all(step.rank == 1 for step in greedy.text.steps)


def test_several_texts_a_clicked_token_and_a_branch(sampling):
    runs = write(sampling, steps=4, texts=2)
    assert [run.text.seed for run in runs] == [0, 1]
    sampling.session_state[writing.SELECTED] = (1, 2)
    sampling.run()
    step = runs[1].text.steps[2]
    assert words.chosen(step, 262_144) in texts(sampling.markdown)
    other = sampling.selectbox(key="writing.other.1.2")
    forced = next(c for c in step.candidates if c.token_id != step.token_id)
    assert forced.token.strip() in other.value if isinstance(other.value, str) else other.value == forced
    press(sampling, "Branch")
    assert not sampling.exception
    branch = sampling.session_state[writing.RUNS][2]
    assert branch.branch == (1, 2)
    assert branch.text.token_ids[:3] == [*runs[1].text.token_ids[:2], forced.token_id]
    assert len(branch.text.steps) == 4


def test_a_new_seed_after_the_largest_begins_again(sampling):
    write(sampling, steps=1, seed=writing.LARGEST_SEED)
    press(sampling, "New seed")
    assert not sampling.exception
    assert sampling.session_state[writing.RUNS][0].text.seed < writing.LARGEST_SEED


def test_a_path_that_no_file_system_takes_is_explained(app):
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    for path in ("x" * 5000, "~nobody-of-this-name/model"):
        app.sidebar.text_input(key="path").set_value(path).run()
        assert not app.exception
        assert len(app.error) == 1


def test_what_the_session_keeps_can_be_serialised(sampling):
    runs = write(sampling, steps=2)
    assert pickle.loads(pickle.dumps(runs)) == runs


def test_stop_strings_end_a_text(sampling):
    sampling.text_area(key="prompt").set_value("One, two, three, four,").run()
    sampling.segmented_control(key="view").set_value("Write").run()
    sampling.text_input(key="stop").set_value("six|\\n").run()
    press(sampling, "Greedy")
    text = sampling.session_state[writing.RUNS][0].text
    assert text.stop_reason == "stop_string"
    assert len(text.steps) < 40


def test_the_downloaded_trace_is_the_commands(sampling):
    (run,) = write(sampling, steps=3)
    trace = json.loads(writing._trace(run))
    assert trace["schema"] == "clearbox.sample/1"
    assert [step["token_id"] for step in trace["steps"]] == run.text.token_ids


def test_scoring_a_text(sampling):
    sampling.segmented_control(key="view").set_value("Score").run()
    assert not sampling.exception
    before = labels(sampling)
    assert float(before["Perplexity"]) > 1
    sampling.text_area(key="text").set_value("zq xv jjk").run()
    assert float(labels(sampling)["Perplexity"].replace(",", "")) > float(before["Perplexity"])
    sampling.text_area(key="text").set_value("").run()
    assert "nothing to predict" in texts(sampling.error)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("gone", None, "cannot be opened"),
        ("model.bin", b"\x80\x02", "pickle"),
        ("model.gguf", b"GGUF\x03\x00\x00\x00", "damaged"),
        ("model.safetensors", b"\xff" * 64, "truncated or not a safetensors"),
    ],
    ids=["missing", "pickle", "gguf", "safetensors"],
)
def test_a_bad_file_is_refused_in_the_sidebar(app, tmp_path, name, content, sentence):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(path)).run()
    assert not app.exception
    assert len(app.error) == 1
    assert str(tmp_path) in app.error[0].value
    assert sentence in app.error[0].value
    app.sidebar.selectbox(key="model").set_value("gemma3-270m").run()
    assert not app.error
