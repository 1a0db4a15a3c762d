"""Passes and seconds of every solver to a certified gap, on the letters data.

Fold 0, polynomial kernel of degree 3, n = 600 atoms, lam = 1 and 0.1: data passes (one pass = F W and F' R once) and
seconds until the relative certified gap is 1e-2, 1e-4 and 1e-6, one thread. `scipy` is SciPy's L-BFGS-B on the same
objective in theta itself. Fast solvers run `--rounds` times in turn, and the median of their seconds counts.

    KERNELCRF_DATA=... python benchmarks/solvers.py [--rounds 3]

Prints the table of docs/optimisation.md and writes docs/figures/solvers.png and solvers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from kernelcrf.basis.distinct import distinct
from kernelcrf.basis.features import make_features
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.solvers import LBFGS, BlockJacobi, NewtonCG, Record, Solver, Subspace
from kernelcrf.solvers.loop import minimise

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GAPS = (1e-2, 1e-4, 1e-6)
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
FAST: dict[str, Solver] = {
    "lbfgs": LBFGS(),
    "newton-cg": NewtonCG(),
    "scipy": LBFGS(memory=10, precondition=False),
}
SLOW: dict[str, Solver] = {"block-jacobi": BlockJacobi(), "subspace": Subspace()}
SLOW_ITERATIONS = 150
COLOURS = {
    "lbfgs": "#009E73",
    "newton-cg": "#0072B2",
    "scipy": "#D55E00",
    "block-jacobi": "#CC79A7",
    "subspace": "#E69F00",
}


def letters() -> tuple[np.ndarray, Chains, np.ndarray]:
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder:
        sys.exit("KERNELCRF_DATA is not set: expected the folder that holds letters_ocr/letters.npz")
    data = np.load(Path(folder) / "letters_ocr" / "letters.npz")
    chosen = data["fold"] == 0
    lengths = np.unique(data["word_id"][chosen], return_counts=True)[1]
    X = np.unpackbits(data["pixels_packed"][chosen], axis=1).astype(np.float64)
    return X, Chains.from_lengths(lengths), data["label"][chosen].astype(np.int32)


def make_objective(lam: float) -> Objective:
    X, chains, labels = letters()
    kernel = InputKernel("poly", gamma=1 / 128, coef0=1.0, degree=3)
    found = distinct(X)
    F = found.expand(make_features(kernel, found.inputs, 600, "random", random_state=0).F)
    delta = LabelKernel("delta", 26)
    layout = Layout(
        (
            TemplateBlock(CliqueKernel("node", 1, delta, kernel), 600, 1 / lam),
            TemplateBlock(CliqueKernel("edge", 2, delta, None), 1, 1 / lam),
        )
    )
    return Objective(layout, ChainPartition(chains, 26, labels, {"node": TokenFeatures(F)}).cut(), LocalEngine(1))


def first_below(history: tuple[Record, ...], gap: float) -> Record | None:
    return next((record for record in history if record.relative_gap <= gap), None)


def runs(objective: Objective, rounds: int) -> dict[str, Any]:
    """A run to each gap of each fast solver, since the last steps depend on the tolerance; slow ones run once."""
    start = np.zeros(objective.layout.size)
    minimise(objective, NewtonCG(), start, tol=1.0)
    results: dict[str, Any] = {name: {"seconds": {gap: [] for gap in GAPS}, "passes": {}} for name in FAST}
    for _ in range(rounds):
        for gap in GAPS:
            for name, solver in FAST.items():
                found = minimise(objective, solver, start, tol=gap, max_iter=2000)
                results[name]["seconds"][gap].append(found.history[-1].seconds)
                results[name]["passes"][gap] = found.history[-1].passes
                results[name]["history"] = found.history
    for name, solver in SLOW.items():
        found = minimise(objective, solver, start, tol=GAPS[-1], max_iter=SLOW_ITERATIONS)
        reached = {gap: first_below(found.history, gap) for gap in GAPS}
        results[name] = {
            "seconds": {gap: [record.seconds] for gap, record in reached.items() if record},
            "passes": {gap: record.passes for gap, record in reached.items() if record},
            "history": found.history,
        }
    return results


def picture(results: dict[float, dict[str, Any]]) -> None:
    figure, axes = plt.subplots(1, len(results), figsize=(10, 4), sharey=True, constrained_layout=True)
    for axis, (lam, solvers) in zip(axes, results.items(), strict=True):
        for name, result in solvers.items():
            passes = [record.passes for record in result["history"]]
            gaps = [max(record.relative_gap, 1e-8) for record in result["history"]]
            axis.plot(passes, gaps, label=name, color=COLOURS[name], lw=1.6)
        axis.set(xscale="log", yscale="log", xlabel="data passes", title=f"$\\lambda$ = {lam:g}", ylim=(1e-7, 1e3))
        for gap in GAPS:
            axis.axhline(gap, color="0.8", lw=0.8, zorder=0)
    axes[0].set_ylabel("relative certified gap")
    axes[0].legend(frameon=False)
    figure.savefig(FIGURES / "solvers.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__, "threads": 1}
    print(json.dumps(versions))
    results: dict[float, dict[str, Any]] = {}
    for lam in (1.0, 0.1):
        objective = make_objective(lam)
        with threadpool_limits(1, user_api="blas"):
            results[lam] = runs(objective, options.rounds)
        print(f"\nlam = {lam:g}: passes (seconds) to a relative certified gap of")
        print("solver        " + "".join(f"{gap:>18.0e}" for gap in GAPS))
        for name, result in results[lam].items():
            cells = []
            for gap in GAPS:
                seconds = result["seconds"].get(gap)
                text = f"{result['passes'][gap]:.1f} ({np.median(seconds):.2f} s)" if seconds else "not reached"
                cells.append(f"{text:>18}")
            print(f"{name:<14}" + "".join(cells))
    picture(results)
    summary = {
        f"{lam:g}": {
            name: {
                f"{gap:g}": {"passes": result["passes"][gap], "seconds": float(np.median(result["seconds"][gap]))}
                for gap in result["passes"]
            }
            for name, result in solvers.items()
        }
        for lam, solvers in results.items()
    }
    (FIGURES / "solvers.json").write_text(json.dumps({"versions": versions, "lam": summary}, indent=1) + "\n")
    print(f"\n{SLOW_ITERATIONS} iterations at most for {', '.join(SLOW)}; wrote solvers.png and solvers.json")


if __name__ == "__main__":
    main()
