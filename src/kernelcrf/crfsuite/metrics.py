"""Score predicted labels by functions that have the same names as in sklearn-crfsuite.

The functions `flat_...` compute scikit-learn's scores for the tokens of all sequences. `kernelcrf.metrics` has more
scores, such as the F1 score of spans.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from sklearn import metrics

from kernelcrf.arrays import UserData
from kernelcrf.metrics import sequence_accuracy


def flat_accuracy_score(y_true: UserData, y_pred: UserData) -> float:
    """Return the fraction of tokens with the correct label."""
    return float(metrics.accuracy_score(*_flatten(y_true, y_pred)))


def flat_precision_score(y_true: UserData, y_pred: UserData, **options: Any) -> Any:
    """Return the precision over tokens; the options are those of sklearn.metrics.precision_score."""
    return metrics.precision_score(*_flatten(y_true, y_pred), **options)


def flat_recall_score(y_true: UserData, y_pred: UserData, **options: Any) -> Any:
    """Return the recall over tokens; the options are those of sklearn.metrics.recall_score."""
    return metrics.recall_score(*_flatten(y_true, y_pred), **options)


def flat_f1_score(y_true: UserData, y_pred: UserData, **options: Any) -> Any:
    """Return the F1 score over tokens; the options are those of sklearn.metrics.f1_score."""
    return metrics.f1_score(*_flatten(y_true, y_pred), **options)


def flat_fbeta_score(y_true: UserData, y_pred: UserData, beta: float, **options: Any) -> Any:
    """Return the F-beta score over tokens; the options are those of sklearn.metrics.fbeta_score."""
    return metrics.fbeta_score(*_flatten(y_true, y_pred), beta=beta, **options)


def flat_classification_report(
    y_true: UserData, y_pred: UserData, labels: UserData = None, target_names: UserData = None, **options: Any
) -> Any:
    """Return the scores of each label; the options are those of sklearn.metrics.classification_report."""
    return metrics.classification_report(*_flatten(y_true, y_pred), labels=labels, target_names=target_names, **options)


def sequence_accuracy_score(y_true: UserData, y_pred: UserData) -> float:
    """Return the fraction of sequences in which all labels are correct."""
    return float(sequence_accuracy(y_true, y_pred))


def _flatten(y_true: UserData, y_pred: UserData) -> tuple[list[Any], list[Any]]:
    return list(chain.from_iterable(y_true)), list(chain.from_iterable(y_pred))
