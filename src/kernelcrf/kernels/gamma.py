"""Make kernels from the arguments of estimators, and convert gamma="scale" and gamma="auto" to numbers.

The numbers are the same as in sklearn.svm.SVC. With inputs of d columns, "auto" is 1 / d, and "scale" is 1 / (d v),
where v is the variance of all entries of the inputs, including the zeros of sparse inputs. If v is 0, "scale" is 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, UserData, is_sparse
from kernelcrf.kernels.inputs import KERNEL, InputKernel
from kernelcrf.validation import Parameter, one_of, shown_list, stacklevel_of_user

AUTO = "auto"
HIDDEN = 0.1
KERNEL_OR_AUTO = Parameter((one_of(AUTO), *KERNEL.constraints), KERNEL.advice)


def resolve_kernel(kernel: UserData, sparse: bool) -> UserData:
    """Replace kernel="auto" by "linear" for sparse and by "rbf" for dense inputs; return other kernels unchanged."""
    if isinstance(kernel, str) and kernel == AUTO:
        return "linear" if sparse else "rbf"
    return kernel


def make_kernel(
    n_features: int,
    by_scale: Callable[[], float],
    kernel: UserData,
    gamma: float | str,
    argument: str = "kernel",
) -> InputKernel:
    """Make a kernel for inputs of `n_features` columns, from the parameters of an estimator.

    by_scale : a function that returns the value of gamma="scale"; it is called only if this value is needed.
    kernel, gamma : the parameters of the estimator, such as kernel="rbf" and gamma="scale".
    argument : what the estimator calls its parameter for this kernel, such as "segment_kernel"; error messages show it.
    """
    made = InputKernel(kernel, argument=argument)
    if not made.is_definite:
        return made
    if isinstance(gamma, str):
        gamma = by_scale() if gamma == "scale" and made.reads_gamma else 1.0 / n_features
    return replace(made, gamma=gamma)


def gamma_by_scale(X: Inputs, weights: Floats | None = None, names: Sequence[str] | Array | None = None) -> float:
    """Return the value of gamma="scale" for the inputs X; warn if X is dense and its columns have different scales.

    weights : one weight per row of X, or None.
    names : the names of the columns, which the warning shows; None shows their indices.
    """
    largest = max(float(X.max()), -float(X.min())) if X.shape[0] and X.shape[1] else 0.0
    if largest == 0:
        return 1.0
    # If squares would overflow or vanish, X is divided by a power of two first.
    exponent = np.floor(np.log2(largest))
    far = abs(exponent) > np.finfo(X.dtype).maxexp / 4
    power = 2.0**exponent if far else 1.0
    X = X / X.dtype.type(power) if far else X
    variance = _variance(X, weights)
    if not is_sparse(X):
        _warn_of_hidden_columns(X, variance**0.5, names)
    return gamma_of_variance(variance, X.shape[1], power)


def gamma_of_variance(variance: float, n_features: int, power: float = 1.0) -> float:
    """Return the value of gamma="scale", 1 / (n_features * v), where v is the variance of all entries of the inputs.

    The variance is v = `variance * power**2`. Two numbers represent it, since v itself may overflow.
    """
    if variance <= 0:
        return 1.0
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        gamma = float(1.0 / np.float64(n_features * variance) / power / power)
    if not np.finfo(np.float64).tiny <= gamma < np.inf:
        raise ValueError(
            f"the entries of X have standard deviation {power * variance**0.5:.3g}, so that gamma='scale' would be "
            f"{gamma:g}: scale X with StandardScaler(), or kernelcrf.preprocessing.PerToken(StandardScaler()) for "
            "sequences, or pass gamma as a number"
        )
    return gamma


def _variance(X: Inputs, weights: Floats | None) -> float:
    if weights is None and not is_sparse(X):
        return float(X.var())
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if weights is None else weights / weights.sum()
    squares = X.multiply(X) if is_sparse(X) else np.square(X)
    mean, mean_square = (float(share @ np.asarray(rows.mean(axis=1)).ravel()) for rows in (X, squares))
    return mean_square - mean * mean


def _warn_of_hidden_columns(X: Array, deviation: float, names: Sequence[str] | Array | None) -> None:
    """Warn if many columns of X vary too little to have an effect on the kernel.

    A column varies too little if its range is below HIDDEN times `deviation`, the standard deviation of all entries.
    With gamma="scale" and d columns, such a column changes the logarithm of the rbf kernel by less than HIDDEN**2 / d.
    The warning appears if at least half of the columns vary too little; constant columns are not counted.
    """
    ranges = X.max(axis=0) - X.min(axis=0)
    hidden = (ranges > 0) & (ranges < HIDDEN * deviation)
    if not hidden.any() or 2 * hidden.sum() < (ranges > 0).sum():
        return
    columns = np.flatnonzero(hidden).tolist()
    listed = shown_list(columns if names is None else [names[j] for j in columns])
    others = ". If only the other columns matter, remove these" if not hidden.all() else ""
    warnings.warn(
        f"with gamma='scale', the kernel hardly depends on {len(columns)} of the {X.shape[1]} columns of X: {listed}. "
        f"Their ranges are below {HIDDEN} times the standard deviation of all entries of X. Scale the "
        "columns: put StandardScaler(), or kernelcrf.preprocessing.PerToken(StandardScaler()) for sequences, before "
        f"the estimator in a Pipeline{others}, or pass gamma as a number",
        UserWarning,
        stacklevel=stacklevel_of_user(),
    )
