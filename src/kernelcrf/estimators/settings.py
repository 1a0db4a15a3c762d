"""What all estimators share: kernels as users name them, progress, and a word where a fit fell short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from kernelcrf.certificate import Certificate
from kernelcrf.kernels.inputs import InputKernel, Inputs, is_sparse
from kernelcrf.solvers import Record
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY

Floats = npt.NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)


def input_kernel(
    kernel: Any,
    X: Inputs,
    gamma: float | str,
    degree: int,
    coef0: float,
    weights: Floats | None = None,
    argument: str = "kernel",
) -> InputKernel:
    """The kernel with its gamma as a number; by weights, rows count for what they weigh."""
    return kernel_on(kernel, X.shape[1], lambda: gamma_by_scale(X, weights), gamma, degree, coef0, argument)


def kernel_on(
    kernel: Any,
    n_features: int,
    by_scale: Callable[[], float],
    gamma: float | str,
    degree: int,
    coef0: float,
    argument: str = "kernel",
) -> InputKernel:
    """Return the kernel for inputs of so many columns; `by_scale` gives gamma if it is 'scale'."""
    if isinstance(gamma, str):
        reads_gamma = isinstance(kernel, str) and kernel not in ("linear", "cosine")
        gamma = by_scale() if gamma == "scale" and reads_gamma else 1.0 / n_features
    if isinstance(kernel, str):
        return InputKernel(kernel, gamma=gamma, degree=degree, coef0=coef0, argument=argument)
    return InputKernel(kernel, argument=argument)


def gamma_by_scale(X: Inputs, weights: Floats | None = None) -> float:
    """1 / (d variance of X); 1 where X has no variance."""
    largest = max(float(X.max()), -float(X.min())) if X.shape[0] and X.shape[1] else 0.0
    if largest == 0:
        return 1.0
    # Where squares would overflow or vanish, the scale is taken out first.
    exponent = np.floor(np.log2(largest))
    far = abs(exponent) > np.finfo(X.dtype).maxexp / 4
    power = 2.0**exponent if far else 1.0
    variance = _variance(X / X.dtype.type(power) if far else X, weights)
    if variance <= 0:
        return 1.0
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        gamma = float(1.0 / np.float64(X.shape[1] * variance) / power / power)
    if not np.finfo(np.float64).tiny <= gamma < np.inf:
        raise ValueError(
            f"X has values up to {largest:.3g}, and gamma='scale' would be {gamma:g}: scale X, as "
            "sklearn.preprocessing.StandardScaler does, or give gamma as a number"
        )
    return gamma


def _variance(X: Inputs, weights: Floats | None) -> float:
    """The variance of all entries, stored or not."""
    if weights is None and not is_sparse(X):
        return float(X.var())
    share = np.full(X.shape[0], 1.0 / X.shape[0]) if weights is None else weights / weights.sum()
    squares = X.multiply(X) if is_sparse(X) else np.square(X)
    mean, mean_square = (float(share @ np.asarray(rows.mean(axis=1)).ravel()) for rows in (X, squares))
    return mean_square - mean * mean


@contextmanager
def progress(
    name: str, verbose: int, where: Callable[[], str] | None = None
) -> Iterator[Callable[[Record], None] | None]:
    """A bar of the objective and its certified gap, where one is asked for; `where` tells of the workers."""
    if not verbose:
        yield None
        return
    with tqdm(desc=name, unit=" iterations") as bar:

        def show(record: Record) -> None:
            bar.update()
            told = [f"objective {record.value:.6g}", f"gap {record.relative_gap:.1e}", "" if where is None else where()]
            bar.set_postfix_str(", ".join(filter(None, told)))

        yield show


def warn_where_short(certificate: Certificate, last: Record, tol: float) -> None:
    """Warn if a fit did not reach `tol`; `last` is the last point of its run."""
    if certificate.status in (OPTIMAL, STATIONARY):
        return
    if certificate.gap_full is not None:
        kind, gap = "gap in the kernel's whole space", certificate.gap_full / max(abs(certificate.objective), TINY)
    else:
        kind = "certified gap" if np.isfinite(certificate.lower_bound) else "size of the gradient"
        gap = last.relative_gap
    above = f", above tol={tol:g}" if gap > tol else ""
    warnings.warn(
        f"the fit ended with status {certificate.status!r} at a relative {kind} of {gap:.1e}{above}: "
        "raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=3,
    )
