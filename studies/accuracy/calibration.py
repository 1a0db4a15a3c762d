"""Are the probabilities right? The mode, a temperature, and averages over the posterior, on held-out data.

Segmentation and base noun phrases of GPstruct: linear kernel, the first `--splits` of the authors' five splits. Also
letters (rbf kernel on pixels, gamma = 0.03, 80 landmarks; train on one fold, test on 1,000 words of the others; the
first `--letters` splits). Of the training sequences of a split four fifths fit the model, with C by the evidence, and a
fifth finds the temperatures:

    mode                  `predict_proba(X)`
    temperature           `TemperatureScaling(model)`: scores divided by T, by the likelihood of held-out labelings
    average               `predict_proba(X, posterior="laplace")`, 100 draws (32 where the model has over 5,000 weights)
    average, fitted       `TemperatureScaling(model, posterior="laplace")`: its covariance times tau
    mode, all data        the mode fitted to all training sequences with the same C: no fifth is spent on a temperature

Log-loss and expected calibration error (15 bins) of tokens on test data; error is that of the likeliest labels.

To save time, three of five splits of GPstruct and two of three of letters are left, so that standard errors are 1.3 and
1.2 times as wide, and letters have 80 landmarks, not 150 as earlier.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, TemperatureScaling
from kernelcrf.metrics import expected_calibration_error, log_loss
from studies import common
from studies.common import kept
from studies.datasets import load_gpstruct, load_letters

TASKS = {"segmentation": "segmentation", "basenp": "base noun phrases", "letters": "letters"}
METHODS = ("mode", "temperature", "average", "average, fitted", "mode, all data")


def one(task: str, split: int) -> dict[str, Any]:
    start = time.perf_counter()
    data = load_letters("small") if task == "letters" else load_gpstruct(task)
    params = {"kernel": "rbf", "gamma": 0.03, "n_components": 80} if task == "letters" else {"kernel": "linear"}
    classes = np.unique(np.concatenate(data.y)).tolist()
    first, second = data.splits[split]
    if task == "letters":
        second = np.sort(np.random.default_rng(0).permutation(second)[:1000])
    train, test = data.take(first), data.take(second)
    order = np.random.default_rng(split).permutation(len(train.X))
    fitted, held = (train.take(np.sort(part)) for part in (order[len(order) // 5 :], order[: len(order) // 5]))

    def model(C: Any, laplace: bool) -> ChainCRF:
        return ChainCRF(C=C, classes=classes, laplace=laplace, tol=1e-4, random_state=0, **params)

    crf = model("evidence", True).fit(fitted.X, fitted.y)
    scaled = TemperatureScaling(crf).fit(held.X, held.y)
    averaged = TemperatureScaling(crf, posterior="laplace").fit(held.X, held.y)
    whole = model(crf.C_, False).fit(train.X, train.y)
    proba = {
        "mode": crf.predict_proba(test.X),
        "temperature": scaled.predict_proba(test.X),
        "average": crf.predict_proba(test.X, posterior="laplace"),
        "average, fitted": averaged.predict_proba(test.X),
        "mode, all data": whole.predict_proba(test.X),
    }
    truth = np.concatenate(test.y)
    found: dict[str, Any] = {
        name: {
            "log_loss": log_loss(test.y, p, classes),
            "calibration": expected_calibration_error(test.y, p, classes),
            "error": float((np.array(classes)[np.concatenate(p).argmax(axis=1)] != truth).mean()),
        }
        for name, p in proba.items()
    }
    return found | {
        "T": scaled.temperature_,
        "tau": averaged.temperature_,
        "C": crf.C_,
        "seconds": time.perf_counter() - start,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    tasks = {
        task: [
            kept(f"calibration {task} {split}", lambda t=task, s=split: one(t, s))
            for split in range(options.letters if task == "letters" else options.splits)
        ]
        for task in TASKS
    }
    return {"tasks": tasks, "seconds": sum(row["seconds"] for rows in tasks.values() for row in rows)}


def section(results: dict[str, Any]) -> str:
    def cells(task: str, method: str) -> tuple[str, ...]:
        rows = results["tasks"][task]
        found = [common.plus_minus([row[method][key] for row in rows], 3) for key in ("log_loss", "calibration")]
        return (*found, f"{100 * np.mean([row[method]['error'] for row in rows]):.2f}")

    lines = [(f"{title}: {method}", *cells(task, method)) for task, title in TASKS.items() for method in METHODS]
    table = common.markdown(("", "log-loss", "calibration error", "error, %"), lines)
    temperatures = "; ".join(
        f"{title} T {np.mean([row['T'] for row in results['tasks'][task]]):.2f}, "
        f"tau {np.mean([row['tau'] for row in results['tasks'][task]]):.2f}"
        for task, title in TASKS.items()
    )
    best = {task: min(METHODS[:4], key=lambda m, t=task: _mean(results, t, m)) for task in TASKS}
    worse = ", ".join(
        f"{TASKS[task]} {_mean(results, task, 'mode'):.3f} -> {_mean(results, task, 'average'):.3f}" for task in TASKS
    )
    winners = "; ".join(f"{TASKS[task]}: {method}" for task, method in best.items())
    return f"""## Calibration and averages over the posterior

C by the evidence; mean and standard error over splits.

{table}

Mean temperatures: {temperatures}. Least log-loss among those fitted to the same sequences: {winners}. The plain average
against the mode: {worse}.
"""


def _mean(results: dict[str, Any], task: str, method: str) -> float:
    return float(np.mean([row[method]["log_loss"] for row in results["tasks"][task]]))


OPTIONS = {"letters": 2, "splits": 3}
