"""Compute scores with confidence intervals by the bootstrap.

A resample draws as many sequences as the data have, with replacement. Whole sequences are drawn, since the tokens of a
sequence depend on each other. The interval is between the (1 - level) / 2 and the (1 + level) / 2 quantile of the
scores of all resamples.

Each score is the ratio of two sums over sequences, such as the number of correct tokens and the number of tokens. These
numbers are computed once per sequence; a resample only adds them up, as often as each sequence was drawn.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernelcrf.arrays import Floats, UserData
from kernelcrf.metrics.pairs import pair
from kernelcrf.metrics.probabilities import BINS, confidence_bins, read_rows
from kernelcrf.readers.containers import is_missing_value, read_labels, read_list
from kernelcrf.readers.spans import SCHEME, spans
from kernelcrf.validation import LARGEST_SEED, SHARE, SIZE, Parameter, either, nothing, validated, whole

EPS = np.finfo(np.float64).eps
BLOCK = 100
# Each score is the ratio of two sums.
RATIOS = {
    "flat_accuracy": ("right", "tokens"),
    "sequence_accuracy": ("whole", "sequences"),
    "span_f1": ("spans_both", "spans_mean"),
    "span_precision": ("spans_both", "spans_pred"),
    "span_recall": ("spans_both", "spans_true"),
    "log_loss": ("loss", "said"),
    "brier": ("squares", "said"),
    "expected_calibration_error": ("gaps", "said"),
}


@dataclass(frozen=True)
class Score:
    """The value of a score on all sequences, and its confidence interval from `low` to `high`.

    Examples
    --------
    >>> from kernelcrf.metrics import Score
    >>> Score(value=0.93, low=0.91, high=0.95).low
    0.91
    """

    value: float
    low: float
    high: float


@validated(
    scheme=Parameter((*SCHEME.constraints, nothing)),
    n_bins=BINS,
    n_resamples=either(SIZE),
    level=SHARE,
    random_state=either(whole(least=0, most=LARGEST_SEED), nothing),
)
def bootstrap(
    y_true: UserData,
    y_pred: UserData,
    y_proba: UserData = None,
    classes: UserData = None,
    *,
    scheme: str | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
) -> dict[str, Score]:
    """Return a dict from the names of metrics, such as "flat_accuracy", to scores with confidence intervals.

    y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
        Log-loss, Brier score and calibration error are computed from the tokens whose true label is in `classes`. The
        dict has these scores only if there are such tokens.
    classes : the labels of the columns of `y_proba`.
    scheme : the tagging scheme of spans, such as "IOB2"; if None, the scores of spans are not computed.
    n_bins : the number of bins of the calibration error.
    n_resamples : the number of resamples, from which the intervals are computed.
    level : the confidence level of the intervals.

    Examples
    --------
    >>> from kernelcrf.metrics import bootstrap
    >>> y_true, y_pred = [["a", "b"], ["a", "a"], ["b", "b"]], [["a", "b"], ["a", "b"], ["b", "b"]]
    >>> scores = bootstrap(y_true, y_pred)
    >>> sorted(scores), round(scores["flat_accuracy"].value, 2), round(scores["flat_accuracy"].low, 2)
    (['flat_accuracy', 'sequence_accuracy'], 0.83, 0.5)
    """
    if (y_proba is None) != (classes is None):
        given, missing = ("classes", "y_proba") if y_proba is None else ("y_proba", "classes")
        raise ValueError(
            f"{given} was passed and {missing} is None: expected both or neither, because probabilities need "
            "the labels of their columns. Pass classes=model.classes_ with the probabilities"
        )
    y_true = [read_labels(labels, f"y_true[{i}]") for i, labels in enumerate(read_list(y_true, "y_true"))]
    sums = _label_sums(y_true, y_pred, scheme)
    if y_proba is not None:
        P, names = read_list(y_proba, "y_proba"), read_labels(classes, "classes")
        of_probabilities = _probability_sums(y_true, P, names, n_bins)
        # Without any such token these scores are 0 / 0; reporting 0, the best score, would be wrong.
        sums |= of_probabilities if of_probabilities["said"].any() else {}
    m, rng = len(y_true), np.random.default_rng(random_state)
    drawn: list[dict[str, Floats]] = []
    for size in (min(BLOCK, n_resamples - start) for start in range(0, n_resamples, BLOCK)):
        counts = np.stack([np.bincount(rng.integers(m, size=m), minlength=m) for _ in range(size)])
        drawn.append(_scores({name: counts @ per_sequence for name, per_sequence in sums.items()}))
    result, totals = {}, {name: per_sequence.sum(axis=0, keepdims=True) for name, per_sequence in sums.items()}
    for name, score in _scores(totals).items():
        # Recall is not defined for a resample without spans, so that resample is left out of the interval.
        values, value = np.concatenate([block[name] for block in drawn]), float(np.nan_to_num(score[0]))
        values = values[np.isfinite(values)]
        tails = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist() if len(values) else (value, value)
        result[name] = Score(value, *tails)
    return result


def _scores(totals: dict[str, Floats]) -> dict[str, Floats]:
    """Return the scores, each the ratio of two sums in `totals`; all arrays have one row per resample."""
    if "bins" in totals:
        totals["gaps"] = np.abs(totals["bins"]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {name: totals[over] / totals[under] for name, (over, under) in RATIOS.items() if over in totals}


def _label_sums(y_true: list[list[Hashable]], y_pred: UserData, scheme: str | None) -> dict[str, Floats]:
    pairs = pair(y_true, y_pred, None)
    both = list(zip(pairs.true, pairs.pred, strict=True))
    sums: dict[str, list[float]] = {
        "tokens": [len(true) for true, _ in both],
        "right": [sum(bool(a == b) for a, b in zip(true, pred, strict=True)) for true, pred in both],
        "sequences": [bool(true) for true, _ in both],
        "whole": [bool(true) and true == pred for true, pred in both],
    }
    if scheme is not None:
        named = [
            (set(spans(true, scheme, name=f"y_true[{i}]")), set(spans(pred, scheme, name=f"y_pred[{i}]")))
            for i, (true, pred) in enumerate(both)
        ]
        sums["spans_true"] = [len(true) for true, _ in named]
        sums["spans_pred"] = [len(pred) for _, pred in named]
        sums["spans_mean"] = [(len(true) + len(pred)) / 2 for true, pred in named]
        sums["spans_both"] = [len(true & pred) for true, pred in named]
    return {name: np.array(values, np.float64) for name, values in sums.items()}


def _probability_sums(
    y_true: list[list[Hashable]], y_proba: list[ArrayLike], classes: list[Hashable], n_bins: int
) -> dict[str, Floats]:
    code = {label: j for j, label in enumerate(classes)}
    m = len(y_true)
    sums = {name: np.zeros(m) for name in ("said", "loss", "squares")} | {"bins": np.zeros((m, n_bins))}
    for i, (labels, proba) in enumerate(zip(y_true, y_proba, strict=True)):
        known = [t for t, label in enumerate(labels) if not is_missing_value(label) and label in code]
        P = read_rows(proba, i, len(classes))
        if len(P) != len(labels):
            raise ValueError(
                f"y_proba[{i}] has {len(P)} rows and y_true[{i}] has {len(labels)} labels: expected the same number"
            )
        P = P[known]
        y, rows = np.array([code[labels[t]] for t in known], np.intp), np.arange(len(known))
        sums["said"][i] = len(known)
        sums["loss"][i] = -np.log(np.clip(P[rows, y], EPS, 1 - EPS)).sum()
        sums["squares"][i] = (P**2).sum() - 2 * P[rows, y].sum() + len(known)
        c, right = P.max(axis=1, initial=0.0), P.argmax(axis=1) == y if len(known) else np.zeros(0)
        sums["bins"][i] = np.bincount(confidence_bins(c, n_bins), right - c, minlength=n_bins)
    return sums
