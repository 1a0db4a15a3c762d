"""Learning the graph: edges recovered from samples of known networks, and what the certificate says of the rest.

Binary networks of 12 variables with 14 edges drawn at random, log odds ratios of +-1.5, and 50 to 12,800 samples, drawn
exactly; six networks per size. MarkovNetwork(structure="auto") with its defaults; recall, precision and F1 of edges.
In every trial the network with all 66 pairs is fitted too: its objective must lie between the search's lower bound and
the objective of the learned one. The second table does the same for labels with inputs: five labels, four of ten pairs
interact, inputs of three numbers decide each label beside the others; MultiLabelCRF.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np

from kernelcrf import MarkovNetwork, MultiLabelCRF
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from studies import common

SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800)
STRENGTH = 1.5
ENOUGH = 800  # samples


def network(n: int, n_edges: int, rng: np.random.Generator) -> tuple[Graph, list[tuple[int, int]], np.ndarray]:
    """Return a graph over n binary variables, its edges, and the tables of interactions."""
    pairs = list(itertools.combinations(range(n), 2))
    edges = [pairs[k] for k in sorted(rng.choice(len(pairs), size=n_edges, replace=False))]
    signs = rng.choice((-1, 1), size=n_edges)
    graph = Graph(np.full(n, 2), {"node": np.arange(n)[:, None], "edge": np.array(edges)})
    tables = STRENGTH / 4 * signs[:, None] * np.array([1, -1, -1, 1])
    return graph, edges, tables.ravel()


def scores(found: np.ndarray, edges: list[tuple[int, int]]) -> dict[str, float]:
    learned, true = {tuple(pair) for pair in found.tolist()}, set(edges)
    right = len(learned & true)
    precision, recall = right / max(len(learned), 1), right / len(true)
    return {"precision": precision, "recall": recall, "F1": 2 * right / (len(learned) + len(true))}


def density(size: int, trial: int) -> dict[str, Any]:
    rng = np.random.default_rng([size, trial])
    graph, edges, tables = network(12, 14, rng)
    row = np.concatenate((0.3 * rng.normal(size=24), tables))[None]
    X = Exact(graph).calibrate(row).sample(size, rng)[0]
    start = time.perf_counter()
    model = MarkovNetwork().fit(X)
    seconds = time.perf_counter() - start
    full = MarkovNetwork(structure="full", tol=1e-5).fit(X)
    return outcome(model, full, edges, seconds)


def conditional(size: int, trial: int) -> dict[str, Any]:
    rng = np.random.default_rng([size, trial, 1])
    graph, edges, tables = network(5, 4, rng)
    X = rng.normal(size=(size, 3))
    nodes = X @ rng.normal(size=(3, 5))
    rows = np.concatenate(
        (np.stack((-nodes / 2, nodes / 2), axis=2).reshape(size, -1), np.tile(tables, (size, 1))), axis=1
    )
    Y = Exact(graph).calibrate(rows).sample(1, rng)[:, 0]
    start = time.perf_counter()
    model = MultiLabelCRF("linear", random_state=0).fit(X, Y)
    seconds = time.perf_counter() - start
    full = MultiLabelCRF("linear", structure="full", tol=1e-5).fit(X, Y)
    return outcome(model, full, edges, seconds)


def outcome(model: Any, full: Any, edges: list[tuple[int, int]], seconds: float) -> dict[str, Any]:
    low, value, best = model.search_.lower_bound, model.certificate_.objective, full.certificate_.objective
    return {
        **scores(model.edges_, edges),
        "seconds": seconds,
        "covered": bool(low <= best <= value + 1e-3 * abs(value)),
        "bound": float((value - low) / value),
        "gain": float((value - best) / value),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    sizes = [size for size in SIZES if size <= options.most]
    return {
        "density": {size: [density(size, trial) for trial in range(options.trials)] for size in sizes},
        "conditional": {
            size: [conditional(size, trial) for trial in range(options.trials)] for size in sizes if size <= 6400
        },
    }


def rows_of(trials: dict[str, Any]) -> list[list[str]]:
    rows = []
    for size, found in trials.items():
        mean = {key: float(np.mean([row[key] for row in found])) for key in ("precision", "recall", "bound", "gain")}
        covered = sum(row["covered"] for row in found)
        rows.append([
            f"{int(size):,}", common.plus_minus([row["F1"] for row in found], 3),
            f"{mean['precision']:.3f}", f"{mean['recall']:.3f}",
            f"{100 * mean['gain']:.2f}", f"{100 * mean['bound']:.1f}", f"{covered} of {len(found)}",
            f"{np.mean([row['seconds'] for row in found]):.2f}",
        ])  # fmt: skip
    return rows


def section(results: dict[str, Any]) -> str:
    header = ["samples", "F1 of edges", "precision", "recall", "gain, %", "bound, %", "covered", "s"]
    kinds = [results["density"], results["conditional"]]
    trials = [row for kind in kinds for found in kind.values() for row in found]
    covered = sum(row["covered"] for row in trials)
    few, *_, enough = (size for size in map(int, kinds[0]) if size <= ENOUGH)

    def mean(key: str, size: int) -> str:
        return " and ".join(f"{100 * np.mean([row[key] for row in kind[str(size)]]):.0f} %" for kind in kinds)

    return f"""## Learning the graph

How many samples does a search need to find which pairs of variables interact? The networks are known and sparse, and
each edge has an odds ratio of {np.exp(STRENGTH):.1f} or its inverse.

- *precision*: the share of found edges that are right. *recall*: the share of true edges that are found.
- *gain*: how much lower the objective is if all pairs are fitted. *bound*: the largest gain that the certificate
  allows. Both are shares of the objective of the learned network.
- *covered*: in how many trials the gain was below the bound.

Densities of 12 binary variables, of which 14 of 66 pairs interact (`MarkovNetwork`):

{common.markdown(header, rows_of(results["density"]))}

Five labels with inputs, of which 4 of 10 pairs interact (`MultiLabelCRF`):

{common.markdown(header, rows_of(results["conditional"]))}

![F1 of the edges against samples](figures/structure.png)

- The certificate held in {covered} of {len(trials)} trials. The bound is loose and does not become tight with more
  samples, because it uses only the curvature of the prior.
- The search itself stops when no pair is expected to gain what the Bayesian information criterion asks.
- With {few} samples, {mean("precision", few)} of the found edges are right, and {mean("recall", few)} of the true edges
  are found. With {enough} samples, {mean("recall", enough)} are found, and {mean("precision", enough)} of the found
  edges are right.
"""


def figure(results: dict[str, Any]) -> None:
    names = {"density": "12 variables, 14 edges", "conditional": "5 labels with inputs, 4 edges"}
    with common.picture("structure", dpi=130, figsize=(6, 3.6)) as (_, ax):
        for k, (kind, name) in enumerate(names.items()):
            sizes = [int(size) for size in results[kind]]
            mean, error = zip(
                *(common.mean_and_error([row["F1"] for row in rows]) for rows in results[kind].values()), strict=True
            )
            ax.errorbar(sizes, mean, error, marker="os"[k], color=common.COLOURS[k], label=name, capsize=3)
        ax.set(xscale="log", xlabel="samples", ylabel="F1 of the edges", ylim=(0, 1.05))
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right", frameon=False)


OPTIONS = {"trials": 6, "most": SIZES[-1]}
