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
    tasks, tables = results["tasks"], []
    for name, task in all_tasks().items():
        lines = []
        for row, own in tasks[name]["rows"].items():
            cells = []
            for k, (_, factor, digits) in enumerate(task.columns):
                ps = [("ChainCRF", own["p"][k]), ("SegmentCRF", own["p_segments"][k])]
                shown = [f"{p:.3f}" if row != other else "" for other, p in ps]
                cells += [f"{factor * own['scores'][k]:.{digits}f}", *shown]
            chosen = ", ".join(f"{key} = {value:g}" for key, value in own["params"].items())
            lines.append([NAMES.get(row, row), *cells, chosen, f"{own['seconds']:.0f}"])
        header = ["model", *(cell for column, *_ in task.columns for cell in (column, "p, chain", "p, segments"))]
        folds = tasks[name]["folds"]
        what = "folds" if name == "addresses" else "draws of the data"
        part = f", {folds} {what}" if folds > 1 else ""
        tables.append(f"**{task.title}**{part}\n\n{common.markdown([*header, 'chosen', 'CPU seconds'], lines)}")
    joined = "\n\n".join(tables)
    return f"""## Segments beside chains

SegmentCRF scores properties of whole segments, such as their length. Is that better than a chain, which scores tokens
and steps?

- *Normal durations*: synthetic data, in which all segments of a label are about equally long. *Geometric durations*:
  the same, but lengths vary as a chain assumes.
- *US addresses*: the features of usaddress. *CB513 to TS115*: secondary structure of proteins; *Q3* is accuracy.
- *hand-made states*: a ChainCRF with extra labels for the first, the inner and the last token of a segment.
- *free durations*: each duration has a score of its own. *segment features*: features of whole segments.
- *true model*: the one that drew the data. No model is better on average.

*p, chain* and *p, segments* are those of differences to *ChainCRF* and to *SegmentCRF*, by bootstrap over test
sequences; 0.001 is the least.{common.of_all(tasks["addresses"]["folds"], 5, "folds of addresses")}

{joined}

{finding(tasks)}
"""


def finding(tasks: dict[str, Any]) -> str:
    """Return how SegmentCRF does beside the other models, in words."""

    def beside(task: str, other: str = "ChainCRF") -> str:
        """Return the difference in the first score, in points, and its p-value."""
        rows = tasks[task]["rows"]
        gain = 100 * (rows["SegmentCRF"]["scores"][0] - rows[other]["scores"][0])
        p = rows[other]["p_segments"][0]
        return f"{gain:+.2f} points (p = {p:.3f})"

    return f"""\
The share of right tokens, or of right addresses, of SegmentCRF minus that of ChainCRF:

- normal durations: {beside("normal 20")} after 20 training sequences, and {beside("normal 200")} after 200. The
  difference to the true model is then {beside("normal 200", TRUTH)};
- geometric durations, which a chain has already: {beside("geometric 200")};
- whole addresses: {beside("addresses")}. Features of segments change the share of SegmentCRF by
  {features(tasks["addresses"]["rows"])}. That row is not quite comparable: it has weights only for pairs of a feature
  and a label that occur in training;
- proteins: {beside("ts115")}. The difference to hand-made states is {beside("ts115", "hand-made states")}.

Set `max_duration` to the length of the longest segment, or a little more: a much larger value makes fits slow."""


def features(rows: dict[str, Any]) -> str:
    """Return what features of whole segments add to SegmentCRF, in points of whole addresses, and the p-value."""
    row = rows["SegmentCRF, segment features"]
    return f"{100 * (row['scores'][0] - rows['SegmentCRF']['scores'][0]):+.2f} points (p = {row['p_segments'][0]:.3f})"


TRUTH = "the law itself"
NAMES = {TRUTH: "true model"}
OPTIONS = {"choose": 0}
