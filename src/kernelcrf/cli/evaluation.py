"""`kernelcrf evaluate`: score a model on labelled sequences."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from kernelcrf.cli.files import LabelledFile, Model
from kernelcrf.cli.outcome import echo
from kernelcrf.metrics import are_spans, bootstrap, flat_classification_report, span_classification_report
from kernelcrf.report.sections import TITLES
from kernelcrf.terminal import printable


def evaluate(model: str, data: str, format: str | None, scheme: str | None, as_json: bool) -> None:
    """Print the scores of a model on the sequences of a file, with 95 % intervals."""
    loaded = Model.load(model)
    found = LabelledFile.read(data, loaded, format)
    classes = loaded.crf.classes_.tolist()
    predicted = [labels.tolist() for labels in loaded.crf.predict(found.X)]
    proba = loaded.crf.predict_proba(found.X)
    if scheme is None and are_spans(classes):
        scheme = "lenient"
    scores = bootstrap(found.y, predicted, proba, classes, scheme=scheme)
    new = sorted({str(label) for labels in found.y for label in labels if label is not None} - set(map(str, classes)))
    if as_json:
        named = {name: asdict(scores[name]) for name in TITLES if name in scores}
        counts = {"sequences": len(found.X), "tokens": found.n_tokens, "unknown_labels": new}
        typer.echo(json.dumps({**counts, "scores": named}))
        return
    echo(f"{len(found.X):,} sequences, {found.n_tokens:,} tokens; 95 % intervals from resampled sequences")
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
    echo()
    for line in _report(found.y, predicted, scheme):
        echo(line)


def _report(y: list[list[object]], predicted: list[list[object]], scheme: str | None) -> list[str]:
    """Return the scores of each label or type of span, as lines."""
    # A label is one cell of one line of the table, and labels that differ stay different.
    if not all(isinstance(label, str) and label.isprintable() for labels in [*y, *predicted] for label in labels):
        y, predicted = ([list(map(_one_cell, labels)) for labels in labelings] for labelings in (y, predicted))
    if scheme is None:
        text = flat_classification_report(y, predicted, digits=4, zero_division=0)
    else:
        text = span_classification_report(y, predicted, digits=4, zero_division=0, scheme=scheme)
    return str(text).rstrip("\n").split("\n")


def _one_cell(label: object) -> object:
    return printable(label.replace("\\", r"\\")) if isinstance(label, str) else label
