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

    tasks = results["tasks"]
    lines = [(title, method, *cells(task, method)) for task, title in TASKS.items() for method in METHODS]
    table = common.markdown(("data", "probabilities", "log-loss", "calibration error", "error, %"), lines, (0, 1))
    temperatures = "; ".join(
        title + " " + " and ".join(f"{np.mean([row[key] for row in tasks[task]]):.2f}" for key in ("T", "tau"))
        for task, title in TASKS.items()
    )

    def beside_mode(method: str) -> list[float]:
        return [_mean(results, task, method) - _mean(results, task, "mode") for task in TASKS]

    def least_and_most(method: str) -> str:
        return " to ".join(f"{f(beside_mode(method)):+.3f}" for f in (min, max))

    n_worse = sum(change > 0 for change in beside_mode("average"))
    warning = " Do not use the plain average." if n_worse == len(TASKS) else ""
    n_whole = sum(
        _mean(results, task, "mode, all data") < min(_mean(results, task, method) for method in METHODS[:4])
        for task in TASKS
    )
    wider = common.of_all(len(tasks["segmentation"]), 5, "splits of GPstruct") + common.of_all(
        len(tasks["letters"]), 3, "splits of letters"
    )
    return f"""## Calibration and averages over the posterior

Are the probabilities right, and does it help to average over uncertain weights? Numbers are means and standard errors
over splits of the data; C is chosen by the evidence.{wider}

- *mode*: `predict_proba(X)`, with the fitted weights
- *temperature*: the same with all scores divided by T
- *average*: the mean over draws of the weights from their posterior
- *average, fitted*: the same after the covariance of the posterior is multiplied by tau
- *mode, all data*: the mode fitted to all training sequences; the others leave out a fifth, to which T and tau are
  fitted

{table}

Mean T and tau: {temperatures}. With T = 1 or tau = 0, the result is the mode.

The plain average has a higher log-loss than the mode on {n_worse} of {len(TASKS)} data sets. The differences are
{least_and_most("average")}.{warning} For *average, fitted*, the differences are {least_and_most("average, fitted")},
for *temperature* {least_and_most("temperature")}, and for *mode, all data* {least_and_most("mode, all data")}. The mode
on all data has the lowest log-loss of all on {n_whole} of {len(TASKS)} data sets.
"""


def _mean(results: dict[str, Any], task: str, method: str) -> float:
    return float(np.mean([row[method]["log_loss"] for row in results["tasks"][task]]))


OPTIONS = {"letters": 2, "splits": 3}
