"""Metrics of probabilities p_t(l) of tokens: how much is lost, and whether they mean what they say.

    log-loss     - sum_t w_t log p_t(y_t) / W,  p clipped to [eps, 1 - eps] with eps = 2.2e-16
    Brier        sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W, between 0 and 2
    calibration  sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W, with l_t = argmax_l p_t(l), c_t = p_t(l_t)
                 and the bin b of t that for which (b - 1) / n_bins < c_t <= b / n_bins, b = 1 .. n_bins

Sums run over tokens with a known label, w_t is the weight of their sequence and W = sum_t w_t. The last is
the expected calibration error of Guo et al. (ICML 2017, equation 3): in each bin, the weight of its tokens
times the difference of accuracy and mean confidence.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics

from kernelcrf.estimators.containers import read_labels, read_list
from kernelcrf.estimators.matrices import read_matrix
from kernelcrf.metrics.pairs import pair
from kernelcrf.validation import either, shown, validated, whole

# Rows that are off by rounding, single precision included, are scaled to sum to one; others are no probabilities.
SUM_TOLERANCE = 1e-3
BINS = either(whole(least=1, most=10**6))


def log_loss(
    y_true: Iterable[Any],
    y_proba: Iterable[Any],
    classes: Iterable[Hashable],
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Log-loss, - sum_t w_t log p_t(y_t) / W, of a list of (T_i, L) probabilities whose columns are `classes`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import log_loss
    >>> round(log_loss([["a", "b"]], [np.array([[0.9, 0.1], [0.5, 0.5]])], ["a", "b"]), 2)
    0.4
    """
    y, P, w = _known(y_true, y_proba, classes, sample_weight)
    return float(metrics.log_loss(y, P, labels=np.arange(P.shape[1]), sample_weight=w))


def brier(
    y_true: Iterable[Any],
    y_proba: Iterable[Any],
    classes: Iterable[Hashable],
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W for a list of (T_i, L) probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import brier
    >>> round(brier([["a", "b"]], [np.array([[0.9, 0.1], [0.5, 0.5]])], ["a", "b"]), 2)
    0.26
    """
    y, P, w = _known(y_true, y_proba, classes, sample_weight)
    P[np.arange(len(y)), y] -= 1
    return float(np.average(np.square(P).sum(1), weights=w))


@validated(n_bins=BINS)
def expected_calibration_error(
    y_true: Iterable[Any],
    y_proba: Iterable[Any],
    classes: Iterable[Hashable],
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> float:
    """sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W over `n_bins` bins of equal width; the first of equal
    maxima is l_t.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import expected_calibration_error
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> round(expected_calibration_error([["a", "b", "b"]], proba, ["a", "b"], n_bins=5), 2)
    0.3
    """
    return reliability(y_true, y_proba, classes, n_bins=n_bins, sample_weight=sample_weight).error


@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins of confidence: what was said and what was so.

    weight : (n_bins,) of the tokens of each bin, W_b.
    confidence, accuracy : (n_bins,) sums of w_t c_t and of w_t [l_t = y_t] over W_b; NaN where a bin is empty.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import reliability
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> bins = reliability([["a", "b", "b"]], proba, ["a", "b"], n_bins=5)
    >>> bins.weight, bins.accuracy, round(bins.error, 2)
    (array([0., 0., 1., 1., 1.]), array([nan, nan,  0.,  1.,  1.]), 0.3)
    """

    weight: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        filled = self.weight > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled]
        return float(self.weight[filled] @ gaps / self.weight.sum())


@validated(n_bins=BINS)
def reliability(
    y_true: Iterable[Any],
    y_proba: Iterable[Any],
    classes: Iterable[Hashable],
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> Reliability:
    """Accuracy and mean confidence in `n_bins` bins of equal width: a reliability diagram.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import reliability
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> reliability([["a", "b", "b"]], proba, ["a", "b"], n_bins=5).weight
    array([0., 0., 1., 1., 1.])
    """
    y, P, weight = _known(y_true, y_proba, classes, sample_weight)
    w = np.ones(len(y)) if weight is None else weight
    c, right = P.max(1), P.argmax(1) == y
    b = confidence_bins(c, n_bins)
    sums = np.stack([np.bincount(b, w * values, minlength=n_bins) for values in (np.ones(len(y)), c, right)])
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0], sums[1] / sums[0], sums[2] / sums[0])


def confidence_bins(c: NDArray[np.float64], n_bins: int) -> NDArray[np.intp]:
    """The bin of each confidence: b - 1 for (b - 1) / n_bins < c <= b / n_bins."""
    return np.searchsorted(np.arange(1, n_bins) / n_bins, c, side="left")


def _known(
    y_true: Iterable[Any], y_proba: Iterable[Any], classes: Iterable[Hashable], sample_weight: ArrayLike | None
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64] | None]:
    """Indices (N,) into `classes`, probabilities (N, L) and weights (N,) of the known tokens."""
    names = read_labels(classes, "classes", "a list of labels")
    code = {label: column for column, label in enumerate(names)}
    if len(code) != len(names) or len(names) < 2:
        raise ValueError(f"classes={shown(names)}: expected two or more distinct labels, one for each column")
    proba = [_rows(P, i, len(names)) for i, P in enumerate(read_list(y_proba, "y_proba"))]
    pairs = pair(y_true, proba, sample_weight, name="y_proba")
    for i, labels in enumerate(pairs.true):
        for label in labels:
            if label not in code:
                raise ValueError(
                    f"y_true[{i}] has the label {shown(label)}: expected one of classes={shown(names)}, or None"
                )
    return np.array([code[label] for label in pairs.flat_true]), np.array(pairs.flat_pred), pairs.token_weight


def _rows(P: Any, i: int, L: int) -> NDArray[np.float64]:
    P = np.asarray(read_matrix(P, f"y_proba[{i}]"), np.float64)
    if P.ndim != 2 or P.shape[1] != L:
        raise ValueError(f"y_proba[{i}] has shape {P.shape}: expected (T, {L}), a column for each of the {L} classes")
    total = P.sum(1, keepdims=True)
    if not ((P >= 0).all() and (np.abs(total - 1) <= SUM_TOLERANCE).all()):
        raise ValueError(f"y_proba[{i}] has rows that are no probabilities: expected numbers >= 0 that sum to 1")
    scaled: NDArray[np.float64] = P / total
    return scaled
