"""C by the evidence, without held-out data, against the best C of a grid in hindsight.

GPstruct's four tasks: linear kernel on the authors' features, the first `--splits` of their five splits. Also letters
(rbf kernel on pixels, gamma = 0.03, 500 landmarks; train on one fold, test on 1,000 words of the other nine; the first
`--letters` splits). Token error, decoded by the marginals. For each split

    evidence     `ChainCRF(C="evidence")`: no label but those of training is seen
    grid         every C of the grid, scored on the test data; "hindsight" is the C with the least mean error over the
                 splits of a task, which nobody can choose beforehand
    held out     the C of the grid with the least error on a fifth of the training sequences, fitted anew to all of them

To save time, three of five and two of three splits are left, and not all test words of letters: standard errors are 1.3
times as wide on GPstruct's tasks, and 1.2 times on letters.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from studies import common
from studies.common import kept
from studies.datasets import load_gpstruct, load_letters

TASKS = {
    "basenp": "base noun phrases",
    "chunking": "chunking",
    "segmentation": "segmentation",
    "japanesene": "Japanese named entities",
    "letters": "letters",
}
GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
N_TESTED = 1000  # words of letters


def load(task: str) -> tuple[Any, dict[str, Any]]:
    if task == "letters":
        return load_letters("small"), {"kernel": "rbf", "gamma": 0.03, "n_components": 500}
    return load_gpstruct(task), {"kernel": "linear"}


def one(task: str, split: int) -> dict[str, Any]:
    data, params = load(task)
    classes = np.unique(np.concatenate(data.y)).tolist()
    first, second = data.splits[split]
    if task == "letters":
        second = np.sort(np.random.default_rng(0).permutation(second)[:N_TESTED])
    train, test = data.take(first), data.take(second)

    def model(C: Any) -> ChainCRF:
        return ChainCRF(C=C, classes=classes, decoding="marginal", tol=1e-3, random_state=0, **params)

    def errors(of: Any, on: Any) -> list[float]:
        return [1 - model(C).fit(of.X, of.y).score(on.X, on.y) for C in GRID]

    start = time.perf_counter()
    found = model("evidence").fit(train.X, train.y)
    seconds = time.perf_counter() - start
    error, grid = 1 - found.score(test.X, test.y), errors(train, test)
    start = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(train.X))
    inner = [train.take(np.sort(part)) for part in (order[len(order) // 5 :], order[: len(order) // 5])]
    choice = int(np.argmin(errors(*inner)))
    return {
        "C": found.C_,
        "error": error,
        "evidence": found.log_marginal_likelihood(),
        "evidence_seconds": seconds,
        "grid": grid,
        "held": grid[choice],
        "held_C": GRID[choice],
        "held_seconds": time.perf_counter() - start,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    tasks = {
        task: [
            kept(f"evidence {task} {split}", lambda t=task, s=split: one(t, s))
            for split in range(options.letters if task == "letters" else options.splits)
        ]
        for task in TASKS
    }
    return {"tasks": tasks}


def section(results: dict[str, Any]) -> str:
    lines = []
    for task, title in TASKS.items():
        rows = results["tasks"][task]
        grid = 100 * np.mean([row["grid"] for row in rows], axis=0)
        best = int(grid.argmin())
        error = 100 * float(np.mean([row["error"] for row in rows]))
        gap = round(error, 2) - round(float(grid[best]), 2)
        lines.append(
            (
                title,
                f"{len(rows)}",
                f"{error:.2f}",
                " to ".join(dict.fromkeys(f"{f([row['C'] for row in rows]):.1f}" for f in (min, max))),
                f"{grid[best]:.2f} (C = {GRID[best]:g})",
                f"{gap:+.2f}",
                f"{100 * np.mean([row['held'] for row in rows]):.2f}",
                f"{np.mean([row['evidence_seconds'] for row in rows]):.1f}",
            )
        )
    header = (
        "task",
        "splits",
        "evidence, %",
        "its C",
        "best C in hindsight, %",
        "evidence - best",
        "held out, %",
        "seconds",
    )
    above = [float(line[5]) for line in lines]
    fewer = sum(float(line[2]) < float(line[6]) for line in lines)
    n_splits = len(results["tasks"]["segmentation"])
    wider = common.of_all(n_splits, 5, "splits of GPstruct") + common.of_all(
        len(results["tasks"]["letters"]), 3, "splits of letters"
    )
    curves = [
        (title, *(f"{100 * e:.2f}" for e in np.mean([row["grid"] for row in results["tasks"][task]], axis=0)))
        for task, title in TASKS.items()
    ]
    return f"""## C by the evidence

How good is the C that `C="evidence"` chooses from the training labels alone? Numbers are token errors, means over
splits of the data.{wider}

- *evidence*: the error with `C="evidence"`, the range of the C that it chose, and the seconds that the fit took
- *best C in hindsight*: the C of the grid below with the lowest test error, one for all splits, which nobody can know
  before
- *held out*: in each split, C is chosen on a fifth of the training sequences; then the model is fitted to all of them

{common.markdown(header, lines)}

The error with `C="evidence"` differs from that of the best C in hindsight by {min(above):+.2f} to {max(above):+.2f}
points. It is below that of *held out* on {fewer} of {len(lines)} tasks.

The grid, token error in % by C:

{common.markdown(("task", *(f"{C:g}" for C in GRID)), curves)}
"""


OPTIONS = {"letters": 2, "splits": 3}
