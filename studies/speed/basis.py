"""The pivot rules on the letters data: what each leaves of the kernel, and its seconds.

A rule chooses n landmarks for the distinct letters; kmeans and lloyd take means of letters, and the others take
letters. The kernel is rbf with gamma = 0.03. Pixels are 0 or 1, so that the laplacian kernel is the same. The residual
is the part of the kernel's trace that n landmarks do not explain. The least possible residual is the sum of the
trailing eigenvalues of the whole kernel matrix, which only a benchmark computes. Times are those of the landmarks and
of the features F.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.pivots import Random
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel
from studies import common
from studies.datasets import load_letters

SIZES = (250, 500, 1000, 2000)
RULES = ("greedy", "random", "uniform", "kmeans", "lloyd")
MARKERS = "vos^D"
ENGINE = LocalEngine(-1)
RBF = InputKernel("rbf", gamma=0.03)
KERNELS = {
    "rbf": RBF,
    "poly 2": InputKernel(Polynomial(2), gamma=0.05),
    "poly 3": InputKernel("poly", gamma=0.05),
    "chi2": InputKernel("chi2", gamma=0.05),
    "laplacian": InputKernel("laplacian", gamma=0.03),
}
OPTIONS = {"letters": 8_000, "sizes": ",".join(map(str, SIZES)), "rounds": 5, "inputs": 20_000}


def quality(X: np.ndarray, optimum: dict[int, float]) -> dict[int, dict[str, Any]]:
    """Return the residual of each rule over the optimum, and its seconds: means over three seeds, or one."""
    rows: dict[int, dict[str, Any]] = {}
    for n in optimum:
        for rule in RULES:
            left: list[float] = []
            took = [
                common.seconds(
                    lambda n=n, rule=rule, s=seed, left=left: left.append(
                        choose_basis(RBF, X, n, rule, random_state=s, engine=ENGINE).residual.sum()
                    )
                )
                for seed in range(1 if rule in ("kmeans", "greedy") else 3)
            ]
            mean = float(np.mean(left))
            row = {"seconds": float(np.median(took)), "residual": mean / len(X), "ratio": mean / optimum[n]}
            rows.setdefault(n, {})[rule] = row
    return rows


def one_at_a_time(X: np.ndarray, n: int, rng: np.random.Generator) -> float:
    """Run randomly pivoted Cholesky by the book: a column, a product with a vector, an update."""
    F, d, squares = np.zeros((len(X), n), order="F"), np.ones(len(X)), np.einsum("ij,ij->i", X, X)
    for k in range(n):
        i = rng.choice(len(X), p=d / d.sum())
        column = np.exp(-RBF.gamma * (squares + squares[i] - 2 * (X @ X[i]))) - F[:, :k] @ F[i, :k]
        F[:, k] = column / np.sqrt(column[i])
        d = np.maximum(d - F[:, k] ** 2, 0.0)
        d[i] = 0.0
    return float(d.sum())


def speed(X: np.ndarray, n: int, rounds: int) -> dict[str, float]:
    """Time pivots in blocks, pivots one at a time, and the BLAS work that no rule avoids."""
    rng = np.random.default_rng(0)
    B = X[rng.choice(len(X), n, replace=False)]
    R, G = np.asfortranarray(np.linalg.cholesky(RBF.gram(B))), RBF.gram(X, B)
    sides = {
        "accelerated": lambda: choose_basis(RBF, X, n, Random(), random_state=0, engine=ENGINE),
        "gram": lambda: RBF.gram(X, B),
        "triangular": lambda: blas.dtrmm(1.0, R, G.T, lower=1, overwrite_b=1),
    }
    found = common.side_by_side(sides, rounds) | common.side_by_side(
        {"one at a time": lambda: one_at_a_time(X, n, rng)}, 1
    )
    bare = found["gram"] + found["triangular"]
    return found | {
        "bare": bare,
        "one at a time / accelerated": found["one at a time"] / found["accelerated"],
        "accelerated / bare": found["accelerated"] / bare,
    }


def shapes(m: int, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, float, int]]:
    """Return m inputs of other shapes, each with gamma and n."""
    centres = rng.normal(size=(3000, 32))
    crowd = np.vstack([0.3 * rng.normal(size=(m - 1000, 6)), np.repeat(5 * rng.normal(size=(200, 6)), 5, axis=0)])
    crowd[-1000:] += 0.05 * rng.normal(size=(1000, 6))
    return {
        "normal": (rng.normal(size=(m, 16)), 0.03, m // 40),
        "heavy tails": (rng.standard_t(2, size=(m, 8)), 0.1, m // 40),
        "near copies": (centres[rng.zipf(1.3, m) % 3000] + 0.05 * rng.normal(size=(m, 32)), 0.03, m // 40),
        "crowd and 200 small clusters": (crowd, 0.4, m * 3 // 100),
    }


def residuals(kernel: InputKernel, X: np.ndarray, n: int, rules: tuple[str, ...] = RULES) -> dict[str, float]:
    """Return the relative residual of each rule."""
    return {rule: choose_basis(kernel, X, n, rule, random_state=0, engine=ENGINE).relative_residual for rule in rules}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    X = distinct(np.concatenate(load_letters().X).astype(np.float64)).inputs[: options.letters]
    sizes = [int(n) for n in options.sizes.split(",")]
    choose_basis(RBF, X[:500], 50, "lloyd", engine=ENGINE)
    found: dict[str, Any] = {"U": len(X), "speed": speed(X, min(1000, len(X) // 2), options.rounds)}
    values = scipy.linalg.eigvalsh(RBF.gram(X), overwrite_a=True)
    found["optimum"] = {n: float(values[:-n].sum()) for n in sizes}
    found["quality"] = quality(X, found["optimum"])
    others = shapes(options.inputs, np.random.default_rng(0)).items()
    found["shapes"] = {name: residuals(InputKernel("rbf", gamma=gamma), Z, n) for name, (Z, gamma, n) in others}
    found["kernels"] = {
        name: residuals(kernel, X[:3000], min(500, len(X) // 6), RULES[1:]) for name, kernel in KERNELS.items()
    }
    return found


def table(results: dict[str, Any]) -> str:
    optimum = {n: value / results["U"] for n, value in results["optimum"].items()}
    rows = [
        [n, f"{optimum[n]:.4f}", *(f"{row[rule]['ratio']:.2f}x, {row[rule]['seconds']:.2f} s" for rule in RULES)]
        for n, row in results["quality"].items()
    ]
    speed = results["speed"]
    shaped, by_kernel = (
        common.markdown(
            [head, *rules], [[name, *(f"{row[r]:.{digits}f}" for r in rules)] for name, row in results[key].items()]
        )
        for key, head, rules, digits in (("shapes", "data", RULES, 5), ("kernels", "kernel", RULES[1:], 4))
    )
    first = common.markdown(["n", "least possible residual", *RULES], rows)
    return f"""For {results["U"]:,} letters, this table gives the least possible residual as a share of the whole trace.
A cell says how many times as large the residual of a rule is, and how long the rule takes:

{first}

For 1,000 landmarks by "random", choosing them in blocks takes {speed["accelerated"]:.2f} s, and one at a time
{speed["one at a time"]:.2f} s. The work that no rule can avoid takes {speed["bare"]:.2f} s.

Residual as a share of the trace for random data. There are 40 inputs per landmark, and 33 in the last row:

{shaped}

Residual as a share of the trace for other kernels on 3,000 letters, with 500 landmarks. Means of inputs (kmeans, lloyd)
are good landmarks if the kernel is smooth, and not if it has a kink where x = x', as laplacian has:

{by_kernel}"""


def figure(results: dict[str, Any]) -> None:
    optimum = {int(n): value / results["U"] for n, value in results["optimum"].items()}
    with common.picture("basis", 1, 2, figsize=(10, 4), sharey=True) as (_, (left, right)):
        for rule, colour, marker in zip(RULES, common.COLOURS, MARKERS, strict=False):
            rows = [row[rule] for row in results["quality"].values()]
            for axis, x in ((left, list(optimum)), (right, [row["seconds"] for row in rows])):
                axis.plot(x, [row["residual"] for row in rows], color=colour, marker=marker, ms=5, label=rule)
        left.plot(list(optimum), list(optimum.values()), "k--", lw=1.5, label="optimum (eigenvalues)")
        for n, value in optimum.items():
            right.axhline(value, color="k", ls="--", lw=0.6)
            right.annotate(f"n = {n}", (0.995, value), xycoords=("axes fraction", "data"), ha="right", va="bottom")
        left.set(xscale="log", yscale="log", xlabel="atoms n", ylabel="tr(K - FF') / tr K", title="by atoms")
        right.set(xscale="log", xlabel="seconds for atoms and F", title="by time; dashed: optimum at each n")
        left.set_xticks(list(optimum), list(map(str, optimum)))
        left.set_yticks([0.05, 0.1, 0.2, 0.4, 0.6], ["0.05", "0.1", "0.2", "0.4", "0.6"])
        left.minorticks_off()
        left.legend(frameon=False)
