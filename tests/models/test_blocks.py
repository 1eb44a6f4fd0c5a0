"""Single pieces against tables of values that were computed elsewhere, in double precision."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.activations import XIELUActivation

from models.blocks import xielu
from models.rotary import Bands, Rope, inverse_frequencies

# x, alpha_p, alpha_n, beta, eps, and the value, by hand: softplus(0) = ln 2, softplus(1) = 1.3132616875182228
TABLE = [
    (0.0, 0.0, 0.0, 0.5, -1e-6, -1.193146583986554e-06),  # (0.5 + ln 2) * expm1(-1e-6), not 0
    (1.0, 0.0, 0.0, 0.5, -1e-6, 1.1931471805599454),
    (2.0, 0.0, 0.0, 0.5, -1e-6, 3.772588722239781),
    (2.0, 1.0, 0.0, 0.5, -1e-6, 6.253046750072891),
    (-1.0, 0.0, 0.0, 0.5, -1e-6, -0.061065681980325304),
    (-1.0, 0.0, 1.0, 0.5, -1e-6, 0.16706169630179035),
    (-30.0, 0.0, 0.0, 0.5, -1e-6, 19.601268236238525),
    (-0.01, 0.0, 0.0, 0.5, -0.2, -0.20934941908163104),  # between eps and 0: expm1(-0.2), not expm1(-0.01)
    (-1.0, 0.0, 0.0, 0.25, -1e-6, 0.09696445772681411),
]


@pytest.mark.parametrize(("x", "alpha_p", "alpha_n", "beta", "eps", "value"), TABLE)
def test_values_of_xielu(x, alpha_p, alpha_n, beta, eps, value):
    scalars = [jnp.float32(s) for s in (alpha_p, alpha_n, beta, eps)]
    np.testing.assert_allclose(xielu(jnp.array([x], jnp.float32), *scalars)[0], value, rtol=2e-6)


@pytest.mark.parametrize("scalars", [(0.3, -1.2, 0.5, -1e-6), (-2.0, 1.7, 0.4, -0.3), (25.0, 30.0, 0.5, -1e-6)])
def test_xielu_is_that_of_transformers(scalars):
    x = np.linspace(-12, 12, 4801, dtype=np.float32)
    reference = XIELUActivation(dtype=torch.float32)
    parameters = (reference.alpha_p, reference.alpha_n, reference.beta, reference.eps)
    with torch.no_grad():
        for parameter, value in zip(parameters, scalars, strict=True):
            parameter.fill_(value)
        expected = reference(torch.tensor(x)).numpy()
    np.testing.assert_allclose(xielu(jnp.array(x), *map(jnp.float32, scalars)), expected, rtol=2e-6, atol=2e-6)


# 8B, base 12e6, head_dim 128: index, and the factor by which llama3 scaling divides the plain frequency.
# Wavelengths 2 pi 12e6^(i/64): 22 -> 1705, 23 -> 2199, 24 -> 2837, 26 -> 4722, 28 -> 7858, 29 -> 10138 tokens.
DIVIDED = [
    (0, 1.0),
    (22, 1.0),
    (23, 1.0871937),
    (24, 1.4803600),
    (26, 2.9466617),
    (28, 7.2785298),
    (29, 8.0),
    (63, 8.0),
]


@pytest.mark.parametrize(("i", "divided"), DIVIDED)
def test_frequencies_of_the_published_8b(i, divided):
    rope = Rope(base=12e6, factor=8.0, bands=Bands(original=8192, low=1.0, high=4.0))
    found = inverse_frequencies(rope, 128)
    assert found.shape == (64,)
    np.testing.assert_allclose(12e6 ** (-i / 64) / found[i], divided, rtol=1e-6)


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (Rope(base=100.0), [1, 100**-0.25, 0.1, 100**-0.75]),
        (Rope(base=100.0, factor=4.0), [0.25, 100**-0.25 / 4, 0.025, 100**-0.75 / 4]),
    ],
)
def test_frequencies_without_bands(rope, expected):
    np.testing.assert_allclose(inverse_frequencies(rope, 8), expected, rtol=1e-12)


@pytest.mark.parametrize("original", [64, 128, 8192])
@pytest.mark.parametrize(("low", "high", "factor"), [(1.0, 4.0, 8.0), (2.0, 8.0, 32.0)])
def test_frequencies_are_those_of_transformers(original, low, high, factor):
    from transformers import ApertusConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = {"rope_type": "llama3", "rope_theta": 5e5, "factor": factor, "low_freq_factor": low}
    settings |= {"high_freq_factor": high, "original_max_position_embeddings": original}
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](ApertusConfig(head_dim=128, rope_parameters=settings), "cpu")
    rope = Rope(base=5e5, factor=factor, bands=Bands(original=original, low=low, high=high))
    np.testing.assert_allclose(inverse_frequencies(rope, 128), expected.numpy(), rtol=2e-6)
