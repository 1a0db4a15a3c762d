"""Letters, one fold, from pixels to a certified fit, beside the bare BLAS work that it needed.

A ChainCRF with the rbf kernel and 1,000 landmarks is fitted to a relative certified gap of 1e-4. The bare work has
three parts. The first is the Gram matrix of all inputs with the landmarks, and that of the landmarks, each by `X @ B.T`
and an exponential. The second is a Cholesky factor and the triangular solve for the features F. The third is `F @ W`
and `F.T @ R`, as often as the fit passed over the data; the *transposed* layout has `W.T @ F.T` and `R.T @ F` in their
place. The choice of landmarks is part of the fit and has no bare counterpart. Every side has one thread.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from threadpoolctl import threadpool_limits

from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from studies import common
from studies.datasets import load_letters

GAMMA, N_COMPONENTS, TOL = 0.03, 1000, 1e-4
PIVOTS = ("auto", "random")


def gram(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    K = X @ Y.T
    K *= 2 * GAMMA
    K -= GAMMA * np.einsum("ij,ij->i", X, X)[:, None]
    K -= GAMMA * np.einsum("ij,ij->i", Y, Y)
    return np.exp(K, out=K)


def features(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    K_BB = gram(B, B)
    K_BB.flat[:: len(B) + 1] += 1e-8
    R = cholesky(K_BB, lower=True, overwrite_a=True)
    return solve_triangular(R, gram(X, B).T, lower=True, overwrite_b=True).T


def row(X: list[np.ndarray], y: list[np.ndarray], C: float, pivots: str, rounds: int) -> dict[str, float]:
    settings = {"gamma": GAMMA, "C": C, "n_components": Landmarks(N_COMPONENTS, pivots), "tol": TOL, "random_state": 0}
    model = ChainCRF("rbf", **settings).fit(X, y)
    flat, B, rng = np.concatenate(X), model.landmarks_, np.random.default_rng(0)
    F = features(flat, B)
    W, R = rng.normal(size=model.coef_.shape), rng.normal(size=(len(F), len(model.classes_)))
    sides = {
        "fit": lambda: model.fit(X, y),
        "features": lambda: features(flat, B),
        "pass": lambda: (F @ W, F.T @ R),
        "faster": lambda: (W.T @ F.T, R.T @ F),
    }
    with threadpool_limits(1, user_api="blas"):
        return common.side_by_side(sides, rounds) | {"passes": float(model.gap_curve_[-1, 1])}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    data = load_letters("small")
    train, _ = data.splits[0]
    fold = data.take(train)
    rows = {
        f"{C:g}, {pivots}": row(fold.X, fold.y, C, pivots, options.rounds) for C in (1.0, 10.0) for pivots in PIVOTS
    }
    return {"rounds": options.rounds, "tokens": sum(map(len, fold.X)), "rows": rows}


def table(results: dict[str, Any]) -> str:
    header = ["C, landmarks", "fit, s", "passes", "bare features, s", "bare passes, s", "fit / bare"]
    rows = []
    for name, row in results["rows"].items():
        bare, faster = (row["features"] + row["passes"] * row[layout] for layout in ("pass", "faster"))
        cells = [f"{row['fit']:.2f}", f"{row['passes']:.0f}", f"{row['features']:.2f}", f"{bare - row['features']:.2f}"]
        rows.append([name, *cells, f"{row['fit'] / bare:.2f}", f"{row['fit'] / faster:.2f}"])
    return common.markdown([*header, "fit / transposed"], rows) + (
        f"\n\n{results['tokens']:,} tokens, one thread, median of {results['rounds']} rounds in turn."
    )


OPTIONS = {"rounds": 5}
