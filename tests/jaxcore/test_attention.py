"""Attention patterns against `transformers`, and numbers of heads against plain numpy and planted patterns."""

import numpy as np
import pytest

from jaxcore import attention, reading
from jaxcore.__main__ import main
from jaxcore.attention import attended, head_statistics, induction_scores, patterns, repeated, without_first
from jaxcore.catalogue import open_reference
from jaxcore.session import load
from models.errors import InputError
from tests.reference import apertus, gemma3

PROMPT = "When Mary and John went to the store, John gave a drink to"


@pytest.mark.parametrize("source", [gemma3, apertus], ids=["gemma3", "apertus"])
def test_patterns_equal_those_of_transformers(make, source):
    reference, model = make(source)
    ids = gemma3.prompt(50)
    found = patterns(model, ids)
    np.testing.assert_allclose(found, gemma3.patterns(reference, ids), atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-5)
    assert not np.triu(found, 1).any()


def test_a_local_layer_sees_exactly_its_window(tiny):
    found = patterns(tiny, gemma3.prompt(40), layers=[0, 2])
    assert ((found[0] > 0).sum(axis=-1) == np.minimum(np.arange(40) + 1, gemma3.WINDOW)).all()
    assert ((found[1] > 0).sum(axis=-1) == np.arange(40) + 1).all()


def test_the_real_model(real, real_reference):
    ids = real.tokenizer.encode(PROMPT, bos=True)
    np.testing.assert_allclose(patterns(real, ids), gemma3.patterns(real_reference, ids), atol=2e-4, rtol=2e-3)


def test_chosen_rows_and_small_pieces_are_the_same_rows(tiny, monkeypatch):
    ids = gemma3.prompt(50)
    whole = patterns(tiny, ids)
    statistics = head_statistics(tiny, ids)
    monkeypatch.setattr(reading, "PATTERN_BYTES", 1)
    np.testing.assert_allclose(patterns(tiny, ids, rows=[3, 20, 49]), whole[:, :, [3, 20, 49]], atol=1e-5)
    np.testing.assert_allclose(patterns(tiny, ids), whole, atol=1e-5)
    for one, pieces in zip(statistics, head_statistics(tiny, ids), strict=True):
        np.testing.assert_allclose(one, pieces, rtol=1e-4)


def test_statistics_against_plain_numpy(tiny):
    ids = gemma3.prompt(40)
    found = patterns(tiny, ids).astype(np.float64)[:, :, 1:]
    i, j = np.arange(1, 40)[:, None], np.arange(40)[None]
    entropy = -np.where(found > 0, found * np.log(np.where(found > 0, found, 1)), 0).sum(axis=-1)
    reach = np.log(np.minimum(np.arange(1, 40) + 1, np.array(tiny.config.windows)[:, None]))[:, None]
    expected = {
        "entropy_nats": entropy,
        "entropy_share": entropy / reach,
        "distance": (found * (i - j)).sum(axis=-1),
        "first": found[..., 0],
        "previous": np.where(i - j == 1, found, 0).sum(axis=-1),
        "own": np.where(i == j, found, 0).sum(axis=-1),
    }
    got = head_statistics(tiny, ids)._asdict()
    assert got.keys() == expected.keys()
    for name, rows in expected.items():
        np.testing.assert_allclose(got[name], rows.mean(axis=-1), rtol=1e-4, err_msg=name)


def test_random_tokens_come_twice_and_are_ordinary(tiny):
    ids, period = repeated(tiny, seed=3)
    assert ids[0] == gemma3.BOS
    assert ids[1 : 1 + period] == ids[1 + period :]
    assert len(set(ids)) == period + 1
    assert not set(ids[1:]) & set(tiny.tokenizer.stop_ids)
    assert ids != repeated(tiny, seed=4)[0]


def test_an_induction_head_scores_one_and_a_uniform_head_little(tiny, monkeypatch):
    def planted(model, ids):
        n, period = len(ids), (len(ids) - 1) // 2
        perfect, uniform = np.zeros((n, n)), np.tril(np.ones((n, n)))
        rows = np.arange(n - period, n)
        perfect[rows, rows - period + 1] = 1
        return np.stack([perfect, uniform / uniform.sum(axis=-1, keepdims=True)])[None].astype(np.float32)

    monkeypatch.setattr(attention, "patterns", planted)
    found = induction_scores(tiny)
    assert found[0, 0] == 1
    assert found[0, 1] < 0.05


def test_the_first_token_hidden(tiny):
    rows = np.array([[1.0, 0, 0], [0.6, 0.4, 0], [0.2, 0.2, 0.6]])
    got = without_first(rows)
    assert np.isnan(got[0]).all()
    np.testing.assert_allclose(got[1:], [[0, 1, 0], [0, 0.25, 0.75]])
    assert rows[1, 0] == 0.6


def test_what_a_token_looks_at():
    found = attended(np.array([0.2, 0.5, 0.0, 0.2, 0.1]), ["a", "b", "c", "a", "e"], count=4)
    assert [(k.position, k.token, k.share) for k in found] == [
        (1, "b", 0.5),
        (0, "a", 0.2),
        (3, "a", 0.2),
        (4, "e", 0.1),
    ]
    assert attended(np.array([np.nan, np.nan]), ["a", "b"]) == []


def test_one_token_has_nothing_before_it(tiny):
    with pytest.raises(InputError, match="at least two tokens"):
        head_statistics(tiny, [5])


def test_patterns_that_would_not_fit_are_refused(tiny, monkeypatch):
    monkeypatch.setattr(attention, "LARGEST", 1000)
    with pytest.raises(InputError, match="name fewer layers with --layer"):
        patterns(tiny, gemma3.prompt(40))


def test_the_command(tmp_path):
    out = tmp_path / "a.npz"
    command = ["attention", "gemma3-mini-base", "--prompt", "The program reads", "--out", str(out), "--quiet"]
    assert main([*command, "--layer", "4", "--layer", "1"]) == 0
    model = load(open_reference("gemma3-mini-base"), dtype="float32", device="cpu")
    saved = np.load(out)
    assert saved["ids"].dtype == saved["layers"].dtype == np.int32
    assert saved["ids"].tolist() == model.tokenizer.encode("The program reads", bos=True)
    assert saved["layers"].tolist() == [4, 1]
    np.testing.assert_array_equal(saved["pattern"], patterns(model, saved["ids"].tolist(), [4, 1]))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--layer", "6"], "There is no layer 6: gemma3-mini-base has layers 0 to 5."),
        (["--layer", "1", "--layer", "1"], "The layers 1, 1 hold one twice"),
        (["--prompt", ""], "The prompt is empty"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(tmp_path, capfd, more, sentence):
    command = ["attention", "gemma3-mini-base", "--prompt", "x", "--out", str(tmp_path / "a.npz"), "--quiet"]
    assert main([*command, *more]) == 2
    assert sentence in capfd.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
