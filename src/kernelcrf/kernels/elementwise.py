"""Compute powers of inner products for the kernel `poly`, and scale rows to length 1 for the kernel `cosine`."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Inputs, is_sparse
from .polynomial import Polynomial
from .rbf import ELEMENTWISE_ROWS, squared_norms


def raise_to_power(K: Array, gamma: float, form: Polynomial) -> None:
    """Replace each entry v of the matrix K by (gamma v + coef0)^degree, with the degree and coef0 of `form`."""
    for start in range(0, len(K), ELEMENTWISE_ROWS):
        block = K[start : start + ELEMENTWISE_ROWS]
        block *= gamma
        block += form.coef0
        if form.degree > 1:
            # Repeated squaring needs two products for degree 3, and about a hundred for the largest integers.
            base, left = block.copy(), int(form.degree) - 1
            while left:
                if left & 1:
                    block *= base
                left >>= 1
                if left:
                    base *= base


def largest(X: Inputs) -> Array:
    """Return the largest absolute value in each row of X."""
    if is_sparse(X):
        return np.asarray(abs(X).max(axis=1).toarray(), X.dtype).ravel()
    return np.asarray(np.maximum(X.max(axis=1, initial=0.0), -X.min(axis=1, initial=0.0)))


def normalise(X: Inputs) -> Inputs:
    """Return X with its rows scaled to length 1; rows of zeros stay zero. Large entries do not overflow."""
    unit = _divide_rows(X, largest(X))
    return _divide_rows(unit, np.sqrt(squared_norms(unit)))


def _divide_rows(X: Inputs, divisors: Array) -> Inputs:
    """Divide each row of X by its divisor; rows whose divisor is 0 do not change."""
    divisors = np.where(divisors > 0, divisors, 1)
    if not is_sparse(X):
        return X / divisors[:, None]
    divided = X.copy()
    divided.data /= np.repeat(divisors, np.diff(X.indptr))
    return divided
