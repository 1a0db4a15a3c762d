"""Stack the tokens of all sequences to one matrix of numbers, dense or CSR, with one row per token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import DType, Inputs, UserData, as_writable, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import read_matrices


def stack_sequences(parts: Sequence[UserData], chains: Chains, place: Callable[[int], str]) -> Inputs:
    """Stack sequences to one matrix; raise if they have different numbers of columns or values that are not finite.

    place : a function that returns the name of the sequence i in error messages, such as "X[0]".
    """
    forms = {_form(part) for part in parts}
    if len(forms) > 1 or None in forms:
        parts = read_matrices({place(i): part for i, part in enumerate(parts)})
    if is_sparse(parts[0]):
        flat: Inputs = sp.csr_array(sp.vstack(parts, format="csr"))
        if not flat.has_canonical_format:
            flat = flat.copy()
            flat.sum_duplicates()
    else:
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
    _check_finite(flat, chains)
    return as_writable(flat)


def _form(part: UserData) -> tuple[DType, int] | None:
    """Return the dtype and the number of columns of a 2-D array of floats; return None for anything else."""
    if type(part) is np.ndarray and part.ndim == 2 and part.dtype in (np.float32, np.float64):
        return part.dtype, part.shape[1]
    return None


def _check_finite(flat: Inputs, chains: Chains) -> None:
    values = flat.data if is_sparse(flat) else flat
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    place = np.argwhere(~np.isfinite(values))[0]
    row = int(np.searchsorted(flat.indptr, place[0], side="right")) - 1 if is_sparse(flat) else int(place[0])
    column = int(flat.indices[place[0]]) if is_sparse(flat) else int(place[1])
    value = "NaN" if np.isnan(values[tuple(place)]) else values[tuple(place)]
    raise ValueError(
        f"X has the value {value} in {chains.place(row)}, feature {column}: expected finite numbers; "
        "sklearn.impute.SimpleImputer fills in missing values"
    )
