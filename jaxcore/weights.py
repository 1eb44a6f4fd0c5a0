"""The health of weights: statistics of every tensor, read block by block from the files, and spectra of matrices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jaxtyping import Array, Float, Int

from jaxcore import power_law
from jaxcore.checkpoint.store import Checkpoint, names_of, read
from jaxcore.families import family_of
from models.errors import InputError

ROWS = 1024
COLUMNS = (64, 2048)
"""A block of a tensor has that many rows, and columns by the tensor's size."""
THRESHOLDS = {"0": 0.0, "1e-4": 1e-4, "1e-2": 1e-2, "1e-1": 1e-1}
"""Sparsity is the share with |x| at most this; "0": exact zeros."""
PERCENTILES = {"50": 0.5, "90": 0.9, "99": 0.99, "99.9": 0.999}
OUTLIER = 6.0
"""Standard deviations from the mean beyond which an entry is an outlier."""
BINS = 60
with np.errstate(invalid="ignore"):  # some are NaN
    VALUES = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
"""The number at the lower end of each bucket of equal upper bits."""
TALL = 16
"""How much longer than wide a matrix is whose spectrum always comes from its Gram matrix."""
CONDITION = 1e-6
"""The smallest share of the largest squared singular value that a Gram matrix gives exactly, to about 1e-9."""
NORMS = ("norm", "ln1", "ln2", "lnf")
SCALARS = ("alpha_p", "alpha_n", "beta", "eps")


class Distribution(NamedTuple):
    """A tensor's numbers, counted by the upper half of their bits as float32, sign first: ``[65536]``.

    These counts are all there is to a bfloat16 tensor. ``powers`` are sums of (x - ``centre``) to the powers 1 to 4.
    """

    counts: Int[np.ndarray, "key"]
    centre: float
    powers: Float[np.ndarray, "4"]


@jax.jit
def _powers(block: Float[Array, "row column"], real: Int[Array, ""], centre: Float[Array, ""]) -> Float[Array, "4"]:
    """Sums of powers of the distance from ``centre`` over the first ``real`` entries, in float64.

    Summed down the columns, which the compiler turns into whole vectors.
    """
    counts = jnp.arange(block.size).reshape(block.shape) < real

    def column(x, counts):
        d = jnp.where(counts, x.astype(jnp.float64) - centre, 0)
        square = d * d
        return jnp.stack([d, square, square * d, square * square])

    return jnp.sum(jax.vmap(column, in_axes=1, out_axes=2)(block, counts), axis=1).sum(axis=1)


def roles(checkpoint: Checkpoint) -> dict[str, tuple[str, int | None]]:
    """Role and layer of every stored tensor, by its family's table; ``other`` for what the model does not use."""
    family = family_of(checkpoint)
    cfg = family.config(checkpoint.config)
    found: dict[str, tuple[str, int | None]] = dict.fromkeys(checkpoint.tensors, ("other", None))
    for field, spec in family.tensors(cfg).items():
        role = _role(field.removeprefix("blocks."))
        in_layers = "{layer}" in spec.name
        for layer, name in enumerate(names_of(spec, cfg.n_layers)):
            if name in found:
                found[name] = role, layer if in_layers else None
    return found


def _role(field: str) -> str:
    if field in SCALARS:
        return "activation"
    if field == "b_U":
        return "bias"
    return "norm" if any(part in field for part in NORMS) else field


def blocks(array: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """A tensor in float32 blocks of one shape, and how many entries of each are its own; the last is padded."""
    flat = array.reshape(-1)
    columns = COLUMNS[flat.size > ROWS * COLUMNS[0]]
    for start in range(0, flat.size, ROWS * columns):
        part = flat[start : start + ROWS * columns].astype(np.float32, copy=False)
        yield np.pad(part, (0, ROWS * columns - part.size)).reshape(ROWS, columns), part.size


def _numbers(array: np.ndarray) -> Iterator[np.ndarray]:
    """The same without padding, flat."""
    return (block.reshape(-1)[:real] for block, real in blocks(array))


def statistics(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    """Statistics of one tensor, as the command writes them. Raises `CheckpointError` if it cannot be read.

    Everything is exact up to float64 rounding; float64 tensors are read as float32. Moments are taken about the mean
    of the first block, so that nothing cancels. Statistics that a NaN or an infinity spoils are None; ``sparsity``
    counts finite entries of |x| at most the threshold, as a share of all.
    """
    info = checkpoint.tensors[name]
    role, layer = roles(checkpoint)[name]
    array = read(checkpoint, name)
    with jax.enable_x64(True):
        found = _statistics(array)
    return {
        "name": name,
        "layer": layer,
        "role": role,
        "shape": list(info.shape),
        "dtype": info.dtype,
        "parameters": info.parameters,
        "bytes": info.nbytes,
        **found,
    }


def _statistics(array: np.ndarray) -> dict[str, Any]:
    if array.size == 0:
        raise InputError("A tensor without entries has no statistics; leave it out.")
    found = _distribution(array)
    finite = np.isfinite(VALUES)
    doubtful = found.counts[~finite].sum() > 0
    nan = int(sum(np.isnan(part).sum() for part in _numbers(array))) if doubtful else 0
    nonfinite = int(found.counts[~finite].sum())
    moments = None if nonfinite else _moments(found, array.size)
    edges = [] if moments is None else [moments["mean"] + side * OUTLIER * moments["std"] for side in (-1, 1)]
    order = _Order(array, found.counts, [*THRESHOLDS.values(), *(abs(edge) for edge in edges)])
    dead_rows, dead_columns = _dead(array)
    numbers: dict[str, Any] = dict.fromkeys(
        ["mean", "std", "min", "max", "l2_norm", "excess_kurtosis", "abs_percentiles", "outliers", "histogram"]
    )
    if moments is not None:
        least, most = order.extremes()
        constant = least == most
        outside = order.below(edges[0]) + array.size - order.up_to(edges[1])
        numbers = {
            **moments,
            "std": 0.0 if constant else moments["std"],
            "excess_kurtosis": None if constant else moments["excess_kurtosis"],
            "min": least,
            "max": most,
            "abs_percentiles": {text: order.quantile(q) for text, q in PERCENTILES.items()},
            "outliers": 0 if constant else outside,
            "histogram": _histogram(found.counts, least, most),
        }
    return {
        **numbers,
        "sparsity": {text: order.within(limit) / array.size for text, limit in THRESHOLDS.items()},
        "nonfinite": nonfinite,
        "nan": nan,
        "infinite": nonfinite - nan,
        "dead_rows": dead_rows,
        "dead_columns": dead_columns,
    }


def _distribution(array: np.ndarray) -> Distribution:
    counts = np.zeros(2**16, np.int64)
    if array.dtype == ml_dtypes.bfloat16:
        flat = array.reshape(-1).view(np.uint16)
        for start in range(0, flat.size, ROWS * COLUMNS[1]):
            counts += np.bincount(flat[start : start + ROWS * COLUMNS[1]], minlength=2**16)
        real = np.where(np.isfinite(VALUES), VALUES, 0)
        centre = float(np.sum(counts * real) / array.size)
        d = np.where(counts > 0, real - centre, 0)
        return Distribution(counts, centre, np.array([np.sum(counts * d**k) for k in range(1, 5)]))
    first = next(_numbers(array))
    first = first[np.isfinite(first)]
    centre, powers = float(first.mean(dtype=np.float64)) if first.size else 0.0, np.zeros(4)
    for block, real in blocks(array):
        counts += np.bincount(block.reshape(-1)[:real].view(np.uint32) >> 16, minlength=2**16)
        powers += np.asarray(_powers(block, np.int64(real), np.float64(centre)))
    return Distribution(counts, centre, powers)


def _moments(found: Distribution, n: int) -> dict[str, Any]:
    """Mean, deviation, norm and excess kurtosis from sums about a centre near the mean."""
    m1, m2, m3, m4 = (found.powers / n).tolist()
    variance = max(m2 - m1**2, 0.0)
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return {
        "mean": found.centre + m1,
        "std": variance**0.5,
        "l2_norm": (n * (m2 + 2 * m1 * found.centre + found.centre**2)) ** 0.5,
        "excess_kurtosis": fourth / variance**2 - 3 if variance > 0 else None,
    }


class _Order:
    """Ranks among a tensor's numbers: from the counts alone where those are exact, else with the numbers of the
    counted buckets that an answer falls into, which are gathered once."""

    def __init__(self, array: np.ndarray, counts: np.ndarray, limits: Sequence[float]):
        self.counts, self.size = counts, array.size
        self.absolute = counts[: 2**15] + counts[2**15 :]
        self.ends = np.cumsum(self.absolute)
        places = [place for q in PERCENTILES.values() for place in self._places(q)[:2]]
        wanted = {int(np.searchsorted(self.ends, place, side="right")) for place in places}
        wanted |= {_key(limit) for limit in limits}
        wanted |= {int(np.flatnonzero(part)[-1]) for part in (counts[: 2**15], counts[2**15 :]) if part.any()}
        wanted |= {int(np.flatnonzero(part)[0]) for part in (counts[: 2**15], counts[2**15 :]) if part.any()}
        if array.dtype == ml_dtypes.bfloat16:
            keys = np.array(sorted(wanted))
            numbers = np.concatenate([-VALUES[keys], VALUES[keys]])
            times = np.concatenate([counts[keys + 2**15], counts[keys]])
        else:
            table = np.zeros(2**15, bool)
            table[list(wanted)] = True
            parts = [np.unique(part[table[_keys(part)]], return_counts=True) for part in _numbers(array)]
            numbers, inverse = np.unique(np.concatenate([part for part, _ in parts]), return_inverse=True)
            times = np.bincount(inverse, np.concatenate([often for _, often in parts])).astype(np.int64)
        held = _keys(numbers.astype(np.float32))
        self.held = {key: (numbers[held == key], times[held == key]) for key in wanted}

    def _places(self, q: float) -> tuple[int, int, float]:
        at = q * (self.size - 1)
        return int(at), min(int(at) + 1, self.size - 1), at - int(at)

    def quantile(self, q: float) -> float:
        """Of |x|, with numpy's linear rule."""
        low, high, share = self._places(q)
        a, b = self._at(low), self._at(high)
        return a + share * (b - a)

    def _at(self, place: int) -> float:
        key = int(np.searchsorted(self.ends, place, side="right"))
        numbers, times = self.held[key]
        order = np.argsort(np.abs(numbers))
        inside = np.cumsum(times[order])
        at = np.searchsorted(inside, place - (int(self.ends[key - 1]) if key else 0), side="right")
        return float(abs(numbers[order][at]))

    def within(self, limit: float) -> int:
        """How many have |x| at most this."""
        key = _key(limit)
        numbers, times = self.held[key]
        return int(self.absolute[:key].sum() + times[np.abs(numbers) <= limit].sum())

    def up_to(self, limit: float) -> int:
        """How many are at most this."""
        return self._beneath(limit, np.less_equal)

    def below(self, limit: float) -> int:
        """How many are less than this."""
        return self._beneath(limit, np.less)

    def _beneath(self, limit: float, compare: Any) -> int:
        key, positive, negative = _key(limit), self.counts[: 2**15], self.counts[2**15 :]
        numbers, times = self.held[key]
        inside = int(times[compare(numbers, limit)].sum())
        if limit >= 0:
            return inside + int(negative.sum() - negative[key] + positive[:key].sum())
        return inside + int(negative[key + 1 :].sum())

    def extremes(self) -> tuple[float, float]:
        """The least and the largest."""
        present = np.concatenate([numbers[times > 0] for numbers, times in self.held.values()])
        return float(present.min()), float(present.max())


def _keys(numbers: Float[np.ndarray, "n"]) -> np.ndarray:
    """The bucket of |x| that each number falls into."""
    return (numbers.view(np.uint32) >> 16) & 0x7FFF


def _key(limit: float) -> int:
    """The same of one number."""
    return int(np.float32(abs(limit)).view(np.uint32) >> 16)


def _histogram(counts: np.ndarray, least: float, most: float) -> dict[str, list]:
    """Counts between equal steps, each bucket's numbers taken at its lower end (off by less than one part in 128)."""
    edges = np.linspace(least, most, BINS + 1) if most > least else np.array([least, most])
    present = np.flatnonzero(counts)
    numbers, _ = np.histogram(np.clip(VALUES[present], least, most), edges, weights=counts[present])
    return {"edges": edges.tolist(), "counts": numbers.astype(int).tolist()}


def _dead(array: np.ndarray) -> tuple[int | None, int | None]:
    """Rows and columns of a matrix that hold only zeros."""
    if array.ndim != 2:
        return None, None
    step = max(1, ROWS * COLUMNS[1] // array.shape[1])
    columns, rows = np.zeros(array.shape[1], bool), 0
    for start in range(0, array.shape[0], step):
        alive = array[start : start + step] != 0
        rows += int(np.sum(~alive.any(axis=1)))
        columns |= alive.any(axis=0)
    return rows, int(np.sum(~columns))


def spectrum(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    """Singular values of a matrix, descending, and what follows from them, in float64; all None with a NaN or infinity.

    Of a matrix over `TALL` times longer than wide, values below 1e-3 of the largest are not exact. ``effective_rank``
    is exp of the entropy of the normalised squared values (Roy and Vetterli 2007); the power law is fitted to the
    squared values.
    """
    array = read(checkpoint, name)
    fields = [
        "singular_values",
        "spectral_norm",
        "stable_rank",
        "effective_rank",
        "power_law_alpha",
        "power_law_xmin",
        "power_law_ks",
    ]
    if not all(np.isfinite(block).all() for block, _ in blocks(array)):
        return {**dict.fromkeys(fields), "power_law_status": "the matrix holds NaN or infinities"}
    s = _singular_values(array)
    squares = s**2
    total = squares.sum()
    if total == 0:
        nothing = {**dict.fromkeys(fields), "singular_values": s.tolist(), "spectral_norm": 0.0}
        return {**nothing, "power_law_status": "the matrix is zero"}
    shares = squares[squares > 0] / total
    law = power_law.fit(squares)
    return {
        "singular_values": s.tolist(),
        "spectral_norm": float(s[0]),
        "stable_rank": float(total / squares[0]),
        "effective_rank": float(np.exp(-np.sum(shares * np.log(shares)))),
        "power_law_alpha": law.alpha,
        "power_law_xmin": law.xmin,
        "power_law_ks": law.ks,
        "power_law_status": law.status,
    }


def _singular_values(array: np.ndarray) -> np.ndarray:
    """From the Gram matrix of the shorter side where that loses nothing or all else is too slow; else a full SVD."""
    matrix = array if array.shape[0] >= array.shape[1] else array.T
    step = max(1, ROWS * COLUMNS[1] // matrix.shape[1])
    gram = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, matrix.shape[0], step):
        part = np.asarray(matrix[start : start + step], np.float64)
        gram += part.T @ part
    squares = _on_device(jnp.linalg.eigvalsh, np.linalg.eigvalsh, gram)[::-1]
    if squares[-1] >= CONDITION * squares[0] or matrix.shape[0] > TALL * matrix.shape[1]:
        return np.sqrt(np.maximum(squares, 0))
    return _on_device(partial(jnp.linalg.svd, compute_uv=False), partial(np.linalg.svd, compute_uv=False), matrix)


def _on_device(f: Callable[..., Array], on_host: Callable[..., np.ndarray], matrix: np.ndarray) -> np.ndarray:
    """A decomposition in float64 on the accelerator, or through numpy, whose LAPACK is the faster one on a CPU."""
    if jax.default_backend() == "cpu":
        return on_host(np.asarray(matrix, np.float64))
    with jax.enable_x64(True):
        return np.asarray(f(jnp.asarray(matrix, jnp.float64)))


def chosen(checkpoint: Checkpoint, layer: int | None = None, tensor: str | None = None) -> list[str]:
    """Names of the tensors asked for: all, those of a layer, or one. Raises `InputError` if there are none."""
    if tensor is not None:
        name = tensor.removeprefix("model.").removeprefix("language_model.")
        if name not in checkpoint.tensors:
            raise InputError(f"{checkpoint.reference} has no tensor {tensor!r}; `inspect` lists those it has.")
        return [name]
    named = roles(checkpoint)
    names = [name for name, (_, at) in named.items() if layer is None or at == layer]
    if not names:
        last = max((at for _, at in named.values() if at is not None), default=0)
        raise InputError(f"There is no layer {layer}: {checkpoint.reference} has layers 0 to {last}.")
    return sorted(names, key=lambda name: (-1 if named[name][1] is None else named[name][1], name))


def attention_layout(checkpoint: Checkpoint) -> dict[str, Any]:
    """How attention is laid out: widths of queries, keys and values, heads that share, and its share of parameters."""
    family = family_of(checkpoint)
    cfg = family.config(checkpoint.config)
    named = roles(checkpoint)
    sizes: dict[str, int] = {}
    for name, (role, _) in named.items():
        sizes[role] = sizes.get(role, 0) + checkpoint.tensors[name].parameters
    total = sum(sizes.values())
    attention = {role: sizes.get(role, 0) for role in ("W_Q", "W_K", "W_V", "W_O")}
    windows = list(cfg.windows)
    return {
        "query_width": cfg.n_heads * cfg.head_dim,
        "key_value_width": cfg.n_kv_heads * cfg.head_dim,
        "query_heads": cfg.n_heads,
        "key_value_heads": cfg.n_kv_heads,
        "heads_per_key_value_head": cfg.n_heads // cfg.n_kv_heads,
        "parameters": attention,
        "share_of_attention": {role: n / sum(attention.values()) for role, n in attention.items()},
        "share_of_model": sum(attention.values()) / total,
        "share_by_role": {role: n / total for role, n in sorted(sizes.items(), key=lambda item: -item[1])},
        "local_layers": sum(window < max(windows) for window in windows),
        "layers": cfg.n_layers,
    }


def health(
    checkpoint: Checkpoint, names: Sequence[str], spectra: bool, report: Any = lambda *_: None
) -> Mapping[str, Any]:
    """The command's result: every named tensor, in order, with spectra of matrices if wanted."""
    rows, total = [], sum(info.parameters for info in checkpoint.tensors.values())
    done, all_of = 0, sum(checkpoint.tensors[name].parameters for name in names)
    for name in names:
        report(done / all_of, name)
        row = {**statistics(checkpoint, name), "share_of_model": checkpoint.tensors[name].parameters / total}
        if spectra and len(checkpoint.tensors[name].shape) == 2:
            row |= spectrum(checkpoint, name)
        rows.append(row)
        done += checkpoint.tensors[name].parameters
    report(1.0, "weights read")
    return {"tensors": rows, "attention_layout": attention_layout(checkpoint), "notes": list(checkpoint.notes)}
