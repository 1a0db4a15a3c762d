"""Compute metrics of predicted labels: of tokens, of whole sequences, and of spans.

Token t has the true label y_t, the predicted label z_t, and the weight w_t of its sequence; tokens without a true label
are dropped first. Label l has true positives tp_l, false positives fp_l and false negatives fn_l, which are weighted
sums over tokens. Sequence i has the weight w_i. S is the set of true spans and S' the set of predicted spans; |S| is
the sum of the weights of the spans, and spans are equal if they have the same type, start and end.

    flat accuracy      sum_t w_t [z_t = y_t] / sum_t w_t
    F1 of label l      2 tp_l / (2 tp_l + fp_l + fn_l)
    sequence accuracy  sum_i w_i [z_t = y_t for all t of i] / sum_i w_i
    spans              precision |S & S'| / |S'|, recall |S & S'| / |S|, F1 2 |S & S'| / (|S| + |S'|)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from kernelcrf.arrays import Floats, UserData
from kernelcrf.metrics.pairs import Codes, encode, pair
from kernelcrf.readers.spans import SCHEME, spans
from kernelcrf.validation import FLAG, Constraint, either, is_real, nothing, one_of, validated, whole

ZeroDivision: TypeAlias = float | str
ScoreValue: TypeAlias = float | Floats


def _is_limit(value: object) -> bool:
    return (isinstance(value, float) and value != value) or (is_real(value) and value in (0, 1))


AVERAGE = either(one_of("micro", "macro", "weighted"), nothing, advice="for the score of one label l, pass labels=[l]")
ZERO_DIVISION = either(one_of("warn"), Constraint(("0", "1", "NaN"), _is_limit))
OF_SPANS = {"scheme": SCHEME, "average": AVERAGE, "zero_division": ZERO_DIVISION}
OF_REPORTS = {"digits": either(whole(least=0, most=50)), "output_dict": FLAG, "zero_division": ZERO_DIVISION}


def flat_accuracy(y_true: UserData, y_pred: UserData, *, sample_weight: UserData = None) -> float:
    """Return the fraction of tokens with a correct label; `sample_weight` has one weight per sequence.

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
    """Return the F1 score of the tokens of all sequences, averaged over labels as in sklearn.metrics.f1_score.

    labels : the labels to average over, such as ["a"] for the F1 score of one label; None means all labels, sorted.
    average : "macro" is the mean over labels, "weighted" the mean weighted by the number of true tokens of each label,
        and "micro" one score for the counts of all labels together. None returns one score per label.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_f1
    >>> flat_f1([["a", "b"], ["a"]], [["a", "a"], ["a"]], average=None)
    array([0.8, 0. ])
    """
    codes = encode(*pair(y_true, y_pred, sample_weight, classes=labels).flat(), () if labels is None else labels)
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
    """Return scikit-learn's classification_report of all tokens, with precision, recall and F1 score of each label.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_classification_report
    >>> y_true, y_pred = [["a", "b"], ["a"]], [["a", "a"], ["a"]]
    >>> report = flat_classification_report(y_true, y_pred, output_dict=True, zero_division=0)
    >>> report["a"]["recall"], report["b"]["recall"]
    (1.0, 0.0)
    """
    codes = encode(*pair(y_true, y_pred, sample_weight, classes=labels).flat(), () if labels is None else labels)
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
    """Return the fraction of sequences in which all labels are correct, apart from tokens without a true label.

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
    """Return the sorted labels, and the confusion matrix with true labels as rows and predicted labels as columns.

    Examples
    --------
    >>> from kernelcrf.metrics import flat_confusion
    >>> flat_confusion([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    (['a', 'b'], array([[2, 0],
           [1, 0]]))
    """
    codes = encode(*pair(y_true, y_pred, None).flat())
    # scikit-learn's confusion_matrix warns if there is a single label.
    counts = np.zeros((len(codes.code),) * 2, np.int64)
    np.add.at(counts, (codes.true, codes.pred), 1)
    return list(codes.code), counts


def _encode_spans(y_true: UserData, y_pred: UserData, scheme: str, sample_weight: UserData) -> Codes:
    """Encode spans as integers, such that scikit-learn's scores of these integers are the scores of spans.

    The result has a list of true types and a list of predicted types. Both lists have one entry for each (start, end)
    of a true or predicted span. The integer 0 means that there is no span. Both lists begin with an additional 0, which
    does not change the scores, so that they are never empty.
    """
    pairs = pair(y_true, y_pred, sample_weight)
    true, pred, counts = list[Hashable]([None]), list[Hashable]([None]), []
    for i, both in enumerate(zip(pairs.true, pairs.pred, strict=True)):
        named = zip(both, (f"y_true[{i}]", f"y_pred[{i}]"), strict=True)
        was, said = ({(s.start, s.end): s.label for s in spans(tags, scheme, name=name)} for tags, name in named)
        extents = sorted(was.keys() | said.keys())
        true += [was.get(extent) for extent in extents]
        pred += [said.get(extent) for extent in extents]
        counts.append(len(extents))
    weight = pairs.repeat_weight(counts)
    types = encode({*true, *pred} - {None}, (), None).code
    code = {None: 0} | {label: 1 + number for label, number in types.items()}
    weight = None if weight is None else np.concatenate([[1.0], weight])
    return Codes(code, [code[label] for label in true], [code[label] for label in pred], weight)


def _score(metric: Callable[..., Any], codes: Codes, average: str | None, zero_division: ZeroDivision) -> ScoreValue:
    n = len(codes.code) - 1
    # If there are no spans, scoring a type that never occurs gives 0 / 0, which zero_division decides.
    value = codes.apply(metric, labels=range(1, 1 + max(n, 1)), average=average, zero_division=zero_division)
    return np.asarray(value[:n]) if average is None else float(value)


@validated(**OF_SPANS)
def span_precision(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the precision of spans: the fraction of predicted spans that are also true spans.

    scheme : the tagging scheme, as in `spans`, such as "IOB2".
    average : as in `flat_f1`, but the average is over the types of spans.

    Examples
    --------
    >>> from kernelcrf.metrics import span_precision
    >>> span_precision([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    1.0
    """
    return _score(metrics.precision_score, _encode_spans(y_true, y_pred, scheme, sample_weight), average, zero_division)


@validated(**OF_SPANS)
def span_recall(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the recall of spans: the fraction of true spans that were also predicted.

    scheme : the tagging scheme, as in `spans`, such as "IOB2".
    average : as in `flat_f1`, but the average is over the types of spans.

    Examples
    --------
    >>> from kernelcrf.metrics import span_recall
    >>> span_recall([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    0.5
    """
    return _score(metrics.recall_score, _encode_spans(y_true, y_pred, scheme, sample_weight), average, zero_division)


@validated(**OF_SPANS)
def span_f1(
    y_true: UserData,
    y_pred: UserData,
    *,
    scheme: str = "lenient",
    average: str | None = "micro",
    sample_weight: UserData = None,
    zero_division: ZeroDivision = "warn",
) -> ScoreValue:
    """Return the F1 score of spans, the harmonic mean of precision and recall.

    scheme : the tagging scheme, as in `spans`, such as "IOB2".
    average : as in `flat_f1`, but the average is over the types of spans.

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
    """Return scikit-learn's classification_report of spans, with precision, recall and F1 score of each type.

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
        raise ValueError("neither y_true nor y_pred has a span: expected tags other than O, such as B-PER")
    return codes.apply(
        metrics.classification_report,
        labels=range(1, 1 + len(types)),
        target_names=[str(label) for label in types],
        digits=digits,
        output_dict=output_dict,
        zero_division=zero_division,
    )
