"""A model adapts to a new room, a new speaker or new words by a few of their sequences.

A model of the source is fitted once. It is then updated with the first k sequences of a target, and tested on the last
sequences of the target, which are the same for all k.

    activity   rooms (batteryless sensors): source S1, 60 trials; target S2, 27 trials, of which the last 7 of a random
               order are for testing; six orders. Columns are scaled by the source, rbf kernel.
    prosody    speakers (Helsinki Prosody Corpus, two grades): source dev; targets are the speakers of test
               with 60 sentences or more, the last 30 for testing. Linear kernel on words, neighbours and endings;
               tokens without a label are left out.
    letters    handwritten words: source fold 0; targets are folds 1 to 3 in a random order, the last 300 words for
               testing. rbf kernel on pixels, gamma = 0.03. Folds are random, so that there is little to adapt to.

rbf kernels have 100 landmarks, and up to 150 after an update; those of letters 50 and 75. Models:

    source only         the model of the source; C="auto"
    target only         a fit to the k sequences alone; C="auto"
    update, Hessian     `prior=source`, which has `laplace=True`; C is that of the source; not for prosody, where the
                        model has more than 5,000 weights
    update, diagonal    `prior=source`, which has `laplace="diagonal"`; C is that of the source
    update, means       `prior=source` without its posterior; C="auto"
    refit               a fit to the source and the k sequences; C is that of the source; not for prosody, and for
                        activity with 1 and 3 trials

Scores are token errors and log-losses, means over targets. p-values are those of paired t-tests over targets, of the
errors and of the log-losses of the first update in this list that there is, to the better one of source only and target
only. Orders of activity share their trials, so that its p-values are too small.

To save time, updates with 20 trials of activity and with 3 words of letters were dropped, and most refits. Activity has
six orders, not eight as earlier, so that its standard errors are 1.15 times as wide. Letters have half of the
landmarks.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, datasets
from kernelcrf.metrics import log_loss
from studies import common
from studies.datasets import load_batteryless, load_letters

SIZES = {"activity": (1, 3, 10), "prosody": (1, 3, 10, 30), "letters": (30,)}
REFITTED: dict[str, tuple[int, ...]] = {"activity": (1, 3), "prosody": (), "letters": (30,)}
LANDMARKS = {"activity": (100, 150), "letters": (50, 75)}  # of a fit, and after an update
TITLES = {
    "activity": "activity, room S1 to S2",
    "prosody": "prosody, new speakers",
    "letters": "letters, other folds",
}
SOURCE, TARGET, REFIT = "source only", "target only", "refit"
HESSIAN, DIAGONAL, MEANS = "update, Hessian", "update, diagonal", "update, means"
MODELS = (SOURCE, TARGET, HESSIAN, DIAGONAL, MEANS, REFIT)
TOL, N_ORDERS = 1e-3, 6
Pairs = list[tuple[Any, Any]]


def activity() -> tuple[Pairs, list[tuple[Pairs, Pairs]]]:
    data = load_batteryless()
    rooms = {room: [k for k, group in enumerate(data.groups) if group == room] for room in ("S1", "S2")}
    scale = StandardScaler().fit(np.concatenate([data.X[k][:, 1:] for k in rooms["S1"]]))
    pairs = {room: [(scale.transform(data.X[k][:, 1:]), data.y[k]) for k in own] for room, own in rooms.items()}
    targets = []
    for seed in range(N_ORDERS):
        own = [pairs["S2"][k] for k in np.random.default_rng(seed).permutation(len(pairs["S2"]))]
        targets.append((own[:20], own[20:]))
    return pairs["S1"], targets


def words_of(data: Any) -> dict[str, Pairs]:
    """Return the sentences of each speaker, as feature dicts and grades, without tokens that have no grade."""
    found: dict[str, Pairs] = {}
    for x, y, speaker in zip(data.X, data.y, data.groups, strict=True):
        words = ["<", *(token["word"].lower() for token, grade in zip(x, y, strict=True) if grade >= 0), ">"]
        tokens = [
            {"word": word, "end": word[-3:], "before": words[t], "after": words[t + 2], "bias": 1.0}
            for t, word in enumerate(words[1:-1])
        ]
        if tokens:
            found.setdefault(str(speaker), []).append((tokens, y[np.asarray(y) >= 0]))
    return found


def prosody() -> tuple[Pairs, list[tuple[Pairs, Pairs]]]:
    source = [pair for own in words_of(datasets.load_prosody("dev", n_classes=2)).values() for pair in own]
    speakers = words_of(datasets.load_prosody("test", n_classes=2)).values()
    targets = [(own[:30], own[-30:]) for own in speakers if len(own) >= 60]
    return source, targets


def letters() -> tuple[Pairs, list[tuple[Pairs, Pairs]]]:
    data = load_letters("small")
    # The same word stands many times in a row, written by others.
    rng = np.random.default_rng(0)
    folds = [[(data.X[k], data.y[k]) for k in rng.permutation(train)] for train, _ in data.splits[:4]]
    return folds[0], [(own[:30], own[-300:]) for own in folds[1:]]


TASKS = {"activity": activity, "prosody": prosody, "letters": letters}


def model(task: str, **settings: Any) -> ChainCRF:
    kernel = {"kernel": "linear"} if task == "prosody" else {"kernel": "rbf", "n_components": LANDMARKS[task][0]}
    gamma = {"gamma": 0.03} if task == "letters" else {}
    return ChainCRF(**{"tol": TOL, "decoding": "marginal", "random_state": 0} | kernel | gamma | settings)


def scores(crf: ChainCRF, test: Pairs) -> tuple[float, float]:
    X, y = [x for x, _ in test], [y for _, y in test]
    classes = crf.classes_.tolist()
    known = [[label if label in classes else None for label in np.asarray(one).tolist()] for one in y]
    return 1 - crf.score(X, y), log_loss(known, crf.predict_proba(X), classes)


def one_target(task: str, sources: dict[str, ChainCRF], pairs: Pairs, target: tuple[Pairs, Pairs]) -> dict[int, Any]:
    """Return errors and log-losses of all models, for each number of sequences, and the seconds of the first update."""
    (few, test), first = target, next(iter(sources.values()))
    own, found = {} if task == "prosody" else {"n_components": LANDMARKS[task][1]}, {}
    for k in SIZES[task]:
        X, y = [x for x, _ in few[:k]], [y for _, y in few[:k]]
        start = time.process_time()
        fits = {next(iter(sources)): model(task, prior=first, **own).fit(X, y)}
        spent = time.process_time() - start
        fits |= {name: model(task, prior=prior, **own).fit(X, y) for name, prior in sources.items() if name not in fits}
        fits |= {
            SOURCE: first,
            TARGET: model(task, classes=first.classes_.tolist()).fit(X, y),
        }
        if k in REFITTED[task]:
            all_X, all_y = [x for x, _ in [*pairs, *few[:k]]], [y for _, y in [*pairs, *few[:k]]]
            fits[REFIT] = model(task, C=first.C_, **own).fit(all_X, all_y)
        found[k] = {name: scores(fits[name], test) for name in MODELS if name in fits} | {"seconds": spent}
    return found


def one(task: str) -> dict[str, Any]:
    pairs, targets = TASKS[task]()
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    start = time.process_time()
    first = model(task, laplace="diagonal" if task == "prosody" else True).fit(X, y)
    spent = time.process_time() - start
    sources = {DIAGONAL if task == "prosody" else HESSIAN: first}
    sources |= {
        DIAGONAL: model(task, C=first.C_, laplace="diagonal").fit(X, y),
        MEANS: model(task, C=first.C_).fit(X, y),
    }
    rows = []
    for number, target in enumerate(targets):
        rows.append(one_target(task, sources, pairs, target))
        print(task, number, rows[-1], flush=True)
    return {
        "sizes": {
            f"{k}": {name: [row[k][name] for row in rows] for name in MODELS if name in rows[0][k]} for k in SIZES[task]
        },
        "update_seconds": float(np.mean([row[k]["seconds"] for row in rows for k in SIZES[task]])),
        "source_seconds": spent,
        "n_source": len(pairs),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    return {"tasks": {task: common.kept(f"adaptation {task}", lambda t=task: one(t)) for task in TASKS}}


def section(results: dict[str, Any]) -> str:
    lines, lower, higher, n_p = [], dict[str, list[str]](), dict[str, list[str]](), 0
    for task, found in results["tasks"].items():
        for k, rows in found["sizes"].items():
            ours, compared = HESSIAN if HESSIAN in rows else DIAGONAL, []
            values = {name: np.array(own).T for name, own in rows.items()}  # errors and log-losses
            for i, (what, factor, digits) in enumerate((("error", 100, 2), ("log-loss", 1, 4))):
                other = min((SOURCE, TARGET), key=lambda name, i=i: values[name][i].mean())
                difference = factor * float((values[ours][i] - values[other][i]).mean())
                p = common.paired_p(values[ours][i].tolist(), values[other][i].tolist())
                compared.append(f"{difference:+.{digits}f} ({p:.3f})")
                n_p += 1
                if p < 0.05:
                    (lower if difference < 0 else higher).setdefault(what, []).append(f"{TITLES[task]} ({k})")
            cells = (
                f"{100 * values[name][0].mean():.2f}, {values[name][1].mean():.3f}" if name in rows else ""
                for name in MODELS
            )
            lines.append((TITLES[task], k, *cells, *compared))
    header = ("task", "sequences", *MODELS, "difference of errors (p)", "difference of log-losses (p)")
    facts = "\n".join(
        f"- {TITLES[task]}: {len(next(iter(found['sizes'].values()))[SOURCE])} targets, "
        f"{found['n_source']:,} sequences in the source, {found['update_seconds']:.1f} s per update, "
        f"{found['source_seconds']:.1f} s for the source"
        for task, found in results["tasks"].items()
    )
    told = "\n".join(
        f"- {side} {what}: {'; '.join(where[what]) if what in where else 'none'}"
        for what in ("error", "log-loss")
        for side, where in (("lower", lower), ("higher", higher))
    )
    n_orders = len(next(iter(results["tasks"]["activity"]["sizes"].values()))[SOURCE])
    fewer = " of 8" if n_orders < 8 else ""
    return f"""## Adaptation to a new room, speaker or fold

A model of the source, such as one room, is updated with a few sequences of the target, such as another room, by
`ChainCRF(prior=source)`. Cells are the token error in % and the log-loss on other sequences of the target, means over
targets.

- *source only*: the model of the source as it is
- *target only*: a fit to the few sequences of the target alone
- *update, Hessian*: the prior is the source with its posterior; *diagonal*: only the precision of each weight is kept;
  *means*: only the weights are kept
- *refit*: a fit to the source and the few sequences

With a kernel, the source has few landmarks to save time, and updates and refits may have more.
[Sensors](results/signals.md#activities-and-occupancy-from-sensors) has a better model of the first room.

The last two columns compare the first update that a row has, from the left, with the better one of *source only* and
*target only*. They have the difference in error and in log-loss, with p of a paired t-test over targets. Which of the
two is better is known only from the test scores.

{common.markdown(header, lines)}

{facts}

For activity, a target is room S2 with its trials in a random order. To save time, {n_orders}{fewer} orders are run.
Orders share their trials, so that p is too small. For prosody, a target is a speaker. For letters, it is a fold. Folds
are random, so that there is little to adapt to.

Where the leftmost update differs with p < 0.05, with the number of sequences in brackets:

{told}

The table has {n_p} p-values, so that one near 0.05 says little.{far_source(results)}
"""


def far_source(results: dict[str, Any]) -> str:
    """Return a sentence on the update by one trial of a new room, if the refit makes fewer errors than it."""
    rows = results["tasks"]["activity"]["sizes"].get("1", {})
    if not {REFIT, HESSIAN} <= set(rows):
        return ""
    update, refit = (100 * float(np.array(rows[name]).T[0].mean()) for name in (HESSIAN, REFIT))
    if refit >= update:
        return ""
    return f"""

With one trial of a new room, an update has {update:.2f} % errors, and a refit {refit:.2f} %. If the target is far from
the source, the posterior probably describes the data of the source poorly."""
