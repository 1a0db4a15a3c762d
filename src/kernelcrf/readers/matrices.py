"""Tables of numbers (T, d) as users hold them: arrays, sparse matrices, frames, and lists of rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Inputs, UserData, as_inputs, is_sparse
from kernelcrf.readers.containers import is_collection, read_container
from kernelcrf.validation import shown


def read_matrix(part: UserData, name: str) -> Inputs:
    """Return a (T, d) table of numbers, dense or CSR, from any container that holds one."""
    try:
        array: UserData = _table(read_container(part, name), name)
    except ValueError:
        raise ValueError(
            f"{name} has tokens of different widths: expected a (T, d) array, d numbers per token"
        ) from None
    if array.ndim != 2:
        raise ValueError(
            f"{name} has {array.ndim} dimension(s), shape {array.shape}: expected (T, d), one row per token. "
            + "Reshape your data: "
            + (
                "x.reshape(-1, 1) has one number per token; [X] is a single sequence if X is a list of tokens"
                if array.ndim == 1
                else "x.reshape(len(x), -1)"
            )
        )
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}")
    # Strings that look like numbers may be meant as names of features.
    if array.dtype == object and not is_sparse(array) and not any(isinstance(value, str) for value in array.flat):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} has dtype object and a value that is no number: {shown(str(error))}") from None
    return as_inputs(array, name)


def _table(part: UserData, name: str) -> UserData:
    """Return a sequence as an array or a sparse matrix; tokens of a list are stacked."""
    if is_sparse(part) or not isinstance(part, list):
        return part if is_sparse(part) else np.asarray(part)
    if any(is_sparse(token) for token in part):
        return sp.vstack([sp.csr_array(token) for token in part], format="csr")
    return np.asarray([read_container(token, name) if is_collection(token) else token for token in part])
