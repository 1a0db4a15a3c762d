"""Time and memory on graphs beyond chains: a loopy grid, a long tree, a full graph over many samples.

Each line is a process of its own, one thread, float64; compilation is not counted, memory is the peak beyond the data.
`grid`: a 30 x 30 binary grid of smooth images, fitted and labelled with inference="loopy". `tree`: random trees, one
sample, three labels, exact moments, tangents and the best labelling; the clique tree is made first. `full`: six labels
with all 15 pairs, random inputs, MultiLabelCRF("linear") to a certified gap of 1 %. An exponent is the slope of a line
through the logarithms of the upper half of the range.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

import common
from kernelcrf import GraphCRF, MultiLabelCRF
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact

TREES = (1_000, 10_000, 100_000)
PASSES = ("clique tree", "moments", "tangents", "best")
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
    before, start = common.peak_anew(), time.perf_counter()
    model = GraphCRF("linear", inference="loopy", tol=1e-3).fit(X, y)
    fitted = time.perf_counter()
    accuracy = model.score(X_test, y_test)
    labelled = time.perf_counter()
    alone = GraphCRF("linear", cliques=()).fit(X, y).score(X_test, y_test)
    return {
        "fit": fitted - start,
        "label": labelled - fitted,
        "MB": common.peak() - before,
        "accuracy": accuracy,
        "without edges": alone,
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
    before, start = common.peak_anew(), time.perf_counter()
    exact.program  # noqa: B018  -- made here, to be timed apart
    planned = time.perf_counter()
    calibrated = exact.calibrate(scores)
    moments = time.perf_counter()
    calibrated.tangents(scores)
    tangents = time.perf_counter()
    exact.best(scores)
    best = time.perf_counter()
    return {
        "clique tree": planned - start,
        "moments": moments - planned,
        "tangents": tangents - moments,
        "best": best - tangents,
        "MB": common.peak() - before,
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
    before, start = common.peak_anew(), time.perf_counter()
    model.fit(X, Y)
    fitted = time.perf_counter()
    model.predict(X)
    predicted = time.perf_counter()
    return {
        "fit": fitted - start,
        "predict": predicted - fitted,
        "MB": common.peak() - before,
        "evaluations": float(model.n_iter_),
    }


KINDS = {"grid": (grid, (30,)), "tree": (tree, TREES), "full": (full, SAMPLES)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind, (_, sizes) in KINDS.items():
        results[kind] = {}
        for size in sizes:
            command = [sys.executable, __file__, "--point", f"{kind},{size}"]
            runs = [
                json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                for _ in range(options.rounds)
            ]
            results[kind][size] = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    return results


def slope(rows: dict[Any, Any], key: str) -> float:
    sizes, found = np.array([float(size) for size in rows]), np.array([row[key] for row in rows.values()])
    upper = sizes >= np.sqrt(sizes[0] * sizes[-1])
    return float(np.polyfit(np.log(sizes[upper]), np.log(np.maximum(found[upper], 1e-9)), 1)[0])


def table(results: dict[str, Any]) -> str:
    (size, row), *_ = results["grid"].items()
    pace = {size: {"fit": one["fit"] / one["evaluations"]} for size, one in results["full"].items()}
    parts = [
        f"Loopy, {size} x {size} binary grid, 5 images to fit, 5 to label: fit {row['fit']:.1f} s (relative gap "
        f"{row['gap']:.0e} of the bound), labels {row['label']:.2f} s, {row['MB']:.0f} MB; accuracy "
        f"{row['accuracy']:.3f}, without edges {row['without edges']:.3f}.\n",
        "Exact, random trees, three labels, seconds:\n",
        common.markdown(
            ["nodes", "clique tree", "moments", "tangents", "best labelling", "MB"],
            [
                [
                    f"{int(n):,}",
                    *(f"{r[key]:.3f}" for key in ("clique tree", "moments", "tangents", "best")),
                    f"{r['MB']:.0f}",
                ]
                for n, r in results["tree"].items()
            ],
        ),
        f"\nExponent in the nodes: clique tree {slope(results['tree'], 'clique tree'):.2f}, moments "
        f"{slope(results['tree'], 'moments'):.2f}.\n",
        'Exact, full graph of six labels, `MultiLabelCRF("linear")`, seconds:\n',
        common.markdown(
            ["samples", "fit", "iterations", "predict", "MB"],
            [
                [f"{int(m):,}", f"{r['fit']:.2f}", f"{r['evaluations']:.0f}", f"{r['predict']:.3f}", f"{r['MB']:.0f}"]
                for m, r in results["full"].items()
            ],
        ),
        f"\nExponent in the samples: fit {slope(results['full'], 'fit'):.2f}, an iteration of it "
        f"{slope(pace, 'fit'):.2f}, predict "
        f"{slope(results['full'], 'predict'):.2f}, memory {slope(results['full'], 'MB'):.2f}.",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    if "--point" in sys.argv:
        kind, size = sys.argv[sys.argv.index("--point") + 1].split(",")
        print(json.dumps(KINDS[kind][0](int(size))))
    else:
        common.run(__doc__, __file__, measure, table, rounds=3)
