"""KernelClassifier beside Nystroem with LogisticRegression, and beside GaussianProcessClassifier.

There are 100,000 rows of 20 features with two classes (`make_classification`). The kernel is rbf, there are n
landmarks, and each side has one thread and float64. Both sides start from the rows, and end within a relative distance
of 1e-4 of the optimum on their own features. KernelClassifier ends by its certificate. LogisticRegression has none:
before the timing, we try smaller and smaller values of `tol`, and keep the first one that reaches the same distance.

*Objective* is what both minimise in the end, the negative log posterior. KernelClassifier has one score per class, and
the difference of two scores has twice the prior variance of one. LogisticRegression therefore gets twice our C. The
landmarks differ: Nystroem draws rows; KernelClassifier chooses them by default, and draws them with "uniform".
GaussianProcessClassifier needs the Gram matrix of all rows, and is therefore measured on fewer rows.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from kernelcrf import KernelClassifier
from kernelcrf.basis import Landmarks
from studies import common

GAMMA, C, TOL = 0.02, 1.0, 1e-4
TOLS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
GP_ROWS = (500, 1000, 2000)
TITLES = {
    "Nystroem": "Nystroem + LogisticRegression",
    "auto": "KernelClassifier",
    "uniform": "KernelClassifier, Landmarks(n, 'uniform')",
}


def rows(n_rows: int, n_test: int = 10_000) -> tuple[np.ndarray, ...]:
    X, y = make_classification(
        n_rows + n_test, 20, n_informative=10, n_clusters_per_class=8, class_sep=0.8, flip_y=0.05, random_state=0
    )
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def logistic(tol: float, max_iter: int = 2000) -> LogisticRegression:
    return LogisticRegression(C=2 * C, fit_intercept=False, tol=tol, max_iter=max_iter)


def objective(model: LogisticRegression, F: np.ndarray, y: np.ndarray) -> float:
    w = model.coef_[0]
    return float(np.logaddexp(0, np.where(y == 1, -1.0, 1.0) * (F @ w)).sum() + w @ w / (4 * C))


def nystroem(n: int) -> Nystroem:
    return Nystroem("rbf", gamma=GAMMA, n_components=n, random_state=0)


def tolerance(F: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the largest tol with which LogisticRegression comes within TOL of its optimum, and that optimum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = objective(logistic(1e-9, 20_000).fit(F, y), F, y)
        return next(tol for tol in TOLS if objective(logistic(tol).fit(F, y), F, y) <= (1 + TOL) * best), best


def row(n_rows: int, n: int, rounds: int) -> dict[str, Any]:
    X, y, X_test, y_test = rows(n_rows)
    tol, _ = tolerance(nystroem(n).fit_transform(X), y)
    theirs = make_pipeline(nystroem(n), logistic(tol))
    problem = {"gamma": GAMMA, "C": C, "fit_intercept": False, "tol": TOL, "random_state": 0}
    ours = {pivots: KernelClassifier(n_components=Landmarks(n, pivots), **problem) for pivots in ("auto", "uniform")}
    sides = {"Nystroem": lambda: theirs.fit(X, y)} | {
        name: lambda model=model: model.fit(X, y) for name, model in ours.items()
    }
    seconds = common.side_by_side(sides, rounds)
    found: dict[str, Any] = {"seconds": seconds, "tol": tol}
    found["objective"] = {name: model.certificate_.objective for name, model in ours.items()}
    found["objective"]["Nystroem"] = objective(theirs[-1], theirs[0].transform(X), y)
    found["gap"] = {name: model.certificate_.relative_gap for name, model in ours.items()}
    found["error"] = {name: 1 - model.score(X_test, y_test) for name, model in ({"Nystroem": theirs} | ours).items()}
    return found


def exact(n_rows: int) -> float:
    X, y, *_ = rows(n_rows)
    kernel = ConstantKernel(2 * C) * RBF(1 / np.sqrt(2 * GAMMA))
    return common.seconds(lambda: GaussianProcessClassifier(kernel, optimizer=None).fit(X, y))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "rounds": options.rounds,
        "rows": options.rows,
        "sizes": {str(n): row(options.rows, n, options.rounds) for n in map(int, options.sizes.split(","))},
        "exact": {str(n_rows): exact(n_rows) for n_rows in GP_ROWS},
    }


def table(results: dict[str, Any]) -> str:
    header = ["n, side", "seconds", "ratio", "objective", "certified gap", "test error"]
    lines = []
    for n, found in results["sizes"].items():
        for name, title in TITLES.items():
            seconds, ours = found["seconds"][name], name != "Nystroem"
            ratio = f"{seconds / found['seconds']['Nystroem']:.2f}" if ours else ""
            gap = f"{found['gap'][name]:.1e}" if ours else ""
            cells = [f"{found['objective'][name]:.1f}", gap, f"{100 * found['error'][name]:.2f} %"]
            lines.append([f"{n}, {title}", f"{seconds:.2f}", ratio, *cells])
    times = ", ".join(f"{seconds:.2f} s for {int(n):,}" for n, seconds in results["exact"].items())
    n_rows, (first, *_, last) = results["rows"], results["exact"].values()
    twice = (last / first) ** (1 / (len(results["exact"]) - 1))
    return common.markdown(header, lines) + (
        f"\n\nAll of these are medians of {results['rounds']} rounds in turn. One fit of GaussianProcessClassifier, "
        f"without a choice of the kernel, takes {times} rows: twice the rows take {twice:.1f} times as long. For "
        f"{n_rows:,} rows, its Gram matrix alone would have {8e-9 * n_rows**2:.0f} GB."
    )


OPTIONS = {"rounds": 3, "rows": 100_000, "sizes": "200,500"}
