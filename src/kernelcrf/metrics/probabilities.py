"""Compute metrics of predicted probabilities: log-loss, Brier score, and expected calibration error.

Token t has the true label y_t, the weight w_t of its sequence, and the predicted probability p_t(l) of each label l.
Tokens without a true label are dropped first, and W is the sum of all w_t.

    log-loss           - sum_t w_t log p_t(y_t) / W
    Brier score        sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W
    calibration error  sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W

In the log-loss, probabilities are clipped to [2.2e-16, 1 - 2.2e-16]. In the calibration error (Guo et al., ICML 2017,
equation 3), l_t is the most probable label of token t, the first one in case of a tie, and its probability c_t is the
confidence. Bin b contains the tokens with (b - 1) / n_bins < c_t <= b / n_bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn import metrics

from kernelcrf.answers.spans import SPAN_SCHEME, right_spans
from kernelcrf.arrays import Flags, Floats, Places, UserData
from kernelcrf.metrics.pairs import pair
from kernelcrf.readers.containers import read_labels, read_list, read_matrix
from kernelcrf.validation import either, shown, validated, whole

# Rows whose sum differs from 1 by rounding errors, also of single precision, are rescaled; other rows raise.
SUM_TOLERANCE = 1e-3
BINS = either(whole(least=1, most=10**6))


def log_loss(y_true: UserData, y_proba: UserData, classes: UserData, *, sample_weight: UserData = None) -> float:
    """Return the log-loss: the mean over tokens of minus the logarithm of the probability of the true label.

    y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
    classes : the labels of the columns of `y_proba`.
    sample_weight : one weight per sequence, or None.

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
    """Return the Brier score, between 0 (best) and 2.

    The score of a token is the sum of (p - z)^2 over all labels, where p is the predicted probability of the label, and
    z is 1 for the true label and 0 for the others. The Brier score is the mean over tokens.

    y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
    classes : the labels of the columns of `y_proba`.
    sample_weight : one weight per sequence, or None.

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


def expected_calibration_error(
    y_true: UserData, y_proba: UserData, classes: UserData, *, n_bins: int = 15, sample_weight: UserData = None
) -> float:
    """Return the expected calibration error: the mean of |accuracy - mean confidence| over bins of tokens.

    The confidence of a token is its largest probability. Tokens are divided by confidence into `n_bins` bins of equal
    width. The weight of a bin in the mean is its number of tokens, or the sum of their weights.

    y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
    classes : the labels of the columns of `y_proba`.
    sample_weight : one weight per sequence, or None.

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
    """The points of a reliability diagram, of tokens or of spans.

    Tokens or spans are divided into bins by their confidence. The confidence of a token is its largest probability, and
    the confidence of a span is the probability of this span.

    weight : the sum of the weights of the tokens in each bin, or the number of spans in each bin.
    confidence : the weighted mean of the confidence in each bin; NaN for an empty bin.
    accuracy : the weighted fraction of the tokens in each bin whose most probable label is correct, or the fraction of
        correct spans; NaN for an empty bin.

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
        """Return the expected calibration error: the weighted mean of |accuracy - confidence| over the bins."""
        filled = self.weight > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled]
        return float(self.weight[filled] @ gaps / self.weight.sum())


@validated(n_bins=BINS)
def reliability(
    y_true: UserData, y_proba: UserData, classes: UserData, *, n_bins: int = 15, sample_weight: UserData = None
) -> Reliability:
    """Return the accuracy and the mean confidence of the tokens in each bin, for a reliability diagram.

    The confidence of a token is its largest probability. Tokens are divided by confidence into `n_bins` bins of equal
    width.

    y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
    classes : the labels of the columns of `y_proba`.
    sample_weight : one weight per sequence, or None.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.metrics import reliability
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> reliability([["a", "b", "b"]], proba, ["a", "b"], n_bins=5).weight
    array([0., 0., 1., 1., 1.])
    """
    y, P, weight = _read(y_true, y_proba, classes, sample_weight)
    return _bins(P.max(1), P.argmax(1) == y, np.ones(len(y)) if weight is None else weight, n_bins)


@validated(scheme=SPAN_SCHEME, n_bins=BINS)
def span_reliability(
    y_true: UserData, y_spans: UserData, *, scheme: str | None = None, n_bins: int = 15
) -> Reliability:
    """Return the fraction of correct spans and the mean probability of spans in each bin, for a reliability diagram.

    Spans are divided by their probability into `n_bins` bins of equal width. A span is correct if the true labels have
    a span with the same start, end and label.

    y_spans : the predicted spans, as `ChainDistribution.spans` returns them.
    scheme : the tagging scheme of `y_true`; None means "lenient" if the labels look like tags, and "runs" otherwise.

    Examples
    --------
    >>> from kernelcrf.answers.spans import PredictedSpan
    >>> from kernelcrf.metrics import span_reliability
    >>> predicted = [[PredictedSpan(0, 2, "PER", 0.9), PredictedSpan(3, 4, "LOC", 0.3)]]
    >>> bins = span_reliability([["B-PER", "I-PER", "O", "O"]], predicted, n_bins=2)
    >>> bins.confidence, bins.accuracy, round(bins.error, 1)
    (array([0.3, 0.9]), array([0., 1.]), 0.2)
    """
    p, right = right_spans(y_true, y_spans, scheme)
    return _bins(p, right, np.ones(len(p)), n_bins)


def _bins(c: Floats, right: Flags, w: Floats, n_bins: int) -> Reliability:
    b = confidence_bins(c, n_bins)
    sums = np.stack([np.bincount(b, w * values, minlength=n_bins) for values in (np.ones(len(c)), c, right)])
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0], sums[1] / sums[0], sums[2] / sums[0])


def confidence_bins(c: Floats, n_bins: int) -> Places:
    """Return the bin of each confidence c: bin k, counted from 0, has k / n_bins < c <= (k + 1) / n_bins."""
    return np.searchsorted(np.arange(1, n_bins) / n_bins, c, side="left")


def _read(
    y_true: UserData, y_proba: UserData, classes: UserData, sample_weight: UserData
) -> tuple[Places, Floats, Floats | None]:
    """Check the arguments; return the class index, the row of probabilities and the weight of each labelled token."""
    names = read_labels(classes, "classes", "a list of labels")
    code = {label: column for column, label in enumerate(names)}
    if len(code) != len(names) or len(names) < 2:
        raise ValueError(f"classes={shown(names)}: expected two or more distinct labels, one per column of y_proba")
    proba = [read_rows(P, i, len(names)) for i, P in enumerate(read_list(y_proba, "y_proba"))]
    pairs = pair(y_true, proba, sample_weight, name="y_proba", classes=names)
    for i, labels in enumerate(pairs.true):
        if (unknown := next((label for label in labels if label not in code), None)) is not None:
            raise ValueError(
                f"y_true[{i}] has the label {shown(unknown)}: expected None or one of classes={shown(names)}"
            )
    true, pred, weight = pairs.flat()
    return np.array([code[label] for label in true]), np.array(pred), weight


def read_rows(proba: object, i: int, L: int) -> Floats:
    """Return y_proba[i] as an array with L columns; raise unless each row has probabilities."""
    P: Floats = np.asarray(read_matrix(proba, f"y_proba[{i}]"), np.float64)
    if P.ndim != 2 or P.shape[1] != L:
        raise ValueError(
            f"y_proba[{i}] has shape {P.shape}: expected one row per token and {L} columns, one per label of classes"
        )
    total = P.sum(1, keepdims=True)
    if not ((P >= 0).all() and (np.abs(total - 1) <= SUM_TOLERANCE).all()):
        raise ValueError(f"y_proba[{i}] has rows that are not probabilities: expected numbers >= 0 that sum to 1")
    scaled: Floats = P / total
    return scaled
