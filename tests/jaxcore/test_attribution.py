"""Parts of a logit add up to it, and what they write is what the vocabulary reads."""

import numpy as np
import pytest

from jaxcore.attribution import attribution, head_write, inside, mlp_write, unit_write
from jaxcore.catalogue import open_reference
from jaxcore.sample import all_logits
from jaxcore.session import load
from models import decode
from models.errors import InputError
from tests.reference import apertus, char, gemma3


@pytest.fixture(scope="module", params=["gemma3", "apertus", "char", "real"])
def model(request, make, tmp_path_factory):
    if request.param == "char":
        path = char.save(tmp_path_factory.mktemp("char") / "m.safetensors", char.make(24, layers=3, context=60))
        return load(open_reference(str(path)), dtype="float32", device="cpu")
    if request.param == "real":
        return request.getfixturevalue("real")
    return make({"gemma3": gemma3, "apertus": apertus}[request.param])[1]


IDS = [(7 * i + 3) % 28 for i in range(40)]


def total(parts) -> float:
    return float(parts.embedding + parts.heads.sum() + parts.mlps.sum() + parts.bias)


@pytest.mark.parametrize("position", [0, 17, 39])
def test_the_parts_sum_to_the_logit(model, position):
    found = inside(model, IDS, position)
    expected = all_logits(model, IDS)[position]
    np.testing.assert_allclose(found.logits, expected, atol=2e-3)
    for token in (int(expected.argmax()), 5):
        parts = attribution(model, found, token)
        assert total(parts) == pytest.approx(float(parts.logit), abs=1e-3)
        assert float(parts.logit) == pytest.approx(expected[token], abs=2e-3)


def test_sources_and_units_sum_to_their_heads_and_mlps(model):
    parts = attribution(model, inside(model, IDS, 30), 4)
    assert parts.sources.shape[-1] == 31
    np.testing.assert_allclose(parts.sources.sum(axis=-1), parts.heads, atol=1e-3)
    np.testing.assert_allclose(parts.units.sum(axis=-1), parts.mlps, atol=1e-3)


def test_a_lead_is_the_difference_of_two_logits(model):
    found = inside(model, IDS, 20)
    one, other, lead = (attribution(model, found, *tokens) for tokens in ((3,), (9,), (3, 9)))
    np.testing.assert_allclose(lead.heads, one.heads - other.heads, atol=1e-4)
    assert float(lead.logit) == pytest.approx(found.logits[3] - found.logits[9], abs=2e-3)


def test_what_a_part_promotes_is_its_share_of_those_logits(model):
    """For the token that a head raises most, the head's attribution is that raise."""
    found, layer, head = inside(model, IDS, 25), model.config.n_layers - 1, 1
    for written, share in (
        (head_write(model, found, layer, head), lambda parts: parts.heads[layer, head]),
        (mlp_write(model, found, layer), lambda parts: parts.mlps[layer]),
        (unit_write(model, found, layer, 7), lambda parts: parts.units[layer, 7]),
    ):
        assert (np.diff(written.up) <= 0).all()
        assert (np.diff(written.down) >= 0).all()
        for ids, amounts in ((written.up_id, written.up), (written.down_id, written.down)):
            assert share(attribution(model, found, int(ids[0]))) == pytest.approx(float(amounts[0]), abs=1e-3)


def test_a_scaled_stream_keeps_its_parts_additive(model):
    """`read_out` is linear in its part."""
    family, found = decode.FAMILIES[model.config.family], inside(model, IDS, 10)
    read = family.read_out(model.params, 3 * found.resid, found.resid, model.config)
    np.testing.assert_allclose(
        read, 3 * family.read_out(model.params, found.resid, found.resid, model.config), rtol=1e-5
    )


def test_positions_and_tokens_outside_are_refused(model):
    with pytest.raises(InputError, match="outside the text of 40 tokens"):
        inside(model, IDS, 40)
    with pytest.raises(InputError, match="outside the vocabulary"):
        attribution(model, inside(model, IDS, 3), model.config.vocab)
