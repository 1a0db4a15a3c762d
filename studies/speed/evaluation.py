"""One evaluation of the objective, value and gradient, beside the two bare products `F @ W` and `F.T @ R` of all of F.

There are 100,000 tokens in sequences of 20, with n = 512 features. An evaluation computes scores, runs inference, and
multiplies the residuals with the features. It does so while the features of about a hundred tokens are in the cache: it
reads F from memory once, and the bare products read it twice. The same is measured for the product of the Hessian with
a vector.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import TOKEN_TERM, chain_terms
from studies import common

LABELS = (2, 9, 23, 45)


def make_layout(n: int, n_labels: int, kernel: InputKernel | None = None, C: float = 1.0) -> Layout:
    """Return the weights of chains with n features per token."""
    return Layout.of(chain_terms(n_labels, kernel or InputKernel("linear"), C=C, C_edge=C), {TOKEN_TERM: n})


def make_objective(F: np.ndarray, labels: np.ndarray, lengths: Any, layout: Layout, n_jobs: int = 1) -> Objective:
    """Return the objective of chains with these features of tokens."""
    chains = Chains.from_lengths(lengths)
    partition = ChainPartition(chains, int(labels.max()) + 1, labels.astype(np.int32), {TOKEN_TERM: TokenFeatures(F)})
    return Objective(layout, partition.cut(), LocalEngine(n_jobs))


def ratios(F: np.ndarray, n_labels: int, length: int, rounds: int) -> dict[str, float]:
    """Return the seconds of the bare products, and all other times as multiples of them."""
    rng = np.random.default_rng(2)
    labels = np.random.default_rng(1).integers(0, n_labels, len(F))
    layout, lengths = make_layout(F.shape[1], n_labels), [length] * (len(F) // length)
    problem = {n_jobs: make_objective(F, labels, lengths, layout, n_jobs) for n_jobs in (1, 2)}
    theta = rng.normal(size=problem[1].layout.size) * 0.02
    W = np.ascontiguousarray(theta[: F.shape[1] * n_labels].reshape(F.shape[1], -1), F.dtype)
    R = rng.normal(size=(len(F), n_labels)).astype(F.dtype)
    v = rng.normal(size=theta.size)
    at = {n_jobs: one.evaluate(theta, curvature=True) for n_jobs, one in problem.items()}
    sides = {
        "gemms": lambda: (F @ W, F.T @ R),
        "faster": lambda: (W.T @ F.T, R.T @ F),
        "evaluate": lambda: problem[1].evaluate(theta),
        "evaluate, 2 threads": lambda: problem[2].evaluate(theta),
        "hessian": lambda: problem[1].hessian_product(at[1], v),
        "hessian, 2 threads": lambda: problem[2].hessian_product(at[2], v),
    }
    with threadpool_limits(1, user_api="blas"):
        found = common.side_by_side(sides, rounds)
    return {"gemms, s": found["gemms"]} | {
        name: value / found["gemms"] for name, value in found.items() if name != "gemms"
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    results: dict[str, Any] = {"tokens": options.tokens, "length": options.length, "rounds": options.rounds}
    for dtype in (np.float64, np.float32):
        F = rng.normal(size=(options.tokens, 512)).astype(dtype)
        results[dtype.__name__] = {L: ratios(F, L, options.length, options.rounds) for L in LABELS}
    return results


def table(results: dict[str, Any]) -> str:
    header = ["", "L", "bare, ms", "transposed layout", "evaluation", "evaluation, 2 threads", "Hessian product"]
    rows = []
    for dtype in ("float64", "float32"):
        for L, row in results[dtype].items():
            names = ("faster", "evaluate", "evaluate, 2 threads", "hessian", "hessian, 2 threads")
            rows.append([dtype, str(L), f"{1e3 * row['gemms, s']:.0f}", *(f"{row[name]:.2f}" for name in names)])
    return (
        "*Bare* is the time of `F @ W` and `F.T @ R` on one thread, for L labels. All other columns are divided by it. "
        "The *transposed layout* computes the same two products as `W.T @ F.T` and `R.T @ F`.\n\n"
        f"{common.markdown([*header, 'Hessian product, 2 threads'], rows)}\n\n"
        f"All times are medians of {results['rounds']} rounds in turn."
    )


OPTIONS = {"tokens": 100_000, "length": 20, "rounds": 7}
