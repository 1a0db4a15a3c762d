"""Stack the sequences of arrays, sparse matrices or data frames into one matrix of finite numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, DType, Inputs, UserData, advise_finite, as_writable, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import read_matrices


def stack_sequences(
    parts: Sequence[UserData], chains: Chains, place: Callable[[int], str], names: Array | None
) -> Inputs:
    """Stack sequences into one matrix; raise if they differ in their number of columns or have NaN or infinity.

    place : a function that returns the name of sequence i in error messages.
    names : the column names for error messages, or None.
    """
    forms = {_form(part) for part in parts}
    if len(forms) > 1 or None in forms:
        parts = read_matrices({place(i): part for i, part in enumerate(parts)})
    if is_sparse(parts[0]):
        flat: Inputs = sp.csr_array(sp.vstack(parts, format="csr"))
        flat.sum_duplicates()
    else:
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
    _check_finite(flat, chains, names)
    return as_writable(flat)


def _form(part: UserData) -> tuple[DType, int] | None:
    """Return the dtype and the number of columns of a 2-D array of floats; return None for anything else."""
    if type(part) is np.ndarray and part.ndim == 2 and part.dtype in (np.float32, np.float64):
        return part.dtype, part.shape[1]
    return None


def _check_finite(flat: Inputs, chains: Chains, names: Array | None) -> None:
    values = flat.data if is_sparse(flat) else flat
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    wrong = ~np.isfinite(values)
    rows, columns = (flat.tocoo().row[wrong], flat.indices[wrong]) if is_sparse(flat) else np.nonzero(wrong)
    value, j = values[wrong][0], columns[0]
    column = f"feature {j}" if names is None or j >= len(names) else f"column {names[j]!r}"
    raise ValueError(
        f"X has the value {'NaN' if np.isnan(value) else value} in {chains.place(rows[0])}, {column}: expected finite "
        f"numbers; {advise_finite(value)}"
    )
