"""Array types for annotations, and functions that check and convert the inputs of kernels."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.intp]
Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
DType: TypeAlias = np.dtype[Any]
Seed: TypeAlias = "int | np.random.RandomState | None"
Inputs: TypeAlias = Any
"""A 2-D ndarray or CSR matrix of float32 or float64, with one row per input."""
UserData: TypeAlias = Any
"""Data that users pass, which has no static type: `readers` raise if it is not what they expect."""

Config: TypeAlias = dict[str, Any]
"""The JSON content of a model file; its values are checked when they are read."""
Arrays: TypeAlias = dict[str, Array]
CSR_PARTS = "data", "indices", "indptr"
"""The arrays of a sparse matrix in a file, in the order in which SciPy takes them."""


@dataclass(frozen=True, eq=False)
class NamedInputs:
    """Named matrices of inputs with equal numbers of rows; indexing selects the same rows of all matrices."""

    matrices: Mapping[str, Inputs]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows, and the number of columns of all matrices together."""
        shapes = [X.shape for X in self.matrices.values()]
        return shapes[0][0], sum(width for _, width in shapes)

    def __getitem__(self, rows: Any) -> NamedInputs:
        # A matrix that several inputs read stays one matrix.
        taken = {key: X[rows] for key, X in {id(X): X for X in self.matrices.values()}.items()}
        return NamedInputs({name: taken[id(X)] for name, X in self.matrices.items()})


def matrix_of(X: Inputs | NamedInputs, name: str) -> Inputs:
    """Return the matrix called `name`; if X is a single matrix, return X and ignore `name`."""
    return X.matrices[name] if isinstance(X, NamedInputs) else X


def join_columns(X: Inputs | NamedInputs) -> Inputs:
    """Return X as one matrix with the columns of all inputs side by side, sparse if one of the inputs is sparse."""
    if not isinstance(X, NamedInputs):
        return X
    matrices = list(X.matrices.values())
    if len(matrices) == 1:
        return matrices[0]
    if not any(map(is_sparse, matrices)):
        return np.hstack(matrices)
    import scipy.sparse as sp

    return sp.csr_array(sp.hstack(matrices, format="csr"))


def is_sparse(X: object) -> bool:
    """Return whether X is a sparse matrix or array of SciPy."""
    # As long as nobody has imported SciPy, there are no sparse matrices.
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and bool(issparse(X))


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


def advise_finite(value: float) -> str:
    """Return advice for error messages: how to remove a value that is NaN or infinite from inputs."""
    if np.isnan(value):
        return "fill in missing values, for example with kernelcrf.preprocessing.PerToken(SimpleImputer())"
    return "remove the tokens with infinite values, or clip them to a finite range with numpy.clip"


def as_writable(X: Inputs) -> Inputs:
    """Return X unchanged if it can be written to, and a copy of X if it is read-only."""
    # Numba would compile functions once more for read-only arrays, and the results might differ in the last bits.
    stored = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    return X if all(array.flags.writeable for array in stored) else X.copy()


def take_columns(X: Inputs, columns: Places) -> Inputs:
    """Return the columns of X with these indices, which may be in any order and may occur several times.

    The memory for a CSR matrix does not grow with its number of columns; with SciPy's indexing, it would.
    """
    if not is_sparse(X):
        return np.ascontiguousarray(X[:, columns])
    import scipy.sparse as sp

    order = np.argsort(columns, kind="stable")
    ends = [np.searchsorted(columns[order], X.indices, side) for side in ("left", "right")]
    counts = ends[1] - ends[0]
    before = np.append(0, np.cumsum(counts))
    places = np.arange(before[-1]) + np.repeat(ends[0] - before[:-1], counts)
    parts = np.repeat(X.data, counts), order[places], before[X.indptr]
    return sp.csr_array(parts, shape=(X.shape[0], len(columns)))


def check_rows(X: Inputs) -> None:
    """Raise a ValueError if the row pointers or column indices of a CSR matrix point outside the matrix.

    Compiled code would otherwise read memory outside the arrays. SciPy's `check_format` does not check the row pointers
    if the last pointer is 0.
    """
    X.check_format(full_check=True)
    if X.indptr[0] != 0 or (np.diff(X.indptr) < 0).any() or X.indptr[-1] != len(X.indices):
        raise ValueError(
            "a sparse matrix has invalid row pointers (indptr): expected them to start at 0, never to decrease, and to "
            "end at the number of entries; build the matrix again, for example with scipy.sparse.csr_matrix"
        )
