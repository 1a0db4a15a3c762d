"""Metrics of spans, exact matches of type, start and end.

    precision  |S & S'| / |S'|      recall  |S & S'| / |S|      F1  2 |S & S'| / (|S| + |S'|)

with S and S' the spans of the true and of the predicted tags, |.| the sum of their sequences' weights.
Tokens without a known label are left out of both before spans are read off by one of the `schemes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics

from kernelcrf.metrics.labels import AVERAGE, OF_REPORTS, ZERO_DIVISION
from kernelcrf.metrics.pairs import codes, pair
from kernelcrf.metrics.schemes import SCHEME, spans
from kernelcrf.validation import validated

OUTSIDE = 0
OF_SCORES = {"scheme": SCHEME, "average": AVERAGE, "zero_division": ZERO_DIVISION}


@dataclass(frozen=True, eq=False)
class _Extents:
    """For each (start, end) that is a true or a predicted span: its two types' codes, `OUTSIDE` for no span.

    A score of spans is then scikit-learn's score of these types. The first entry is outside in both, which
    changes no count and keeps the arrays from being empty.
    """

    true: NDArray[np.intp]
    pred: NDArray[np.intp]
    types: list[str]
    weight: NDArray[np.float64] | None


def _extents(y_true: Iterable[Any], y_pred: Iterable[Any], scheme: str, sample_weight: ArrayLike | None) -> _Extents:
    pairs = pair(y_true, y_pred, sample_weight)
    true: list[str | None] = [None]
    pred: list[str | None] = [None]
    counts = []
    for i, both in enumerate(zip(pairs.true, pairs.pred, strict=True)):
        named = zip(both, (f"y_true[{i}]", f"y_pred[{i}]"), strict=True)
        was, said = ({(s.start, s.end): s.type for s in spans(tags, scheme, name=name)} for tags, name in named)
        extents = sorted(was.keys() | said.keys())
        true += [was.get(extent) for extent in extents]
        pred += [said.get(extent) for extent in extents]
        counts.append(len(extents))
    types = codes(filter(None, true), filter(None, pred))
    code = {None: OUTSIDE} | {type_: 1 + c for type_, c in types.items()}
    weight = pairs.repeat_weight(counts)
    return _Extents(
        np.array([code[type_] for type_ in true]),
        np.array([code[type_] for type_ in pred]),
        [str(type_) for type_ in types],
        None if weight is None else np.concatenate([[1.0], weight]),
    )


def _score(
    score: Callable[..., Any],
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    scheme: str,
    average: str | None,
    sample_weight: ArrayLike | None,
    zero_division: Any,
) -> Any:
    extents = _extents(y_true, y_pred, scheme, sample_weight)
    n = len(extents.types)
    # Without any span a type that never occurs leaves 0 / 0 to zero_division.
    labels = np.arange(1, 1 + max(n, 1))
    value = score(
        extents.true,
        extents.pred,
        labels=labels,
        average=average,
        sample_weight=extents.weight,
        zero_division=zero_division,
    )
    return value[:n] if average is None else float(value)


@validated(**OF_SCORES)
def span_precision(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: ArrayLike | None = None,
    zero_division: Any = "warn",
) -> Any:
    """|S & S'| / |S'|, S true and S' predicted spans; `average` over their sorted types as in `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_precision
    >>> span_precision([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    1.0
    """
    return _score(metrics.precision_score, y_true, y_pred, scheme, average, sample_weight, zero_division)


@validated(**OF_SCORES)
def span_recall(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: ArrayLike | None = None,
    zero_division: Any = "warn",
) -> Any:
    """|S & S'| / |S|, S true and S' predicted spans; `average` over their sorted types as in `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_recall
    >>> span_recall([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    0.5
    """
    return _score(metrics.recall_score, y_true, y_pred, scheme, average, sample_weight, zero_division)


@validated(**OF_SCORES)
def span_f1(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: ArrayLike | None = None,
    zero_division: Any = "warn",
) -> Any:
    """2 |S & S'| / (|S| + |S'|), S true and S' predicted spans; `average` over their sorted types as in
    `flat_f1`.

    Examples
    --------
    >>> from kernelcrf.metrics import span_f1
    >>> round(span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]]), 2)
    0.67
    """
    return _score(metrics.f1_score, y_true, y_pred, scheme, average, sample_weight, zero_division)


@validated(scheme=SCHEME, **OF_REPORTS)
def span_classification_report(
    y_true: Iterable[Any],
    y_pred: Iterable[Any],
    *,
    scheme: str = "lenient",
    sample_weight: ArrayLike | None = None,
    digits: int = 2,
    output_dict: bool = False,
    zero_division: Any = "warn",
) -> Any:
    """Precision, recall, F1 and support of each type of span: scikit-learn's classification_report.

    Examples
    --------
    >>> from kernelcrf.metrics import span_classification_report
    >>> report = span_classification_report([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-LOC"]], output_dict=True)
    >>> report["PER"]["f1-score"]
    1.0
    """
    extents = _extents(y_true, y_pred, scheme, sample_weight)
    if not extents.types:
        raise ValueError("neither y_true nor y_pred has a span: expected at least one tag other than O")
    return metrics.classification_report(
        extents.true,
        extents.pred,
        labels=np.arange(1, 1 + len(extents.types)),
        target_names=extents.types,
        sample_weight=extents.weight,
        digits=digits,
        output_dict=output_dict,
        zero_division=zero_division,
    )
