"""`kernelcrf report`: describe a model and its predictions on labelled sequences in one HTML file."""

from __future__ import annotations

import re

import typer

from kernelcrf.cli.files import LabelledFile, Model, check_apart
from kernelcrf.cli.outcome import echo
from kernelcrf.formats import Record, read
from kernelcrf.report import make_report, write_report

DECISION = re.compile(r"(\d+):(\d+)")


def report(
    model: str, data: str, target: str, format: str | None, train: str | None, explain: list[str], n_hardest: int
) -> None:
    """Write a report of a model on the sequences of a file."""
    decisions = None
    if explain:
        matches = [DECISION.fullmatch(one) for one in explain]
        decisions = [(int(match[1]), int(match[2])) for match in matches if match is not None]
        if len(decisions) != len(explain):
            raise typer.BadParameter(f"--explain {' '.join(explain)}: expected SEQUENCE:TOKEN, such as 12:3")
    check_apart(target, [model, data, train])
    loaded = Model.load(model)
    found = LabelledFile.read(data, loaded, format)
    html = make_report(
        loaded.crf,
        found.X,
        found.y,
        tokens=_tokens(found.records),
        train_tokens=None if train is None else _tokens(list(read(train, format))),
        title=f"{model} on {data}",
        decisions=decisions,
        n_hardest=n_hardest,
    )
    write_report(target, html)
    echo(f"{target}: {len(html.encode('utf-8', errors='replace')):,} bytes")


def _tokens(records: list[Record]) -> list[list[str]] | None:
    """Return the words to show, None if the file has none."""
    if any(record.tokens is None for record in records):
        return None
    return [list(record.tokens or ()) for record in records]
