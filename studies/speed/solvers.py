"""Passes and seconds of every solver to a certified gap, on the letters data.

The data are fold 0 with a polynomial kernel of degree 3, 600 landmarks, and C = 1 and 10. A cell has the passes over
the data (one pass is F W and F' R once) and the seconds until the relative certified gap is 1e-2, 1e-4 or 1e-6, on one
thread. `scipy` is SciPy's L-BFGS-B without our preconditioner. The fast solvers, the first three, run anew to each gap.
The others run once, for at most 100 iterations.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.features import make_features
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.solvers import LBFGS, BlockJacobi, NewtonCG, Solver, Subspace
from kernelcrf.solvers.loop import minimise
from studies import common
from studies.datasets import load_letters
from studies.speed.evaluation import make_layout, make_objective

GAPS = (1e-2, 1e-4, 1e-6)
LAMBDAS = (1.0, 0.1)
FAST: dict[str, Solver] = {"lbfgs": LBFGS(), "newton-cg": NewtonCG(), "scipy": LBFGS(memory=10, precondition=False)}
SLOW: dict[str, Solver] = {"block-jacobi": BlockJacobi(), "subspace": Subspace()}
OPTIONS = {"rounds": 1, "atoms": 600, "slow_iterations": 100}


def letters_objective(lam: float, n: int) -> Objective:
    data = load_letters()
    fold = data.take(np.flatnonzero(data.folds == 0))
    found = distinct(np.concatenate(fold.X).astype(np.float64))
    kernel = InputKernel("poly", gamma=1 / 128)
    F = found.expand(make_features(kernel, found.inputs, n, "random", random_state=0).F)
    labels = np.unique(np.concatenate(fold.y), return_inverse=True)[1]
    return make_objective(F, labels, [len(y) for y in fold.y], make_layout(n, 26, kernel, 1 / lam))


def run_all(objective: Objective, rounds: int, slow_iterations: int) -> dict[str, Any]:
    """Run each fast solver to each gap, since the last steps depend on the tolerance; run slow ones once."""
    start = np.zeros(objective.layout.size)
    minimise(objective, NewtonCG(), start, tol=1.0)
    results: dict[str, Any] = {name: {} for name in FAST}
    for name, solver in (FAST | SLOW).items():
        for gap in GAPS if name in FAST else GAPS[-1:]:
            times = []
            for _ in range(rounds if name in FAST else 1):
                found = minimise(objective, solver, start, tol=gap, max_iter=2000 if name in FAST else slow_iterations)
                times.append(found.history[-1].seconds)
            if name in FAST:
                row = {"passes": found.history[-1].passes, "seconds": float(np.median(times))}
                results[name][f"{gap:g}"] = row
        if name in SLOW:
            reached = {g: next((one for one in found.history if one.relative_gap <= g), None) for g in GAPS}
            results[name] = {f"{g:g}": {"passes": r.passes, "seconds": r.seconds} for g, r in reached.items() if r}
        results[name]["curve"] = [[record.passes, float(record.relative_gap)] for record in found.history]
    return results


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with threadpool_limits(1, user_api="blas"):
        settings = options.rounds, options.slow_iterations
        found = {f"{lam:g}": run_all(letters_objective(lam, options.atoms), *settings) for lam in LAMBDAS}
    return {"lam": found}


def table(results: dict[str, Any]) -> str:
    def cell(row: dict[str, Any], gap: float) -> str:
        own = row.get(f"{gap:g}")
        return f"{own['passes']:.1f} ({own['seconds']:.2f} s)" if own else "not reached"

    return "\n\n".join(
        common.markdown(
            [f"C = {1 / float(lam):g}", *(f"{gap:.0e}" for gap in GAPS)],
            [[f"`{name}`", *(cell(row, gap) for gap in GAPS)] for name, row in solvers.items()],
        )
        for lam, solvers in results["lam"].items()
    )


def figure(results: dict[str, Any]) -> None:
    if not all("curve" in row for solvers in results["lam"].values() for row in solvers.values()):
        return  # results of an earlier version hold no curves
    with common.picture("solvers", 1, len(LAMBDAS), figsize=(10, 4), sharey=True) as (_, axes):
        for axis, (lam, solvers) in zip(axes, results["lam"].items(), strict=True):
            for colour, (name, row) in zip(common.COLOURS, solvers.items(), strict=False):
                passes, gaps = np.array(row["curve"]).T
                axis.plot(passes, np.maximum(gaps, 1e-8), label=name, color=colour, lw=1.6)
            axis.set(xscale="log", yscale="log", xlabel="data passes", title=f"$\\lambda$ = {lam}", ylim=(1e-7, 1e3))
            for gap in GAPS:
                axis.axhline(gap, color="0.8", lw=0.8, zorder=0)
        axes[0].set_ylabel("relative certified gap")
        axes[0].legend(frameon=False)
