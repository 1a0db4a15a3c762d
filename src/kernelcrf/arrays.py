"""Array types for annotations, and checks and conversions of the (rows, d) inputs that kernels accept."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.intp]
Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
DType: TypeAlias = np.dtype[Any]
Seed: TypeAlias = int | np.random.RandomState | None
Inputs: TypeAlias = Any
"""A (U, d) ndarray or CSR matrix of float32 or float64."""
UserData: TypeAlias = Any
"""Data that users pass, which has no static type: `readers` raise if it is not what they expect."""

Config: TypeAlias = dict[str, Any]
"""The JSON content of a model file; its values are checked when they are read."""
Arrays: TypeAlias = dict[str, Array]


def is_sparse(X: object) -> bool:
    """Return whether X is a sparse matrix or array of SciPy."""
    return bool(sp.issparse(X))


def as_inputs(X: Inputs, name: str = "X") -> Inputs:
    """Return X as a 2-D ndarray or CSR matrix of float32 or float64, without a copy if X already is one."""
    X = X.tocsr() if is_sparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(
            f"{name} has {X.ndim} dimension(s), shape {X.shape}: expected 2 dimensions, one row per input; "
            f"pass a single input as {name}.reshape(1, -1)"
        )
    if X.dtype in (np.float32, np.float64):
        return X
    if X.dtype == np.float16:
        return X.astype(np.float32)
    if X.dtype.kind in "biu":
        return X.astype(np.float64)
    raise TypeError(
        f"{name} has dtype {X.dtype}: expected float32, float64 or integers; "
        "sklearn.feature_extraction.DictVectorizer converts feature dicts to an array"
    )


def as_writable(X: Inputs) -> Inputs:
    """Return X, or a copy of it if it is read-only.

    For read-only arrays Numba would compile a separate version, whose results may differ in the last bits.
    """
    stored = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    return X if all(array.flags.writeable for array in stored) else X.copy()


def check_rows(X: Inputs) -> None:
    """Raise a ValueError if the pointers of a CSR matrix from a file would make compiled code read foreign memory.

    SciPy's `check_format` does not check the row pointers of a matrix if the last one says that it has no entries.
    """
    X.check_format(full_check=True)
    if X.indptr[0] != 0 or (np.diff(X.indptr) < 0).any() or X.indptr[-1] != len(X.indices):
        raise ValueError("a sparse matrix has invalid row pointers: expected them to start at 0 and never decrease")
