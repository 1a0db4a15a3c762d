"""Build the sections of a report; each function returns HTML."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from kernelcrf.answers.explanation import Explanation
from kernelcrf.answers.summary import describe_C, summarise, text_of
from kernelcrf.arrays import Floats, UserData
from kernelcrf.certificate import IMPORTED, NOT_FITTED, ROUNDED, TEMPERED
from kernelcrf.distributions import ChainDistribution
from kernelcrf.distributions.sequences import SequenceDistribution
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.metrics import Reliability, Score, flat_classification_report, flat_confusion, span_classification_report
from kernelcrf.report.page import Markup, cards, gap_chart, reliability_chart, section, table, text
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY

TITLES = {
    "span_f1": "F1 of spans",
    "span_precision": "precision of spans",
    "span_recall": "recall of spans",
    "flat_accuracy": "accuracy of tokens",
    "sequence_accuracy": "accuracy of sequences",
    "log_loss": "log-loss of tokens",
    "brier": "Brier score of tokens",
    "expected_calibration_error": "calibration error",
}
Labellings: TypeAlias = list[list[object]]

PACKAGES = ("kernelcrf", "numpy", "scipy", "scikit-learn", "numba", "safetensors")
MATRIX_LABELS, CONFUSIONS, STRETCHES = 25, 10, 20
LONGEST, LONGEST_LABEL = 60, 24


def heading(title: str, scores: Mapping[str, Score]) -> str:
    """Return the HTML of the heading: the title, the date, and the main score with its confidence interval."""
    name = next(name for name in TITLES if name in scores)
    best, now = scores[name], datetime.now().astimezone()
    return (
        f"<h1>{text(title)}</h1><p class='soft'>{now:%Y-%m-%d %H:%M %Z}</p>"
        f'<p class="headline"><b>{best.value:.4f}</b> {TITLES[name]} '
        f'<span class="soft">(95 % interval: {best.low:.4f} to {best.high:.4f})</span></p>'
    )


def summary(crf: SequenceEstimator[Any], distribution: SequenceDistribution, n_tokens: int) -> str:
    """Return the HTML of a summary: the sizes of the data and the model, and how far the fit is from the optimum.

    If predicted labels can be certified, the summary also has the share of certified labels.
    """
    certificate, facts = crf.certificate_, summarise(crf)
    if certificate.status == TEMPERED:
        said = "The weights were divided by a temperature after the fit, so they have no certificate."
    elif certificate.status == IMPORTED:
        said = "The weights were read from a file of another library, so they have no certificate."
    elif certificate.status == ROUNDED:
        said = "The weights were rounded to single precision in a file, so they have no certificate."
    elif not certificate.is_certified:
        said = "Labels were missing in training, so the objective is not convex and the fit has no certificate."
    else:
        said = (
            f"The fit is certified: its objective, {certificate.objective:,.6g}, is at most "
            f"{100 * certificate.relative_gap:.2g} % above the least value that its features or landmarks allow, "
            f"{certificate.lower_bound:,.6g}."
        )
        has_bounds = np.isfinite(certificate.rounding) and distribution.model.certifies_labels
        if isinstance(distribution, ChainDistribution) and has_bounds:
            share = 100 * np.concatenate(distribution.certify().tokens or [np.ones(1, bool)]).mean()
            said += (
                f" {share:.1f} % of the likeliest labels are certified: the exact optimum on these features or "
                "landmarks would predict them, too."
            )
    if certificate.gap_full is not None:
        share = 100 * certificate.gap_full / abs(certificate.objective)
        said += f" In the whole space of the kernel it is at most {share:.2g} % above the least value."
    if "compared" in facts:
        said += f" Mean log-likelihood of held-out labels with each kernel: {facts['compared']}."
    if certificate.status not in (OPTIMAL, STATIONARY, *NOT_FITTED):
        said += f" It ended with status {certificate.status!r}, before its tolerance of {crf.tol:g}."
    width = ("landmarks", f"{facts['landmarks']:,}") if "landmarks" in facts else ("features", f"{facts['inputs']:,}")
    shown = [
        ("sequences", f"{distribution.n_samples:,}"),
        ("tokens", f"{n_tokens:,}"),
        ("labels", f"{len(crf.classes_):,}"),
        ("kernel", facts["kernel"]),
        (", ".join(filter(None, ("C", describe_C(facts)))), f"{facts['C']:.3g}" if "C" in facts else "not known"),
        width,
        ("weights", f"{facts['weights']:,}"),
        ("status", certificate.status),
        ("solver seconds", text_of(facts.get("solver seconds", "none"))),
    ]
    return section("Summary", cards(shown), f"<p>{text(said)}</p>")


def scores(values: Mapping[str, Score], y_true: Labellings, y_pred: Labellings, scheme: str | None) -> str:
    """Return the HTML of all scores with confidence intervals, and of the scores of each label or type of span."""
    rows = [
        (TITLES[name], f"{values[name].value:.4f}", f"{values[name].low:.4f} to {values[name].high:.4f}")
        for name in TITLES
        if name in values
    ]
    kind, each = ("label" if scheme is None else "type of span"), {}
    if scheme is None:
        each = _scores_of_labels(y_true, y_pred)
    elif has_spans(y_true, y_pred):
        each = span_classification_report(y_true, y_pred, output_dict=True, zero_division=0, scheme=scheme)
    columns = ("precision", "recall", "f1-score")
    detail = [
        (_short(name), *(f"{row[column]:.4f}" for column in columns), f"{row['support']:,.0f}")
        for name, row in each.items()
    ]
    return section(
        "Scores",
        '<div class="plots"><div>',
        table(["", "score", "95 % interval"], rows),
        '<p class="soft">Intervals from 1,000 resamples of the sequences.</p></div><div>',
        table([kind, *columns, "support"], detail) if detail else "<p>There are no spans.</p>",
        "</div></div>",
    )


def _scores_of_labels(y_true: Labellings, y_pred: Labellings) -> dict[str, Any]:
    """Return a dict from labels, "macro avg" and "weighted avg" to dicts of scores.

    A label that is called like an average has the key "label macro avg" or "label weighted avg".
    """
    labels, _ = flat_confusion(y_true, y_pred)
    code: dict[object, int] = {label: j for j, label in enumerate(labels)}
    numbers = [[[code.get(label) for label in sequence] for sequence in given] for given in (y_true, y_pred)]
    each = flat_classification_report(*numbers, output_dict=True, zero_division=0)
    averages = {name: each[name] for name in ("macro avg", "weighted avg")}
    shown = [str(label) for label in labels]
    return {f"label {name}" if name in averages else name: each[str(j)] for j, name in enumerate(shown)} | averages


def has_spans(*labellings: Labellings) -> bool:
    """Return whether at least one tag is neither O nor missing, so that there is a span."""
    return any(label not in ("O", None) for given in labellings for labels in given for label in labels)


def confusion(y_true: Labellings, y_pred: Labellings) -> str:
    """Return the HTML of the confusion matrix and of the most frequent confusions.

    If there are many labels, the matrix shows only the labels with the most errors.
    """
    labels, counts = flat_confusion(y_true, y_pred)
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
    chosen = np.sort(np.argsort(-wrong, kind="stable")[:MATRIX_LABELS])
    totals = counts.sum(axis=1)
    head = "".join(f'<th scope="col"><span>{_label(labels[j])}</span></th>' for j in chosen.tolist())
    lines = []
    for i in chosen.tolist():
        cells = []
        for j in chosen.tolist():
            share = counts[i, j] / totals[i] if totals[i] else 0.0
            strong = ' class="strong"' if share > 0.5 else ""
            number = f"{counts[i, j]:,}" if counts[i, j] else ""
            cells.append(f'<td{strong} style="--p:{min(1.0, share**0.5):.3f}">{number}</td>')
        lines.append(f'<tr><th scope="row">{_label(labels[i])}</th>{"".join(cells)}</tr>')
    chosen_of = f" These are the {len(chosen)} of {len(labels)} labels with the most errors."
    left = chosen_of if len(chosen) < len(labels) else ""
    errors = counts - np.diag(counts.diagonal())
    order = np.argsort(-errors, axis=None, kind="stable")[: min(CONFUSIONS, np.count_nonzero(errors))]
    confused = [
        (Markup(_label(labels[i])), Markup(_label(labels[j])), f"{errors[i, j]:,}", f"{errors[i, j] / totals[i]:.1%}")
        for i, j in zip(*np.unravel_index(order, errors.shape), strict=True)
    ]
    return section(
        "Confusion",
        f"<p>Tokens by true label (rows) and predicted label (columns).{left}</p>",
        f'<div class="wide"><table class="matrix"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(lines)}'
        "</tbody></table></div>",
        "<p>The most frequent confusions, with their share of all tokens that have this true label:</p>"
        + table(["true label", "predicted", "tokens", "share"], confused, "confused")
        if confused
        else "<p>No label is wrong.</p>",
    )


def calibration(bins: Reliability, crf: SequenceEstimator[Any]) -> str:
    """Return the HTML of two charts: the reliability diagram, and the gap to the optimum during the fit.

    A model that was read from a file of another library has only the first chart.
    """
    gap, passes, _ = crf.gap_curve_.T
    measure, fit = crf.certificate_.measure, ""
    if len(gap):
        fit = f"<div>{gap_chart(passes, gap, crf.tol, measure)}<p class='soft'>The {measure} during the fit.</p></div>"
    return section(
        "Calibration, and the fit",
        '<div class="plots">',
        f"<div>{reliability_chart(bins)}<p class='soft'>Accuracy against confidence, equal on the dashed line. "
        f"Bars show the share of tokens. The expected calibration error is {bins.error:.4f}.</p></div>",
        f"{fit}</div>",
    )


def sequence(
    number: int, tokens: Sequence[object], gold: Sequence[object], proba: Floats, classes: Sequence[object]
) -> str:
    """Return the HTML of a sequence; a token has a warmer colour if its true label is less probable.

    gold : the true labels of the tokens.
    proba : the probability of each class, one row per token.
    """
    code, best = {label: j for j, label in enumerate(classes)}, proba.argmax(axis=1)
    items = []
    for t, (token, label) in enumerate(zip(tokens, gold, strict=True)):
        said, p = classes[best[t]], float(proba[t, best[t]])
        doubt = 1 - float(proba[t, code[label]]) if label in code else 0.0 if label is None else 1.0
        wrong = label is not None and said != label
        shown = f"<del>{_label(said)}</del> {p:.2f}<br>{_label(label)}" if wrong else f"{_label(said)} {p:.2f}"
        items.append(
            f'<li class="token{" wrong" if wrong else ""}" style="--p:{doubt:.3f}"><bdi>{text(_short(token))}</bdi>'
            f"<small>{shown}</small></li>"
        )
    return f'<ul class="sequence" id="sequence-{number}">{"".join(items)}</ul>'


def stretches(number: int, gold: Sequence[object], predicted: Sequence[object]) -> str:
    """Return the HTML of a sequence without words: its length, the share of wrong labels, and where they are.

    A stretch is a run of tokens with the same true label and the same wrong predicted label.
    """
    pairs, runs, start = list(zip(gold, predicted, strict=True)), [], 0
    for (true, said), run in groupby(pairs):
        end = start + len(list(run))
        if true is not None and true != said:
            runs.append((start, end, true, said))
        start = end
    n_known, n_wrong = sum(label is not None for label in gold), sum(end - start for start, end, _, _ in runs)
    longest = sorted(sorted(runs, key=lambda run: run[0] - run[1])[:STRETCHES])
    items = "".join(
        f'<li class="token" style="--p:.5"><bdi>{first}{f"–{end - 1}" if end - first > 1 else ""}</bdi>'
        f"<small>{_label(true)} → {_label(said)}</small></li>"
        for first, end, true, said in longest
    )
    left = f" These are the {STRETCHES} longest of {len(runs):,} stretches." if len(runs) > STRETCHES else ""
    said = f"{len(gold):,} tokens; {n_wrong:,} of {n_known:,} labels are wrong ({n_wrong / n_known:.1%}).{left}"
    return f'<p>{said}</p><ul class="sequence" id="sequence-{number}">{items}</ul>'


def hardest(order: Sequence[int], blocks: Sequence[str], has_words: bool) -> str:
    """Return the HTML of the sequences whose true labels are least probable.

    order, blocks : the index and the HTML of each sequence.
    has_words : True if `sequence` made the HTML, which shows each token; False if `stretches` made it.
    """
    said = "Below are the stretches of wrong labels: first and last token, counted from 0, and true → predicted label."
    if has_words:
        said = (
            "Under each token is its most probable label with its probability; a wrong label is struck out, with the "
            "true label below. The warmer the colour, the less probable is the true label."
        )
    parts = [f"<h3>Sequence {i}</h3>{block}" for i, block in zip(order, blocks, strict=True)]
    return section("Hardest sequences", f"<p>These true labels are the least probable per token. {said}</p>", *parts)


def decision(
    number: int, token: object | None, true: object, why: Explanation, words: Sequence[str | None], suffix: str = ""
) -> str:
    """Return the HTML of an explanation: how columns, and landmarks or features, affect the label of a token.

    number : the index of the sequence.
    token : the word to show, or None if there are no words.
    true : the true label of the token.
    words : for each landmark, the word at its place in the training data, or None if the word is not known.
    suffix : text after the names of columns and features, such as " (after preprocessing)".
    """
    names = [f"<bdi>{text(_short(term))}</bdi>{text(suffix)}" for term in why.terms]
    if why.positions is not None:
        names = [
            name
            if i < 0
            else f"training sequence {i}, token {t}" + ("" if word is None else f": <bdi>{text(_short(word))}</bdi>")
            for name, (i, t), word in zip(names, why.positions.tolist(), words, strict=True)
        ]
    rows = _bars(zip(names, why.contributions.tolist(), strict=True))
    if why.n_rest:
        rows.append((f"{why.n_rest:,} others", f"{why.rest:+.3f}", Markup("")))
    effects = [
        (f"<bdi>{text(_short(one.column))}</bdi>{text(suffix)} = {one.value:.4g}", one.effect) for one in why.columns
    ]
    word = "" if token is None else f": <bdi>{text(_short(token))}</bdi>"
    truly = "" if true is None or true == why.label else f", truly {_label(true)}"
    said = (
        f"p = {why.p:.3g} in its sequence, {why.p_alone:.3g} from the token alone; score relative to the mean label "
        f"{why.score:+.3g}; neighbours add {why.neighbours:+.3g} to log p"
    )
    return (
        f"<h3>Sequence {number}, token {why.t}{word} as {_label(why.label)}{truly}</h3>"
        f"<p>{text(said)}</p>"
        + (table(["column", "effect on the score", ""], _bars(effects), "terms") if effects else "")
        + table(["term", "contribution", ""], rows, "terms")
    )


def _bars(named: Iterable[tuple[str, float]]) -> list[tuple[str, str, str]]:
    """Return one table row per pair (name, number), with three cells: the name, the number, and a bar for it.

    The names are HTML already, so they are not escaped.
    """
    pairs = list(named)
    most = max([abs(value) for _, value in pairs], default=1.0) or 1.0
    return [
        (
            Markup(name),
            f"{value:+.3f}",
            Markup(
                f'<span class="contribution{"" if value >= 0 else " against"}" '
                f'style="width:{6 * abs(value) / most:.2f}rem"></span>'
            ),
        )
        for name, value in pairs
    ]


def settings(model: UserData) -> str:
    """Return the HTML of the parameters of a ChainCRF or a Pipeline, the versions of packages, and the system."""
    versions = [(name, version(name)) for name in PACKAGES]
    system = [("python", platform.python_version()), ("system", platform.platform()), ("cores", str(os.cpu_count()))]
    parameters = [(name, _short(repr(value))) for name, value in model.get_params().items()]
    return section(
        "Settings and versions",
        '<div class="plots"><div>',
        table(["parameter", "value"], parameters, "settings"),
        "</div><div>",
        table(["package", "version"], [*versions, *system], "settings"),
        "</div></div>",
    )


def _label(label: object) -> str:
    return f"<bdi>{text(_short(label, LONGEST_LABEL))}</bdi>"


def _short(value: object, longest: int = LONGEST) -> str:
    shown = str(value)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
