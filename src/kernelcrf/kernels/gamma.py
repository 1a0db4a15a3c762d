"""Kernels as users name them, with gamma="scale" and gamma="auto" as numbers, as in sklearn.svm.SVC.

auto    1 / d
scale   1 / (d * variance of all entries of X, stored or not); 1 if they do not vary
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelcrf.arrays import Floats, Inputs, UserData, is_sparse
from kernelcrf.kernels.inputs import InputKernel


def make_kernel(
    n_features: int,
    by_scale: Callable[[], float],
    kernel: UserData,
    gamma: float | str,
    degree: int,
    coef0: float,
    argument: str = "kernel",
) -> InputKernel:
    """Return the kernel for inputs of n_features columns; `by_scale` computes gamma if it is "scale"."""
    if not isinstance(kernel, str):
        return InputKernel(kernel, argument=argument)
    if isinstance(gamma, str):
        by_data = gamma == "scale" and InputKernel(kernel, argument=argument).reads_gamma
        gamma = by_scale() if by_data else 1.0 / n_features
    return InputKernel(kernel, gamma=gamma, degree=degree, coef0=coef0, argument=argument)


def gamma_by_scale(X: Inputs, weights: Floats | None = None) -> float:
    """Return gamma="scale" of inputs X (N, d), by weights (N,) of the rows if they are given."""
    largest = max(float(X.max()), -float(X.min())) if X.shape[0] and X.shape[1] else 0.0
    if largest == 0:
        return 1.0
    # Where squares would overflow or vanish, the scale is taken out first.
    exponent = np.floor(np.log2(largest))
    far = abs(exponent) > np.finfo(X.dtype).maxexp / 4
    power = 2.0**exponent if far else 1.0
    return gamma_of_variance(_variance(X / X.dtype.type(power) if far else X, weights), X.shape[1], power)


def gamma_of_variance(variance: float, n_features: int, power: float = 1.0) -> float:
    """Return gamma="scale" of entries that are `power` times entries of this variance; raise if no float holds it."""
    if variance <= 0:
        return 1.0
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        gamma = float(1.0 / np.float64(n_features * variance) / power / power)
    if not np.finfo(np.float64).tiny <= gamma < np.inf:
        raise ValueError(
            f"X has entries whose standard deviation is {power * variance**0.5:.3g}, and gamma='scale' would be "
            f"{gamma:g}: scale X, as sklearn.preprocessing.StandardScaler does, or give gamma as a number"
        )
    return gamma


def _variance(X: Inputs, weights: Floats | None) -> float:
    if weights is None and not is_sparse(X):
        return float(X.var())
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if weights is None else weights / weights.sum()
    squares = X.multiply(X) if is_sparse(X) else np.square(X)
    mean, mean_square = (float(share @ np.asarray(rows.mean(axis=1)).ravel()) for rows in (X, squares))
    return mean_square - mean * mean
