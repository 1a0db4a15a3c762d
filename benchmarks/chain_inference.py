"""Chain inference beside the matrix products it accompanies, and beside a vectorised NumPy version.

For L labels on 100,000 tokens in sequences of 20: log-partition, node marginals and summed edge marginals in one pass,
as a ratio to (a) the two bare products `F @ W` and `F.T @ R` at n = 512, as NumPy runs them and in the faster layout,
(b) the same moments in log space by NumPy, vectorised over sequences; and two threads beside one. Each line is the
median over rounds in which all sides run in turn. `2 alone` is what the machine gives: the throughput of two processes
with nothing in common, each on one thread, over that of one.

Times in ms, one thread each. `gemms` = F @ W and F.T @ R, `faster` = W.T @ F.T and R.T @ F.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import common
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.chain import moments

BARS = {2: 0.15, 9: 0.2, 23: 0.3, 45: 0.45}


def log_sum_exp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis=axis, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))).squeeze(axis)


def numpy_moments(scores: np.ndarray, w: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-space forward-backward over sequences of one length, all sequences at a time."""
    n_labels = scores.shape[1]
    s = scores.reshape(-1, length, n_labels)
    la, lb = np.empty_like(s), np.zeros_like(s)
    la[:, 0] = s[:, 0]
    for t in range(1, length):
        la[:, t] = s[:, t] + log_sum_exp(la[:, t - 1, :, None] + w, axis=1)
    for t in range(length - 1, 0, -1):
        lb[:, t - 1] = log_sum_exp(w + (s[:, t] + lb[:, t])[:, None, :], axis=2)
    log_z = log_sum_exp(la[:, -1], axis=1)
    edges = np.zeros((n_labels, n_labels))
    for t in range(1, length):
        into = s[:, t] + lb[:, t] - log_z[:, None]
        edges += np.exp(la[:, t - 1, :, None] + w + into[:, None, :]).sum(axis=0)
    return log_z, np.exp(la + lb - log_z[:, None, None]).reshape(scores.shape), edges


def rate(n_labels: int, duration: float = 2.0) -> float:
    """Passes a second over 100,000 tokens, in one thread."""
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([20] * 5000)
    scores, w = rng.normal(size=(chains.n_nodes, n_labels)), rng.normal(size=(n_labels, n_labels))
    moments(scores, w, chains)
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + duration:
        moments(scores, w, chains)
        count += 1
    return count / (time.perf_counter() - start)


def two_alone(pool: ProcessPoolExecutor, n_labels: int) -> float:
    """Throughput of two processes over that of one."""
    list(pool.map(rate, [n_labels] * 2, [0.5] * 2))
    single = pool.submit(rate, n_labels).result()
    return sum(pool.map(rate, [n_labels] * 2)) / single


def row(scores: np.ndarray, w: np.ndarray, F: np.ndarray, chains: Chains, length: int, rounds: int) -> dict[str, float]:
    """Seconds of each side, after a check that they agree."""
    result, expected = moments(scores, w, chains), numpy_moments(scores.astype(float), w, length)
    tolerance = 1e-9 if F.dtype == np.float64 else 1e-3
    np.testing.assert_allclose(result.log_partition, expected[0], rtol=tolerance)
    np.testing.assert_allclose(result.nodes, expected[1], atol=tolerance)
    np.testing.assert_allclose(result.edges, expected[2], rtol=tolerance)
    W = np.random.default_rng(1).normal(size=(F.shape[1], scores.shape[1])).astype(F.dtype)
    sides = {
        "ours": lambda: moments(scores, w, chains),
        "two": lambda: moments(scores, w, chains, n_threads=2),
        "gemms": lambda: (F @ W, F.T @ scores),
        "faster": lambda: (W.T @ F.T, scores.T @ F),
    }
    with threadpool_limits(1, user_api="blas"):
        found = common.turns(sides, rounds)
        return found | common.turns({"numpy": lambda: numpy_moments(scores, w, length)}, 2)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([options.length] * (options.tokens // options.length))
    results: dict[str, Any] = vars(options).copy()
    for dtype in (np.float64, np.float32):
        F = rng.normal(size=(chains.n_nodes, 512)).astype(dtype)
        found = results[dtype.__name__] = {}
        for n_labels in BARS:
            scores = rng.normal(size=(chains.n_nodes, n_labels)).astype(dtype)
            w = rng.normal(size=(n_labels, n_labels)).astype(dtype)
            found[n_labels] = row(scores, w, F, chains, options.length, options.rounds)
            if dtype == np.float64:
                found[n_labels]["two alone"] = two_alone(pool, n_labels)
    return results


def table(results: dict[str, Any]) -> str:
    header = ["", "L", "ours", "gemms", "faster", "numpy", "ours/gemms", "bar", "ours/faster", "numpy/ours"]
    rows = []
    for dtype in ("float64", "float32"):
        for n_labels, t in results[dtype].items():
            double = dtype == "float64"
            times = [f"{1e3 * t[side]:.1f}" for side in ("ours", "gemms", "faster", "numpy")]
            ratios = [f"{t['ours'] / t['gemms']:.3f}", f"{BARS[int(n_labels)]}" if double else ""]
            ratios += [f"{t['ours'] / t['faster']:.3f}", f"{t['numpy'] / t['ours']:.1f}"]
            alone = f"{t['two alone']:.2f}x" if double else ""
            rows.append([dtype, str(n_labels), *times, *ratios, f"{t['ours'] / t['two']:.2f}x", alone])
    return common.markdown([*header, "2 threads", "2 alone"], rows)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, table, tokens=100_000, length=20, rounds=9)
