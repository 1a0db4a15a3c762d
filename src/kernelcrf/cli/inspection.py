"""Run `kernelcrf inspect`, which describes a model without any data."""

from __future__ import annotations

import json

import numpy as np
import typer

from kernelcrf.answers.summary import summarise, text_of
from kernelcrf.answers.weights import top_terms
from kernelcrf.cli.files import Model
from kernelcrf.cli.outcome import echo
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.preprocessing.files import split_pipeline


def inspect(model: str, n_terms: int, as_json: bool) -> None:
    """Print the sizes and the certificate of a model, and its transitions and features with the largest weights."""
    loaded = Model.load(model)
    crf = loaded.crf
    facts = summarise(crf)
    steps_before, _ = split_pipeline(loaded.estimator)
    if steps_before is not None:
        facts = {"preprocessing": " ".join(repr(list(steps_before.named_steps.values())).split()), **facts}
    # If a group moves inputs, weights of features do not belong to single labels.
    steps, terms = strongest_steps(crf, n_terms), {} if crf.model_.moves_inputs else strongest_terms(crf, n_terms)
    if as_json:
        typer.echo(json.dumps({**facts, "transitions": steps, "terms": terms, "metadata": crf.metadata_}))
        return
    for name, value in facts.items():
        echo(f"{name:<16}{text_of(value)}")
    echo()
    echo("strongest transitions between labels")
    for source, target, weight in steps:
        echo(f"  {weight:+8.3f}  {source} -> {target}")
    kind = "features" if crf.landmark_positions_ is None else "landmarks (sequence and token of the training data)"
    if terms:
        echo()
        echo(f"strongest {kind}")
    for label, weights in terms.items():
        echo(f"  {label}")
        for term, weight in weights:
            echo(f"    {weight:+8.3f}  {term}")
    if loaded.templates is not None:
        echo()
        echo(f"templates, for {loaded.templates.n_columns} column(s) of text")
        for line in loaded.templates.text.split("\n"):
            echo(f"  {line}")


def strongest_steps(crf: ChainCRF, n: int) -> list[tuple[str, str, float]]:
    """Return the n transitions with the largest absolute weights, as tuples (from, to, weight)."""
    labels, T = list(map(str, crf.classes_)), crf.transitions_
    order = np.argsort(-np.abs(T), axis=None, kind="stable")[:n]
    return [(labels[i], labels[j], float(T[i, j])) for i, j in zip(*np.unravel_index(order, T.shape), strict=True)]


def strongest_terms(crf: ChainCRF, n: int) -> dict[str, list[tuple[str, float]]]:
    """Return a dict from labels to lists of (name, weight): the n features or landmarks with the largest weights."""
    columns = top_terms(crf.model_, list(map(str, crf.classes_.tolist())), n, crf.model_.term_positions)
    names = columns["feature"]
    if crf.landmark_positions_ is not None:
        places = zip(columns["sequence"], columns["token"], names, strict=True)
        names = [name if sequence < 0 else f"{sequence}:{token}" for sequence, token, name in places]
    terms: dict[str, list[tuple[str, float]]] = {label: [] for label in columns["label"]}
    for label, name, weight in zip(columns["label"], names, columns["weight"], strict=True):
        terms[label].append((name, weight))
    return terms
