"""The input kernel `k_x(x, x')`: a positive semi-definite function of two inputs (Remark 7).

    linear      x.x'
    poly        (gamma x.x' + coef0)^degree             also named `polynomial`
    rbf         exp(-gamma |x - x'|^2)
    laplacian   exp(-gamma |x - x'|_1)
    cosine      x.x' / (|x| |x'|)
    chi2        exp(-gamma sum_j (x_j - x'_j)^2 / (x_j + x'_j))     for x >= 0

The names, the parameters and what `gamma=None` means (1/d; for chi2, 1) are those of
`sklearn.metrics.pairwise`. Two of its names are missing because their Gram matrices have negative
eigenvalues: `sigmoid` and `additive_chi2`. Beside a name, `kernel` may be a callable that takes (U, d) and
(V, d) inputs and returns their (U, V) Gram matrix, or an object of `sklearn.gaussian_process.kernels`.

rbf is one matrix product with the norms folded in: with c the mean of the second argument,

    log k(x, y) = [s (x-c), -gamma |x-c|^2, 1] . [s (y-c), 1, -gamma |y-c|^2],    s = sqrt(2 gamma).

The shift by c leaves the kernel as it is and takes the common offset out of the cancellation; what is left of
it is about `eps gamma max |x-c|^2` in the exponent. If that exceeds 1e-5 in float32 the block runs in float64. If it
exceeds 1e-11 there, as with one entry far from all others, each distance is taken by itself: rounding of k counts over
the pivots of a basis. Sparse inputs too wide to be dense have 1e-5 in float64 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from kernelcrf.kernels import gaussian_process
from kernelcrf.validation import (
    Constraint,
    check_parameters,
    either,
    instance_of,
    nothing,
    one_of,
    positive,
    real,
    shown,
    whole,
)

Array: TypeAlias = NDArray[np.floating[Any]]
Inputs: TypeAlias = Any
"""A (U, d) ndarray or CSR matrix of float32 or float64."""

NAMES = ("linear", "poly", "polynomial", "rbf", "laplacian", "cosine", "chi2")
INDEFINITE = ("sigmoid", "additive_chi2")
EXPONENT_ERROR = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-11}
MOST_EXPONENT_ERROR = 1e-5
DENSE_ENTRIES = 2**27
ELEMENTWISE_ROWS = 256
DIAGONAL_ROWS = 32

KERNEL = either(
    one_of(*NAMES),
    Constraint("a callable (X, Y) -> Gram matrix", lambda kernel: callable(kernel) and not isinstance(kernel, type)),
    instance_of(gp.Kernel, text="an object of sklearn.gaussian_process.kernels"),
    advice=f"{' and '.join(map(repr, INDEFINITE))} are not positive semi-definite, so no prior (14) goes with them",
)
DEGREE = either(whole(least=1), advice="other powers are not positive semi-definite")
COEF0 = either(real(least=0), advice="below 0 the polynomial kernel is not positive semi-definite")
PARAMETERS = {
    "gamma": either(positive, nothing, advice="None is scikit-learn's default"),
    "degree": DEGREE,
    "coef0": COEF0,
}


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of SciPy."""
    return bool(sp.issparse(X))


def as_inputs(X: Any, name: str = "X") -> Inputs:
    """X as a 2-D ndarray or CSR matrix of float32 or float64; copies only where it must."""
    X = X.tocsr() if is_sparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(
            f"{name} has {X.ndim} dimension(s), shape {X.shape}: expected 2, one row for each input; "
            f"a single input goes in as {name}.reshape(1, -1)"
        )
    if X.dtype in (np.float32, np.float64):
        return X
    if X.dtype == np.float16:
        return X.astype(np.float32)
    if X.dtype.kind in "biu":
        return X.astype(np.float64)
    raise TypeError(
        f"{name} has dtype {X.dtype}: expected float32, float64 or integers; "
        "feature dicts become an array by sklearn.feature_extraction.DictVectorizer"
    )


def as_writable(X: Inputs) -> Inputs:
    """Return X, or a copy of it if it is read-only.

    Numba compiles a version of its own for read-only arrays, whose last bits may differ from those of the other.
    """
    stored = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    return X if all(array.flags.writeable for array in stored) else X.copy()


@dataclass(frozen=True)
class InputKernel:
    """k_x of the module's docstring; float32 inputs give float32 Gram matrices.

    `gamma` is read by poly, rbf, laplacian and chi2, `degree` and `coef0` by poly. `argument` is what errors call the
    kernel.
    """

    kernel: str | Callable[[Inputs, Inputs], Array] | gp.Kernel = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    argument: str = field(default="kernel", compare=False, repr=False)

    def __post_init__(self) -> None:
        KERNEL.check(self.argument, self.kernel)
        check_parameters(vars(self), PARAMETERS)
        if isinstance(self.kernel, gp.Kernel):
            gaussian_process.check(self.kernel, self.argument)

    @property
    def described(self) -> str:
        """Return the argument and its value as errors show them."""
        return f"{self.argument}={shown(self.kernel)}"

    @property
    def name(self) -> str:
        """One of `NAMES` without the alias, or `callable`, or `gaussian_process`."""
        if isinstance(self.kernel, str):
            return "poly" if self.kernel == "polynomial" else self.kernel
        return "gaussian_process" if isinstance(self.kernel, gp.Kernel) else "callable"

    @property
    def is_vectorial(self) -> bool:
        """Whether any point of input space, not only a given input, is known to be a valid argument."""
        return self.name != "callable"

    @property
    def is_smooth(self) -> bool:
        """Whether the kernel is known to be smooth at x = x', so that means of inputs stand for them."""
        return self.name in ("rbf", "poly", "cosine")

    def gram(self, X: Inputs, Y: Inputs | None = None, out: Array | None = None) -> Array:
        """The (U, V) matrix `k_x(X_i, Y_j)`; Y=None means X. Written into `out` where it is given."""
        X = as_inputs(X)
        Y = X if Y is None else as_inputs(Y, "Y")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"X has {X.shape[1]} columns and Y has {Y.shape[1]}: expected the same number")
        dtype = np.result_type(X.dtype, Y.dtype)
        if out is None:
            out = np.empty((X.shape[0], Y.shape[0]), dtype)
        if out.size:
            # What overflows on the way is found in the result, by whoever needs it finite.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self._fill(X, Y, out)
        return out

    def against(self, Y: Inputs, dtype: np.dtype[Any]) -> Callable[[Inputs, Array], Any]:
        """A function (X, out) that writes `gram(X, Y)` into out, with what depends on Y alone done beforehand.

        dtype : that of the X to come.
        """
        Y = as_inputs(Y, "Y")
        if self.name != "rbf" or is_sparse(Y) or not Y.size:
            return lambda X, out: self.gram(X, Y, out=out)
        gamma = self._gamma(Y)
        side = _right_side(Y, gamma, dtype)
        return lambda X, out: self.gram(X, Y, out=out) if is_sparse(X) else _rbf_against(X, Y, gamma, side, out)

    def diagonal(self, X: Inputs) -> Array:
        """`k_x(X_i, X_i)` for every row, without the matrix; (U,)."""
        X = as_inputs(X)
        if self.name in ("rbf", "laplacian", "chi2"):
            return np.ones(X.shape[0], X.dtype)
        if self.name in ("linear", "poly"):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                squares = _squared_norms(X)
                if self.name == "poly":
                    _power(squares, self._gamma(X), self.coef0, int(self.degree))
            return squares
        if self.name == "cosine":
            return (_largest(X) > 0).astype(X.dtype)
        if isinstance(self.kernel, gp.Kernel):
            return np.asarray(self.kernel.diag(_dense(X, "a Gaussian process kernel")), X.dtype)
        starts = range(0, X.shape[0], DIAGONAL_ROWS)
        blocks = [np.diagonal(self.gram(X[i : i + DIAGONAL_ROWS])) for i in starts]
        return np.concatenate([np.empty(0, X.dtype), *blocks])

    def to_config(self) -> dict[str, Any]:
        """The kernel as JSON-able values; `from_config` reads it."""
        if self.name == "callable":
            raise TypeError(
                f"{self.described}: a callable cannot be written to a file; "
                "use a kernel by name or an object of sklearn.gaussian_process.kernels, "
                "or hand the callable in again when loading"
            )
        kernel = gaussian_process.to_config(self.kernel) if isinstance(self.kernel, gp.Kernel) else self.kernel
        gamma = None if self.gamma is None else float(self.gamma)
        return {"kernel": kernel, "gamma": gamma, "degree": int(self.degree), "coef0": float(self.coef0)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> InputKernel:
        """The kernel that `to_config` described."""
        kernel = config["kernel"]
        kernel = kernel if isinstance(kernel, str) else gaussian_process.from_config(kernel)
        return cls(kernel, config["gamma"], config["degree"], config["coef0"])

    def _gamma(self, X: Inputs) -> float:
        if self.gamma is not None:
            return float(self.gamma)
        return 1.0 if self.name == "chi2" else 1.0 / X.shape[1]

    def _fill(self, X: Inputs, Y: Inputs, out: Array) -> None:
        if self.name == "rbf":
            _rbf(X, Y, self._gamma(X), out)
        elif self.name == "linear":
            _inner(X, Y, out)
        elif self.name == "poly":
            _inner(X, Y, out)
            _power(out, self._gamma(X), self.coef0, int(self.degree))
        elif self.name == "cosine":
            _inner(_directions(X), _directions(Y), out)
        elif self.name == "laplacian":
            out[...] = pairwise.laplacian_kernel(_short_indices(X), _short_indices(Y), gamma=self._gamma(X))
        elif self.name == "chi2":
            out[...] = pairwise.chi2_kernel(_dense(X, "chi2"), _dense(Y, "chi2"), gamma=self._gamma(X))
        elif isinstance(self.kernel, gp.Kernel):
            dense = "a Gaussian process kernel"
            out[...] = self.kernel(_dense(X, dense), _dense(Y, dense))
            self._check_finite(out)
        else:
            K = self._called(X, Y)
            if np.shape(K) != out.shape:
                raise ValueError(
                    f"{self.described} returned shape {np.shape(K)} for inputs of {X.shape[0]} and "
                    f"{Y.shape[0]} rows: expected {out.shape}; a function of two single inputs becomes a "
                    "Gram function by sklearn.metrics.pairwise.pairwise_kernels(X, Y, metric=function)"
                )
            if K.dtype.kind not in "biuf":
                raise TypeError(f"{self.described} returned values of dtype {K.dtype}: expected real numbers")
            out[...] = K
            self._check_finite(out)

    def _called(self, X: Inputs, Y: Inputs) -> Array:
        """Return what the callable returns; its own errors name no parameter, so that they are put into one."""
        assert callable(self.kernel)
        try:
            return np.asarray(self.kernel(X, Y))
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise ValueError(
                f"{self.described} raised {type(error).__name__}: expected a callable (X, Y) -> Gram matrix "
                f"of inputs {X.shape} and {Y.shape}; it said {shown(str(error))}"
            ) from error

    def _check_finite(self, K: Array) -> None:
        if not np.isfinite(K).all():
            value = K[~np.isfinite(K)][0]
            raise ValueError(
                f"{self.described} has the value {value}: expected finite numbers; scale the inputs, as "
                "sklearn.preprocessing.StandardScaler does, or mend the kernel"
            )


def _dense(X: Inputs, who: str) -> Array:
    if is_sparse(X):
        raise TypeError(
            f"{who} takes dense inputs, a sparse matrix came: use X.toarray(), or one of linear, poly, rbf, "
            "laplacian, cosine"
        )
    return np.asarray(X)


def _short_indices(X: Inputs) -> Inputs:
    """Return X with 32-bit indices if it is sparse: scikit-learn's distances by city blocks take no others."""
    if not is_sparse(X) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    return sp.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


def _squared_norms(X: Inputs) -> Array:
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), X.dtype).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _largest(X: Inputs) -> Array:
    """The greatest magnitude in each row."""
    if is_sparse(X):
        return np.asarray(abs(X).max(axis=1).toarray(), X.dtype).ravel()
    return np.asarray(np.maximum(X.max(axis=1, initial=0.0), -X.min(axis=1, initial=0.0)))


def _directions(X: Inputs) -> Inputs:
    """Rows of length one, rows of zeros as they are; whatever their scale, squares neither overflow nor vanish."""
    largest = _largest(X)
    largest[largest == 0] = 1
    if is_sparse(X):
        counts = np.diff(X.indptr)
        unit = X.copy()
        unit.data = X.data / np.repeat(largest, counts)
        lengths = np.sqrt(_squared_norms(unit))
        unit.data /= np.repeat(np.where(lengths > 0, lengths, 1), counts)
        return unit
    unit = X / largest[:, None]
    lengths = np.sqrt(_squared_norms(unit))
    unit /= np.where(lengths > 0, lengths, 1)[:, None]
    return unit


def _inner(X: Inputs, Y: Inputs, out: Array) -> None:
    if is_sparse(X) and is_sparse(Y):
        out[...] = (X @ Y.T).toarray()
    elif is_sparse(X) or is_sparse(Y):
        out[...] = X @ Y.T
    else:
        np.matmul(X, Y.T, out=out)


def _power(K: Array, gamma: float, coef0: float, degree: int) -> None:
    """K <- (gamma K + coef0)^degree in place."""
    for start in range(0, len(K), ELEMENTWISE_ROWS):
        block = K[start : start + ELEMENTWISE_ROWS]
        block *= gamma
        block += coef0
        if degree > 1:
            # By squares: two products for the degree 3, and a hundred for any that a number can hold.
            base, left = block.copy(), degree - 1
            while left:
                if left & 1:
                    block *= base
                left >>= 1
                if left:
                    base *= base


def _rbf(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    if is_sparse(X) or is_sparse(Y):
        x, y = -gamma * _squared_norms(X), -gamma * _squared_norms(Y)
        most = EXPONENT_ERROR[out.dtype] if _has_room(Y) else MOST_EXPONENT_ERROR
        if _too_coarse(out, x, y, most):
            return _rbf_finer(X, Y, gamma, out)
        _inner(X, Y, out)
        for start in range(0, len(out), ELEMENTWISE_ROWS):
            block = out[start : start + ELEMENTWISE_ROWS]
            block *= 2 * gamma
            block += x[start : start + ELEMENTWISE_ROWS, None]
            block += y
            _exp(block)
        return None
    return _rbf_against(X, Y, gamma, _right_side(Y, gamma, X.dtype), out)


def _right_side(Y: Array, gamma: float, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """c, rounded to the precision of the left side so that both shift by the same, and the folded right side."""
    centre = Y.mean(axis=0, dtype=np.float64).astype(dtype)
    return centre, _fold(Y, centre, gamma, 1)


def _rbf_against(X: Array, Y: Array, gamma: float, side: tuple[Array, Array], out: Array) -> None:
    centre, right = side
    left = _fold(X, centre, gamma, 0)
    if _too_coarse(out, left[:, -2], right[:, -1], EXPONENT_ERROR[out.dtype]):
        return _rbf_finer(X, Y, gamma, out)
    np.matmul(left, right.T, out=out)
    for start in range(0, len(out), ELEMENTWISE_ROWS):
        _exp(out[start : start + ELEMENTWISE_ROWS])
    return None


def _too_coarse(out: Array, x: Array, y: Array, most: float) -> bool:
    """Return whether sums of exponents as large as x and y have errors above `most` in the precision of `out`."""
    largest = -min(float(x.min()), float(y.min()))
    return not np.finfo(out.dtype).eps * largest <= most


def _rbf_finer(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    """In float64 where `out` is float32, else by the distances themselves."""
    if out.dtype == np.float32:
        Y, fill = Y.astype(np.float64), _rbf
    else:
        Y, fill = _with_room(Y, gamma), _rbf_by_distances
    for start in range(0, len(out), ELEMENTWISE_ROWS):
        rows = X[start : start + ELEMENTWISE_ROWS].astype(np.float64)
        block = np.empty((rows.shape[0], Y.shape[0]))
        fill(rows, Y, gamma, block)
        out[start : start + ELEMENTWISE_ROWS] = block


def _has_room(Y: Inputs) -> bool:
    """Return whether Y is dense, or small enough to be made dense."""
    return not is_sparse(Y) or Y.shape[0] * Y.shape[1] <= DENSE_ENTRIES


def _with_room(Y: Inputs, gamma: float) -> Array:
    if not _has_room(Y):
        raise ValueError(
            f"kernel='rbf' with gamma={gamma:g} cannot tell the distances of sparse inputs with entries up to "
            f"{abs(Y).max():.3g}: scale them, as sklearn.preprocessing.MaxAbsScaler does, or lower gamma"
        )
    return np.asarray(Y.toarray() if is_sparse(Y) else Y)


def _rbf_by_distances(X: Inputs, Y: Array, gamma: float, out: Array) -> None:
    """Without a product of matrices, so that nothing cancels; distances that overflow are infinite."""
    np.multiply(cdist(X.toarray() if is_sparse(X) else X, Y, "sqeuclidean"), -gamma, out=out)
    _exp(out)


def _fold(X: Array, centre: Array, gamma: float, side: int) -> Array:
    """[s (x-c), -gamma |x-c|^2, 1], with the last two the other way round on the right side."""
    d = X.shape[1]
    folded = np.empty((len(X), d + 2), X.dtype)
    np.subtract(X, centre, out=folded[:, :d], casting="same_kind")
    folded[:, :d] *= np.sqrt(2 * gamma)
    folded[:, d + side] = -0.5 * _squared_norms(folded[:, :d])
    folded[:, d + 1 - side] = 1.0
    return folded


def _exp(exponent: Array) -> None:
    """Exp in place; rounding must not lift a distance below zero."""
    np.minimum(exponent, 0.0, out=exponent)
    np.exp(exponent, out=exponent)
