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
    CHAIN_MORE,
    CHAIN_STEPS,
    CHOSEN,
    COMMITTEE,
    CRFSUITE,
    STEPS,
    STEPS_L1,
    TASKS,
    Model,
    Split,
    Task,
)

CANDIDATES, ONE_BY_ONE, FOUND, MOST_TO_CHOOSE = 5, 100, 0.95, 800
INTRODUCTION = """\
**Data.** Each parser has its own training data and features: those of the packages usaddress and probablepeople, and
for GROBID its templates on columns that `studies.datasets.grobid_columns` computes. GROBID's dictionaries are not in
the data, so that the templates that read them are left out, for both libraries. An item is one address, name, date,
affiliation or reference.

**Rows.**

- *CRFsuite* has the penalties of parserator, which trains usaddress and probablepeople: c1 = 0.1, c2 = 0.01, without a
  limit of iterations. For GROBID it stands in for Wapiti, the CRF program of GROBID, with Wapiti's default penalties
  (c1 = 0.5, c2 = 0.00005) and at most 300 iterations.
- *ChainCRF* has the same features. It ends at a certified gap of 1 %.
- *features of steps* have weights for pairs of neighbouring labels; CRFsuite does not offer this. As in AnyStyle, these
  features are the first character, the case, the kind of number and the final character, of a token and of the token
  before.
- *more features* also has affixes, shapes, places and neighbours of tokens. CRFsuite was not given these.
- *Wapiti's penalties* are those of CRFsuite for GROBID, here `ElasticNet(0.5)` and C = 10,000. These rows stop after at
  most 300 iterations, because with such a large C the certified gap stays wide.
- *The model chosen in each training set* is the one of ours with the most right items on held-out training items. Ties
  are decided by right tokens, and then by the order of the rows.
- *committee*: each of our models proposes its five likeliest labellings. The committee takes the one with the highest
  mean log-probability over all our models. Its seconds and sizes are sums.

**Choices.** C is the value with the most right items on held-out training items: up to 800 training items are drawn,
and a fifth of them is held out. It never sees the test items of its fold. For usaddress, the features were chosen after
trials on the same addresses, so that rows with more features or features of steps, and the committee, may be slightly
too good.

**Columns.** p-values compare the wrong items of a row with those of CRFsuite, by bootstrap; 0.001 is the least. A field
is a run of tokens with the same label, or a span of tags such as B-DATE and I-DATE; it is right if its label and both
ends are right. *To review* assumes that the items with the least probable labelling are checked first. With few wrong
items, one of them can change it much. Seconds are the CPU time of all fits without the choice of C, kB the size of a
model file, and labels per second count CPU time, one item at a time, on one thread.
"""
NAMES = {
    CHAIN_MORE: "ChainCRF, more features",
    CHAIN_STEPS: "ChainCRF, features of steps",
    CHAIN_ALL: "ChainCRF, more features and features of steps",
    STEPS_L1: "ChainCRF, features of steps, Wapiti's penalties",
}


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
            NAMES.get(name, name),
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
    counts = Counter(NAMES.get(name, name) for name in models)
    return ", ".join(name if len(counts) == 1 else f"{name} ({n} of {len(models)})" for name, n in counts.most_common())


def facts(found: dict[str, Any], task: Task) -> str:
    """Return how the items of a task are divided, what was chosen, and the published figure, in words."""
    rows, chosen = found["rows"], found["rows"][CHOSEN]
    fits = f"{found['folds']} fits to" if found["folds"] > 1 else "One fit to"
    text = f"{fits} {found['trained']:,} items; {found['tested']:,} of {found['n_items']:,} items are tested."
    text += f" Chosen: {listed(chosen['models'])}."
    if len(set(chosen["models"])) > 1:
        text += " *To review* sorts items by probability; here, those of different models may not be comparable."
    ours = {row: rows[row]["items"] for row in task.models if row != CRFSUITE}
    least = min(ours, key=ours.__getitem__)
    if ours[least] < chosen["items"]:
        text += f" The best of ours on the test items is {NAMES.get(least, least)}, with {ours[least]:.2f} % wrong."
    text += " The true labelling is among the five likeliest of the chosen model"
    text += f" for {chosen['among']:.1f} % of the items."
    if task.published:
        text += f" GROBID publishes an F1 of {task.published} %, with its dictionaries and other test items."
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


def beyond(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Return how many parsers have fewer and more wrong items with a row than with another, in words."""
    better = [ours["p"] < 0.05 for ours, theirs in pairs if ours["items"] < theirs["items"]]
    worse = [ours["p"] < 0.05 for ours, theirs in pairs if ours["items"] > theirs["items"]]
    return (
        f"fewer wrong items than CRFsuite for {len(better) or 'none'} of {len(pairs)} parsers "
        f"({sum(better) or 'none'} beyond chance), and more for {len(worse) or 'none'} "
        f"({sum(worse) or 'none'} beyond chance)"
    )


def finding(tasks: dict[str, Any]) -> str:
    """Return what a maintainer of a parser learns, in words."""
    of_tasks = [found["rows"] for found in tasks.values()]
    same, chosen = ([(rows[name], rows[CRFSUITE]) for rows in of_tasks] for name in (CHAIN, CHOSEN))
    stepped = sum(
        all(TASKS[name].models[row].inputs == STEPS for row in found["rows"][CHOSEN]["models"])
        for name, found in tasks.items()
    )
    plain, steps = (cost(list(tasks.values()), rows) for rows in ([CHAIN], [CHAIN_STEPS, CHAIN_ALL]))
    lines = [
        [
            TASKS[name].title,
            f"{ours['items']:.2f}",
            f"{theirs['items']:.2f}",
            f"{ours['p']:.3f}",
            f"{ours['reviewed']:.0f}",
            f"{theirs['reviewed']:.0f}",
        ]
        for name, (ours, theirs) in zip(tasks, chosen, strict=True)
    ]
    head = ["parser", "items wrong, %: chosen model", "CRFsuite", "p", "to review, %: chosen model", "CRFsuite"]
    return f"""\
Parsers of addresses, names and references label the tokens of short texts. Here ChainCRF is beside CRFsuite on the data
of {len(tasks)} parsers; an item is wrong if one of its labels is.

- With the features of the parser itself, ChainCRF has {beyond(same)}.
- If held-out training items choose among our models, the chosen one has {beyond(chosen)}.
- For {stepped or "none"} of {len(tasks)} parsers, all chosen models read features of steps, which CRFsuite does not
  have.
- Our fits take {plain["seconds"]:.0f} % of CRFsuite's CPU time, those with features of steps {steps["seconds"]:.0f} %.
- Our files are larger for {plain["larger"]} of {len(tasks)} parsers; with features of steps, they are larger for
  {steps["larger"]}.
- One item at a time, our models are slower for {plain["slower"]} of {len(tasks)} parsers; with features of steps, they
  are slower for {steps["slower"]}.

{common.markdown(head, lines)}

*To review* is the share of all items that must be checked to find 95 % of the wrong ones. The rows and columns of all
tables are explained next."""


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

AnyStyle's references have [their own section](#bibliographic-references-with-features-of-steps), and SegmentCRF on
addresses is beside [other segments](results/signals.md#segments-beside-chains).
"""
