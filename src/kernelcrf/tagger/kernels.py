"""Compute kernel values k(x, b) for rows x of a sequence and landmarks b; `KERNELS` maps names to functions.

    poly        (gamma x.b + coef0)^degree              also named `polynomial`
    rbf         exp(-gamma |x - b|^2)
    laplacian   exp(-gamma |x - b|_1)
    cosine      x.b / (|x| |b|)
    chi2        exp(-gamma sum_j (x_j - b_j)^2 / (x_j + b_j))     for x >= 0, and for dense rows only

If gamma is None, it is 1/d for rows of d columns, and 1 for chi2.

For sparse rows, only columns that a row x and a landmark b have in common are visited:

    x.b = sum_j x_j b_j,        |x - b|_1 = |x|_1 + |b|_1 - sum_j (|x_j| + |b_j| - |x_j - b_j|).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Array, Config, Floats, Places
from ..kernels.elementwise import normalise, raise_to_power
from ..kernels.polynomial import Polynomial
from ..kernels.rbf import MOST_EXPONENT_ERROR, rbf_against
from ..persistence.checks import StoredMap, read_number
from ..persistence.error import ModelFileError
from ..validation import shown
from .rows import SparseRows, merged, spread

FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a kernel; only the polynomial kernel uses `form`."""

    gamma: float
    form: Polynomial


class DenseLandmarks:
    """Landmarks that are dense rows.

    with_ : the parameters of the kernel.
    """

    def __init__(self, B: Array, with_: Parameters) -> None:
        self.B, self.with_ = B.astype(np.float64, copy=False), with_

    @cached_property
    def unit(self) -> Floats:
        """Return the landmarks, scaled to length 1."""
        return np.asarray(normalise(self.B))

    @cached_property
    def fill_rbf(self) -> Callable[[Array, Array], None]:
        """Return a function (X, out) that writes the rbf kernel between the rows of X and the landmarks into `out`."""
        return rbf_against(self.B, self.with_.gamma, FLOAT64)

    def products(self, X: Floats) -> Floats:
        """Return the inner products of rows and landmarks."""
        return np.asarray(X @ self.B.T)

    def rbf(self, X: Floats) -> Floats:
        """Return exp(-gamma |x - b|^2) for each row x of X and each landmark b."""
        K = np.empty((len(X), len(self.B)))
        self.fill_rbf(X, K)
        return K

    def laplacian(self, X: Floats) -> Floats:
        """Return exp(-gamma |x - b|_1) for each row x of X and each landmark b."""
        return np.asarray(np.exp([-self.with_.gamma * np.abs(self.B - x).sum(axis=1) for x in X]))

    def cosine(self, X: Floats) -> Floats:
        """Return the inner products of rows and landmarks, all scaled to length 1."""
        return np.asarray(normalise(X) @ self.unit.T)

    def chi2(self, X: Floats) -> Floats:
        """Return the kernel chi2 for each row x of X and each landmark b; raise if X has negative entries.

        The kernel is exp(-gamma sum_j (x_j - b_j)^2 / (x_j + b_j)).
        """
        if X.min() < 0:
            raise ValueError(
                f"tokens has the value {X.min():g}, but the kernel chi2 is defined only for values >= 0: expected "
                "inputs like those of the fit"
            )
        return np.asarray(np.exp([-self.with_.gamma * self._chi2_distances(x) for x in X]))

    def _chi2_distances(self, x: Floats) -> Floats:
        total = self.B + x
        return np.asarray((np.square(self.B - x) / np.where(total > 0, total, 1.0)).sum(axis=1))


class SparseLandmarks:
    """Landmarks that are sparse rows, stored by columns.

    columns : the columns in which at least one landmark has an entry, in increasing order.
    starts : the index of the first entry of each of these columns, and at the end the number of entries.
    rows, values : for each entry, the index of its landmark, and its value.
    """

    def __init__(self, data: Array, indices: Array, indptr: Array, d: int, with_: Parameters) -> None:
        self.n, self.d, self.with_ = len(indptr) - 1, d, with_
        counts = np.diff(indptr).astype(np.intp)
        every = merged(SparseRows(indices.astype(np.intp), data.astype(np.float64), counts), d)
        assert every.values is not None
        order = np.argsort(every.columns, kind="stable")
        self.rows, self.values = every.of_entries[order], every.values[order]
        self.columns, first = np.unique(every.columns[order], return_index=True)
        self.starts = np.append(first, len(order))
        self.squares = add_at(self.rows, np.square(self.values), (1, self.n))[0]
        self.sums = add_at(self.rows, np.abs(self.values), (1, self.n))[0]

    def products(self, X: SparseRows) -> Floats:
        """Return the inner products of rows and landmarks."""
        return self._common(X, np.multiply)

    def rbf(self, X: SparseRows) -> Floats:
        """Return exp(-gamma |x - b|^2) for rows x and landmarks b; raise if rounding errors may be large."""
        gamma, squares = self.with_.gamma, add_at(X.of_entries, np.square(_values(X)), (X.n_rows, 1))
        if not np.finfo(np.float64).eps * gamma * max(squares.max(), self.squares.max()) <= MOST_EXPONENT_ERROR:
            raise ValueError(
                f"tokens has entries up to {np.abs(_values(X)).max():.3g}, so that the rbf kernel with gamma={gamma:g} "
                "is not accurate: expected inputs on the scale of the training data"
            )
        exponents = 2 * gamma * self.products(X) - gamma * squares - gamma * self.squares
        return np.asarray(np.exp(np.minimum(exponents, 0.0)))

    def laplacian(self, X: SparseRows) -> Floats:
        """Return exp(-gamma |x - b|_1) for each row x of X and each landmark b."""
        sums = add_at(X.of_entries, np.abs(_values(X)), (X.n_rows, 1))
        shared = self._common(X, lambda x, b: np.abs(x) + np.abs(b) - np.abs(x - b))
        return np.asarray(np.exp(-self.with_.gamma * (sums + self.sums - shared)))

    def cosine(self, X: SparseRows) -> Floats:
        """Return the cosine of the angle between rows and landmarks; it is 0 for rows without entries."""
        squares = add_at(X.of_entries, np.square(_values(X)), (X.n_rows, 1))
        lengths = np.sqrt(np.where(squares > 0, squares, 1) * np.where(self.squares > 0, self.squares, 1))
        return np.asarray(self.products(X) / lengths)

    def chi2(self, X: SparseRows) -> Floats:
        """Raise an error: the kernel needs dense inputs."""
        raise ModelFileError(
            "the model file has the kernel chi2 and sparse inputs: expected dense inputs. The file may be damaged: "
            "use another copy of it"
        )

    def _common(self, X: SparseRows, combine: Callable[[Floats, Floats], Floats]) -> Floats:
        """Return, for each row x and landmark b, the sum of combine(x_j, b_j) over their common columns j."""
        places = np.searchsorted(self.columns, X.columns)
        places[places == len(self.columns)] = 0
        known = self.columns[places] == X.columns if len(self.columns) else np.zeros(len(places), bool)
        at, of_rows, x = places[known], X.of_entries[known], _values(X)[known]
        counts = self.starts[at + 1] - self.starts[at]
        entries = spread(self.starts[at], counts)
        terms = combine(np.repeat(x, counts), self.values[entries])
        flat = np.repeat(of_rows * self.n, counts) + self.rows[entries]
        return add_at(flat, terms, (X.n_rows, self.n))


def add_at(places: Places, values: Floats | None, shape: tuple[int, int]) -> Floats:
    """Return an array in which values[i] is added at the flat index places[i]; all values are 1 if `values` is None."""
    # Without places, NumPy returns integers.
    total: Array = np.bincount(places, values, shape[0] * shape[1])
    return total.reshape(shape).astype(np.float64, copy=False)


def _values(X: SparseRows) -> Floats:
    return np.ones(len(X.columns)) if X.values is None else X.values


Landmarks = DenseLandmarks | SparseLandmarks


def _poly(B: Any, X: Any) -> Floats:
    K: Floats = B.products(X)
    raise_to_power(K, B.with_.gamma, B.with_.form)
    return K


# Rows and landmarks are both dense or both sparse.
KERNELS: Mapping[str, Callable[[Any, Any], Floats]] = {
    "linear": lambda B, X: B.products(X),
    "poly": _poly,
    "polynomial": _poly,
    "rbf": lambda B, X: B.rbf(X),
    "laplacian": lambda B, X: B.laplacian(X),
    "cosine": lambda B, X: B.cosine(X),
    "chi2": lambda B, X: B.chi2(X),
}


class Gram:
    """The kernel values k(x, b) of rows x and the landmarks b of a model file."""

    def __init__(self, stored: StoredMap) -> None:
        config = stored.kernel
        assert config is not None
        name, form = check_kernel(config)
        self._fill, with_ = KERNELS[name], Parameters(_gamma(config, name, stored.d), form)
        self.d, self.is_sparse = stored.d, isinstance(stored.landmarks, tuple)
        self.landmarks: Landmarks
        if isinstance(stored.landmarks, tuple):
            self.landmarks = SparseLandmarks(*stored.landmarks, stored.d, with_)
        else:
            assert stored.landmarks is not None
            self.landmarks = DenseLandmarks(stored.landmarks, with_)

    def __call__(self, X: Floats | SparseRows) -> Floats:
        """Return the kernel values, one row per row of X and one column per landmark."""
        if isinstance(X, SparseRows):
            X = merged(X, self.d)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self._fill(self.landmarks, X)


def check_kernel(config: Config) -> tuple[str, Polynomial]:
    """Return a pair: the name of a kernel, and the degree and `coef0` of a polynomial; raise for unknown kernels."""
    kernel = config["kernel"]
    if isinstance(kernel, dict) and kernel.get("class") == Polynomial.__name__:
        return "poly", Polynomial(**kernel["parameters"])
    if isinstance(kernel, dict) or kernel not in KERNELS:
        name = kernel.get("class") if isinstance(kernel, dict) else kernel
        raise ModelFileError(
            f"the model has the kernel {shown(name)}, which kernelcrf-tagger does not know: expected one of "
            f"{', '.join(KERNELS)}. Open the file with kernelcrf.load"
        )
    # Files of version 0.1 have the form of a polynomial beside its name.
    return str(kernel), Polynomial(config.get("degree", 3), config.get("coef0", 1.0))


def _gamma(config: Config, name: str, d: int) -> float:
    if config["gamma"] is not None:
        return read_number(config, "gamma", least=0.0)
    return 1.0 if name in DEFAULT_IS_ONE else 1.0 / d


# The kernels whose gamma is 1 by default, and not 1/d.
DEFAULT_IS_ONE = ("chi2",)
