"""Metrics of predicted labels: over the tokens of all sequences, and over whole sequences.

    flat accuracy      sum_t w_t [z_t = y_t] / sum_t w_t
    F1 of label l      2 tp_l / (2 tp_l + fp_l + fn_l), tp_l = sum_t w_t [z_t = y_t = l], and so on
    sequence accuracy  sum_i w_i [z_t = y_t for all t of i] / sum_i w_i

Sums run over the tokens t with a known label, whose w_t is the weight of their sequence, and over the sequences i with
such a token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from kernelcrf.arrays import Floats, UserData
from kernelcrf.metrics.pairs import encode, pair
from kernelcrf.validation import FLAG, Constraint, either, is_real, nothing, one_of, validated, whole

ZeroDivision: TypeAlias = float | str
ScoreValue: TypeAlias = float | Floats


def _is_limit(value: object) -> bool:
    return (isinstance(value, float) and value != value) or (is_real(value) and value in (0, 1))


AVERAGE = either(one_of("micro", "macro", "weighted"), nothing, advice="labels=[l] gives the score of the label l")
ZERO_DIVISION = either(one_of("warn"), Constraint(("0", "1", "NaN"), _is_limit))
OF_REPORTS = {"digits": either(whole(least=0, most=50)), "output_dict": FLAG, "zero_division": ZERO_DIVISION}


def flat_accuracy(y_true: UserData, y_pred: UserData, *, sample_weight: UserData = None) -> float:
    """Return the share of tokens whose label is right, sum_t w_t [z_t = y_t] / sum_t w_t.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_accuracy
    >>> flat_accuracy([["a", "b"], ["a", None]], [["a", "a"], ["b", "b"]])  # None is a missing label
    0.3333333333333333
    """
    return float(encode(*pair(y_true, y_pred, sample_weight).flat()).apply(metrics.accuracy_score))


@validated(average=AVERAGE, zero_division=ZERO_DIVISION)
def flat_f1(
    y_true: UserData,
    y_pred: UserData,
    *,
    average: str | None = "macro",
    labels: Sequence[Hashable] | None = None,
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the F1 of tokens, 2 tp / (2 tp + fp + fn), averaged over `labels` as in sklearn.metrics.f1_score.

    labels : the labels that count, in this order; None takes all in sorted order, `[l]` gives the F1 of l alone.
    average : "micro" (of the summed counts), "macro" (plain mean), "weighted" (by support) or None (one per label).

    Examples
    --------
    >>> from kernelcrf.metrics import flat_f1
    >>> flat_f1([["a", "b"], ["a"]], [["a", "a"], ["a"]], average=None)
    array([0.8, 0. ])
    """
    codes = encode(*pair(y_true, y_pred, sample_weight).flat(), () if labels is None else labels)
    numbers = [codes.code[label] for label in (codes.code if labels is None else labels)]
    f1: ScoreValue = codes.apply(metrics.f1_score, labels=numbers, average=average, zero_division=zero_division)
    return f1


@validated(**OF_REPORTS)
def flat_classification_report(
    y_true: UserData,
    y_pred: UserData,
    *,
    labels: Sequence[Hashable] | None = None,
    sample_weight: UserData = None,
    digits: int = 2,
    output_dict: bool = False,
    zero_division: ZeroDivision = "warn",
) -> Any:
    """Return scikit-learn's classification_report of tokens: precision, recall, F1 and support of each label.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_classification_report
    >>> y_true, y_pred = [["a", "b"], ["a"]], [["a", "a"], ["a"]]
    >>> report = flat_classification_report(y_true, y_pred, output_dict=True, zero_division=0)
    >>> report["a"]["recall"], report["b"]["recall"]
    (1.0, 0.0)
    """
    codes = encode(*pair(y_true, y_pred, sample_weight).flat(), () if labels is None else labels)
    shown = list(codes.code if labels is None else labels)
    return codes.apply(
        metrics.classification_report,
        labels=[codes.code[label] for label in shown],
        target_names=[str(label) for label in shown],
        digits=digits,
        output_dict=output_dict,
        zero_division=zero_division,
    )


def sequence_accuracy(y_true: UserData, y_pred: UserData, *, sample_weight: UserData = None) -> float:
    """Return the share of sequences whose known labels are all right, sum_i w_i [z_t = y_t for all t] / sum_i w_i.

    Examples
    --------
    >>> from kernelcrf.metrics import sequence_accuracy
    >>> sequence_accuracy([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    0.5
    """
    pairs = pair(y_true, y_pred, sample_weight)
    right = [true == pred for true, pred in zip(pairs.true, pairs.pred, strict=True) if true]
    weight = pairs.repeat_weight([min(len(true), 1) for true in pairs.true])
    return float(metrics.accuracy_score([True] * len(right), right, sample_weight=weight))


def flat_confusion(y_true: UserData, y_pred: UserData) -> tuple[list[Hashable], NDArray[np.int64]]:
    """Return the labels in order, and the number of tokens by true label (rows) and predicted label (columns).

    Examples
    --------
    >>> from kernelcrf.metrics import flat_confusion
    >>> flat_confusion([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    (['a', 'b'], array([[2, 0],
           [1, 0]]))
    """
    codes = encode(*pair(y_true, y_pred, None).flat())
    return list(codes.code), codes.apply(metrics.confusion_matrix, labels=range(len(codes.code)))
