"""Metrics of the predicted probabilities p_t(l) of label l at token t: loss and calibration.

    log-loss     - sum_t w_t log p_t(y_t) / W,  p clipped to [eps, 1 - eps] with eps = 2.2e-16
    Brier        sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W, between 0 and 2
    calibration  sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W, with l_t = argmax_l p_t(l), the first of equal
                 maxima, c_t = p_t(l_t), and b the bin with (b - 1) / n_bins < c_t <= b / n_bins, b = 1 .. n_bins

Sums run over the tokens t with a known label y_t; w_t is the weight of the sequence of t, and W = sum_t w_t. The last
metric is the expected calibration error of Guo et al. (ICML 2017, equation 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn import metrics

from kernelcrf.arrays import Floats, Places, UserData
from kernelcrf.metrics.pairs import pair
from kernelcrf.readers.containers import read_labels, read_list, read_matrix
from kernelcrf.validation import either, shown, validated, whole

# Rows whose sum differs from 1 by rounding errors, also of single precision, are rescaled; other rows raise.
SUM_TOLERANCE = 1e-3
BINS = either(whole(least=1, most=10**6))


def log_loss(y_true: UserData, y_proba: UserData, classes: UserData, *, sample_weight: UserData = None) -> float:
    """Return the log-loss, - sum_t w_t log p_t(y_t) / W, of (T_i, L) probabilities whose columns are `classes`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import log_loss
    >>> round(log_loss([["a", "b"]], [np.array([[0.9, 0.1], [0.5, 0.5]])], ["a", "b"]), 2)
    0.4
    """
    y, P, w = _read(y_true, y_proba, classes, sample_weight)
    return float(metrics.log_loss(y, P, labels=np.arange(P.shape[1]), sample_weight=w))


def brier(y_true: UserData, y_proba: UserData, classes: UserData, *, sample_weight: UserData = None) -> float:
    """Return the Brier score, sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W, of (T_i, L) probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import brier
    >>> round(brier([["a", "b"]], [np.array([[0.9, 0.1], [0.5, 0.5]])], ["a", "b"]), 2)
    0.26
    """
    y, P, w = _read(y_true, y_proba, classes, sample_weight)
    P[np.arange(len(y)), y] -= 1
    return float(np.average(np.square(P).sum(1), weights=w))


@validated(n_bins=BINS)
def expected_calibration_error(
    y_true: UserData, y_proba: UserData, classes: UserData, *, n_bins: int = 15, sample_weight: UserData = None
) -> float:
    """Return sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W over `n_bins` bins of equal width.

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
    """Accuracy and mean confidence of the tokens in each bin of confidence.

    weight : (n_bins,), the weight W_b of the tokens of each bin.
    confidence, accuracy : (n_bins,), sums of w_t c_t and of w_t [l_t = y_t] over W_b; NaN for an empty bin.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import reliability
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> bins = reliability([["a", "b", "b"]], proba, ["a", "b"], n_bins=5)
    >>> bins.weight, bins.accuracy, round(bins.error, 2)
    (array([0., 0., 1., 1., 1.]), array([nan, nan,  0.,  1.,  1.]), 0.3)
    """

    weight: Floats
    confidence: Floats
    accuracy: Floats

    @property
    def error(self) -> float:
        """The expected calibration error: the weighted mean of |accuracy - confidence| over the bins."""
        filled = self.weight > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled]
        return float(self.weight[filled] @ gaps / self.weight.sum())


@validated(n_bins=BINS)
def reliability(
    y_true: UserData, y_proba: UserData, classes: UserData, *, n_bins: int = 15, sample_weight: UserData = None
) -> Reliability:
    """Return accuracy and mean confidence in `n_bins` bins of equal width, for a reliability diagram.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import reliability
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> reliability([["a", "b", "b"]], proba, ["a", "b"], n_bins=5).weight
    array([0., 0., 1., 1., 1.])
    """
    y, P, weight = _read(y_true, y_proba, classes, sample_weight)
    w = np.ones(len(y)) if weight is None else weight
    c, right = P.max(1), P.argmax(1) == y
    b = confidence_bins(c, n_bins)
    sums = np.stack([np.bincount(b, w * values, minlength=n_bins) for values in (np.ones(len(y)), c, right)])
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0], sums[1] / sums[0], sums[2] / sums[0])


def confidence_bins(c: Floats, n_bins: int) -> Places:
    """Return the bin of each confidence c, counted from 0: b - 1 for (b - 1) / n_bins < c <= b / n_bins."""
    return np.searchsorted(np.arange(1, n_bins) / n_bins, c, side="left")


def _read(
    y_true: UserData, y_proba: UserData, classes: UserData, sample_weight: UserData
) -> tuple[Places, Floats, Floats | None]:
    """Return the class indices (N,), probabilities (N, L) and weights (N,) of the N tokens with known labels."""
    names = read_labels(classes, "classes", "a list of labels")
    code = {label: column for column, label in enumerate(names)}
    if len(code) != len(names) or len(names) < 2:
        raise ValueError(f"classes={shown(names)}: expected two or more distinct labels, one per column")
    proba = [_rows(P, i, len(names)) for i, P in enumerate(read_list(y_proba, "y_proba"))]
    pairs = pair(y_true, proba, sample_weight, name="y_proba")
    for i, labels in enumerate(pairs.true):
        if (unknown := next((label for label in labels if label not in code), None)) is not None:
            raise ValueError(
                f"y_true[{i}] has the label {shown(unknown)}: expected one of classes={shown(names)}, or None"
            )
    true, pred, weight = pairs.flat()
    return np.array([code[label] for label in true]), np.array(pred), weight


def _rows(proba: object, i: int, L: int) -> Floats:
    P: Floats = np.asarray(read_matrix(proba, f"y_proba[{i}]"), np.float64)
    if P.ndim != 2 or P.shape[1] != L:
        raise ValueError(f"y_proba[{i}] has shape {P.shape}: expected (T, {L}), one column per class")
    total = P.sum(1, keepdims=True)
    if not ((P >= 0).all() and (np.abs(total - 1) <= SUM_TOLERANCE).all()):
        raise ValueError(f"y_proba[{i}] has rows that are not probabilities: expected numbers >= 0 that sum to 1")
    scaled: Floats = P / total
    return scaled
