"""The weights page as a user meets it."""

import json

import numpy as np
import pytest

from dashboard import services
from tests.dashboard.test_pages import press, texts
from tests.reference import char

pytestmark = pytest.mark.xdist_group("pages")
PAGE = "app_pages/weights.py"


@pytest.fixture
def page(app):
    """The page on a small model that is not loaded."""
    app.sidebar.selectbox(key="model").set_value("gemma3-mini-base").run()
    app.switch_page(PAGE).run()
    assert not app.exception
    return app


def test_small_weights_are_read_at_once(page):
    told = texts(page.markdown)
    assert "Nothing stands out in" in told
    assert "4 query heads share 1 key/value head, 4 to one" in told
    assert "4 of 6 layers see only a window" in told


def test_large_weights_wait_to_be_asked(app):
    app.switch_page(PAGE).run()
    assert not app.exception
    assert "Every tensor is read once" in texts(app.info)
    assert not app.dataframe


def test_numbers_along_depth_and_with_spectra(page):
    page.selectbox(key="weights_number").set_value("excess_kurtosis").run()
    assert not page.exception
    press(page, "Singular values too")
    assert not page.exception
    page.selectbox(key="weights_number").set_value("power_law_alpha").run()
    assert not page.exception
    assert "An exponent alone is no verdict" in texts(page.caption)


def test_the_downloaded_rows_are_the_commands(page):
    names = services.weight_names("gemma3-mini-base")
    rows = [services.tensor_statistics("gemma3-mini-base", name) for name in names]
    told = json.loads(services.weights_json("gemma3-mini-base", rows))
    assert told["schema"] == "clearbox.weights/1"
    assert [row["name"] for row in told["tensors"]] == names


def test_another_model_does_no_harm(page):
    page.number_input[0].set_value(5).run()
    page.sidebar.selectbox(key="model").set_value("char-english").run()
    assert not page.exception
    assert "Each of 6 heads has keys and values of its own" in texts(page.markdown)


def test_planted_faults_are_told(app, tmp_path):
    weights = char.make(24, layers=2)
    weights["W_q.1"][3] = 0
    weights["W_fc.0"][5, 5] = np.nan
    weights["W_o.0"][:] = 0
    weights["W_k.0"][1, 1] = 300.0
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(char.save(tmp_path / "m.safetensors", weights))).run()
    app.switch_page(PAGE).run()
    assert not app.exception
    told = texts(app.markdown)
    assert "1 number NaN or infinite], in 1 tensor: `layers.0.W_fc`" in told
    assert "Nothing but zeros in 1 tensor]: `layers.0.W_o`" in told
    assert "1 row of zeros], in 1 tensor: `layers.1.W_q`" in told
    assert "more than 30 standard deviations out" not in told  # 24 x 24 numbers cannot be that far out


def test_blocks_alone_can_be_read(app, tmp_path):
    around = ("tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out")
    blocks = {name: array for name, array in char.make(24, layers=2).items() if name not in around}
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.sidebar.text_input(key="path").set_value(str(char.save(tmp_path / "b.safetensors", blocks))).run()
    app.switch_page(PAGE).run()
    assert not app.exception
    assert "Nothing stands out in 20 tensors" in texts(app.markdown)


def test_without_a_checkpoint_it_says_what_to_do(app):
    app.sidebar.selectbox(key="model").set_value("A folder or file").run()
    app.switch_page(PAGE).run()
    assert not app.exception
    assert "Name a checkpoint in the sidebar" in texts(app.info)
