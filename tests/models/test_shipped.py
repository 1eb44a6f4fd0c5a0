"""The models that ship: each loads by its name, writes, gives the loss on its card, and can do what its card says."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from jaxcore.catalogue import CATALOGUE, CHECKPOINTS, Shipped, list_models, open_reference
from jaxcore.sample import all_logits, generate
from jaxcore.sampling import Settings
from jaxcore.session import load
from models import decode
from models.training import questions
from models.training.recipes import RECIPES

NAMES = [name for name, entry in CATALOGUE.items() if isinstance(entry, Shipped)]
SYMBOLS = "\n abcdefghijklmnopqrstuvwxyz"
FIRST = 8
"""The first query whose attention counts."""


@pytest.fixture(scope="module")
def opened():
    """Loads a model once."""
    models = {}

    def opened(name):
        if name not in models:
            models[name] = load(open_reference(name), dtype="float32", device="cpu")
        return models[name]

    return opened


def held_out(name: str) -> str:
    return (CHECKPOINTS / name / "held_out.txt").read_text("utf-8")


def card(name: str) -> dict[str, str]:
    head = (CHECKPOINTS / name / "README.md").read_text("utf-8").split("---\n")[1]
    return dict(line.split(": ", 1) for line in head.splitlines())


def test_every_recipe_has_its_model_and_all_together_are_small():
    assert set(NAMES) == set(RECIPES)
    assert sum(path.stat().st_size for path in CHECKPOINTS.rglob("*") if path.is_file()) < 60e6


def test_the_catalogue_lists_them_as_present():
    listed = {model["name"]: model for model in list_models()}
    for name in NAMES:
        assert listed[name]["present"]
        assert listed[name]["parameters"] == int(card(name)["parameters"])


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_on_the_card(opened, name):
    """Over consecutive windows of the context length, the first token of each given."""
    model, losses = opened(name), []
    ids, length = np.array(model.tokenizer.encode(held_out(name))), model.config.context
    for window in ids[: len(ids) // length * length].reshape(-1, length):
        log_p = log_softmax(all_logits(model, window[:-1].tolist()), axis=-1)
        losses.append(-log_p[np.arange(length - 1), window[1:]])
    assert np.mean(losses) == pytest.approx(float(card(name)["held_out_loss"]), abs=2e-4)
    # Far better than guessing; of shuffled lines only how common each letter is can be known.
    assert np.mean(losses) < (0.9 if name.endswith("shuffled") else 0.7) * np.log(model.config.vocab)


@pytest.mark.parametrize("name", NAMES)
def test_each_writes(opened, name):
    model = opened(name)
    prompt = model.tokenizer.encode(held_out(name)[:60])
    (text,) = list(generate(model, prompt, Settings(temperature=0.7, top_k=0), steps=30))[-1]
    assert len(text.steps) == 30
    assert len({step.token_id for step in text.steps}) > 3


@pytest.mark.parametrize(("name", "share"), [("char-english", 0.6), ("char-python", 0.5), ("char-romaji", 0.5)])
def test_what_they_write_is_made_of_words(opened, name, share):
    model, known = opened(name), set(held_out(name).split())
    prompt = model.tokenizer.encode(held_out(name)[:100])
    texts = list(generate(model, prompt, Settings(temperature=0.7, top_k=0), seeds=(0, 1, 2), steps=200))[-1]
    words = [word for text in texts for word in model.tokenizer.decode(text.token_ids).split()[1:-1] if len(word) > 2]
    assert np.mean([word in known for word in words]) > share


def patterns(model, ids) -> np.ndarray:
    """Attention in every layer and head: ``[layer n_heads query key]``."""
    *_, trace = decode.forward(
        model.params,
        decode.new_cache(model.config, 0),
        jnp.asarray(ids),
        jnp.arange(len(ids)),
        cfg=model.config,
        taps=frozenset({"pattern"}),
    )
    return np.asarray(trace.pattern)


def previous_weights(model, text: str) -> np.ndarray:
    """Mean attention to the character before, over the held-out text: ``[layer n_heads]``."""
    ids, length = np.array(model.tokenizer.encode(text)), model.config.context
    i = np.arange(FIRST, length)
    windows = ids[: 16 * length].reshape(16, length)
    return np.mean([patterns(model, window)[:, :, i, i - 1].mean(axis=-1) for window in windows], axis=0)


def induction_scores(model) -> np.ndarray:
    """Mean attention to what followed the same letter before, in random letters written twice: ``[layer n_heads]``."""
    scores = []
    for seed in range(8):
        period = min(26, model.config.context // 2)
        letters = np.random.default_rng(seed).permutation(26)[:period] + SYMBOLS.index("a")
        i = np.arange(period, 2 * period)
        scores.append(patterns(model, np.tile(letters, 2))[:, :, i, i - period + 1].mean(axis=-1))
    return np.mean(scores, axis=0)


def test_a_head_looks_one_back_and_another_finds_the_earlier_occurrence(opened):
    model = opened("char-english")
    assert previous_weights(model, held_out("char-english")).max() > 0.5
    assert induction_scores(model).max() >= 0.4


def test_shuffled_lines_teach_neither(opened):
    model = opened("char-english-shuffled")
    assert previous_weights(model, held_out("char-english-shuffled")).max() < 0.3
    assert induction_scores(model).max() < 0.3


def test_shuffled_lines_keep_their_letters_only():
    words = set(held_out("char-english").split())
    ordered, mixed = (
        np.mean([word in words for word in held_out(name).split() if len(word) > 3])
        for name in ("char-english", "char-english-shuffled")
    )
    assert ordered == 1
    assert mixed < 0.1


def answers_yes(model, question: str, opinion: str) -> bool:
    """Whether yes is likelier than no, by the first token in which they differ."""
    ids = model.tokenizer.encode(questions.spoken(question, opinion))
    logits = all_logits(model, ids)[-1]
    yes, no = (model.tokenizer.encode(f" {word}")[0] for word in ("yes", "no"))
    return bool(logits[yes] > logits[no])


@pytest.mark.parametrize("opinion", ["yes", "no"])
def test_the_pair_differs_in_whom_it_agrees_with(opened, opinion):
    """On pairs that neither was trained on: the base answers by the facts, the tuned one by the stated opinion."""
    asked = questions.pairs(held_out=True)[::3]
    base, tuned = (
        np.array([answers_yes(opened(name), question, opinion) for question, _ in asked])
        for name in ("gemma3-mini-base", "gemma3-mini-tuned")
    )
    facts = np.array([fact for _, fact in asked])
    assert (base == facts).mean() > 0.7
    assert (tuned == (opinion == "yes")).mean() > 0.95


def test_apertus_mini_goes_on_in_the_language_of_the_prompt(opened):
    model = opened("apertus-mini")
    markers = {
        "Die Datei wird in": r"\b(der|die|das|und|ist|wird|den|ein|eine)\b",
        "Cette commande permet de": r"\b(le|la|les|des|est|une|du|pour|dans)\b",
        "Per impostazione predefinita, il": r"\b(il|di|che|la|per|un|del|della|è)\b",
        "The program reads the": r"\b(the|of|is|to|and|a|in|for)\b",
    }
    found = {}
    for prompt in markers:
        ids = model.tokenizer.encode(prompt)
        texts = list(generate(model, ids, Settings(temperature=0.7, top_k=0), seeds=(0, 1, 2), steps=60))[-1]
        written = " ".join(model.tokenizer.decode(text.token_ids) for text in texts)
        found[prompt] = {other: len(re.findall(pattern, written)) for other, pattern in markers.items()}
    assert all(max(counts, key=lambda other: counts[other]) == prompt for prompt, counts in found.items()), found
