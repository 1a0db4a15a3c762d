"""Run `kernelcrf evaluate` and `kernelcrf report`, which compare the predictions of a model with true labels."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import PurePath

import typer

from kernelcrf.cli.files import Model, check_apart, check_overwrite
from kernelcrf.cli.outcome import echo
from kernelcrf.formats import Record, format_of, read
from kernelcrf.formats.streams import display_name
from kernelcrf.metrics import are_spans, bootstrap, flat_classification_report, span_classification_report
from kernelcrf.persistence import named_errors
from kernelcrf.readers.missing_labels import missing_among
from kernelcrf.readers.spans import spans
from kernelcrf.report import make_report, write_report
from kernelcrf.report.sections import TITLES, has_spans
from kernelcrf.terminal import printable

# `evaluate` gives advice if the data have LEAST_SPANS spans, and the model predicts less than RARE_SHARE of them.
LEAST_SPANS, RARE_SHARE = 10, 0.2


def evaluate(model: str, data: str, format: str | None, scheme: str | None, as_json: bool) -> None:
    """Print the scores of a model on the labelled sequences of a file, with 95 % confidence intervals."""
    loaded = Model.load(model)
    _, X, y = loaded.read_labelled(data, format)
    classes, n_tokens = loaded.crf.classes_.tolist(), sum(map(len, y))
    predicted = [labels.tolist() for labels in loaded.estimator.predict(X)]
    if scheme is None and are_spans(classes):
        scheme = "lenient"
    scores = bootstrap(y, predicted, loaded.estimator.predict_proba(X), classes, scheme=scheme)
    is_missing = missing_among(chain.from_iterable(y), classes)
    new = sorted({str(label) for labels in y for label in labels if not is_missing(label)} - set(map(str, classes)))
    if as_json:
        named = {name: asdict(scores[name]) for name in TITLES if name in scores}
        counts = {"sequences": len(X), "tokens": n_tokens, "unknown_labels": new}
        typer.echo(json.dumps({**counts, "scores": named}))
        return
    echo(f"{len(X):,} sequences, {n_tokens:,} tokens; 95 % intervals from resampled sequences")
    echo()
    for name, title in TITLES.items():
        if name in scores:
            score = scores[name]
            echo(f"{title:<24}{score.value:.4f}   [{score.low:.4f}, {score.high:.4f}]")
    if new:
        echo()
        echo(f"labels that the model does not know, left out of the scores of probabilities: {', '.join(new)}")
        if "log_loss" not in scores:
            echo("the model knows no label of the data: there are no scores of probabilities")
    if scheme is None or has_spans(y, predicted):
        echo()
        for line in _table(y, predicted, scheme):
            echo(line)
    if scheme is not None:
        known = [["O" if is_missing(label) else label for label in labels] for labels in y]
        n_true, n_predicted = (sum(len(spans(labels, scheme)) for labels in given) for given in (known, predicted))
        if n_true >= LEAST_SPANS and n_predicted < RARE_SHARE * n_true:
            echo()
            echo(
                f"the model predicts {n_predicted:,} spans where the data have {n_true:,}: fit it again with "
                "--set decoding=f1, which predicts more spans, and with --dev, which chooses C by their F1 score"
            )


def _table(y: list[list[object]], predicted: list[list[object]], scheme: str | None) -> list[str]:
    """Return the lines of a table with the scores of each label.

    If `scheme` is not None, the table has the scores of each type of span, such as NP, instead.
    """
    # Escape labels, so that each fits into one cell; distinct labels stay distinct.
    if not all(isinstance(label, str) and label.isprintable() for labels in [*y, *predicted] for label in labels):
        y, predicted = ([list(map(_one_cell, labels)) for labels in labelings] for labelings in (y, predicted))
    make = flat_classification_report if scheme is None else partial(span_classification_report, scheme=scheme)
    return str(make(y, predicted, digits=4, zero_division=0)).rstrip("\n").split("\n")


def _one_cell(label: object) -> object:
    return printable(label.replace("\\", r"\\")) if isinstance(label, str) else label


def report(
    model: str, data: str, target: str, format: str | None, train: str | None, explain: list[str] | None, n_hardest: int
) -> None:
    """Write an HTML report about a model and its predictions for the labelled sequences of a file."""
    matches = [re.fullmatch(r"(\d+):(\d+)", one) for one in explain or []]
    decisions = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    if len(decisions) != len(matches):
        raise typer.BadParameter(f"--explain {' '.join(explain or [])}: expected SEQUENCE:TOKEN, such as 12:3")
    check_apart(target, [model, data, train])
    format_of(data, format)
    check_overwrite(target, _begins_like_html, "HTML")
    loaded = Model.load(model)
    records, X, y = loaded.read_labelled(data, format)
    html = make_report(
        loaded.estimator,
        X,
        y,
        tokens=_tokens(records),
        train_tokens=None if train is None else _tokens(list(read(train, format))),
        title=f"{PurePath(model).name} on {display_name(PurePath(data).name)}",
        decisions=decisions or None,
        n_hardest=n_hardest,
    )
    write_report(target, html)
    echo(f"{target}: {len(html.encode('utf-8', errors='replace')):,} bytes")


def _begins_like_html(path: str) -> bool:
    with named_errors(path), open(path, "rb") as file:
        return file.read(64).lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _tokens(records: list[Record]) -> list[list[str]] | None:
    """Return the words of each record (one sequence of a file), or None if a record has no words."""
    if any(record.tokens is None for record in records):
        return None
    return [list(record.tokens or ()) for record in records]
