"""Sparse rows from a file: checked before compiled code follows their pointers."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_rows(X: Any) -> None:
    """Raise a ValueError if a CSR matrix has entries beyond its memory, which compiled code would look up.

    `check_format` of SciPy does not look at the rows of a matrix whose last pointer says that it has no entries.
    """
    X.check_format(full_check=True)
    if X.indptr[0] != 0 or (np.diff(X.indptr) < 0).any() or X.indptr[-1] != len(X.indices):
        raise ValueError("the rows of a sparse matrix do not follow each other")
