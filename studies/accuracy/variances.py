"""One C per input: by the evidence, on held-out data, or by a grid over all of them.

Two models, each with two inputs by rbf kernels of ten landmarks, and transitions. Every input has its own C, and the
transitions have theirs: three values to choose.

    activity     batteryless sensor, room S1, every twentieth reading: three accelerations beside antenna, signal
                 strength, phase and frequency; 60 trials, the first two of five folds
    occupancy    all three parts, every tenth reading: light and CO2 beside temperature, humidity and its ratio;
                 18 days, the first three of five folds

Readings are thinned so that the grid can be afforded. As readings that follow each other closely are not independent
evidence, thinning may favour the evidence: a second table, without the grid, has evidence and auto on every tenth
reading of activity with twenty landmarks, on two of five folds. Columns are scaled by the training data of a fold. In
each fold, the three values are chosen from the training data of the fold alone:

    evidence     `C="evidence"`, computed exactly, because there are fewer than 1,000 weights
    auto         `C="auto"`: a search on held-out sequences, one input after the other
    grid         all 27 combinations of 0.01, 1 and 100, by the log-loss in cross-validation of three folds over the
                 training sequences, and a last fit with the best combination

All fits end at a certified gap of 0.1 %. Scores are those of the tokens of the test fold: log-loss, accuracy and macro
F1. Seconds are CPU time of one fold on one thread, with all fits of the choice and the last one. Numba's compilation is
left out. Differences are paired over folds, with their standard error and the p-value of a paired t-test.

With three of five folds, standard errors are 1.3 times as wide as with all of them, and 1.6 times with two. An earlier
run, at commit 6d35dd3, had a grid of 125 combinations, with 0.1 and 10 too.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from typing import Any

import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, Input
from kernelcrf.metrics import log_loss
from studies import common
from studies.datasets import load_batteryless, load_occupancy

GRID = (0.01, 1.0, 100.0)
N_FOLDS, INNER_FOLDS, TOL = 5, 3, 1e-3
# Columns of the first and of the second input.
ACCELERATIONS, RADIO = [0, 1, 2], [3, 4, 5, 6]
COLUMNS = {"occupancy": ([2, 3], [0, 1, 4]), "activity": (ACCELERATIONS, RADIO), "dense": (ACCELERATIONS, RADIO)}
THINNED = {"occupancy": 10, "activity": 20, "dense": 10}
N_LANDMARKS = {"occupancy": 10, "activity": 10, "dense": 20}
RULES = {
    "occupancy": ("evidence", "auto", "grid"),
    "activity": ("evidence", "auto", "grid"),
    "dense": ("evidence", "auto"),
}
TITLES = {"occupancy": "Occupancy", "activity": "Activity", "dense": "Activity, every tenth reading"}
# What the two inputs hold, in the order of COLUMNS.
INPUTS = {
    "occupancy": ("light and CO2", "temperature and humidity"),
    "activity": ("acceleration", "radio"),
    "dense": ("acceleration", "radio"),
}


def load(task: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sequences of a task as pairs of columns and labels."""
    if task != "occupancy":
        data = load_batteryless()
        found = [(x[:, 1:], y) for x, y, room in zip(data.X, data.y, data.groups, strict=True) if room == "S1"]
    else:
        days = [load_occupancy(part, by_day=True) for part in ("train", "test1", "test2")]
        found = [pair for part in days for pair in zip(part.X, part.y, strict=True)]
    return [(np.asarray(x)[:: THINNED[task]], np.asarray(y)[:: THINNED[task]]) for x, y in found]


def model(task: str, C: float | str, first: float | None = None, second: float | None = None) -> ChainCRF:
    """Return a model whose transitions have the prior variance C; None gives an input the rule of the model."""
    inputs = {
        name: Input("rbf", columns=columns, n_components=N_LANDMARKS[task], C=own)
        for name, columns, own in zip(("first", "second"), COLUMNS[task], (first, second), strict=True)
    }
    return ChainCRF(inputs=inputs, C=C, tol=TOL, random_state=0)


def loss(fitted: ChainCRF, X: list[Any], y: list[Any]) -> float:
    return log_loss(y, fitted.predict_proba(X), fitted.classes_.tolist())


def search(task: str, X: list[Any], y: list[Any]) -> ChainCRF:
    """Fit the model with the values of the grid that have the lowest log-loss in cross-validation."""
    folds = list(KFold(INNER_FOLDS, shuffle=True, random_state=0).split(X))

    def validated(Cs: tuple[float, ...]) -> float:
        return sum(
            loss(model(task, *Cs).fit([X[i] for i in fitted], [y[i] for i in fitted]), *held_out_of(held))
            * sum(len(y[i]) for i in held)
            for fitted, held in folds
        )

    def held_out_of(held: np.ndarray) -> tuple[list[Any], list[Any]]:
        return [X[i] for i in held], [y[i] for i in held]

    return model(task, *min(itertools.product(GRID, repeat=3), key=validated)).fit(X, y)


def run(task: str, fold: int) -> dict[str, Any]:
    """Return scores, values of C and CPU seconds of each rule on one fold."""
    warnings.simplefilter("ignore")
    pairs = load(task)
    train, test = [pair for i, pair in enumerate(pairs) if i % N_FOLDS != fold], pairs[fold::N_FOLDS]
    scaler = StandardScaler().fit(np.concatenate([x for x, _ in train]))
    (X, y), (Z, z) = (([scaler.transform(x) for x, _ in part], [own for _, own in part]) for part in (train, test))
    for rule in ("evidence", "auto"):
        loss(model(task, rule).fit(X[:6], y[:6]), X[:1], y[:1])
    found: dict[str, Any] = {}
    for rule in RULES[task]:
        start = time.process_time()
        fitted = search(task, X, y) if rule == "grid" else model(task, rule).fit(X, y)
        seconds = time.process_time() - start
        truth, labels = np.concatenate(z), np.concatenate(list(fitted.predict(Z)))
        found[rule] = {
            "loss": loss(fitted, Z, z),
            "accuracy": float((truth == labels).mean()),
            "f1": float(f1_score(truth, labels, average="macro")),
            "C": [fitted.C_, *(fitted.input_variances_[name] for name in ("first", "second"))],
            "seconds": seconds,
        }
    return found | {"n_train": sum(map(len, y)), "n_test": sum(map(len, z))}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    tasks: dict[str, list[Any]] = {}
    for task in COLUMNS:
        for fold in range(getattr(options, task)):
            key = f"variances {task} {fold}"
            row = common.kept(key, lambda t=task, k=fold: common.in_process(run, t, k, **one_thread))
            tasks.setdefault(task, []).append(row)
            print(
                task, fold, {rule: [row[rule][k] for k in ("loss", "C", "seconds")] for rule in RULES[task]}, flush=True
            )
    return {"tasks": tasks, "combinations": len(GRID) ** 3}


def section(results: dict[str, Any]) -> str:
    tables, differences = [], []
    for task, rows in results["tasks"].items():
        values = {rule: {k: np.array([row[rule][k] for row in rows]) for k in rows[0][rule]} for rule in RULES[task]}
        lines = [
            [
                rule,
                common.plus_minus(own["loss"], 4),
                common.plus_minus(100 * own["accuracy"]),
                common.plus_minus(100 * own["f1"]),
                *(f"{float(f'{C:.2g}'):g}" for C in np.median(own["C"], axis=0)),
                f"{own['seconds'].mean():.1f}",
            ]
            for rule, own in values.items()
        ]
        names = [f"C, {name}" for name in ("transitions", *INPUTS[task])]
        header = ["C by", "log-loss", "accuracy", "macro F1", *names, "CPU seconds"]
        wider = common.of_all(len(rows), N_FOLDS, "folds")
        tables.append(f"**{TITLES[task]}, {len(rows)} folds.**{wider}\n\n{common.markdown(header, lines)}")
        *rules, reference = RULES[task]
        for rule in rules:
            cells = []
            for key, factor, digits in (("loss", 1, 4), ("accuracy", 100, 2), ("f1", 100, 2)):
                a, b = factor * values[rule][key], factor * values[reference][key]
                mean, error = common.mean_and_error(a - b)
                cells.append(f"{mean:+.{digits}f} ± {error:.{digits}f} ({common.paired_p(a, b):.2f})")
            ratio = values[reference]["seconds"].sum() / values[rule]["seconds"].sum()
            differences.append([f"{TITLES[task]}: {rule} - {reference}", *cells, f"{ratio:.1f}"])
    header = ["first - second", "log-loss (p)", "accuracy (p)", "macro F1 (p)", "seconds, second / first"]
    joined = "\n\n".join(tables)
    dense = results["tasks"]["dense"]
    told = []
    for key, factor, digits, what in (("accuracy", 100, 2, "points of accuracy"), ("loss", 1, 4, "in log-loss")):
        a, b = ([factor * row[rule][key] for row in dense] for rule in ("evidence", "auto"))
        told.append(f"{np.mean(a) - np.mean(b):+.{digits}f} {what} (p = {common.paired_p(a, b):.2f})")
    return f"""## One C per input

A model has two inputs and transitions, and each of the three has its own C. `C="evidence"` and `C="auto"` choose all
three in one call of `fit`; the grid tries {results.get("combinations", 125)} combinations in cross-validation. Numbers
are means over test folds with their standard error, medians of C, and CPU seconds of one fold.

The inputs of occupancy are light and CO2 beside temperature and humidity. Those of activity (room S1) are accelerations
beside the radio signal: antenna, strength, phase and frequency. To save time, occupancy has every tenth reading, and
activity every twentieth. A third table has every tenth reading of activity, without the grid.

{joined}

Differences, their standard error over folds and, in brackets, p of a paired t-test. The last column divides the seconds
of the second rule by those of the first:

{common.markdown(header, differences)}

On every tenth reading, `C="evidence"` differs from `C="auto"` by {" and ".join(told)}.
The evidence treats readings that follow each other closely as independent. So use it where tokens are few, and
`C="auto"` for signals with many readings per second.
"""


# How many of the five folds to measure.
OPTIONS = {"occupancy": 3, "activity": 2, "dense": 2}
