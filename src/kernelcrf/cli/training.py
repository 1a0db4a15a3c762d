"""Run `kernelcrf fit`, which fits a model to labelled sequences and writes the model to a file."""

from __future__ import annotations

import inspect
import json
import sys
import time
import warnings
from collections.abc import Mapping

import typer

from kernelcrf import ChainCRF
from kernelcrf.cli.files import check_apart, inputs, read_templates
from kernelcrf.cli.outcome import echo
from kernelcrf.formats import FormatError, read
from kernelcrf.solvers.loop import INTERRUPTED


def fit(
    data: str, model: str, format: str | None, templates: str | None, named: Mapping[str, object], settings: list[str]
) -> None:
    """Fit a model to the sequences of a file and save it; show progress if standard error is a terminal.

    named, settings : parameters of ChainCRF, from options of their own and from --set NAME=VALUE.
    """
    started = time.perf_counter()
    check_apart(model, [data, templates])
    records = list(read(data, format))
    unlabelled = next((record for record in records if record.labels is None), None)
    if unlabelled is not None:
        raise FormatError(f"{unlabelled.place}: the sequence has no labels: expected labels for training")
    made = read_templates(records[0], templates)
    parameters = {name: _read_value(value) for name, value in named.items()} | _read_settings(settings)
    crf = ChainCRF().set_params(**{"verbose": int(sys.stderr.isatty())} | parameters)
    weights = [record.weight for record in records]
    y = [record.labels for record in records]
    with warnings.catch_warnings(record=True) as caught:
        crf.fit(inputs(records, made), y, None if set(weights) == {1.0} else weights)
    certificate = crf.certificate_
    if certificate.status == INTERRUPTED:
        raise KeyboardInterrupt
    if made is not None:
        made.attach(crf)
    # verbose is reset, so that the model file is the same with and without a terminal.
    crf.set_params(verbose=parameters.get("verbose", 0)).save(model)
    for warning in caught:
        warnings.warn(f"{model}: {warning.message}", warning.category, stacklevel=1)
    width = "features" if crf.landmarks_ is None else "landmarks"
    chosen = f"; C={crf.C_:.3g}, by {crf.C}" if isinstance(crf.C, str) else ""
    certified = f"{certificate.status}, without a certificate (labels are missing)"
    if certificate.is_certified:
        certified = f"within {certificate.relative_gap:.1e} of the optimum"
    echo(
        f"{model}: {len(records):,} sequences, {sum(map(len, records)):,} tokens, {len(crf.classes_)} labels, "
        f"{crf.coef_.shape[0]:,} {width}{chosen}; {certified}; {time.perf_counter() - started:.1f} s"
    )


def _read_settings(settings: list[str]) -> dict[str, object]:
    """Convert the texts NAME=VALUE to a dict of parameters; a value is read as JSON if possible, else as text."""
    known, found = set(inspect.signature(ChainCRF).parameters), dict[str, object]()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise typer.BadParameter(
                f"--set {setting}: expected NAME=VALUE with a parameter of ChainCRF: {', '.join(sorted(known))}"
            )
        found[name] = _read_value(value)
    return found


def _read_value(value: object) -> object:
    """Convert text that is JSON, such as a number, to its value; return all other values unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
