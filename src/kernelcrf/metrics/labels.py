"""Metrics of predicted labels: tokens of all sequences end to end, and whole sequences.

    flat accuracy      sum_t w_t [z_t = y_t] / sum_t w_t
    F1 of label l      2 tp_l / (2 tp_l + fp_l + fn_l), tp_l = sum_t w_t [z_t = y_t = l], and so on
    sequence accuracy  sum_i w_i [z_t = y_t for all t of i] / sum_i w_i

Sums run over tokens t with a known label (w_t is the weight of their sequence), and over sequences i with one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics

from kernelcrf.metrics.pairs import codes, pair
from kernelcrf.validation import FLAG, Constraint, either, is_real, nothing, one_of, validated, whole


def _is_limit(value: Any) -> bool:
    return (isinstance(value, float) and value != value) or (is_real(value) and value in (0, 1))


AVERAGE = either(
    one_of("micro", "macro", "weighted"), nothing, advice="labels=[l] gives the score of the label l alone"
)
ZERO_DIVISION = either(one_of("warn"), Constraint(("0", "1", "NaN"), _is_limit))
OF_REPORTS = {"digits": either(whole(least=0, most=50)), "output_dict": FLAG, "zero_division": ZERO_DIVISION}


def flat_accuracy(y_true: Iterable[Any], y_pred: Iterable[Any], *, sample_weight: ArrayLike | None = None) -> float:
    """sum_t w_t [z_t = y_t] / sum_t w_t over tokens.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_accuracy
    >>> flat_accuracy([["a", "b"], ["a", None]], [["a", "a"], ["b", "b"]])  # None is a label that is not known
    0.3333333333333333
    """
    pairs = pair(y_true, y_pred, sample_weight)
    code = codes(pairs.flat_true, pairs.flat_pred)
    true, pred = [code[y] for y in pairs.flat_true], [code[z] for z in pairs.flat_pred]
    return float(metrics.accuracy_score(true, pred, sample_weight=pairs.token_weight))


@validated(average=AVERAGE, zero_division=ZERO_DIVISION)
def flat_f1(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    average: str | None = "macro",
    labels: Sequence[Hashable] | None = None,
    sample_weight: ArrayLike | None = None,
    zero_division: Any = "warn",
) -> Any:
    """F1 of tokens, 2 tp / (2 tp + fp + fn), averaged over `labels` as by sklearn.metrics.f1_score.

    labels: those that count, in this order (all in sorted order where None); `[l]` gives the F1 of l alone.
    average: "micro" (of the summed counts), "macro" (plain mean), "weighted" (by support) or None (one each).

    Examples
    --------
    >>> from kernelcrf.metrics import flat_f1
    >>> flat_f1([["a", "b"], ["a"]], [["a", "a"], ["a"]], average=None)
    array([0.8, 0. ])
    """
    pairs = pair(y_true, y_pred, sample_weight)
    code = codes(pairs.flat_true, pairs.flat_pred, () if labels is None else labels)
    return metrics.f1_score(
        [code[y] for y in pairs.flat_true],
        [code[z] for z in pairs.flat_pred],
        labels=[code[label] for label in (code if labels is None else labels)],
        average=average,
        sample_weight=pairs.token_weight,
        zero_division=zero_division,
    )


@validated(**OF_REPORTS)
def flat_classification_report(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    labels: Sequence[Hashable] | None = None,
    sample_weight: ArrayLike | None = None,
    digits: int = 2,
    output_dict: bool = False,
    zero_division: Any = "warn",
) -> Any:
    """Precision, recall, F1 and support of each label over tokens: scikit-learn's classification_report.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_classification_report
    >>> y_true, y_pred = [["a", "b"], ["a"]], [["a", "a"], ["a"]]
    >>> report = flat_classification_report(y_true, y_pred, output_dict=True, zero_division=0)
    >>> report["a"]["recall"], report["b"]["recall"]
    (1.0, 0.0)
    """
    pairs = pair(y_true, y_pred, sample_weight)
    code = codes(pairs.flat_true, pairs.flat_pred, () if labels is None else labels)
    shown = list(code if labels is None else labels)
    return metrics.classification_report(
        [code[y] for y in pairs.flat_true],
        [code[z] for z in pairs.flat_pred],
        labels=[code[label] for label in shown],
        target_names=[str(label) for label in shown],
        sample_weight=pairs.token_weight,
        digits=digits,
        output_dict=output_dict,
        zero_division=zero_division,
    )


def sequence_accuracy(y_true: Iterable[Any], y_pred: Iterable[Any], *, sample_weight: ArrayLike | None = None) -> float:
    """sum_i w_i [z_t = y_t for all t of i] / sum_i w_i over sequences with a known label.

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


def flat_confusion(y_true: Iterable[Any], y_pred: Iterable[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The labels in their order, and how many tokens of each (rows) were given each (columns).

    Examples
    --------
    >>> from kernelcrf.metrics import flat_confusion
    >>> flat_confusion([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    (['a', 'b'], array([[2, 0],
           [1, 0]]))
    """
    pairs = pair(y_true, y_pred, None)
    code = codes(pairs.flat_true, pairs.flat_pred)
    true, pred = ([code[label] for label in labels] for labels in (pairs.flat_true, pairs.flat_pred))
    return list(code), metrics.confusion_matrix(true, pred, labels=range(len(code)))
