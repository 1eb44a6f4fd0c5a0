"""The page on tokenizers, which needs no model."""

import pytest

from dashboard.word_sets import WORD_SETS
from jaxcore.token_counts import sign_test
from jaxcore.tokens import NAMED, find_tokenizer
from tests.dashboard.test_pages import texts
from tests.reference.gemma3 import save_tokenizer

pytestmark = pytest.mark.xdist_group("pages")


@pytest.fixture
def page(app):
    app.switch_page("app_pages/tokenizers.py").run()
    assert not app.exception
    return app


def show(page, view: str):
    page.segmented_control(key="show").set_value(view).run()
    assert not page.exception


def type_text(page, text: str):
    page.text_area(key="sentence").set_value(text).run()
    assert not page.exception


def test_real_tokenizers_split_a_text_side_by_side(page):
    type_text(page, "Bundesgesundheitsamt")
    said = texts(page.markdown)
    for count, per_token in ((5, "4.00"), (6, "3.33"), (9, "2.22")):
        assert f"**{count}** tokens · {per_token} characters and {per_token} bytes per token" in said
    assert "**apertus** · :gray[vocabulary 131,072]" in said


def test_a_clicked_token_tells_its_id_bytes_and_place(page):
    type_text(page, "Zürich liegt")
    page.session_state["splits.selected.gemma3"] = 1
    page.run()
    gemma = find_tokenizer("gemma3")
    ids = gemma.encode("Zürich liegt")
    raw = gemma.token_bytes(ids[1]).hex(" ").upper()
    assert f"Token 2 is `ürich`: id {ids[1]:,}, bytes {raw}, from byte 1 to 7." in texts(page.markdown)
    type_text(page, "Z")
    assert "from byte" not in texts(page.markdown)


def test_a_text_that_one_tokenizer_cannot_write_spoils_only_its_card(page):
    page.multiselect(key="tokenizers").set_value(["gemma3", "char"]).run()
    type_text(page, "ab C")
    assert "character 4 of the text is 'C'" in texts(page.error)
    assert "tokens" in texts(page.markdown)
    type_text(page, "ab c")
    assert not page.error


@pytest.mark.parametrize(
    "text", ["", "\n\n", "<bos>hello<end_of_turn>", "a" * 20_000], ids=["empty", "lines", "special", "long"]
)
def test_odd_texts_are_shown(page, text):
    type_text(page, text)
    assert not page.error


def test_other_tokenizers_come_from_paths_and_errors_stand_in_place(page, tmp_path):
    save_tokenizer(tmp_path)
    page.text_input(key="others").set_value(f"{tmp_path} | /no/such/tokenizer.json|hf:nonsense").run()
    assert not page.exception
    assert [("'/no/such/tokenizer.json' is no tokenizer" in e.value, "hf:nonsense" in e.value) for e in page.error] == [
        (True, False),
        (False, True),
    ]
    assert f"**{tmp_path}** · :gray[vocabulary 258]" in texts(page.markdown)
    page.multiselect(key="tokenizers").set_value([]).run()
    page.text_input(key="others").set_value("").run()
    assert "Choose at least one tokenizer." in texts(page.info)


def test_a_tokenizer_that_does_not_fit_its_model_is_refused(page, tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"vocab_size": 200}')
    page.text_input(key="others").set_value(str(tmp_path)).run()
    assert "has 258 tokens, the model embeds 200" in texts(page.error)


def test_conclusions_are_computed_from_the_counts(page):
    show(page, "Many words")
    lines = WORD_SETS["German compounds"]
    counts = {
        name: [len(find_tokenizer(name).encode(line)) for line in lines] for name in ("gemma3", "apertus", "gpt2")
    }
    total = {name: sum(column) for name, column in counts.items()}
    said = texts(page.markdown)
    assert f"Over {len(lines)} lines, **gemma3** needs {total['gemma3']} tokens, the fewest of all." in said
    assert f"**gpt2** needs {total['gpt2']}, {total['gpt2'] / total['gemma3'] - 1:.0%} more" in said
    worse = sum(a > g for a, g in zip(counts["apertus"], counts["gemma3"], strict=True))
    better = sum(a < g for a, g in zip(counts["apertus"], counts["gemma3"], strict=True))
    assert f"as uneven as {worse} to {better} would come up {sign_test(worse, better):.1%} of the time" in said
    table = page.dataframe[0].value
    assert table["gemma3"].tolist() == counts["gemma3"]
    assert table["line"].tolist() == list(lines)


def test_own_lines_each_count_once(page):
    show(page, "Many words")
    page.pills(key="lines").set_value("Your own").run()
    page.text_area(key="own").set_value("Haus\n\nHaus\nSeeufer\n").run()
    assert not page.exception
    assert page.dataframe[0].value["line"].tolist() == ["Haus", "Seeufer"]
    page.text_area(key="own").set_value(" \n").run()
    assert "Write one word or phrase a line." in texts(page.info)


def test_lines_that_not_all_can_write_are_left_out_of_the_verdict(page):
    show(page, "Many words")
    page.multiselect(key="tokenizers").set_value(["gpt2", "char"]).run()
    page.pills(key="lines").set_value("Your own").run()
    page.text_area(key="own").set_value("haus\nHaus").run()
    assert "Over the 1 of 2 lines that all can write, **gpt2**" in texts(page.markdown)
    assert "char cannot write 1 of 2 lines." in texts(page.caption)
    page.text_area(key="own").set_value("Haus").run()
    assert "There is no line that all of gpt2, char can write." in texts(page.warning)


@pytest.mark.parametrize("name", WORD_SETS)
def test_every_set_has_distinct_lines_that_real_tokenizers_give_back(name):
    lines = WORD_SETS[name]
    assert len(set(lines)) == len(lines) == 12
    for tokenizer in (find_tokenizer(n) for n in NAMED if n != "char"):
        assert all(tokenizer.decode(tokenizer.encode(line)) == line for line in lines)


def test_vocabularies(page):
    show(page, "Vocabularies")
    table = page.dataframe[0].value
    assert dict(zip(table["tokenizer"], table["vocabulary"], strict=True)) == {
        "gemma3": 262_144,
        "apertus": 131_072,
        "gpt2": 50_257,
    }
    assert table["special tokens"].tolist()[1:] == [1000, 1]
    assert "**gemma3**'s vocabulary is 2.0 times apertus's, 5.2 times gpt2's." in texts(page.markdown)
