"""Segments: what a semi-Markov model adds to a chain, on one synthetic and five public tasks.

SegmentCRF scores whole segments: their durations, their first and last tokens and, with a kernel on segments, features
of all their tokens. ChainCRF has the same inputs and kernels on tokens, and the same rule for C. `segment_tasks.py`
defines the tasks.

Synthetic      three labels, two noisy numbers per token; durations of about 8, 10 and 12 tokens with a standard
               deviation of 1, or geometric with a mean of 10. The law that drew them gives the best possible
               predictions. One of three draws of training data and of 100 test sequences; C="auto" for all models;
               SegmentCRF without functions of first and last tokens, as the law
Addresses      two of the five folds of `accuracy.parsers`, with the features of usaddress
Proteins       inputs and folds of `accuracy.proteins`, with 400 landmarks; hand-made states are the first, inner and
               last residue of a run; max_duration=200 covers the longest run
Chunks         CoNLL-2000, the first 2,000 sentences of train, the usual templates of `accuracy.tagging_tasks`; C by the
               last tenth of train; the whole test set
Entities       WNUT-17, C by dev, then fitted to train and dev; templates of `accuracy.tagging_tasks`
Activities     room S1, the first two of five folds by trial, scaled columns with all defaults, and linear models of
               log-probabilities of a forest, which are out-of-fold in training; the HMM is that of
               `accuracy.activity`. SegmentCRF on columns has C = 1, to save the search

gamma and C of proteins are those of the best log-loss on 30 chains after fitting to 60 others. C of the other tasks
with a grid is that of the best score on held-out data, for addresses a fifth of the training part of the first fold.
On chunks and entities, SegmentCRF takes the C of the chain with IOBES labels, and at most 300 iterations.
Both are chosen one parameter after the other, from the middle of its grid. Except for the synthetic task,
SegmentCRF is fitted to a certified gap of 1 %, and the other models to 0.1 %. Labels of the synthetic task
and of proteins are the likeliest of each token; all others are the likeliest labelling. p-values are by bootstrap over
the test sequences of all folds. Seconds are CPU time of all fits with the chosen parameters, on one thread.

For its time, a run takes the parameters on file (`--choose 1` chooses them again), and measures the synthetic tasks,
addresses and proteins from CB513 to TS115. The tasks whose results are clear or negative stay on file, with the commit
that they are of; `--only NAME` measures the tasks whose name contains a text, and `--folds 5` all folds. With one of
three draws, standard errors are 1.7 times as wide, and with two of five folds 1.6 times.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from studies import common
from studies.accuracy.segment_tasks import Model, Split, Task, all_tasks

# The tasks of a run, and how many of their folds or draws it measures.
FOLDS = {"normal 20": 1, "normal 200": 1, "geometric 200": 1, "addresses": 2, "ts115": 1}


def fit_and_count(task: Task, model: Model, split: Split, use: str, params: dict[str, float]) -> dict[str, Any]:
    """Fit a model to the training data of a split; return counts per test sequence, and CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.make(**params, **task.sizes.get(use, {})).fit(split.X[model.inputs], split.y)
    seconds = time.process_time() - start
    return {"counts": task.count(fitted, split.Z[model.inputs], split.z), "seconds": seconds}


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


def run(name: str, task: Task, row: str, folds: int, params: dict[str, float] | None) -> dict[str, Any]:
    """Return the chosen parameters, the counts of all test sequences and the CPU seconds of a model."""
    chosen_in = "cb513" if name == "ts115" else name  # one choice serves both
    like = task.models[row].like or row
    if params is None:
        params = common.kept(f"segments {chosen_in} {like} chosen", lambda: choose(name, task, like))
    parts = []
    for k in range(folds):
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
    n = len(parts[task.reference]["counts"])
    draws = np.random.default_rng(0).integers(n, size=(2000, n))
    weights = np.stack([np.bincount(one, minlength=n) for one in draws]).astype(float)
    drawn = {row: task.scores(weights @ part["counts"]) for row, part in parts.items()}
    return {
        row: {
            "params": part["params"],
            "scores": task.scores(part["counts"].sum(axis=0)),
            "p": [common.tail_p(one) for one in (drawn[row] - drawn[task.reference]).T],
            "p_segments": [common.tail_p(one) for one in (drawn[row] - drawn["SegmentCRF"]).T],
            "seconds": part["seconds"],
        }
        for row, part in parts.items()
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    known = common.load("accuracy.segments") or {"tasks": {}}
    tasks: dict[str, Any] = {}
    for name, task in all_tasks().items():
        on_file = known["tasks"].get(name)
        if options.only in name if options.only else name in FOLDS:
            folds = min(options.folds or FOLDS.get(name, task.n_splits), task.n_splits)
            params = {} if options.choose or not on_file else {r: own["params"] for r, own in on_file["rows"].items()}
            parts = {row: run(name, task, row, folds, params.get(task.models[row].like or row)) for row in task.models}
            tasks[name] = {"folds": folds, "rows": compare(task, parts)}
        elif on_file:
            tasks[name] = common.carried(on_file, known)
    return {"tasks": tasks}


def section(results: dict[str, Any]) -> str:
    tables, missing = [], []
    for name, task in all_tasks().items():
        if name not in results["tasks"]:
            missing.append(task.title)
            continue
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
        done = results["tasks"][name]["folds"]
        part = f", {done} of {task.n_splits} folds or draws" if task.n_splits > 1 else ""
        if done < task.n_splits:
            part += f": standard errors {np.sqrt(task.n_splits / done):.1f} times as wide as with all"
        table = common.markdown([*header, "chosen", "CPU seconds"], lines)
        tables.append(f"**{common.marked(task.title, results['tasks'][name])}**{part}\n\n{table}")
    joined = "\n\n".join(tables)
    unknown = f"The study also defines these tasks, which have not been measured: {'; '.join(missing)}.\n"
    return f"""## Segments beside chains

p-values are those of differences to *ChainCRF* and to *SegmentCRF*, by bootstrap over test sequences. A commit marks
tasks of an earlier run.

{joined}

{TEXT}
{unknown if missing else ""}"""


TEXT = """The smallest p-value that the bootstrap can show is 0.001. If durations are far from geometric, SegmentCRF
comes close to the law that drew the data, and ChainCRF does not; if they are geometric, all models are equally good. On
addresses, SegmentCRF has more whole addresses
right than the chain; its C is at the end of the grid. Features of whole segments do not add to that; their row has
weights only for pairs of feature and label that occur in training, the other rows for all pairs. On proteins,
SegmentCRF is better than the chain; its lead on hand-made states is within the noise of the test chains, except for
the log-loss on the folds of CB513. On chunks and entities, SegmentCRF is about as good as the chain,
and no better than a chain with IOBES labels, which mark where a segment starts and ends. Features of whole segments
help a little on chunks, and do harm on entities. On activities, SegmentCRF is no better than the chain. Likely reasons
are that trials are few, and that many segments are longer than the 50 durations that have scores by default.

A run that is much longer than max_duration makes fits slow. With max_duration=50, one run of 195 residues left a gap
of 8 % after 150 iterations; without its chain, 101 iterations were enough for 1 %. A max_duration that covers the
longest run avoids this.
"""
OPTIONS = {"only": "", "folds": 0, "choose": 0}
