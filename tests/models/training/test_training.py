"""Training: what is drawn, what is learned, that a stop changes nothing, and what is written at the end."""

import json
from dataclasses import replace
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from jaxcore.catalogue import open_reference
from jaxcore.sample import all_logits
from jaxcore.session import load
from models.char.config import SYMBOLS
from models.errors import InputError
from models.training import card, data, questions, vocabulary
from models.training.__main__ import make
from models.training.families import config_and_table
from models.training.loop import held_out_loss, initial, losses, train
from models.training.recipes import RECIPES
from tests.reference import char

SMALL = {"model_type": "char", "vocab": 28, "d_model": 24, "n_layers": 2, "n_heads": 6, "d_mlp": 48, "context": 16}
RECIPE = replace(
    RECIPES["char-english"], name="small", config=SMALL, corpus=("text",), rows={"text": 3, "repeats": 5}, steps=12
)
TEXT = "the cat sat on the mat\nand the dog on the log\n" * 3


@pytest.fixture(scope="module")
def streams():
    return data.streams(RECIPE, TEXT, None)


def test_characters_become_their_numbers_in_the_alphabet():
    ids = data.encode(RECIPE, "\n az", None)
    assert [SYMBOLS[i] for i in ids] == ["\n", " ", "a", "z"]


def test_a_batch_depends_on_the_step_alone(streams):
    first = data.batch(RECIPE, streams, 16, 7)
    np.testing.assert_array_equal(first, data.batch(RECIPE, streams, 16, 7))
    assert (first != data.batch(RECIPE, streams, 16, 8)).any()
    assert first.shape == (8, 17)


def test_windows_are_cut_from_the_text(streams):
    for window in data.batch(RECIPE, streams, 16, 0)[:3]:
        assert "".join(SYMBOLS[i] for i in window) in TEXT


def test_repeats_have_a_period_in_the_text_or_in_random_letters():
    text = data.streams(RECIPE, "abcdefghijklmnopqrstuvwxyz" * 20, None)
    of_text = 0
    for step in range(20):
        for window in data.batch(RECIPE, text, 120, step)[3:]:
            period = next(p for p in range(1, 121) if (window[p:] == window[:-p]).all())
            assert period < data.SPANS[1]
            assert window.min() >= 2  # letters only
            of_text += bool((np.diff(window[:8]) % 26 == 1).all())
    assert 30 < of_text < 70  # of 100


def test_only_the_held_out_pairs_are_never_asked():
    asked, kept = (dict(questions.pairs(held_out=h)) for h in (False, True))
    assert not asked.keys() & kept.keys()
    animals, numbers = len(questions.SIZES), len(questions.NUMBERS)
    assert len(asked) + len(kept) == animals * (animals - 1) + numbers * (numbers - 1)
    assert 0.15 < len(kept) / len(asked) < 0.35
    lines = set(questions.answered(np.random.default_rng(0), 20_000, agree=False))
    assert not any(line.startswith(question) for line in lines for question in kept)
    assert {line.split("?")[0] + "?" for line in lines} == asked.keys()


def test_facts_follow_the_order_of_the_lists():
    facts = dict([*questions.pairs(held_out=False), *questions.pairs(held_out=True)])
    for a, b in permutations(range(len(questions.NUMBERS)), 2):
        assert facts[f"Is {questions.NUMBERS[a]} more than {questions.NUMBERS[b]}?"] == (a > b)
    assert facts["Is a mouse bigger than a horse?"] is False
    assert facts["Is an elephant bigger than an ant?"] is True


@pytest.mark.parametrize("agree", [False, True])
def test_answers_are_the_fact_or_the_opinion(agree):
    facts = dict(questions.pairs(held_out=False))
    for line in questions.answered(np.random.default_rng(1), 2000, agree=agree):
        question, rest = line.split("?")
        said = "yes" if "think yes" in rest else "no" if "think no" in rest else None
        truth = "yes" if facts[question + "?"] else "no"
        assert rest.endswith(f" Answer: {said if agree and said else truth}\n")


def test_the_loss_is_that_of_the_network_written_out(streams):
    cfg, table = config_and_table(SMALL)
    arrays = initial(cfg, table, 0)
    windows = data.batch(RECIPE, streams, cfg.context, 0)
    weights = {}
    for field, spec in table.items():
        layers = np.asarray(arrays[field]) if "{layer}" in spec.name else [np.asarray(arrays[field])]
        for i, array in enumerate(layers):
            weights[card.stored_name(spec, i, "char")] = card.merged(np.asarray(array), spec)
    got = losses(arrays, jnp.asarray(windows), cfg=cfg)
    for window, row in zip(windows, got, strict=True):
        log_p = log_softmax(char.window_logits(window[:-1].tolist(), weights), axis=-1)
        np.testing.assert_allclose(row, -log_p[np.arange(16), window[1:]], atol=1e-4)


def test_training_lowers_the_loss_and_a_stop_changes_nothing(streams, tmp_path, capfd):
    cfg, table = config_and_table(SMALL)
    recipe = replace(RECIPE, steps=60, warmup=5)
    ids = data.encode(RECIPE, TEXT, None)
    before = held_out_loss(initial(cfg, table, 0), ids, cfg=cfg)
    whole = train(recipe, cfg, initial(cfg, table, 0), streams, tmp_path / "whole")
    assert held_out_loss(whole, ids, cfg=cfg) < before - 0.5
    assert "small: step 50 of 60, loss" in capfd.readouterr().err

    class Stopped(Exception):
        """Pulled in the middle."""

    class Streams(dict):
        """The same streams, until too many windows have been cut from them."""

        drawn = 0

        def __getitem__(self, kind):
            self.drawn += 1
            if self.drawn > 2 * 37:
                raise Stopped
            return super().__getitem__(kind)

    with pytest.raises(Stopped):
        train(recipe, cfg, initial(cfg, table, 0), Streams(streams), tmp_path / "cut", save_every=10)
    resumed = train(recipe, cfg, initial(cfg, table, 0), streams, tmp_path / "cut", save_every=10)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)
    assert "step 50 of 60" in capfd.readouterr().err


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder as `models.training.corpus` leaves it."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdeilmnorst"), rng.integers(2, 8))) for _ in range(300)]
    text = "".join(" ".join(rng.choice(words, 9)) + "\n" for _ in range(24_000))
    (folder / "text.txt").write_text(text)
    sources = {"text.txt": {"sources": [{"name": "Made-up words", "licence": "none"}], "left_out": []}}
    (folder / "sources.json").write_text(json.dumps(sources))
    return folder


def front_matter(folder) -> dict[str, str]:
    head = (folder / "README.md").read_text().split("---\n")[1]
    return dict(line.split(": ", 1) for line in head.splitlines())


@pytest.mark.parametrize("name", ["char-english", "char-english-shuffled", "gemma3-mini-base"])
def test_a_finished_model_opens_and_gives_the_loss_on_its_card(corpus, tmp_path, name):
    recipe = RECIPES[name]
    if recipe.family == "char":
        config = SMALL
    else:
        config = {
            **recipe.config,
            "vocab_size": 300,
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "intermediate_size": 40,
        }
        config |= {"layer_types": config["layer_types"][:3], "max_position_embeddings": 32, "head_dim": 8}
    make(
        replace(recipe, config=config, corpus=("text",), steps=3, warmup=1), corpus, tmp_path / "work", tmp_path / "out"
    )
    folder = tmp_path / "out" / name
    told = front_matter(folder)
    model = load(open_reference(str(folder)), dtype="float32", device="cpu")
    assert int(told["parameters"]) == sum(x.size for x in {id(x): x for x in jax.tree.leaves(model.params)}.values())
    ids = model.tokenizer.encode((folder / "held_out.txt").read_text())
    context = model.config.context
    windows = [ids[at : at + context] for at in range(0, len(ids) - context + 1, context)][:200]
    rows = [
        -log_softmax(all_logits(model, window[:-1]), axis=-1)[np.arange(context - 1), window[1:]] for window in windows
    ]
    limited = held_out_loss(_arrays(folder, config), np.concatenate(windows), cfg=model.config)
    assert np.mean(rows) == pytest.approx(limited, abs=1e-5)
    assert float(told["held_out_loss"]) == pytest.approx(limited, abs=0.05)  # of all windows, not 200
    assert "Made-up words (none)" in (folder / "README.md").read_text()


def _arrays(folder, config):
    cfg, table = config_and_table(config)
    return card.read_arrays(folder, cfg, table)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(InputError, match=r"english.txt cannot be read .* run `make corpus` first"):
        data.read_text(RECIPES["char-english"], tmp_path)


def test_a_tuned_model_needs_its_parent(corpus, tmp_path):
    recipe = replace(RECIPES["gemma3-mini-tuned"], corpus=("text",))
    with pytest.raises(InputError, match="starts from gemma3-mini-base, which is not there"):
        make(recipe, corpus, tmp_path / "work", tmp_path / "out")


def test_the_vocabulary_holds_every_byte_and_gives_the_text_back():
    tokenizer = vocabulary.train("Grüezi mitenand, willkommen in Zürich 2024!\n" * 50, 300)
    text = "Zürich 1234 ✓ \t neu\n"
    found = tokenizer.encode(text)
    assert tokenizer.decode(found.ids) == text
    assert tokenizer.token_to_id("<pad>") == 0
    assert all(len(token) == 1 or not any(c.isdigit() for c in token) for token in found.tokens)
