"""Layer evolution and the logit lens against `transformers` and plain numpy."""

import json

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from jaxcore import lens, reading
from jaxcore.__main__ import main
from jaxcore.catalogue import open_reference
from jaxcore.layers import SPARSE, evolution
from jaxcore.sample import all_logits
from jaxcore.session import load
from models.errors import InputError
from tests.reference import apertus, gemma3


def hidden_states(reference, ids) -> np.ndarray:
    """The stream at the embedding and after every block; `transformers`' last entry is normed, so it is hooked."""
    last = []
    handle = reference.model.layers[-1].register_forward_hook(lambda *args: last.append(args[2]))
    with torch.no_grad():
        out = reference(torch.tensor([list(ids)]), output_hidden_states=True)
    handle.remove()
    block = last[0][0] if isinstance(last[0], tuple) else last[0]
    states = [*(h[0] for h in out.hidden_states[:-1]), block.reshape(len(ids), -1)]
    return torch.stack(states).double().numpy()


def unembedded(reference, states) -> np.ndarray:
    with torch.no_grad():
        return reference.lm_head(reference.model.norm(torch.tensor(states).float())).double().numpy()


@pytest.fixture(scope="module", params=["gemma3", "apertus", "real"])
def pair(request, make):
    """Both sides of a model, and a text."""
    if request.param == "real":
        real = request.getfixturevalue("real")
        ids = real.tokenizer.encode("The capital of Switzerland is", bos=True)
        return request.getfixturevalue("real_reference"), real, ids
    reference, model = make({"gemma3": gemma3, "apertus": apertus}[request.param])
    return reference, model, gemma3.prompt(40)


def test_statistics_of_every_layer(pair):
    reference, model, ids = pair
    states, found = hidden_states(reference, ids), evolution(model, ids)
    assert [row["layer"] for row in found["layers"]] == list(range(model.config.n_layers + 1))
    assert [row["layer"] for row in found["resid_mid"]] == list(range(1, model.config.n_layers + 1))
    for x, row in zip(states, found["layers"], strict=True):
        norms = np.linalg.norm(x, axis=-1)
        expected = {
            "l2_norm_mean": norms.mean(),
            "l2_norm_per_position": norms,
            "l2_norm_total": np.linalg.norm(x),
            "std": x.std(),
            "min": x.min(),
            "max": x.max(),
        }
        for field, value in expected.items():
            np.testing.assert_allclose(row[field], value, rtol=2e-3, err_msg=field)
        np.testing.assert_allclose(row["mean"], x.mean(), atol=2e-3 * x.std())
        assert row["sparsity"] == pytest.approx(np.mean(np.abs(x) < SPARSE * x.std()), abs=5e-3)
        leading = np.abs(x).mean(axis=0)
        top = row["top_dimensions"]
        assert len(top) == 10
        np.testing.assert_allclose([d["value"] for d in top], np.sort(leading)[::-1][:10], rtol=2e-3)
        np.testing.assert_allclose([d["value"] for d in top], leading[[d["dimension"] for d in top]], rtol=2e-3)


def test_the_lens_at_the_last_position(pair):
    reference, model, ids = pair
    logits = unembedded(reference, hidden_states(reference, ids)[:, -1])
    log_p = log_softmax(logits, axis=-1)
    final = int(logits[-1].argmax())
    for row, found in zip(log_p, evolution(model, ids)["layers"], strict=True):
        assert found["lens_kl_to_final"] == pytest.approx(
            np.sum(np.exp(log_p[-1]) * (log_p[-1] - row)), rel=5e-3, abs=1e-4
        )
        assert found["lens_rank_of_final"] == 1 + np.sum(row > row[final])
        np.testing.assert_allclose(
            [t["probability"] for t in found["lens"]],
            np.exp(row[[t["token_id"] for t in found["lens"]]]),
            rtol=5e-3,
            atol=1e-12,
        )
        np.testing.assert_allclose(
            [t["probability"] for t in found["lens"]], np.exp(np.sort(row)[::-1][:10]), rtol=5e-3, atol=1e-12
        )


def test_the_last_layer_of_the_lens_is_the_prediction(pair):
    _, model, ids = pair
    log_p = log_softmax(all_logits(model, ids).astype(np.float64), axis=-1)
    grid = lens.grid(model, ids, range(len(ids)), between=True)
    np.testing.assert_array_equal(grid.final_id, log_p.argmax(axis=-1))
    np.testing.assert_array_equal(grid.after.top_id[-1, :, 0], grid.final_id)
    np.testing.assert_allclose(grid.after.final_probability[-1], np.exp(log_p.max(axis=-1)), rtol=2e-3)
    assert (grid.after.final_rank[-1] == 1).all()
    np.testing.assert_allclose(grid.after.kl_to_final[-1], 0, atol=1e-5)
    assert grid.between.top_id.shape[:2] == (model.config.n_layers, len(ids))


def test_what_sublayers_write_leads_from_state_to_state(tiny):
    """Norms and cosine of a sum: |a + b|^2 = |a|^2 + |b|^2 + 2 cos |a||b|, at one token."""
    found = evolution(tiny, gemma3.prompt(1))
    for before, mid, after in zip(found["layers"], found["resid_mid"], found["layers"][1:], strict=False):
        for a, total, wrote in ((before, mid, "attn_out"), (mid, after, "mlp_out")):
            record = mid if wrote == "attn_out" else after
            a, b = a["l2_norm_mean"], record[f"{wrote}_norm_mean"]
            cosine = record[f"{wrote}_cosine_with_stream"]
            assert total["l2_norm_mean"] ** 2 == pytest.approx(a**2 + b**2 + 2 * cosine * a * b, rel=1e-3)


def test_pieces_give_what_one_gives(tiny, monkeypatch):
    """A text of two pieces, against its own numbers put together by hand."""
    ids = gemma3.prompt(600)
    found = evolution(tiny, ids)
    pieces = list(reading.read(tiny, ids, frozenset({"resid_post"})))
    x = np.concatenate([np.asarray(p.trace.resid_post[2])[: p.count] for p in pieces]).astype(np.float64)
    row = found["layers"][3]
    assert row["std"] == pytest.approx(x.std(), rel=1e-5)
    assert row["mean"] == pytest.approx(x.mean(), abs=1e-5 * x.std())
    assert row["sparsity"] == pytest.approx(np.mean(np.abs(x) < SPARSE * x.std()), abs=1e-4)
    np.testing.assert_allclose(row["l2_norm_per_position"], np.linalg.norm(x, axis=-1), rtol=1e-5)


@pytest.mark.parametrize("positions", [[], [40], [-1], range(65)])
def test_positions_outside_the_text_are_refused(tiny, positions):
    with pytest.raises(InputError, match="1 to 64 positions"):
        lens.grid(tiny, gemma3.prompt(40), positions)


def test_the_command(tmp_path, capfd):
    out = tmp_path / "l.json"
    assert main(["layers", "char-english", "--prompt", "the lord said", "--out", str(out), "--quiet"]) == 0
    told = json.loads(out.read_text())
    assert told["schema"] == "clearbox.layers/1"
    assert told["tokens"] == list("the lord said")
    model = load(open_reference("char-english"), dtype="float32", device="cpu")
    assert told["layers"][4]["lens"][0]["token_id"] == int(
        all_logits(model, model.tokenizer.encode("the lord said"))[-1].argmax()
    )
    assert main(["layers", "char-english", "--prompt", "", "--quiet"]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("error: The prompt is empty")
