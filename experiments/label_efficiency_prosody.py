"""How many labelled sentences does prosody need? Kernel CRF, linear CRF and a classifier of single tokens.

Helsinki Prosody, final labels, 2 grades. 10 to all sentences of dev, drawn at random (5 draws; one of all), a fixed
test set: 500 sentences of test, drawn once. Features: the lexical ones of a window of five words and 200 principal
components of MiniLM's vectors (of all of dev's text, no labels), each group of mean square norm one; no rates, which
need labels of their own. C is chosen for each draw by cross-validation over its sentences, gamma is 0.2.

    kernel CRF   ChainCRF, rbf
    linear CRF   ChainCRF, linear
    per token    Nystroem features of the same rbf and logistic regression, no chain
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import baselines
import common
from embeddings import folder
from kernelcrf import ChainCRF
from prosody import beside, components, cut, rows_of, scaled
from prosody_text import lexical, sentences

GAMMA = 0.2
GRID = dict.fromkeys(("kernel CRF", "linear CRF", "per token"), (0.1, 1.0, 10.0))


def make(name: str, C: float, n_tokens: int) -> Any:
    n = min(700, n_tokens)
    if name == "kernel CRF":
        return ChainCRF("rbf", gamma=GAMMA, C=C, n_components=n, decoding="marginal", tol=1e-3, random_state=0)
    if name == "linear CRF":
        return ChainCRF("linear", C=C, decoding="marginal", tol=1e-3)
    return baselines.nystroem(C, GAMMA, n)


def fit_and_score(name: str, C: float, train: Any, test: Any) -> float:
    model = make(name, C, sum(len(one) for one in train[1])).fit(*train)
    right = [np.asarray(a == b) for a, b in zip(model.predict(test[0]), test[1], strict=True)]
    return 100 * common.accuracy(right)


def choose(name: str, X: list[np.ndarray], y: list[np.ndarray]) -> float:
    """C by 3-fold cross-validation; of large draws, one fold of it."""
    found = np.zeros(len(GRID[name]))
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    for inner, held in folds if len(X) <= 100 else folds[:1]:
        train = [X[i] for i in inner], [y[i] for i in inner]
        test = [X[i] for i in held], [y[i] for i in held]
        found += [fit_and_score(name, C, train, test) for C in GRID[name]]
    return GRID[name][int(np.argmax(found))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore", ConvergenceWarning)
    dev, test = sentences("dev", 2), sentences("test", 2)
    lex = scaled(*[beside(np.concatenate(lexical(data)), data, 2) for data in (dev, test)])
    vectors = components(*[rows_of(data).astype(np.float32) for data in (dev, test)], 200)
    X, X_test = (cut(np.hstack([lex[side], vectors[side]]), data) for side, data in ((0, dev), (1, test)))
    rng = np.random.default_rng(options.seed)
    whole = np.flatnonzero([(one >= 0).all() for one in test.y])
    chosen = np.sort(rng.choice(whole, options.test, replace=False))
    fixed = [X_test[i] for i in chosen], [test.y[i] for i in chosen]
    usable = np.flatnonzero([(one >= 0).all() for one in dev.y])
    until = time.perf_counter() + 60 * options.minutes
    sizes = [size for size in (10, 30, 100, 300, 1000) if size < len(usable)]
    parts = [*[(k, size) for k in range(options.draws) for size in sizes], (0, len(usable))]
    rows: list[dict[str, Any]] = []
    for draw, size in parts:
        drawn = np.random.default_rng(draw).choice(usable, size, replace=False)
        train = [X[i] for i in drawn], [dev.y[i] for i in drawn]
        key = hashlib.sha256(f"{size} {draw} {options.test} {options.seed} {GRID} {GAMMA}".encode()).hexdigest()[:20]
        path = folder() / f"efficiency_{key}.json"
        if not path.exists():
            if time.perf_counter() > until:
                break
            models = []
            for name in GRID:
                start = time.perf_counter()
                C = choose(name, *train)
                row = {
                    "model": name,
                    "size": size,
                    "draw": draw,
                    "C": C,
                    "accuracy": fit_and_score(name, C, train, fixed),
                }
                models.append(row | {"seconds": time.perf_counter() - start})
            path.write_text(json.dumps(models))
        rows += json.loads(path.read_text())
        print(rows[-3:], flush=True)
    return {"rows": rows, "words": int(sum(len(one) for one in fixed[1]))}


def _means(results: dict[str, Any], name: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for row in results["rows"]:
        if row["model"] == name:
            found.setdefault(row["size"], []).append(row["accuracy"])
    return found


def section(results: dict[str, Any]) -> str:
    sizes = list(_means(results, "kernel CRF"))
    rows = []
    for name in GRID:
        cells = [common.mean_and_error(values) for values in _means(results, name).values()]
        rows.append((name, *[f"{mean:.2f}" + (f" ± {e:.2f}" if e == e else "") for mean, e in cells]))
    for other in ("linear CRF", "per token"):
        ours, theirs = _means(results, "kernel CRF"), _means(results, other)
        cells = [
            f"{np.mean(a) - np.mean(b):+.2f} ({common.paired_p(a, b):.2f})" if len(a) > 1 else f"{a[0] - b[0]:+.2f}"
            for a, b in ((ours[size], theirs[size]) for size in sizes)
        ]
        rows.append((f"kernel CRF less {other} (p)", *cells))
    ours = _means(results, "kernel CRF")
    sure = [
        f"{other} at {size:,}"
        for other in ("linear CRF", "per token")
        for size, values in _means(results, other).items()
        if len(values) > 1 and common.paired_p(ours[size], values) < 0.05
    ]
    verdict = (
        f"Of ten comparisons, the kernel CRF differs beyond the noise (p < 0.05) in these: {', '.join(sure)}."
        if sure
        else "No difference between the three models is beyond the noise of the draws, at any size."
    )
    table = common.markdown(("model", *[f"{size:,}" for size in sizes]), rows)
    return f"""## How many labelled sentences prosody needs

Accuracy, per cent, of 2 grades on {results["words"]:,} words of other speakers against the number of training
sentences; mean and standard error over random draws of them.

{table}

![Accuracy against training sentences](figures/label_efficiency_prosody.png)

{verdict}

For a practitioner: on inputs that know as much as these, a hundred labelled sentences give all but about a point of
what the whole corpus gives, with any of the three models; choose by speed.
"""


def figure(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for colour, marker, name in zip(common.COLOURS, "os^", GRID, strict=False):
        found = _means(results, name)
        cells = [common.mean_and_error(values) for values in found.values()]
        mean, error = (np.array([cell[k] for cell in cells]) for k in (0, 1))
        ax.errorbar(list(found), mean, np.nan_to_num(error), marker=marker, capsize=3, color=colour, label=name)
    ax.set_xscale("log")
    ax.set_xlabel("training sentences")
    ax.set_ylabel("test accuracy, %")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    common.FIGURES.mkdir(exist_ok=True)
    fig.savefig(common.FIGURES / "label_efficiency_prosody.png", dpi=150)
    plt.close(fig)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, section, figure, draws=5, test=500, seed=0, minutes=1e9)
