"""`kernelcrf evaluate`: how good a model is on labelled sequences."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from kernelcrf.cli.data import Model, labelled
from kernelcrf.metrics import are_spans, bootstrap, flat_classification_report, span_classification_report
from kernelcrf.report.sections import TITLES


def evaluate(model: str, data: str, format: str | None, scheme: str | None, as_json: bool) -> None:
    """Print the scores of a model on the sequences of a file, with 95 % intervals."""
    loaded = Model.load(model)
    found = labelled(data, loaded, format)
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
    typer.echo(f"{len(found.X):,} sequences, {found.n_tokens:,} tokens; 95 % intervals by resampling sequences\n")
    for name, title in TITLES.items():
        if name in scores:
            score = scores[name]
            typer.echo(f"{title:<24}{score.value:.4f}   [{score.low:.4f}, {score.high:.4f}]")
    if new:
        typer.echo(f"\nlabels that the model does not know, in no score of probabilities: {', '.join(new)}")
    if scheme is None:
        report = flat_classification_report(found.y, predicted, digits=4, zero_division=0)
    else:
        report = span_classification_report(found.y, predicted, digits=4, zero_division=0, scheme=scheme)
    typer.echo("\n" + report.rstrip("\n"))
