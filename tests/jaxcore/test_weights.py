"""The health of weights against numpy and scipy in float64, on tensors with planted faults."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.stats import kurtosis

from jaxcore import power_law, weights
from jaxcore.__main__ import main
from jaxcore.catalogue import CATALOGUE, open_reference
from jaxcore.inspect import inspect
from models.errors import InputError
from tests.reference import char

RNG = np.random.default_rng(0)


def dead() -> np.ndarray:
    x = RNG.standard_normal((300, 70))
    x[[3, 250]] = 0
    x[:, 11] = -0.0
    return x


def spiked() -> np.ndarray:
    x = RNG.standard_normal((2000, 120)) * 0.02 + 0.5
    x[7, 3], x[1999, 119], x[0, 0] = 40.0, -3.0, 0.9
    return x


MATRICES = {
    "normal": RNG.standard_normal((500, 311)),
    "larger than a block": RNG.standard_normal((2500, 1000)) * 0.03,
    "dead rows and columns": dead(),
    "outliers far from zero": spiked(),
    "rank one": np.outer(RNG.standard_normal(90), RNG.standard_normal(40)),
    "zero": np.zeros((40, 30)),
    "constant": np.full((33, 20), -0.75),
    "tall": RNG.standard_normal((2000, 24)),
    "one number": np.array([[0.3]]),
    "tiny numbers": RNG.standard_normal((64, 50)) * 1e-20,
    "vector": RNG.standard_normal(129),
}
DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F16": np.float16}


@pytest.fixture
def stored(tmp_path):
    """Puts a matrix into a model's file in place of one of its tensors, and gives checkpoint and name."""

    def stored(array: np.ndarray):
        tensors = {name: np.asarray(a) for name, a in char.make(24, layers=2).items()}
        tensors["extra"] = array
        save_file(tensors, tmp_path / "m.safetensors")
        return open_reference(str(tmp_path / "m.safetensors")), "extra"

    return stored


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", MATRICES)
def test_statistics(stored, case, dtype):
    array = MATRICES[case].astype(DTYPES[dtype])
    found = weights.statistics(*stored(array))
    x = array.astype(np.float64)
    assert found["dtype"] == dtype
    assert found["shape"] == list(array.shape)
    assert found["bytes"] == array.nbytes
    for field, expected in {"mean": x.mean(), "std": x.std(), "l2_norm": np.sqrt(np.sum(x**2))}.items():
        assert found[field] == pytest.approx(expected, rel=1e-9, abs=1e-12 * np.abs(x).max()), field
    assert (found["min"], found["max"]) == (x.min(), x.max())
    for text, q in {"50": 50, "90": 90, "99": 99, "99.9": 99.9}.items():
        assert found["abs_percentiles"][text] == pytest.approx(np.percentile(np.abs(x), q), rel=1e-9)
    limits = {"0": 0, "1e-4": np.float32(1e-4), "1e-2": np.float32(1e-2), "1e-1": np.float32(1e-1)}
    for text, limit in limits.items():
        assert found["sparsity"][text] == np.mean(np.abs(x) <= limit)
    assert found["nonfinite"] == 0
    if x.min() == x.max():
        assert found["excess_kurtosis"] is None
        assert found["std"] == 0
    else:
        assert found["excess_kurtosis"] == pytest.approx(kurtosis(x, axis=None), rel=1e-6, abs=1e-6)
        assert found["outliers"] == np.sum(np.abs(x - x.mean()) > 6 * x.std())
    if array.ndim == 2:
        assert found["dead_rows"] == np.sum(~x.any(axis=1))
        assert found["dead_columns"] == np.sum(~x.any(axis=0))
    assert sum(found["histogram"]["counts"]) == x.size


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_is_counted_and_spoils_only_what_it_must(stored, dtype):
    array = MATRICES["normal"].astype(DTYPES[dtype])
    array[3, 5], array[10, 0], array[499, 310], array[0, 0] = np.nan, np.inf, -np.inf, 0
    found = weights.statistics(*stored(array))
    assert (found["nonfinite"], found["nan"], found["infinite"]) == (3, 1, 2)
    spoiled = ["mean", "std", "min", "max", "l2_norm", "abs_percentiles", "excess_kurtosis", "outliers", "histogram"]
    assert [found[field] for field in spoiled] == [None] * len(spoiled)
    assert found["sparsity"]["0"] == np.sum(array == 0) / array.size
    law = weights.spectrum(*stored(array))
    assert set(law.values()) == {None, "the matrix holds NaN or infinities"}


@pytest.mark.parametrize("case", ["normal", "tall", "dead rows and columns", "one number", "tiny numbers"])
def test_spectra(stored, case):
    array = MATRICES[case].astype(np.float32)
    found, s = weights.spectrum(*stored(array)), np.linalg.svd(array.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(found["singular_values"], s, rtol=1e-9, atol=1e-8 * s[0])
    assert found["spectral_norm"] == pytest.approx(s[0])
    assert found["stable_rank"] == pytest.approx(np.sum(s**2) / s[0] ** 2)
    p = s[s > 0] ** 2 / np.sum(s**2)
    assert found["effective_rank"] == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-6)


def test_a_rank_one_and_a_zero_matrix(stored):
    one = weights.spectrum(*stored(MATRICES["rank one"].astype(np.float32)))
    assert one["stable_rank"] == pytest.approx(1, abs=1e-6)
    assert one["effective_rank"] == pytest.approx(1, abs=1e-5)
    zero = weights.spectrum(*stored(np.zeros((40, 30), np.float32)))
    assert zero["spectral_norm"] == 0
    assert zero["stable_rank"] is zero["effective_rank"] is zero["power_law_alpha"] is None
    assert zero["power_law_status"] == "the matrix is zero"


def slow_fit(values: np.ndarray) -> tuple[float, float, float]:
    """The definition, tail by tail."""
    best = (np.inf, 0.0, 0.0)
    for xmin in np.unique(values):
        tail = np.sort(values[values >= xmin])
        if len(tail) < power_law.TAIL or tail[0] == tail[-1]:
            continue
        alpha = 1 + len(tail) / np.sum(np.log(tail / xmin))
        model = 1 - (tail / xmin) ** (1 - alpha)
        above = max(
            np.max(np.arange(1, len(tail) + 1) / len(tail) - model), np.max(model - np.arange(len(tail)) / len(tail))
        )
        best = min(best, (above, alpha, xmin))
    return best


@pytest.mark.parametrize("seed", range(3))
def test_fits_follow_the_definition(seed):
    values = np.random.default_rng(seed).lognormal(size=300)
    ks, alpha, xmin = slow_fit(values)
    found = power_law.fit(values)
    assert (found.ks, found.alpha, found.xmin) == (pytest.approx(ks), pytest.approx(alpha), pytest.approx(xmin))


def test_a_known_power_law_is_found():
    values = (1 - np.random.default_rng(0).random(20_000)) ** (-1 / 1.5)  # density x^-2.5 from 1 on
    found = power_law.fit(values[:4000])
    assert found.alpha == pytest.approx(2.5, abs=0.1)
    assert found.ks < 0.03


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (np.ones(50), "all values are equal"),
        (np.arange(1.0, 6), "only 5 positive values"),
        (np.zeros(50), "only 0 pos"),
    ],
)
def test_no_fit_is_no_number(values, status):
    found = power_law.fit(values)
    assert found.alpha is found.xmin is found.ks is None
    assert status in found.status


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "gemma3-270m"])
def test_every_tensor_of_every_family_has_its_role(name):
    checkpoint = open_reference(name)
    roles = {role for role, _ in weights.roles(checkpoint).values()}
    assert "other" not in roles
    assert {"W_Q", "W_K", "W_V", "W_O", "W_up", "W_down", "W_E", "norm"} <= roles
    layout = weights.attention_layout(checkpoint)
    assert sum(layout["share_of_attention"].values()) == pytest.approx(1)
    assert sum(layout["share_by_role"].values()) == pytest.approx(1)


def test_the_command(tmp_path, capfd):
    out = tmp_path / "w.json"
    assert main(["weights", "apertus-mini", "--layer", "2", "--spectra", "--out", str(out), "--quiet"]) == 0
    told = json.loads(out.read_text())
    assert told["schema"] == "clearbox.weights/1"
    listed = {t["name"]: t for t in inspect(open_reference("apertus-mini"))["tensors"] if "layers.2." in t["name"]}
    assert {t["name"] for t in told["tensors"]} == listed.keys()
    assert all(t["layer"] == 2 for t in told["tensors"])
    assert all(("singular_values" in t) == (len(t["shape"]) == 2) for t in told["tensors"])
    assert {t["role"] for t in told["tensors"]} >= {"activation", "norm", "W_up"}
    one = listed.keys() & {"layers.2.mlp.up_proj.weight"}
    assert main(["weights", "apertus-mini", "--tensor", *one, "--quiet"]) == 0
    assert [t["role"] for t in json.loads(capfd.readouterr().out)["tensors"]] == ["W_up"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [(["--layer", "6"], "There is no layer 6: apertus-mini has layers 0 to 5."), (["--tensor", "x"], "no tensor 'x'")],
)
def test_bad_input_is_one_line(capfd, more, sentence):
    assert main(["weights", "apertus-mini", *more, "--quiet"]) == 2
    assert sentence in capfd.readouterr().err.splitlines()[-1]


def test_blocks_alone_are_enough(tmp_path):
    around = ("tok_emb", "pos_emb", "lnf_w", "lnf_b", "W_out", "b_out")
    blocks = {name: array for name, array in char.make(24, layers=2).items() if name not in around}
    checkpoint = open_reference(str(char.save(tmp_path / "b.safetensors", blocks)))
    names = weights.chosen(checkpoint)
    rows = weights.health(checkpoint, names, spectra=False)["tensors"]
    assert len(rows) == 20
    assert sum(row["share_of_model"] for row in rows) == pytest.approx(1)
    with pytest.raises(InputError, match="layers 0 to 1"):
        weights.chosen(checkpoint, layer=5)
