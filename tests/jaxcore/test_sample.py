"""Writing text: every number of the trace, the same text from the same seed, branching, and every way to stop."""

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

from jaxcore import sampling
from jaxcore.sample import BUCKETS, Continuation, advance, all_logits, generate, prefill, summary, traced
from jaxcore.sampling import Settings
from jaxcore.score import score
from models import decode
from models.errors import InputError
from tests.reference import filters, gemma3

PROMPT = gemma3.prompt(11)
WARM = Settings(temperature=1.3, top_k=30, top_p=0.95, min_p=0.01)


def write(model, prompt=PROMPT, settings=WARM, **options) -> tuple[Continuation, ...]:
    *_, texts = generate(model, prompt, settings, **options)
    return texts


@pytest.fixture(scope="module")
def endless(tiny):
    """The tiny model, never stopping at a token."""
    return replace(tiny, own_tokenizer=replace(tiny.tokenizer, stop_ids=frozenset()))


@pytest.mark.parametrize(
    "settings",
    [
        WARM,
        Settings(temperature=0.0),
        Settings(temperature=100.0, top_k=0, top_p=1.0),
        Settings(temperature=0.6, top_k=0, top_p=0.7),
    ],
)
def test_every_step_is_what_the_contract_says_of_transformers_logits(make, endless, settings):
    reference, _ = make()
    (text,) = write(endless, settings=settings, seeds=[3], steps=12)
    logits = gemma3.logits(reference, [*PROMPT, *text.token_ids])[len(PROMPT) - 1 :]
    for step, row in zip(text.steps, logits, strict=False):
        expected = filters.keep(row, **asdict(settings))
        chosen, ids = step.token_id, filters.order(row)
        assert step.rank == ids.tolist().index(chosen) + 1
        assert (step.kept_top_k, step.kept_top_p, step.kept_final) == (
            expected.kept_top_k,
            expected.kept_top_p,
            expected.kept_final,
        )
        numbers = {
            "logit": row[chosen],
            "probability_raw": expected.probability_raw[chosen],
            "probability_temperature": expected.probability_temperature[chosen],
            "probability_final": expected.probability_final[chosen],
            "entropy_raw_nats": filters.entropy(expected.probability_raw),
            "entropy_final_nats": filters.entropy(expected.probability_final),
            "mass_top_k": expected.mass_top_k,
            "mass_top_p": expected.mass_top_p,
            "mass_final": expected.mass_final,
            "top1_raw": expected.probability_raw.max(),
            "top1_temperature": expected.probability_temperature.max(),
        }
        for name, value in numbers.items():
            np.testing.assert_allclose(getattr(step, name), value, rtol=2e-3, atol=2e-5, err_msg=name)
        assert expected.mask[chosen]
        listed = [candidate.token_id for candidate in step.candidates]
        assert listed[:20] == ids[:20].tolist()
        assert chosen in listed
        assert len(set(listed)) == len(listed)
        assert [c.logit for c in step.candidates] == sorted((c.logit for c in step.candidates), reverse=True)
        assert [c.kept for c in step.candidates] == expected.mask[listed].tolist()


def test_a_token_beyond_the_listed_candidates_is_added(endless):
    (text,) = write(endless, settings=Settings(temperature=100.0, top_k=0, top_p=1.0), steps=20)
    far = [step for step in text.steps if step.rank > sampling.CANDIDATES]
    assert far  # of 258 nearly equal tokens
    for step in far:
        last = step.candidates[-1]
        assert (last.token_id, last.token, last.logit, last.kept) == (step.token_id, step.token, step.logit, True)
        assert last.probability_final == step.probability_final


def test_the_same_seed_gives_the_same_trace(endless):
    assert write(endless, seeds=[5], steps=15) == write(endless, seeds=[5], steps=15)


def test_several_seeds_at_once_are_the_texts_of_each(endless):
    together = write(endless, seeds=[1, 2, 3], steps=15)
    assert [text.seed for text in together] == [1, 2, 3]
    assert len({tuple(text.token_ids) for text in together}) == 3
    for text in together:
        (alone,) = write(endless, seeds=[text.seed], steps=15)
        assert alone.token_ids == text.token_ids
        for a, b in zip(alone.steps, text.steps, strict=True):
            np.testing.assert_allclose(a.logit, b.logit, atol=1e-4)


def test_texts_grow_by_one_token_at_a_time(endless):
    lengths = [[len(text.steps) for text in texts] for texts in generate(endless, PROMPT, WARM, seeds=[1, 2], steps=4)]
    assert lengths == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_branching_keeps_what_came_before(endless):
    (text,) = write(endless, seeds=[4], steps=12)
    other = next(c for c in text.steps[5].candidates if c.token_id != text.steps[5].token_id)
    (branch,) = write(endless, seeds=[4], steps=12, kept=text.steps[:5], forced_id=other.token_id)
    assert branch.steps[:5] == text.steps[:5]
    assert branch.steps[5].token_id == other.token_id
    np.testing.assert_allclose(branch.steps[5].probability_raw, other.probability_raw, rtol=1e-3)
    assert branch.steps[5].kept_final == text.steps[5].kept_final
    assert [step.index for step in branch.steps] == list(range(12))


def test_branching_to_the_same_token_gives_the_same_text(endless):
    (text,) = write(endless, seeds=[4], steps=12)
    (again,) = write(endless, seeds=[4], steps=12, kept=text.steps[:5], forced_id=text.token_ids[5])
    assert again.token_ids == text.token_ids
    (redrawn,) = write(endless, seeds=[4], steps=12, kept=text.steps[:5])
    assert redrawn.token_ids == text.token_ids


def test_a_forced_token_that_the_filters_drop_is_recorded_as_it_is(endless):
    (text,) = write(endless, steps=3)
    dropped = next(c for c in text.steps[2].candidates if not c.kept)
    (branch,) = write(endless, steps=3, kept=text.steps[:2], forced_id=dropped.token_id)
    assert branch.steps[2].probability_final == 0
    assert [c.kept for c in branch.steps[2].candidates if c.token_id == dropped.token_id] == [False]


def test_a_stop_token_ends_a_text(tiny):
    assert gemma3.EOS in tiny.tokenizer.stop_ids
    (text,) = write(tiny, steps=9, forced_id=gemma3.EOS)
    assert (text.token_ids, text.stop_reason) == ([gemma3.EOS], "stop_token")
    assert traced(tiny, "", PROMPT, WARM, text)["text"] == ""  # the token itself is no text


def test_a_stop_string_ends_a_text_even_across_tokens(endless):
    letters = replace(endless.tokenizer, pieces=tuple(b"ab" if i % 2 else b"ba" for i in range(258)))
    model = replace(endless, own_tokenizer=replace(letters, control=frozenset()))
    (whole,) = write(model, steps=30)
    spelled = model.tokenizer.decode(whole.token_ids)
    stop = next(s for s in ("aa", "bb") if s in spelled)
    (text,) = write(model, steps=30, stop_strings=["nowhere", stop])
    assert text.stop_reason == "stop_string"
    assert stop in model.tokenizer.decode(text.token_ids)
    assert stop not in model.tokenizer.decode(text.token_ids[:-1])


def test_one_text_may_stop_before_another(endless):
    texts = write(endless, seeds=[1, 2], steps=10)
    last = texts[0].token_ids[3]
    assert last not in texts[0].token_ids[:3]
    model = replace(endless, own_tokenizer=replace(endless.tokenizer, stop_ids=frozenset({last})))
    first, second = write(model, seeds=[1, 2], steps=10)
    assert (first.token_ids, first.stop_reason) == (texts[0].token_ids[:4], "stop_token")
    assert second.token_ids == texts[1].token_ids[: len(second.steps)]
    assert len(second.steps) == 10 or last in second.token_ids


def test_steps_end_a_text(endless):
    (text,) = write(endless, steps=7)
    assert (len(text.steps), text.stop_reason) == (7, "steps")


@pytest.mark.parametrize("length", [1, 39, 35])
def test_the_context_ends_a_text_when_it_is_full(make, length):
    """Positions 0 to 39 may be read or written; the numbers stay those of transformers up to the last."""
    reference, model = make(max_position_embeddings=40)
    model = replace(model, own_tokenizer=replace(model.tokenizer, stop_ids=frozenset()))
    prompt = gemma3.prompt(length)
    (text,) = write(model, prompt, Settings(temperature=0.0), steps=99)
    assert (len(text.steps), text.stop_reason) == (40 - length, "context")
    assert text.token_ids == gemma3.greedy(reference, prompt, 40 - length)


@pytest.mark.parametrize("length", [BUCKETS[-1] - 1, BUCKETS[-1], BUCKETS[-1] + 1, 650])
def test_a_prompt_longer_than_the_largest_bucket(make, length):
    reference, model = make()
    ids = gemma3.prompt(length, seed=9)
    logits, _ = prefill(model, ids, room=1)
    np.testing.assert_allclose(logits, gemma3.logits(reference, ids)[-1], atol=1e-4)


def test_another_prompt_in_the_same_bucket_compiles_nothing(endless):
    write(endless, gemma3.prompt(20), steps=3)
    before = decode.step._cache_size(), advance._cache_size()
    for length in (17, 64, 33):
        write(endless, gemma3.prompt(length), replace(WARM, top_k=length), steps=3)
    assert (decode.step._cache_size(), advance._cache_size()) == before
    write(endless, gemma3.prompt(65), steps=3)
    assert decode.step._cache_size() == before[0] + 1  # the counter counts
    assert advance._cache_size() == before[1]


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "no tokens to read"),
        (gemma3.prompt(700), {}, "has 700 tokens; .* at most 700 with room for one more"),
        ([256, 258], {}, "Token id 258 is outside the vocabulary of 258 tokens"),
        ([-1], {}, "Token id -1 is outside"),
        (PROMPT, {"seeds": []}, "0 seeds: ask for at least one"),
        (PROMPT, {"steps": 0}, "0 new tokens for 1 seeds"),
        (PROMPT, {"steps": -5}, "-5 new tokens"),
        (PROMPT, {"seeds": [-1]}, r"The seeds are \[-1\]; choose whole numbers from 0 to 4,294,967,295"),
        (PROMPT, {"seeds": [0, 2**32]}, "The seeds are"),
        (PROMPT, {"forced_id": 258}, "258"),
        (PROMPT, {"forced_id": -1}, "-1"),
    ],
)
def test_what_cannot_be_continued_is_refused(tiny, prompt, options, message):
    with pytest.raises(InputError, match=message):
        next(generate(tiny, prompt, WARM, **options))


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1])
def test_the_range_of_seeds(endless, seed):
    assert write(endless, seeds=[seed], steps=1)[0].seed == seed


@pytest.mark.parametrize("ids", [[], [258], gemma3.prompt(701)])
def test_logits_of_an_impossible_prompt_are_refused(tiny, ids):
    with pytest.raises(InputError):
        all_logits(tiny, ids)


def test_a_model_may_embed_more_tokens_than_its_tokenizer_has(make):
    """Gemma 3's vision sizes have rows of padding; they are listed like any other token."""
    _, model = make(vocab_size=271)
    assert model.tokenizer.text(270) == "<padding 270>"
    assert model.tokenizer.decode([65 - 33, 270, 66 - 33]) == "AB"
    (text,) = write(model, settings=Settings(temperature=100.0, top_k=0, top_p=1.0), seeds=[1], steps=60)
    assert {c.token_id for step in text.steps for c in step.candidates} >= set(range(258, 271))


def test_the_summary_of_a_text(endless):
    (text,) = write(endless, seeds=[8], steps=10)
    numbers = summary(text)
    assert numbers.tokens == 10
    assert numbers.mean_rank == pytest.approx(np.mean([step.rank for step in text.steps]))
    assert numbers.share_first_choice == pytest.approx(np.mean([step.rank == 1 for step in text.steps]))
    scored = score(endless, [*PROMPT, *text.token_ids]).tokens[len(PROMPT) :]
    expected = np.exp(np.mean([token.surprisal_nats for token in scored]))
    assert numbers.perplexity == pytest.approx(expected, rel=1e-3)


def test_bfloat16_weights_write_almost_the_same(make, tmp_path):
    """The first distribution is that of float32 to about two digits."""
    reference, full = make()
    narrow = gemma3.opened(reference, tmp_path, dtype="bfloat16")
    (a,), (b,) = (write(m, settings=Settings(temperature=1.0, top_k=0, top_p=1.0), steps=1) for m in (full, narrow))
    wide = {c.token_id: c.probability_raw for c in a.steps[0].candidates}
    for candidate in b.steps[0].candidates[:5]:
        assert candidate.probability_raw == pytest.approx(wide[candidate.token_id], rel=0.2)
    assert jax.tree.leaves(narrow.params)[0].dtype == jax.numpy.bfloat16


def test_the_real_model_continues_a_sentence(real):
    ids = real.tokenizer.encode("The capital of Switzerland is", bos=True)
    assert ids == [2, 818, 5279, 529, 24687, 563]
    (text,) = write(real, ids, Settings(), seeds=[0], steps=3)
    candidates = text.steps[0].candidates
    assert [c.token for c in candidates[:5]] == [" the", " a", " one", " known", " home"]
    assert text.steps[0].kept_top_k == 50
    assert write(real, ids, Settings(), seeds=[0], steps=3)[0].steps == text.steps


def test_the_real_model_writes_the_same_greedy_text_as_transformers(real, real_reference):
    ids = real.tokenizer.encode("The capital of Switzerland is", bos=True)
    (text,) = write(real, ids, Settings(temperature=0.0), steps=64)
    assert text.token_ids == gemma3.continued(real_reference, ids, 64)[: len(text.steps)]
    assert len(text.steps) == 64
