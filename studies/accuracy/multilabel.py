"""Labels that depend on each other: scene, yeast and emotions, with the official splits.

Features are standardised by the training part. C and gamma of every model are chosen on the training part alone, by the
accuracy of whole label sets in three folds; C_label is 1. The kernel CRFs differ in the graph over the labels: none, a
Chow-Liu tree, the one that structure search learns, and the full one. For yeast, whose full graph has tables of 2^14
for each row, learned and full graphs take the C and gamma of the tree, and the same folds choose between them.
Baselines are an RBF SVC per label (C, gamma), and scikit-learn's ClassifierChain of logistic regressions (C, gamma) on
the same number of Nystroem features of the same kernel, with labels in the order of the columns. With the same C and
gamma, the mean of ten chains in random orders is a third baseline. p-values come from resampling test rows.

The choices on file are taken, for their time; `--choose 1` makes them again. Standard errors stay the same.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelcrf import MultiLabelCRF
from studies import common
from studies.common import kept
from studies.datasets import MultilabelData, load_multilabel

N_COMPONENTS = 500
SETS = ("scene", "yeast", "emotions")
GAMMAS = (0.3, 1.0, 3.0)
GRIDS = {
    "crf": {"C": (0.3, 1.0, 3.0, 10.0, 30.0), "gamma": GAMMAS},
    "svc": {"C": (0.3, 1.0, 3.0, 10.0, 30.0), "gamma": GAMMAS},
    "chain": {"C": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0), "gamma": GAMMAS},
}


# Models that take the C and gamma of another one.
SHARED = {("yeast", "kernelcrf, learned"): "kernelcrf, tree", ("yeast", "kernelcrf, full"): "kernelcrf, tree"}


def crf(structure: str, C: float, gamma: float) -> MultiLabelCRF:
    return MultiLabelCRF(
        gamma=gamma, C=C, structure=structure, n_components=N_COMPONENTS, tol=1e-3, random_state=0, n_jobs=1
    )


def svc(C: float, gamma: float) -> Any:
    return MultiOutputClassifier(SVC(C=C, gamma=gamma))


def chain(C: float, gamma: float) -> Any:
    features = Nystroem(gamma=gamma, n_components=N_COMPONENTS, random_state=0)
    return make_pipeline(features, ClassifierChain(LogisticRegression(C=C, max_iter=1000)))


class Chains:
    """The mean of the probabilities of ten chains in random orders, cut at one half."""

    def __init__(self, C: float, gamma: float) -> None:
        self.features = Nystroem(gamma=gamma, n_components=N_COMPONENTS, random_state=0)
        base = LogisticRegression(C=C, max_iter=1000)
        self.chains = [ClassifierChain(base, order="random", random_state=k) for k in range(10)]

    def fit(self, X: np.ndarray, Y: np.ndarray) -> Chains:
        F = self.features.fit_transform(X)
        for one in self.chains:
            one.fit(F, Y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        F = self.features.transform(X)
        return (np.mean([one.predict_proba(F) for one in self.chains], axis=0) > 0.5).astype(int)


def whole(predicted: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return whether each row's set of labels is right."""
    return (np.asarray(predicted) == Y).all(axis=1)


def chosen(make: Callable[..., Any], grid: dict[str, Any], X: np.ndarray, Y: np.ndarray) -> dict[str, Any]:
    """Return the values of the grid with the highest accuracy of whole sets in three folds of the training part."""
    found = []
    for C, share in itertools.product(grid["C"], grid["gamma"]):
        setting = {"C": C, "gamma": share / X.shape[1]}
        scores = []
        for train, test in KFold(3, shuffle=True, random_state=0).split(X):
            model = make(**setting).fit(X[train], Y[train])
            scores.append(float(whole(model.predict(X[test]), Y[test]).mean()))
        found.append((float(np.mean(scores)), setting))
    best = max(found, key=lambda item: item[0])
    return {"setting": best[1], "validation": best[0], "grid": [[s, v["C"], v["gamma"]] for s, v in found]}


MODELS: dict[str, tuple[Callable[..., Any], str]] = {
    "SVC a label": (svc, "svc"),
    "ClassifierChain": (chain, "chain"),
    "ten ClassifierChains": (Chains, "chain"),
    "kernelcrf, no edges": (lambda **s: crf("none", **s), "crf"),
    "kernelcrf, tree": (lambda **s: crf("tree", **s), "crf"),
    "kernelcrf, learned": (lambda **s: crf("auto", **s), "crf"),
    "kernelcrf, full": (lambda **s: crf("full", **s), "crf"),
}

NAMES = {"SVC a label": "SVC per label"}


def one(name: str, data: MultilabelData, settings: dict[str, Any]) -> dict[str, Any]:
    make, _ = MODELS[name]
    scaler = StandardScaler().fit(data.X_train)
    X, X_test = scaler.transform(data.X_train), scaler.transform(data.X_test)
    start = time.perf_counter()
    model = make(**settings).fit(X, data.Y_train)
    seconds = time.perf_counter() - start
    predicted = model.predict(X_test)
    row = {
        "seconds": seconds,
        "right": whole(predicted, data.Y_test).astype(int),
        "hamming": float((predicted != data.Y_test).mean()),
    }
    if isinstance(model, MultiLabelCRF):
        row["log_likelihood"] = float(model.log_prob(X_test, data.Y_test).mean())
        marginal = (model.predict_proba(X_test) > 0.5).astype(int)
        row["hamming_marginal"] = float((marginal != data.Y_test).mean())
        row["gap"] = float(model.certificate_.relative_gap)
        row["edges"] = model.edges_
        row["interactions"] = model.interactions_
        if model.search_ is not None:
            row["left_out"] = float(model.search_.left_out)
            row["objective"] = float(model.certificate_.objective)
            row["rounds"] = len(model.search_.rounds)
    return row


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = {} if options.choose else (common.load("accuracy.multilabel") or {}).get("sets", {})
    for name in options.sets.split(","):
        data = load_multilabel(name)
        X = StandardScaler().fit_transform(data.X_train)
        rows: dict[str, Any] = {}
        for model, (make, kind) in MODELS.items():
            grid, source = GRIDS[kind], rows.get(SHARED.get((name, model), ""))
            if source is not None:
                setting = source["choice"]["setting"]
                grid = {"C": (setting["C"],), "gamma": (setting["gamma"] * X.shape[1],)}

            def search(m: Any = make, g: Any = grid, x: Any = X, d: Any = data) -> dict[str, Any]:
                return chosen(m, g, x, d.Y_train)

            on_file = known.get(name, {}).get("rows", {}).get(model)
            if model == "ten ClassifierChains":
                choice = rows["ClassifierChain"]["choice"]
            else:
                choice = on_file["choice"] if on_file else kept(f"multilabel {name} {model} choice", search)
            key = f"multilabel {name} {model} {choice['setting']}"
            row = kept(key, lambda m=model, d=data, c=choice: one(m, d, c["setting"]))
            rows[model] = {**row, "choice": choice}
        found[name] = {"rows": rows, "labels": list(data.label_names)}
    return {"sets": found}


def section(results: dict[str, Any]) -> str:
    sets = results["sets"]
    tables = []
    for name, found in sets.items():
        rows = found["rows"]
        best = max((m for m in rows if m.startswith("kernelcrf")), key=lambda m: rows[m]["choice"]["validation"])
        table = []
        for model, row in rows.items():
            p = ""
            if not model.startswith("kernelcrf"):
                difference, value = common.bootstrap_p([[x] for x in rows[best]["right"]], [[x] for x in row["right"]])
                p = f"{100 * difference:+.1f} points (p = {value:.3f})"
            edges = str(len(row["edges"])) if "edges" in row else "-"
            likelihood = f"{row['log_likelihood']:.3f}" if "log_likelihood" in row else "-"
            right, shown = f"{np.mean(row['right']):.4f}", NAMES.get(model, model)
            table.append([
                f"**{shown}**" if model == best else shown, right, f"{row['hamming']:.4f}", likelihood, edges,
                f"{row['seconds']:.1f}", p,
            ])  # fmt: skip
        header = [
            "model",
            "whole sets",
            "Hamming loss",
            "log-likelihood",
            "pairs",
            "fit, s",
            "how far the bold CRF is ahead",
        ]
        tables.append(f"### {name}\n\n{common.markdown(header, table)}")
    joined = "\n\n".join(tables)
    return f"""## Several labels at once: scene, yeast and emotions

Each row of these data has a set of labels: landscapes in photographs, functions of genes of yeast, and moods of music.
The official splits are used; C and gamma are chosen on the training part alone.

- *whole sets*: the share of test rows whose set is right. *Hamming loss*: the share of single labels that are wrong.
- *log-likelihood*: the mean log-probability of the true set. *pairs*: how many pairs of labels interact in the model.
- *no edges*: no pairs interact. *tree*: those of a Chow-Liu tree. *full*: all. *learned*: those that a search chooses.
- In bold is the CRF that cross-validation chose. The last column says how far it is ahead in whole sets, with p-values
  of a bootstrap over test rows; 0.001 is the least.

{joined}

![The label graphs that were learned](figures/label_graphs.png)

The search found these pairs:

{learned(sets)}

The search stops when no other pair is expected to gain what the Bayesian information criterion asks. The bound on what
the other pairs could gain is certified, but loose.

{practice(sets)}
"""


def learned(sets: dict[str, Any]) -> str:
    """Return a list of how many pairs the search found, and what its bound says about the others."""
    lines = []
    for name, found in sets.items():
        row, n = found["rows"]["kernelcrf, learned"], len(found["labels"])
        pairs, bound, objective = n * (n - 1) // 2, row["left_out"], row["objective"]
        text = f"- {name}: {len(row['edges'])} of {pairs} pairs, in {row['rounds']} rounds."
        if len(row["edges"]) < pairs:
            text += (
                f" The bound on what the others could gain ({bound:.0f}) is above the objective itself "
                f"({objective:.0f}), so it says nothing."
                if bound >= objective
                else f" The others could lower the objective of {objective:.0f} by at most {bound:.0f}."
            )
        lines.append(text)
    return "\n".join(lines)


def practice(sets: dict[str, Any]) -> str:
    """Return what graphs and the decoding of single labels change, in words."""
    rows = [found["rows"] for found in sets.values()]
    graphs = ("kernelcrf, tree", "kernelcrf, learned", "kernelcrf, full")
    none, full = "kernelcrf, no edges", "kernelcrf, full"
    more = sum(np.mean(of[graph]["right"]) > np.mean(of[none]["right"]) for of in rows for graph in graphs)
    fewer = sum(of[graph]["hamming"] < of[none]["hamming"] for of in rows for graph in graphs)
    single = sum(of[full]["hamming_marginal"] < of[full]["hamming"] for of in rows)
    marginal = ", ".join(
        f"{name} {of[full]['hamming']:.4f} to {of[full]['hamming_marginal']:.4f}"
        for name, of in zip(sets, rows, strict=True)
    )
    cases = len(rows) * len(graphs)
    return f"""\
With a graph, more whole sets are right than without edges in {more or "none"} of {cases} cases, which are {len(graphs)}
graphs on {len(rows)} data sets. The Hamming loss is lower in {fewer or "none"} of them: the likeliest set need not have
the likeliest labels. With `decoding="marginal"`, each label is the likeliest one. This lowers the Hamming loss of the
full graph on {single or "none"} of {len(rows)} data sets: {marginal}.

In practice: if whole sets must be right, let labels interact. Use `decoding="marginal"` if single labels count."""


def figure(results: dict[str, Any]) -> None:
    sets = results["sets"]
    with common.picture("label_graphs", 1, len(sets), dpi=130, figsize=(4.6 * len(sets), 3.8)) as (fig, axes):
        for ax, (name, found) in zip(axes, sets.items(), strict=True):
            row, labels = found["rows"]["kernelcrf, learned"], found["labels"]
            angles = 2 * np.pi * np.arange(len(labels)) / len(labels) + np.pi / 2
            x, y = np.cos(angles), np.sin(angles)
            widest = max(np.abs(row["interactions"]), default=1.0)
            for (i, j), weight in zip(row["edges"], row["interactions"], strict=True):
                width = 0.5 + 4 * abs(weight) / widest
                ax.plot(x[[i, j]], y[[i, j]], color=common.COLOURS[weight <= 0], lw=width, alpha=0.75, zorder=1)
            ax.scatter(x, y, s=60, color="white", edgecolor="black", zorder=2)
            for k, label in enumerate(labels):
                short = label if len(label) <= 14 else label[:13] + "."
                side = "center" if abs(x[k]) < 0.2 else ("left" if x[k] > 0 else "right")
                ax.text(1.13 * x[k], 1.13 * y[k], short, ha=side, va="center", fontsize=8)
            ax.set_title(f"{name}: {len(row['edges'])} pairs", fontsize=11)
            ax.set(xlim=(-1.95, 1.95), ylim=(-1.4, 1.4), aspect="equal")
            ax.axis("off")
        text = "blue: the labels go together; orange: they exclude each other; width: log odds ratio"
        fig.supxlabel(text, fontsize=9)


OPTIONS = {"sets": ",".join(SETS), "choose": 0}
