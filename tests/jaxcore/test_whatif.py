"""Edits of a forward pass against the same edits made with hooks in PyTorch."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from jaxcore import whatif
from jaxcore.sample import pieces
from jaxcore.whatif import Edit, removals, what_if
from models.errors import InputError
from tests.reference import apertus, gemma3

IDS = gemma3.prompt(30, seed=4)
OTHER = gemma3.prompt(24, seed=5)
CASES = {
    "a head removed": [Edit(1, 2)],
    "an MLP removed": [Edit(1, None)],
    "a head at half": [Edit(2, 0, "scale", 0.5)],
    "an MLP doubled": [Edit(0, None, "scale", 2.0)],
    "a head's mean": [Edit(2, 3, "mean")],
    "an MLP's mean": [Edit(2, None, "mean")],
    "a head from another text": [Edit(1, 1, "patch")],
    "an MLP from another text": [Edit(2, None, "patch")],
    "several": [Edit(0, 0), Edit(0, 3), Edit(2, None), Edit(1, 1, "scale", -1.0)],
}


@pytest.fixture(scope="module", params=[gemma3, apertus], ids=["gemma3", "apertus"])
def pair(request, make):
    return make(request.param)


def recorded(reference, ids) -> tuple[list, list]:
    """Per layer what goes into the attention's output projection, and what the MLP adds to the stream."""
    z, mlp, handles = [], [], []
    for layer in reference.model.layers:
        handles.append(layer.self_attn.o_proj.register_forward_pre_hook(lambda m, args: z.append(args[0][0].clone())))
        handles.append(last_of_mlp(layer).register_forward_hook(lambda m, args, out: mlp.append(out[0].clone())))
    with torch.no_grad():
        reference(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return z, mlp


def last_of_mlp(layer):
    """What the stream gets from the MLP comes out of here: the post-norm, where there is one."""
    return getattr(layer, "post_feedforward_layernorm", layer.mlp)


def hooked(reference, edits) -> np.ndarray:
    """Logits after `IDS` with the edits made in PyTorch."""
    own, other = recorded(reference, IDS), recorded(reference, OTHER)
    width, handles = reference.config.head_dim, []

    def changed(x, edit, own_part, other_part):
        if edit.kind == "scale":
            return edit.factor * x
        if edit.kind == "mean":
            return own_part.mean(dim=0).expand_as(x)
        if edit.kind == "patch":
            padded = torch.zeros_like(x)
            padded[-len(OTHER) :] = other_part
            return padded
        return torch.zeros_like(x)

    for edit in edits:
        layer = reference.model.layers[edit.layer]
        if edit.head is None:

            def on_mlp(module, args, out, edit=edit):
                return changed(out[0], edit, own[1][edit.layer], other[1][edit.layer])[None]

            handles.append(last_of_mlp(layer).register_forward_hook(on_mlp))
        else:
            part = slice(edit.head * width, (edit.head + 1) * width)

            def on_head(module, args, edit=edit, part=part):
                x = args[0].clone()
                x[0, :, part] = changed(x[0, :, part], edit, own[0][edit.layer][:, part], other[0][edit.layer][:, part])
                return (x,)

            handles.append(layer.self_attn.o_proj.register_forward_pre_hook(on_head))
    found = gemma3.logits(reference, IDS)[-1]
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("case", CASES)
def test_an_edit_is_that_of_hooks(pair, case):
    reference, model = pair
    edits = CASES[case]
    ((tokens, positions),) = pieces(IDS)
    made = whatif.arrays(model, IDS, edits, OTHER)
    after = np.asarray(whatif._edited(model.params, tokens, positions, made, cfg=model.config))
    expected, before = hooked(reference, edits), gemma3.logits(reference, IDS)[-1]
    assert np.abs(expected - before).max() > 1e-2  # the edit matters
    np.testing.assert_allclose(after, expected, atol=2e-4)

    outcome = what_if(model, IDS, edits, OTHER)
    log_p, log_q = log_softmax(before.astype(np.float64)), log_softmax(expected.astype(np.float64))
    assert outcome.kl == pytest.approx(np.sum(np.exp(log_p) * (log_p - log_q)), rel=1e-2, abs=1e-6)
    for change in outcome.changes:
        assert change.before == pytest.approx(np.exp(log_p[change.token_id]), rel=1e-2)
        assert change.after == pytest.approx(np.exp(log_q[change.token_id]), rel=1e-2)
    assert {int(log_p.argmax()), int(log_q.argmax())} <= {change.token_id for change in outcome.changes}


def test_removing_each_part_in_turn_is_removing_it_alone(pair):
    _, model = pair
    found = [part for layer in removals(model, IDS) for part in layer]
    assert len(found) == model.config.n_layers * (model.config.n_heads + 1)
    for part in found[::6]:
        outcome = what_if(model, IDS, [Edit(part.layer, part.head)])
        assert part.kl == pytest.approx(outcome.kl, rel=1e-3, abs=1e-6)
        answer = max(outcome.changes, key=lambda change: change.before)
        assert part.logit_change == pytest.approx(answer.logit_change, abs=1e-3)


def test_patching_a_text_into_itself_changes_nothing(pair):
    _, model = pair
    everything = [Edit(layer, head, "patch") for layer in range(model.config.n_layers) for head in (*range(4), None)]
    assert what_if(model, IDS, everything, IDS).kl == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("edits", "ids", "sentence"),
    [
        ([Edit(5, 0)], IDS, "names no part of 5 layers"),
        ([Edit(0, 4)], IDS, "names no part of 5 layers"),
        ([Edit(0, 0, "patch")], IDS, "needs another prompt"),
        ([Edit(0, 0)], gemma3.prompt(600), "edits are made on up to 512"),
        ([Edit(0, 0)], [], "no tokens to read"),
    ],
)
def test_what_cannot_be_edited_is_refused(tiny, edits, ids, sentence):
    with pytest.raises(InputError, match=sentence):
        what_if(tiny, ids, edits)
