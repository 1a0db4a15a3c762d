"""Ten weekly updates of a model instead of refits: chunks, CoNLL-2000.

The training sentences are cut into ten parts, in their order, which stand for ten weeks. Features are the usual
templates of `accuracy.tagging_tasks`, as lists of names, so that the vocabulary and the labels grow. All fits are
linear, with C = 3, the value that `accuracy.tagging_tasks` chose, until the certified gap is 0.1 %.

    refit                   a fit to the sentences of all weeks so far
    update, posterior       a fit to the sentences of the week; the prior is the last model, with the precision of each
                            weight (`laplace="diagonal"`, `prior=model`)
    update, means           the same without precisions: only the means of the prior are those of the last model
    the week alone          a fit to the sentences of the week, without a prior

F1 of spans is that of the test set. Forgetting is measured on the sentences of the first week: their F1, and their
log-loss per token. Seconds are CPU time on one thread, from lists of names to a fitted model; for updates with a
posterior they include the computation of the posterior. p-values are those of differences in F1 to the refit on
all weeks, by bootstrap over sentences of the test set.

For its time, the study scores the models of weeks 1, 5 and 10 alone, and only these weeks have a refit and a fit of the
week alone.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
import warnings
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from kernelcrf.metrics import log_loss, span_f1, spans
from studies import common
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, TOL, f1_difference, parts_of
from studies.accuracy.text_features import WindowFeatures

C, WEEKS = 3.0, 10
SCORED = (1, 5, 10)
KINDS = REFIT, POSTERIOR, MEANS, ALONE = "refit", "update, posterior", "update, means", "the week alone"
Named = list[list[list[str]]]


@functools.cache
def sentences() -> tuple[Named, list[list[str]], Named, list[list[str]]]:
    """Return sentences for training and their tags, and those for testing; a token is a list of feature names."""
    _, _, train, test = parts_of(TASKS["chunking"], False)
    window = WindowFeatures(TEMPLATES["usual"])
    tables = window.fit_transform(train.columns), window.transform(test.columns)
    names = [f"f{column}" for column in range(window.n_features)]
    found = []
    for table, data in zip(tables, (train, test), strict=True):
        ends = table.indptr.tolist()
        columns = table.indices.tolist()
        tokens = [[names[c] for c in columns[low:high]] for low, high in itertools.pairwise(ends)]
        cuts = np.cumsum([0, *data.lengths]).tolist()
        found.append([tokens[low:high] for low, high in itertools.pairwise(cuts)])
    return found[0], train.y, found[1], test.y


def scores(crf: ChainCRF, X: Named, y: list[list[str]]) -> dict[str, Any]:
    """Return F1, log-loss, and the numbers of spans per sentence for the bootstrap."""
    predicted, classes = [one.tolist() for one in crf.predict(X)], crf.classes_.tolist()
    known = [[tag if tag in classes else None for tag in one] for one in y]
    both = [(set(spans(a)), set(spans(b))) for a, b in zip(y, predicted, strict=True)]
    return {
        "f1": span_f1(y, predicted),
        "log_loss": log_loss(known, crf.predict_proba(X), classes),
        "counts": [(len(a & b), len(a), len(b)) for a, b in both],
    }


def weekly(kind: str) -> list[dict[str, Any]]:
    """Fit ten models, one per week, and return their scores."""
    X, y, X_test, y_test = sentences()
    cuts = np.linspace(0, len(X), WEEKS + 1).astype(int).tolist()
    rows: list[dict[str, Any]] = []
    crf: ChainCRF | None = None
    for week, (low, high) in enumerate(itertools.pairwise(cuts), 1):
        if kind in (REFIT, ALONE) and week not in SCORED:
            continue
        low = 0 if kind == REFIT else low
        before = None if kind in (REFIT, ALONE) else crf
        posterior = "diagonal" if kind == POSTERIOR else False
        start = time.process_time()
        crf = ChainCRF("linear", C=C, tol=TOL, laplace=posterior, prior=before).fit(X[low:high], y[low:high])
        row: dict[str, Any] = {
            "week": week,
            "seconds": time.process_time() - start,
            "passes": float(crf.gap_curve_[-1, 1]),
            "gap": float(crf.certificate_.relative_gap),
            "status": crf.certificate_.status,
            "features": int(crf.coef_.shape[0]),
        }
        if week in SCORED:
            test, first = scores(crf, X_test, y_test), scores(crf, X[: cuts[1]], y[: cuts[1]])
            row |= {"f1": test["f1"], "log_loss": test["log_loss"], "counts": test["counts"]}
            row |= {"first_f1": first["f1"], "first_log_loss": first["log_loss"]}
        rows.append(row)
        print(kind, {name: value for name, value in row.items() if name != "counts"}, flush=True)
    return rows


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found = {kind: common.kept(f"updates {kind}", lambda k=kind: weekly(k)) for kind in KINDS}
    for kind, rows in found.items():
        if kind != REFIT:
            rows[-1]["difference"], rows[-1]["p"] = f1_difference(rows[-1]["counts"], found[REFIT][-1]["counts"])
    kinds = {
        kind: [{name: value for name, value in row.items() if name != "counts"} for row in rows]
        for kind, rows in found.items()
    }
    return {"kinds": kinds}


def section(results: dict[str, Any]) -> str:
    found = results["kinds"]
    refit = found[REFIT][-1]
    lines = []
    for kind, rows in found.items():
        last = rows[-1]
        updates = [row["seconds"] for row in rows[1:]]
        mean = refit["seconds"] if kind == REFIT else float(np.mean(updates))
        lines.append(
            (
                kind,
                f"{100 * last['f1']:.2f}",
                "" if kind == REFIT else f"{100 * last['difference']:+.2f}",
                "" if kind == REFIT else f"{last['p']:.3f}",
                f"{last['log_loss']:.3f}",
                f"{100 * last['first_f1']:.2f}",
                f"{last['first_log_loss']:.3f}",
                f"{mean:.1f}",
                f"{mean / refit['seconds']:.2f}",
            )
        )
    header = (
        "after ten weeks",
        "F1",
        "F1 minus that of the refit",
        "p",
        "log-loss",
        "F1, first week",
        "log-loss, first week",
        "CPU seconds",
        "share of the refit's seconds",
    )
    curves = []
    for kind, rows in found.items():
        f1 = {row["week"]: f"{100 * row['f1']:.2f}" for row in rows if "f1" in row}
        curves.append((kind, *(f1[week] for week in SCORED)))
    worst = max(row["gap"] for rows in found.values() for row in rows)
    return f"""## Updates with new data alone

The training sentences of CoNLL-2000 are cut into ten parts, called weeks. Each update by `ChainCRF(prior=model)` reads
one week; a refit reads all weeks so far. The first week is a fit without a prior. The vocabulary grows from
{found[REFIT][0]["features"]:,} features to {refit["features"]:,}.

- *refit*: a fit to all weeks so far
- *update, posterior*: the prior is the last model, with the precision of each of its weights (`laplace="diagonal"`)
- *update, means*: the prior is the last model, with one precision for all weights
- *the week alone*: a fit to one week, without a prior

F1 and log-loss are those on test sentences. The columns *first week* have the sentences of the first week instead: if a
model is worse there than the refit, it has forgotten something. Seconds are those of the last refit; for other rows,
they are the mean over weeks 2 to 10.

{common.markdown(header, lines)}

F1 on the test set after weeks {", ".join(map(str, SCORED))}:

{common.markdown(("week", *map(str, SCORED)), curves)}

Every fit is certified: its relative gap is at most {worst:.1e}.
"""
