"""`kernelcrf fit`: from labelled sequences to a model file."""

from __future__ import annotations

import inspect
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text
from sklearn.exceptions import ConvergenceWarning

from kernelcrf import ChainCRF
from kernelcrf.cli.data import inputs
from kernelcrf.cli.outcome import echo
from kernelcrf.cli.targets import check_apart
from kernelcrf.formats import FormatError, Record, Templates, default_templates, read
from kernelcrf.solvers import Record as Point
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY


class TimeLeft(ProgressColumn):
    """The time until `end`, which the task tells, at the pace so far."""

    def render(self, task: Task) -> Text:
        """As minutes and seconds, nothing where it is not known."""
        if task.fields["end"] is None:
            return Text("")
        minutes, seconds = divmod(max(0, round(task.fields["end"] - time.monotonic())), 60)
        return Text(f"{minutes}:{seconds:02d} left")


class WatchedCRF(ChainCRF):
    """A ChainCRF whose fit shows itself as a bar on standard error, if that is a terminal."""

    @contextmanager
    def _progress(self, data: Any) -> Iterator[Callable[[Point], None] | None]:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield None
            return
        columns = (TextColumn("fit"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn(), TimeLeft())
        with Progress(*columns, console=console, transient=True) as bar:
            task, first = bar.add_task("", total=None, state="", end=None), list[Point]()

            def show(point: Point) -> None:
                # The gap falls by about the same factor in the same time, so its logarithm is what is left to do.
                first[:] = first or [point]
                total, done = (
                    _decades(first[0].relative_gap, self.tol),
                    _decades(first[0].relative_gap, point.relative_gap),
                )
                took, end = point.seconds - first[0].seconds, None
                if 0 < done < total:
                    end = time.monotonic() + took * (total - done) / done
                state = f"objective {point.value:.6g}, certified gap {point.relative_gap:.1e} of {self.tol:.0e}"
                bar.update(task, total=total, completed=min(done, total), state=state, end=end)

            yield show


def fit(
    data: str, model: str, format: str | None, templates: str | None, named: dict[str, Any], settings: list[str]
) -> None:
    """Fit a model to the sequences of a file, and write it."""
    started = time.perf_counter()
    check_apart(model, [data, templates])
    records = list(read(data, format))
    unlabelled = next((record for record in records if record.labels is None), None)
    if unlabelled is not None:
        raise FormatError(f"{unlabelled.place}: expected labels to learn from, and there are none")
    made = _templates(records[0], templates)
    parameters: dict[str, Any] = {"kernel": "rbf" if records[0].kind == "vectors" else "linear"}
    parameters |= {name: value for name, value in named.items() if value is not None} | _settings(settings)
    crf = WatchedCRF(**parameters)
    weights = [record.weight for record in records]
    y = [record.labels for record in records]
    with warnings.catch_warnings():
        # Said below, or not at all where the user has ended the fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf.fit(inputs(records, made), y, None if set(weights) == {1.0} else weights)
    certificate = crf.certificate_
    if certificate.status == "interrupted":
        raise KeyboardInterrupt
    if made is not None:
        made.attach(crf)
    crf.save(model)
    if certificate.status not in (OPTIMAL, STATIONARY):
        gap = crf.gap_curve_[-1, 0]
        warnings.warn(
            f"{model}: the fit ended with status {certificate.status!r} at a relative gap of {gap:.1e}, above "
            f"tol={crf.tol:g}: raise --max-iter or --tol",
            ConvergenceWarning,
            stacklevel=1,
        )
    width = "features" if crf.landmarks_ is None else "landmarks"
    certified = f"{certificate.status}, without a certificate (labels are missing)"
    if certificate.is_certified:
        certified = f"within {certificate.relative_gap:.1e} of the optimum"
    echo(
        f"{model}: {len(records):,} sequences, {sum(map(len, records)):,} tokens, {len(crf.classes_)} labels, "
        f"{crf.coef_.shape[0]:,} {width}; {certified}; {time.perf_counter() - started:.1f} s"
    )


def _decades(start: float, end: float) -> float:
    """By how many factors of ten a gap falls from start to end."""
    tiny = float(np.finfo(np.float64).tiny)
    return max(math.log10(max(start, tiny) / max(end, tiny)), 0.0)


def _templates(record: Record, path: str | None) -> Templates | None:
    if record.kind != "text":
        if path is not None:
            raise FormatError(f"{record.place}: {record.kind}, and --templates go with text: drop the option")
        return None
    n_columns = len(record.x[0])
    if path is None:
        return default_templates(n_columns)
    try:
        return Templates(Path(path).read_text(encoding="utf-8"), n_columns, path)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: expected templates as UTF-8 text ({error})") from None


def _settings(settings: list[str]) -> dict[str, Any]:
    """name=value, with values as JSON where they are JSON, and else as text."""
    known, found = set(inspect.signature(ChainCRF).parameters), {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise typer.BadParameter(
                f"--set {setting}: expected NAME=VALUE with a parameter of ChainCRF: {', '.join(sorted(known))}"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
