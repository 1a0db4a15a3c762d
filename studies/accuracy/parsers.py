"""The parsers of the field, on their own data: addresses, names, references, citations, dates and affiliations.

`INTRODUCTION` has the protocol, which the page of results repeats; `parser_tasks.py` has data, features and models.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf.metrics import spans
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.accuracy.parser_tasks import (
    CHAIN,
    CHAIN_ALL,
    CHAIN_STEPS,
    CHOSEN,
    COMMITTEE,
    CRFSUITE,
    STEPS,
    TASKS,
    Model,
    Split,
    Task,
)

CANDIDATES, ONE_BY_ONE, FOUND, MOST_TO_CHOOSE = 5, 100, 0.95, 800
INTRODUCTION = """\
Each parser has its own training data and features: those of the packages usaddress and probablepeople, and for GROBID
its templates on columns that `studies.datasets.grobid_columns` computes. GROBID's dictionaries are not in the data, and
the templates that read them are left out, for both libraries. An item is an address, a name, a date, or all that one
author or one reference has. CRFsuite has the penalties of parserator (c1 = 0.1, c2 = 0.01, without a limit of
iterations) for usaddress and probablepeople. For GROBID it stands in for Wapiti, with Wapiti's default penalties
(c1 = 0.5, c2 = 0.00005) and at most 300 iterations.

*Signs of steps* are `references.signs`: the first character, the case, the kind of number and the final character of a
token and of the token before, with weights for pairs of neighbouring labels. *More signs* also has
`reference_features`: affixes, shapes, places and neighbours of tokens; CRFsuite was not given these. Our models end at
a certified gap of 1 %. Only those with *Wapiti's penalties*, `ElasticNet(0.5)` and C = 10,000 as in the first row, end
after at most 300 iterations: with so large a C, the gap that can be certified is wide.

C is the one with the most right items in a fifth of at most 800 training items, after a fit to the other four fifths.
The C of a fold is never chosen on its test items: it is chosen on items that no fold tests, or again in each fold. *The
model chosen in each training set* is the single one of ours with the most right items there, at its own C; of equal
ones it is the one with the most right tokens, or else the first one. The committee takes, among the five likeliest
labellings of each of our models, the one with the highest mean log-probability; all models of a table are members.
`accuracy.segments` has SegmentCRF on addresses.

The signs were made before these choices. Signs of steps are those of AnyStyle's references. For usaddress, the kinds of
signs and the idea of a committee were chosen after trials on other divisions of the same addresses, so that its rows
with more signs may be a little too good.

p-values compare the wrong items of a row with those of the first, by bootstrap. A field is a run of tokens with the
same label, or a span of tags such as B-DATE and I-DATE. It counts as right in the *F1 of fields* if its label and both
ends are right. *To review* is how much of the items a reviewer must check to see 95 % of the wrong ones, if the items
come in the order of the probability that the model gives to its whole labelling. Seconds are the CPU time of all fits
without the choice of C, kB the size of a model file, and labels per second count CPU time, one item at a time; all on
one thread. For a committee, they are sums.
"""


def best(crf: Any, X: list[Any]) -> list[list[tuple[list[str], float]]]:
    """Return the likeliest labellings of each item with their log-probabilities; CRFsuite gives one."""
    if not isinstance(crf, CRFsuite):
        ranked = crf.distribution(X).k_best(CANDIDATES)
        return [[(np.asarray(labels).tolist(), float(log_p)) for labels, log_p in one] for one in ranked]
    found = []
    for item in X:
        crf.tagger.set(item)
        labels = crf.tagger.tag()
        found.append([(labels, float(np.log(max(crf.tagger.probability(labels), 1e-300))))])
    return found


def n_right(crf: Any, X: list[Any], y: Sequence[list[str]]) -> tuple[int, int]:
    """Return how many items, and how many tokens, have the right labels."""
    own = common.right_tokens([np.asarray(one) for one in crf.predict(X)], y)
    return sum(int(one.all()) for one in own), sum(int(one.sum()) for one in own)


def choose(model: Model, X: list[Any], y: list[list[str]], items: np.ndarray) -> dict[str, Any]:
    """Return the C with the most right items in a fifth of some of the given ones, after a fit to four fifths.

    The numbers of right items and of right tokens in this fifth are with it.
    """
    items = np.random.default_rng(0).permutation(items)[:MOST_TO_CHOOSE]
    train, held = next(iter(KFold(5, shuffle=True, random_state=1).split(items)))
    scores = {}
    for C in model.grid:
        crf = model.make(C).fit([X[i] for i in items[train]], [y[i] for i in items[train]])
        scores[C] = n_right(crf, [X[i] for i in items[held]], [y[i] for i in items[held]])
    C = max(scores, key=lambda C: (scores[C], -C))
    return {"C": C, "right": scores[C]}


def labels_per_second(crf: Any, X: list[Any]) -> float:
    """Return how many tokens are labelled in a second of CPU time, one item at a time."""
    crf.predict(X[:1])
    start = time.process_time()
    n = sum(len(crf.predict([one])[0]) for one in X[:ONE_BY_ONE])
    return n / (time.process_time() - start)


def kB(crf: Any) -> float:
    """Return the size of the file of a model."""
    if isinstance(crf, CRFsuite):
        return crf.path.stat().st_size / 1e3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.kcrf"
        crf.save(path)
        return path.stat().st_size / 1e3


def prepared(name: str, row: str) -> tuple[Model, list[Any], list[list[str]], Sequence[Split]]:
    """Return a model, its inputs and labels of all items, and the splits."""
    task, model = TASKS[name], TASKS[name].models[row]
    words, y = task.read()
    return model, [task.inputs[model.inputs](one) for one in words], y, task.splits(len(words))


def choices(name: str, row: str) -> list[dict[str, Any]]:
    """Return what `choose` finds in the training items of each split, or once in items that no split tests."""
    model, X, y, splits = prepared(name, row)
    never_tested = np.setdiff1d(splits[0][0], np.concatenate([test for _, test in splits]))
    if 3 * len(never_tested) >= len(splits[0][0]):
        return [choose(model, X, y, never_tested)] * len(splits)
    return [choose(model, X, y, train) for train, _ in splits]


def run(name: str, row: str, values: Sequence[float | None]) -> dict[str, Any]:
    """Fit a model to the training items of each split; return the likeliest labellings of all test items.

    values : C of each split.
    """
    model, X, y, splits = prepared(name, row)
    found: dict[str, Any] = {"C": list(values), "seconds": 0.0, "items": []}
    model.make(values[0]).fit(X[:20], y[:20])
    for k, (C, (train, test)) in enumerate(zip(values, splits, strict=True)):
        fitted, labels, new = [X[i] for i in train], [y[i] for i in train], [X[i] for i in test]
        start = time.process_time()
        crf = model.make(C).fit(fitted, labels)
        found["seconds"] += time.process_time() - start
        found["items"] += best(crf, new)
        if k == 0:
            found |= {"kB": kB(crf), "rate": labels_per_second(crf, new)}
    return found


def committee(members: Sequence[list[Any]]) -> list[Any]:
    """Return the likeliest labelling of each item by the mean log-probability of several models.

    The labellings that are compared are the likeliest ones of each model, which normalise the mean. A labelling that
    is not among those of a model has the lowest log-probability of them.
    """
    found = []
    for one in zip(*members, strict=True):
        ranked = [{tuple(labels): log_p for labels, log_p in candidates} for candidates in one]
        every = sorted(set().union(*ranked))
        means = [np.mean([own.get(labels, min(own.values())) for own in ranked]) for labels in every]
        k = int(np.argmax(means))
        found.append([(list(every[k]), means[k] - float(np.logaddexp.reduce(means)))])
    return found


def count(labels: Sequence[str], truth: Sequence[str]) -> list[int]:
    """Return the numbers of wrong tokens, of all tokens, and of right, true and predicted fields of an item."""
    scheme = "lenient" if any(tag.startswith("B-") for tag in truth) or set(truth) <= {"O"} else "runs"
    true, own = (set(spans(tags, scheme)) for tags in (truth, labels))
    return [int((np.asarray(labels) != np.asarray(truth)).sum()), len(truth), len(true & own), len(true), len(own)]


def reviewed(wrong: np.ndarray, log_p: np.ndarray) -> float:
    """Return the share of the items, the least probable first, among which are 95 % of the wrong ones."""
    at = np.flatnonzero(wrong[np.argsort(log_p, kind="stable")])
    return float((at[int(np.ceil(FOUND * len(at))) - 1] + 1) / len(wrong)) if len(at) else 0.0


def scores(items: Sequence[Any], truth: Sequence[list[str]]) -> dict[str, Any]:
    """Return the scores of the likeliest labellings of all items, and which items are right."""
    counts = np.array([count(one[0][0], labels) for one, labels in zip(items, truth, strict=True)])
    wrong, sums = counts[:, 0] > 0, counts.sum(axis=0)
    return {
        "tokens": 100 * sums[0] / sums[1],
        "items": 100 * wrong.mean(),
        "f1": 200 * sums[2] / (sums[3] + sums[4]),
        "reviewed": 100 * reviewed(wrong, np.array([one[0][1] for one in items])),
        "among": 100 * np.mean([labels in [own for own, _ in one] for one, labels in zip(items, truth, strict=True)]),
        "right": (~wrong).tolist(),
    }


def best_rows(choices: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return, for each split, the model with the most right items, and of equals the most right tokens, held out."""
    n_splits = len(next(iter(choices.values())))
    return [max(choices, key=lambda row: tuple(choices[row][k]["right"])) for k in range(n_splits)]


def compare(name: str, task: Task) -> dict[str, Any]:
    """Return the rows of a task."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    _, y = task.read()
    splits = task.splits(len(y))
    parts, found = {}, {}
    for row, model in task.models.items():
        values: list[float | None] = [None] * len(splits)
        if model.grid:
            work = partial(common.in_process, choices, name, row, **one_thread)
            found[row] = common.kept(f"parsers choice {name} {row}", work)
            values = [one["C"] for one in found[row]]
        work = partial(common.in_process, run, name, row, values, **one_thread)
        parts[row] = common.kept(f"parsers {name} {row}", work)
        assert parts[row]["C"] == values, f"{name}, {row}: the cache has a fit with another C"
        print(name, row, found.get(row), f"{parts[row]['seconds']:.1f} s", flush=True)
    truth = [y[i] for _, test in splits for i in test]
    best_of = best_rows(found)
    model_of = [row for row, (_, test) in zip(best_of, splits, strict=True) for _ in test]
    chosen = [parts[row]["items"][i] for i, row in enumerate(model_of)]
    parts[CHOSEN] = {"items": chosen, "models": best_of, "C": []}
    parts[COMMITTEE] = {
        "items": committee([parts[row]["items"] for row in found]),
        "seconds": sum(parts[row]["seconds"] for row in found),
        "kB": sum(parts[row]["kB"] for row in found),
        "rate": 1 / sum(1 / parts[row]["rate"] for row in found),
        "C": [],
    }
    rows = {row: {**part, **scores(part.pop("items"), truth)} for row, part in parts.items()}
    theirs = [[one] for one in rows[CRFSUITE]["right"]]
    for row in rows.values():
        row["p"] = common.bootstrap_p([[one] for one in row.pop("right")], theirs)[1]
    tested = {row: [one["right"] for one in of_splits] for row, of_splits in found.items()}
    return {
        "n_items": len(y),
        "folds": len(splits),
        "trained": len(splits[0][0]),
        "tested": len(truth),
        "held out": tested,
        "rows": rows,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {"tasks": {name: compare(name, task) for name, task in TASKS.items()}}


def shown(C: Sequence[float | None]) -> str:
    """Return the values of C that were chosen, as text."""
    return ", ".join(f"{one:g}" for one in sorted({one for one in C if one is not None}))


def table(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            shown(row["C"]),
            f"{row['tokens']:.2f}",
            f"{row['items']:.2f}",
            "" if name == CRFSUITE else f"{row['p']:.3f}",
            f"{row['f1']:.2f}",
            f"{row['reviewed']:.0f}",
            *([f"{row['seconds']:.0f}", f"{row['kB']:,.0f}", f"{row['rate']:,.0f}"] if "kB" in row else [""] * 3),
        ]
        for name, row in found["rows"].items()
    ]
    header = ["", "C", "tokens wrong, %", "items wrong, %", "p", "F1 of fields, %", "to review, %"]
    return common.markdown([*header, "CPU seconds", "kB", "labels per second"], rows)


def listed(models: Sequence[str]) -> str:
    """Return the models that were chosen, with how often if there are several, as text."""
    counts = Counter(models)
    return ", ".join(name if len(counts) == 1 else f"{name} ({n} of {len(models)})" for name, n in counts.most_common())


def facts(found: dict[str, Any], task: Task) -> str:
    """Return how the items of a task are divided, what was chosen, and the published figure, in words."""
    fits = f"{found['folds']} fits to" if found["folds"] > 1 else "One fit to"
    text = f"{fits} {found['trained']:,} items, and {found['tested']:,} of {found['n_items']:,} items tested."
    chosen = found["rows"][CHOSEN]
    text += f" Chosen: {listed(chosen['models'])}. The true labelling is among the five likeliest of the chosen model "
    text += f"for {chosen['among']:.1f} %."
    if task.published:
        text += f" Published by GROBID, with its dictionaries and another division of the items: F1 {task.published} %."
    return text


def cost(tasks: Sequence[dict[str, Any]], rows: Sequence[str]) -> dict[str, float]:
    """Compare the first of some rows that each task has with CRFsuite: time, files and labels per second.

    The seconds of all fits are in percent of CRFsuite's; the other values count tasks.
    """
    of_tasks = [found["rows"] for found in tasks]
    pairs = [(next(own[row] for row in rows if row in own), own[CRFSUITE]) for own in of_tasks]
    return {
        "seconds": 100 * sum(ours["seconds"] for ours, _ in pairs) / sum(theirs["seconds"] for _, theirs in pairs),
        "larger": sum(ours["kB"] > theirs["kB"] for ours, theirs in pairs),
        "slower": sum(ours["rate"] < theirs["rate"] for ours, theirs in pairs),
    }


def finding(tasks: dict[str, Any]) -> str:
    """Return what a maintainer of a parser learns, in words."""
    lines, better, worse, stepped = [], [], [], 0
    for name, found in tasks.items():
        ours, theirs = found["rows"][CHOSEN], found["rows"][CRFSUITE]
        if ours["items"] != theirs["items"]:
            (better if ours["items"] < theirs["items"] else worse).append(ours["p"] < 0.05)
        stepped += all(TASKS[name].models[row].inputs == STEPS for row in ours["models"])
        lines.append(
            f"- {TASKS[name].title}: {ours['items']:.2f} % of the items wrong with the chosen model, and "
            f"{theirs['items']:.2f} % by CRFsuite (p = {ours['p']:.3f}). To find 95 % of the wrong items, check "
            f"{ours['reviewed']:.0f} % of all items with our model, and {theirs['reviewed']:.0f} % with CRFsuite's."
        )
    plain, steps = (cost(list(tasks.values()), rows) for rows in ([CHAIN], [CHAIN_STEPS, CHAIN_ALL]))
    joined = "\n".join(lines)
    return f"""With the features that a project has, the errors of ChainCRF and CRFsuite differ little, in either
direction; these fits of ours take {plain["seconds"]:.0f} % of CRFsuite's CPU time, and those with signs of steps
{steps["seconds"]:.0f} %. The model that each training set chooses among all single models of ours makes more items
right than CRFsuite for {len(better)} of {len(tasks)} parsers, with p < 0.05 for {sum(better) or "none"} of them. It
makes fewer items right for {len(worse)}, with p < 0.05 for {sum(worse) or "none"}. For {stepped} parsers, all chosen
models read signs of steps, which CRFsuite does not have. The files of ChainCRF are larger than CRFsuite's for
{plain["larger"]} parsers, and with signs of steps for {steps["larger"]}. One item at a time, ChainCRF labels fewer
tokens per second for {plain["slower"]} parsers, and with signs of steps for {steps["slower"]}.

{joined}"""


def references_table() -> str:
    """Return the rows of AnyStyle's references, which have a study of their own."""
    found = common.load("accuracy.references")
    if found is None:
        return ""
    rows = [
        [name, f"{row['tokens']:.2f}", f"{row['references']:.2f}", f"{row['seconds']:.0f}"]
        for name, row in found["rows"].items()
    ]
    return common.markdown(["", "tokens wrong, %", "items wrong, %", "CPU seconds"], rows)


def section(results: dict[str, Any]) -> str:
    tasks = results["tasks"]
    tables = [
        f"**{TASKS[name].title}.** {facts(found, TASKS[name])}\n\n{table(found)}" for name, found in tasks.items()
    ]
    joined = "\n\n".join(tables)
    return f"""## Parsers on their own data

{finding(tasks)}

{INTRODUCTION}
{joined}

**AnyStyle: references.** The rows of [their own section](#bibliographic-references-with-features-of-steps), which has
the protocol.

{references_table()}
"""
