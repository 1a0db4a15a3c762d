"""Create a report on a model and its predictions, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import chain
from typing import Any

import numpy as np

from kernelcrf.arrays import Floats, UserData
from kernelcrf.distributions.sequences import SequenceDistribution
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.metrics import are_spans, bootstrap, reliability
from kernelcrf.persistence import PathLike, whole_file
from kernelcrf.preprocessing.files import split_pipeline, transform_inputs
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.readers.missing_labels import missing_among
from kernelcrf.report import sections
from kernelcrf.report.page import page, section
from kernelcrf.validation import shown

EXPLAINED = 3


def make_report(
    model: UserData,
    X: UserData,
    y: UserData,
    *,
    tokens: UserData = None,
    train_tokens: UserData = None,
    title: str = "A model and its predictions",
    decisions: Sequence[tuple[int, int]] | None = None,
    n_hardest: int = 10,
    scheme: str | None = None,
) -> str:
    """Return a report, as HTML, on a fitted model and its predictions for the sequences X with true labels y.

    model : a ChainCRF or SegmentCRF, or a Pipeline that ends with one. With a Pipeline, explanations are about the
        transformed sequences.
    tokens : the words to show, one list per sequence of X. If None, the hardest sequences are shown without words, as
        the positions of wrong labels.
    train_tokens : the words of the training data, one list per sequence. The report shows the words of the landmarks
        that explain a decision. If None, the report shows only the positions of these landmarks.
    decisions : the predictions to explain, as pairs (index of the sequence, index of the token). None explains the
        token with the least probable true label in each of the three hardest sequences.
    n_hardest : the number of hardest sequences to show. The hardest sequences have the least probable true labels.
    scheme : the tagging scheme of spans. None means "lenient" if the labels look like tags of spans, such as B-PER;
        for other labels, spans are not scored.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, make_report
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF(n_components=50, random_state=0).fit(data.X, data.y)
    >>> html = make_report(crf, data.X, data.y, title="A first model")
    >>> html[:15], "A first model" in html
    ('<!DOCTYPE html>', True)
    """
    crf, X = transform_inputs(model, read_list(X, "X"))
    if not isinstance(crf, SequenceEstimator):
        raise TypeError(f"model={shown(model)}: expected a ChainCRF or SegmentCRF, or a Pipeline that ends with one")
    # If the original is fitted again, the copy keeps its model.
    crf = copy(crf)
    y = read_list(y, "y", "a list of label sequences, one for each of X")
    tokens = None if tokens is None else read_list(tokens, "tokens")
    train_tokens = None if train_tokens is None else read_list(train_tokens, "train_tokens")
    if len(X) != len(y) or (tokens is not None and len(tokens) != len(X)):
        others = f"y has {len(y)}" + ("" if tokens is None else f" and tokens has {len(tokens)}")
        raise ValueError(f"X has {len(X)} sequences, {others}: expected the same number in X, y and tokens")
    y = [read_labels(labels, f"y[{i}]") for i, labels in enumerate(y)]
    words = None
    if tokens is not None:
        words = [read_labels(sequence, f"tokens[{i}]", "a list of words") for i, sequence in enumerate(tokens)]
    classes = crf.classes_.tolist()
    if scheme is None and are_spans(classes):
        scheme = "lenient"
    is_missing = missing_among(chain.from_iterable(y), classes)
    y = [[None if is_missing(label) else label for label in labels] for labels in y]
    distribution = crf.distribution(X)
    predicted = [labels.tolist() for labels in distribution.decode()]
    proba = [np.asarray(p, np.float64) for p in distribution.marginals()]
    known = [[label if label in classes else None for label in labels] for labels in y]
    scores = bootstrap(y, predicted, proba, classes, scheme=scheme)
    bins = reliability(known, proba, classes)
    order = _hardest(distribution, known)[:n_hardest]
    if decisions is None and crf.model_.moves_inputs:
        # The weights do not belong to single labels, so that there is nothing to explain a decision by.
        decisions = []
    chosen = _least_believed(order[:EXPLAINED], known, proba, classes) if decisions is None else list(decisions)
    blocks = [
        sections.stretches(i, y[i], predicted[i])
        if words is None
        else sections.sequence(i, words[i], y[i], proba[i], classes)
        for i in order
    ]
    # The model knows only the columns that the steps before it return.
    suffix = " (after preprocessing)" if split_pipeline(model)[0] is not None else ""
    parts = [_decision(crf, X, y, words, train_tokens, suffix, i, t) for i, t in chosen]
    body = [
        sections.heading(title, scores),
        sections.summary(crf, distribution, sum(map(len, y))),
        sections.scores(scores, y, predicted, scheme),
        sections.confusion(y, predicted),
        sections.calibration(bins, crf),
        sections.hardest(order, blocks, has_words=tokens is not None),
        section("Explanations of decisions", *parts) if parts else "",
        sections.settings(model),
    ]
    return page(title, body)


def write_report(path: PathLike, html: str) -> None:
    """Write a report to a file; if writing fails, no partial file is left.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf.report import write_report
    >>> write_report("report.html", "<!DOCTYPE html><title>Nothing yet</title>")
    >>> Path("report.html").read_text()[:15]
    '<!DOCTYPE html>'
    """
    with whole_file(path) as file:
        # Text from JSON may have half of a surrogate pair, which is not a character; its number is written.
        file.write(html.encode("utf-8", errors="backslashreplace"))


def _hardest(distribution: SequenceDistribution, y: list[list[object]]) -> list[int]:
    """Return the indices of all sequences with labels, sorted by log p(y | x) / (number of labels), lowest first."""
    known = np.array([sum(label is not None for label in labels) for labels in y])
    log_p = distribution.log_prob(y) / np.maximum(known, 1)
    return [i for i in np.argsort(log_p, kind="stable").tolist() if known[i]]


def _least_believed(
    order: list[int], y: list[list[object]], proba: list[Floats], classes: list[object]
) -> list[tuple[int, int]]:
    code, decisions = {label: j for j, label in enumerate(classes)}, []
    for i in order:
        p = [1.0 if label is None else proba[i][t, code[label]] for t, label in enumerate(y[i])]
        decisions.append((i, int(np.argmin(p))))
    return decisions


def _decision(
    crf: SequenceEstimator[Any],
    X: UserData,
    y: UserData,
    words: list[list[str]] | None,
    train_tokens: UserData,
    suffix: str,
    i: int,
    t: int,
) -> str:
    if not (0 <= i < len(X) and 0 <= t < len(y[i] if words is None else words[i])):
        raise ValueError(
            f"decision {i}:{t}: expected the index of a sequence, below {len(X)}, and the index of a token in this "
            "sequence"
        )
    why = crf.explain(X[i], t)
    places = [] if why.positions is None else why.positions.tolist()
    # The intercept and linear features belong to no training token.
    known: list[str | None] = [None if sequence < 0 else _word(train_tokens, sequence, t) for sequence, t in places]
    return sections.decision(i, None if words is None else words[i][t], y[i][t], why, known, suffix)


def _word(tokens: UserData, sequence: int, token: int) -> str | None:
    if tokens is None:
        return None
    if not (0 <= sequence < len(tokens) and 0 <= token < len(tokens[sequence])):
        raise ValueError(
            f"train_tokens has no token {token} in sequence {sequence}, but this token is a landmark of the model: "
            "expected the words of the data that the model was trained on"
        )
    return str(read_labels(tokens[sequence], f"train_tokens[{sequence}]", "a list of words")[token])


__all__ = ["make_report", "write_report"]
