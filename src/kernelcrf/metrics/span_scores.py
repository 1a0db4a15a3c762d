"""Metrics of spans, which count as found if their type, start and end are right.

    precision  |S & S'| / |S'|      recall  |S & S'| / |S|      F1  2 |S & S'| / (|S| + |S'|)

S and S' are the spans of the true and of the predicted tags, and |.| is the sum of the weights of their sequences.
Tokens without a known label are dropped from both before the spans are read by one of the `schemes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import metrics

from kernelcrf.arrays import UserData
from kernelcrf.metrics.labels import AVERAGE, OF_REPORTS, ZERO_DIVISION, ScoreValue, ZeroDivision
from kernelcrf.metrics.pairs import Codes, encode, pair
from kernelcrf.metrics.schemes import SCHEME, spans
from kernelcrf.validation import validated

OF_SCORES = {"scheme": SCHEME, "average": AVERAGE, "zero_division": ZERO_DIVISION}


def _encode_spans(y_true: UserData, y_pred: UserData, scheme: str, sample_weight: UserData) -> Codes:
    """Return the two types of each (start, end) of a true or predicted span; 0 stands for no span.

    A score of spans is scikit-learn's score of these types. The first entry is 0 in both, which changes no count and
    keeps the lists from being empty.
    """
    pairs = pair(y_true, y_pred, sample_weight)
    # "" is the type of no span, and sorts first: types of spans are not empty.
    true, pred, counts = [""], [""], []
    for i, both in enumerate(zip(pairs.true, pairs.pred, strict=True)):
        named = zip(both, (f"y_true[{i}]", f"y_pred[{i}]"), strict=True)
        was, said = ({(s.start, s.end): s.type for s in spans(tags, scheme, name=name)} for tags, name in named)
        extents = sorted(was.keys() | said.keys())
        true += [was.get(extent, "") for extent in extents]
        pred += [said.get(extent, "") for extent in extents]
        counts.append(len(extents))
    weight = pairs.repeat_weight(counts)
    return encode(true, pred, None if weight is None else np.concatenate([[1.0], weight]))


def _score(metric: Callable[..., Any], codes: Codes, average: str | None, zero_division: ZeroDivision) -> ScoreValue:
    n = len(codes.code) - 1
    # Without any span a type that never occurs leaves 0 / 0 to zero_division.
    value = codes.apply(metric, labels=range(1, 1 + max(n, 1)), average=average, zero_division=zero_division)
    return np.asarray(value[:n]) if average is None else float(value)


@validated(**OF_SCORES)
def span_precision(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the precision of spans, |S & S'| / |S'|; `average` over the sorted types is as in `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_precision
    >>> span_precision([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    1.0
    """
    return _score(metrics.precision_score, _encode_spans(y_true, y_pred, scheme, sample_weight), average, zero_division)


@validated(**OF_SCORES)
def span_recall(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the recall of spans, |S & S'| / |S|; `average` over the sorted types is as in `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_recall
    >>> span_recall([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    0.5
    """
    return _score(metrics.recall_score, _encode_spans(y_true, y_pred, scheme, sample_weight), average, zero_division)


@validated(**OF_SCORES)
def span_f1(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the F1 of spans, 2 |S & S'| / (|S| + |S'|); `average` over the sorted types is as in `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_f1
    >>> round(span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]]), 2)
    0.67
    """
    return _score(metrics.f1_score, _encode_spans(y_true, y_pred, scheme, sample_weight), average, zero_division)


@validated(scheme=SCHEME, **OF_REPORTS)
def span_classification_report(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    sample_weight: UserData = None,
    digits: int = 2,
    output_dict: bool = False,
    zero_division: ZeroDivision = "warn",
) -> Any:
    """Return scikit-learn's classification_report of spans: precision, recall, F1 and support of each type.

    Examples
    --------
    >>> from kernelcrf.metrics import span_classification_report
    >>> report = span_classification_report([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-LOC"]], output_dict=True)
    >>> report["PER"]["f1-score"]
    1.0
    """
    codes = _encode_spans(y_true, y_pred, scheme, sample_weight)
    types = list(codes.code)[1:]
    if not types:
        raise ValueError("neither y_true nor y_pred has a span: expected at least one tag other than O")
    return codes.apply(
        metrics.classification_report,
        labels=range(1, 1 + len(types)),
        target_names=types,
        digits=digits,
        output_dict=output_dict,
        zero_division=zero_division,
    )
