"""Segments: what a semi-Markov model adds to a chain, on synthetic sequences, addresses and proteins.

SegmentCRF scores whole segments: their durations, their first and last tokens and, with a kernel on segments, features
of all their tokens. ChainCRF has the same inputs and kernels on tokens, and the same rule for C. `segment_tasks.py`
defines the tasks.

Synthetic      three labels, two noisy numbers per token; durations of about 8, 10 and 12 tokens with a standard
               deviation of 1, or geometric with a mean of 10. The law that drew them gives the best possible
               predictions. One draw of training data and of 100 test sequences; C="auto" for all models; SegmentCRF
               without functions of first and last tokens, as the law
Addresses      two of the five folds of `accuracy.parsers`, with the features of usaddress
Proteins       CB513 to TS115, with the inputs of `accuracy.proteins` and 400 landmarks; hand-made states are the first,
               inner and last residue of a run; max_duration=200 covers the longest run

gamma and C of proteins are those of the best log-loss on 30 chains after fitting to 60 others. C of addresses is that
of the best score on a fifth of the training part of the first fold. They are chosen one parameter after the other, from
the middle of its grid. For their time, the choices on file are taken; `--choose 1` makes them again. Except for the
synthetic task, SegmentCRF is fitted to a certified gap of 1 %, and the other models to 0.1 %. Labels of addresses are
the likeliest labelling, and all others are the likeliest of each token. p-values are by bootstrap over the test
sequences of all folds. Seconds are CPU time of all fits with the chosen parameters, on one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from studies import common
from studies.accuracy.segment_tasks import Model, Split, Task, all_tasks


def fit_and_count(task: Task, model: Model, split: Split, use: str, params: dict[str, float]) -> dict[str, Any]:
    """Fit a model to the training data of a split; return counts per test sequence, and CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.make(**params, **task.sizes.get(use, {})).fit(split.X, split.y)
    seconds = time.process_time() - start
    return {"counts": task.count(fitted, split.Z, split.z), "seconds": seconds}


def choose(name: str, task: Task, row: str) -> dict[str, float]:
    """Return the values of the grid with the best held-out score, one parameter after the other."""
    model = task.models[row]
    if not model.grid or task.choice is None:
        return {}
    split, (index, sign) = task.choice(), task.criterion
    best = {key: values[len(values) // 2] for key, values in model.grid.items()}

    def score(params: dict[str, float]) -> float:
        found = fit_and_count(task, model, split, "choice", params)
        value = sign * float(task.scores(found["counts"].sum(axis=0))[index])
        print(name, row, params, value, f"{found['seconds']:.1f} s", flush=True)
        return value

    highest = score(best)
    for key, values in model.grid.items():
        for value in [one for one in values if one != best[key]]:
            if (found := score(best | {key: value})) > highest:
                highest, best = found, best | {key: value}
    return best


def run(name: str, task: Task, row: str, params: dict[str, float] | None) -> dict[str, Any]:
    """Return the chosen parameters, the counts of all test sequences and the CPU seconds of a model."""
    if params is None:
        params = common.kept(f"segments {name} {row} chosen", lambda: choose(name, task, row))
    parts = []
    for k in range(task.n_splits):
        work = lambda k=k: fit_and_count(task, task.models[row], task.split(k), "fit", params)  # noqa: E731
        parts.append(common.kept(f"segments {name} {row} {params} {k}", work))
        found = task.scores(parts[-1]["counts"].sum(axis=0))
        print(name, row, k, params, found, f"{parts[-1]['seconds']:.1f} s", flush=True)
    return {
        "params": params,
        "counts": np.concatenate([part["counts"] for part in parts]),
        "seconds": sum(part["seconds"] for part in parts),
    }


def compare(task: Task, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the scores of all models, with p-values of differences to ChainCRF, and to SegmentCRF."""
    n = len(parts["ChainCRF"]["counts"])
    draws = np.random.default_rng(0).integers(n, size=(2000, n))
    weights = np.stack([np.bincount(one, minlength=n) for one in draws]).astype(float)
    drawn = {row: task.scores(weights @ part["counts"]) for row, part in parts.items()}
    return {
        row: {
            "params": part["params"],
            "scores": task.scores(part["counts"].sum(axis=0)),
            "p": [common.tail_p(one) for one in (drawn[row] - drawn["ChainCRF"]).T],
            "p_segments": [common.tail_p(one) for one in (drawn[row] - drawn["SegmentCRF"]).T],
            "seconds": part["seconds"],
        }
        for row, part in parts.items()
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    known = {} if options.choose else (common.load("accuracy.segments") or {}).get("tasks", {})
    tasks: dict[str, Any] = {}
    for name, task in all_tasks().items():
        on_file = known.get(name, {"rows": {}})["rows"]
        parts = {row: run(name, task, row, on_file.get(row, {}).get("params")) for row in task.models}
        tasks[name] = {"folds": task.n_splits, "rows": compare(task, parts)}
    return {"tasks": tasks}


def section(results: dict[str, Any]) -> str:
    tables = []
    for name, task in all_tasks().items():
        lines = []
        for row, own in results["tasks"][name]["rows"].items():
            cells = []
            for k, (_, factor, digits) in enumerate(task.columns):
                ps = [("ChainCRF", own["p"][k]), ("SegmentCRF", own["p_segments"][k])]
                shown = [f"{p:.3f}" if row != other else "" for other, p in ps]
                cells += [f"{factor * own['scores'][k]:.{digits}f}", *shown]
            chosen = ", ".join(f"{key} = {value:g}" for key, value in own["params"].items())
            lines.append([row, *cells, chosen, f"{own['seconds']:.0f}"])
        header = ["model", *(cell for column, *_ in task.columns for cell in (column, "p, chain", "p, segments"))]
        folds = results["tasks"][name]["folds"]
        part = f", {folds} folds or draws" if folds > 1 else ""
        tables.append(f"**{task.title}**{part}\n\n{common.markdown([*header, 'chosen', 'CPU seconds'], lines)}")
    joined = "\n\n".join(tables)
    return f"""## Segments beside chains

p-values are those of differences to *ChainCRF* and to *SegmentCRF*, by bootstrap over test sequences.

{joined}

{TEXT}"""


TEXT = """The smallest p-value that the bootstrap can show is 0.001. If durations are far from geometric, SegmentCRF
comes close to the law that drew the data, and ChainCRF does not; if they are geometric, all models are equally good. On
addresses, SegmentCRF has more whole addresses right than the chain. Features of whole segments do not add to that;
their row has weights only for pairs of feature and label that occur in training, the other rows for all pairs. On
proteins, SegmentCRF is better than the chain, and about as good as hand-made states. Choose a max_duration that covers
the longest run: one that is much longer than max_duration makes fits slow.
"""
OPTIONS = {"choose": 0}
