"""Time and memory on graphs beyond chains: a loopy grid, a long tree, a full graph over many samples.

Each line is a fresh process on one thread, in float64. Compilation is not counted, and memory is the peak beyond the
data. The nodes of a grid are the 30 x 30 binary pixels of a smooth image. A model with inference="loopy" is fitted to
such images, and labels them. The trees are random, with one sample and three labels; their clique tree is made first,
and inference is exact. The full graph has six labels with all 15 pairs and random inputs, and MultiLabelCRF("linear")
is fitted to a certified gap of 1 %. An exponent is the slope of a line through the logarithms of the upper half of the
range.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from kernelcrf import GraphCRF, MultiLabelCRF
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from studies import common

TREES = (1_000, 10_000, 100_000)
PASSES = ("clique tree", "moments", "tangents", "best")
OPTIONS = {"rounds": 3, "largest": 100_000}
SAMPLES = (1_000, 3_000, 10_000, 30_000, 100_000)


def grid_edges(side: int) -> np.ndarray:
    nodes = np.arange(side * side).reshape(side, side)
    across = np.column_stack((nodes[:, :-1].ravel(), nodes[:, 1:].ravel()))
    return np.concatenate((across, np.column_stack((nodes[:-1].ravel(), nodes[1:].ravel()))))


def images(m: int, side: int, rng: np.random.Generator) -> tuple[list[Any], list[np.ndarray]]:
    X, y = [], []
    u, v = np.meshgrid(np.linspace(-2, 2, side), np.linspace(-2, 2, side))
    for _ in range(m):
        a, b, c, d = rng.normal(size=4)
        labels = (np.sin(2 * a * u + c) + np.sin(2 * b * v + d) > 0).astype(int).ravel()
        X.append((labels[:, None] + rng.normal(size=(labels.size, 1)), grid_edges(side)))
        y.append(labels)
    return X, y


def grid(size: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    GraphCRF("linear", inference="loopy", tol=1e-2).fit(*images(2, 4, rng))
    X, y = images(5, size, rng)
    X_test, y_test = images(5, size, rng)
    model, before = GraphCRF("linear", inference="loopy", tol=1e-3), common.peak_memory(reset=True)
    return {
        "fit": common.seconds(lambda: model.fit(X, y)),
        "label": common.seconds(lambda: model.predict(X_test)),
        "MB": common.peak_memory() - before,
        "accuracy": model.score(X_test, y_test),
        "without edges": GraphCRF("linear", cliques=()).fit(X, y).score(X_test, y_test),
        "gap": model.certificate_.relative_gap,
    }


def tree(size: int) -> dict[str, float]:
    rng = np.random.default_rng(0)

    def made(n: int) -> tuple[Graph, np.ndarray]:
        edges = np.column_stack(([int(rng.integers(v)) for v in range(1, n)], np.arange(1, n)))
        graph = Graph(np.full(n, 3), {"node": np.arange(n)[:, None], "edge": edges})
        return graph, rng.normal(size=(1, graph.n_entries))

    small, scores = made(10)
    warm = Exact(small)
    warm.calibrate(scores).tangents(scores)
    warm.best(scores)
    graph, scores = made(size)
    exact = Exact(graph)
    before, calibrated = common.peak_memory(reset=True), []
    return {
        "clique tree": common.seconds(lambda: exact.program),
        "moments": common.seconds(lambda: calibrated.append(exact.calibrate(scores))),
        "tangents": common.seconds(lambda: calibrated[0].tangents(scores)),
        "best": common.seconds(lambda: exact.best(scores)),
        "MB": common.peak_memory() - before,
    }


def full(size: int) -> dict[str, float]:
    rng = np.random.default_rng(0)

    def made(m: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(m, 10))
        Y = (X @ rng.normal(size=(10, 6)) + 2 * rng.normal(size=(m, 6)) > 0).astype(int)
        Y[:, 1] = np.where(rng.random(m) < 0.7, Y[:, 0], Y[:, 1])
        return X, Y

    model = MultiLabelCRF("linear", structure="full", tol=1e-2)
    model.fit(*made(50)).predict(made(50)[0])
    X, Y = made(size)
    before = common.peak_memory(reset=True)
    return {
        "fit": common.seconds(lambda: model.fit(X, Y)),
        "predict": common.seconds(lambda: model.predict(X)),
        "MB": common.peak_memory() - before,
        "evaluations": float(model.n_iter_),
    }


KINDS = {"grid": (grid, (30,)), "tree": (tree, TREES), "full": (full, SAMPLES)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind, (function, sizes) in KINDS.items():
        results[kind] = {}
        for size in [size for size in sizes if size <= options.largest]:
            runs = [common.in_process(function, size) for _ in range(options.rounds)]
            results[kind][size] = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    return results


def slope(rows: dict[Any, Any], key: str) -> float:
    return common.growth_exponent(rows, [row[key] for row in rows.values()])


def table(results: dict[str, Any]) -> str:
    (size, row), *_ = results["grid"].items()
    pace = {size: {"fit": one["fit"] / one["evaluations"]} for size, one in results["full"].items()}
    parts = [
        f"The fit to five images of {size} x {size} nodes takes {row['fit']:.1f} s (with a relative gap of "
        f"{row['gap']:.0e} to the bound) and {row['MB']:.0f} MB, and labels of five others take {row['label']:.2f} s. "
        f"The accuracy is {row['accuracy']:.3f}, and {row['without edges']:.3f} without edges.\n",
        "Random trees, seconds:\n",
        common.markdown(
            ["nodes", "clique tree", "marginals", "derivatives of the marginals", "best labelling", "MB"],
            [
                [f"{int(n):,}", *(f"{r[key]:.3f}" for key in PASSES), f"{r['MB']:.0f}"]
                for n, r in results["tree"].items()
            ],
        ),
        f"\nThe exponent in the nodes is {slope(results['tree'], 'clique tree'):.2f} for the clique tree and "
        f"{slope(results['tree'], 'moments'):.2f} for the marginals.\n",
        "Full graph of six labels, seconds:\n",
        common.markdown(
            ["samples", "fit", "iterations", "predict", "MB"],
            [
                [f"{int(m):,}", f"{r['fit']:.2f}", f"{r['evaluations']:.0f}", f"{r['predict']:.3f}", f"{r['MB']:.0f}"]
                for m, r in results["full"].items()
            ],
        ),
        f"\nThe exponent in the samples is {slope(results['full'], 'fit'):.2f} for the fit, {slope(pace, 'fit'):.2f} "
        f"for an iteration of it, {slope(results['full'], 'predict'):.2f} for predict, and "
        f"{slope(results['full'], 'MB'):.2f} for the memory.",
    ]
    return "\n".join(parts)
