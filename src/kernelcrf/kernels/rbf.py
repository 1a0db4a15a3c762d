"""Compute Gram matrices of the kernel `k(x, y) = exp(-gamma |x - y|^2)` by one matrix product.

For dense inputs, the exponent is an inner product of two extended vectors, where c is the mean of the inputs y:

    log k(x, y) = [s (x-c), -gamma |x-c|^2, 1] . [s (y-c), 1, -gamma |y-c|^2],    s = sqrt(2 gamma).

Subtracting c does not change the kernel, but avoids cancellation if all inputs have a common offset. For sparse inputs,
nothing is subtracted, so that c = 0. The rounding error of the exponent is about `eps gamma max |x-c|^2`, where eps is
the precision. If the error exceeds 1e-5 in float32, the matrix is computed in float64. If it exceeds 1e-11 in float64,
the distances are computed pair by pair. This limit is so small because `kernelcrf.basis` amplifies the rounding errors
of the kernel when it divides by pivots. Sparse inputs that are too large to be converted to dense arrays have the limit
1e-5, also in float64. Beyond this limit, an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import Array, DType, Inputs, is_sparse, take_columns

EXPONENT_ERROR = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-11}
MOST_EXPONENT_ERROR = 1e-5
DENSE_ENTRIES = 2**27
ELEMENTWISE_ROWS = 256
FEW_COLUMNS = 4
BLOCK_ENTRIES = 2**21


def fill_rbf(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    """Write exp(-gamma |x - y|^2) for the rows x of X and y of Y into `out`."""
    if not (is_sparse(X) or is_sparse(Y)):
        rbf_against(Y, gamma, X.dtype)(X, out)
        return
    x, y = -gamma * squared_norms(X), -gamma * squared_norms(Y)
    if _is_too_coarse(out, x, y, EXPONENT_ERROR[out.dtype] if _has_room(Y) else MOST_EXPONENT_ERROR):
        _fill_finer(X, Y, gamma, out)
        return
    fill_inner(X, Y, out)
    for start in range(0, len(out), ELEMENTWISE_ROWS):
        block = out[start : start + ELEMENTWISE_ROWS]
        block *= 2 * gamma
        block += x[start : start + ELEMENTWISE_ROWS, None]
        block += y
        _exp(block)


def rbf_against(Y: Array, gamma: float, dtype: DType) -> Callable[[Array, Array], None]:
    """Return a function (X, out) that writes the Gram matrix of X and Y into `out`, for dense X of this dtype.

    If there are many matrices X, this function is faster than `fill_rbf`.
    """
    common = np.result_type(Y.dtype, dtype)
    # The centre is rounded to the precision of X and Y, so that both shift by the same amount.
    centre = Y.mean(axis=0, dtype=np.float64).astype(common)
    right = _fold(Y.astype(common, copy=False), centre, gamma, 1)

    def fill(X: Array, out: Array) -> None:
        left = _fold(X.astype(common, copy=False), centre, gamma, 0)
        if _is_too_coarse(out, left[:, -2], right[:, -1], EXPONENT_ERROR[out.dtype]):
            _fill_finer(X, Y, gamma, out)
            return
        np.matmul(left, right.T, out=out)
        for start in range(0, len(out), ELEMENTWISE_ROWS):
            _exp(out[start : start + ELEMENTWISE_ROWS])

    return fill


def fill_inner(X: Inputs, Y: Inputs, out: Array) -> None:
    """Write the inner products of all rows of X and all rows of Y into `out`."""
    if is_sparse(X) and is_sparse(Y):
        if _has_empty_columns(X, Y):
            # The product of SciPy takes time and memory for each column, even if it is empty.
            used = np.unique(Y.indices)
            X, Y = take_columns(X, used), take_columns(Y, used)
        out[...] = (X @ Y.T).toarray()
    elif is_sparse(X) or is_sparse(Y):
        out[...] = X @ Y.T
    else:
        np.matmul(X, Y.T, out=out)


def squared_norms(X: Inputs) -> Array:
    """Return |x|^2 for each row x of X."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), X.dtype).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _is_too_coarse(out: Array, x: Array, y: Array, most: float) -> bool:
    """Return whether the precision of `out` is too low: rounding would change numbers in x or y by more than `most`."""
    largest = -min(float(x.min()), float(y.min()))
    return not np.finfo(out.dtype).eps * largest <= most


def _fill_finer(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    """Write the Gram matrix into `out`, computed in float64 if `out` is float32, and otherwise pair by pair."""
    if out.dtype == np.float32:
        Y, fill = Y.astype(np.float64), fill_rbf
    else:
        _check_room(Y, gamma)
        fill = _fill_by_distances
    for start in range(0, len(out), ELEMENTWISE_ROWS):
        rows = X[start : start + ELEMENTWISE_ROWS].astype(np.float64)
        block = np.empty((rows.shape[0], Y.shape[0]))
        fill(rows, Y, gamma, block)
        out[start : start + ELEMENTWISE_ROWS] = block


def _has_room(Y: Inputs) -> bool:
    """Return whether Y is dense, or small enough to be converted to dense arrays, block by block."""
    return not is_sparse(Y) or Y.shape[0] * Y.shape[1] <= DENSE_ENTRIES


def _check_room(Y: Inputs, gamma: float) -> None:
    if not _has_room(Y):
        raise ValueError(
            f"X is sparse with entries up to {abs(Y).max():.3g}, so that kernel='rbf' with gamma={gamma:g} is not "
            "accurate: scale X, for example with sklearn.preprocessing.MaxAbsScaler, or pass a smaller gamma"
        )


def _fill_by_distances(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    """Write the Gram matrix into `out`, from distances that are computed pair by pair, without cancellation."""
    if is_sparse(X) and is_sparse(Y) and _has_empty_columns(X, Y):
        used = np.union1d(X.indices, Y.indices)
        X, Y = take_columns(X, used), take_columns(Y, used)
    size = max(BLOCK_ENTRIES // max(X.shape[1], 1), 1)
    for i in range(0, X.shape[0], size):
        rows = _as_dense(X[i : i + size])
        for j in range(0, Y.shape[0], size):
            others = _as_dense(Y[j : j + size])
            for row, exponents in zip(rows, out[i : i + size, j : j + size], strict=True):
                differences = others - row
                np.einsum("ij,ij,->i", differences, differences, -gamma, out=exponents)
    _exp(out)


def _has_empty_columns(X: Inputs, Y: Inputs) -> bool:
    """Return whether most columns of two CSR matrices are empty, so that leaving them out saves time."""
    return bool(X.shape[1] > FEW_COLUMNS * (X.nnz + Y.nnz))


def _as_dense(Y: Inputs) -> Array:
    return np.asarray(Y.toarray() if is_sparse(Y) else Y)


def _fold(X: Array, centre: Array, gamma: float, side: int) -> Array:
    """Return [s (x-c), -gamma |x-c|^2, 1] for each row x of X, where c is `centre` and s = sqrt(2 gamma).

    If `side` is 1, the last two columns are swapped.
    """
    d = X.shape[1]
    folded = np.empty((len(X), d + 2), X.dtype)
    np.subtract(X, centre, out=folded[:, :d], casting="same_kind")
    folded[:, :d] *= np.sqrt(2 * gamma)
    folded[:, d + side] = -0.5 * squared_norms(folded[:, :d])
    folded[:, d + 1 - side] = 1.0
    return folded


def _exp(exponent: Array) -> None:
    # Rounding must not make a squared distance negative.
    np.minimum(exponent, 0.0, out=exponent)
    np.exp(exponent, out=exponent)
