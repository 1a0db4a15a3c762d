"""Chain inference beside the matrix products it accompanies, and beside a vectorised NumPy version.

For L labels on 100,000 tokens in sequences of 20: log-partition, node marginals and summed edge marginals in one pass,
as a ratio to (a) the two bare products `F @ W` and `F.T @ R` at n = 512, as NumPy runs them and in the faster layout,
(b) the same moments in log space by NumPy, vectorised over sequences; and two threads beside one. Each line is the
median over rounds in which all sides run in turn. `2 alone` is what the machine gives: the throughput of two processes
with nothing in common, each on one thread, over that of one.

    python benchmarks/chain_inference.py [--tokens 100000] [--length 20] [--rounds 9]
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

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


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def medians(sides: dict[str, Callable[[], Any]], rounds: int, slow: tuple[str, ...] = ()) -> dict[str, float]:
    """Median seconds of each side; the sides take turns, so that noise meets all; slow ones sit out after two."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(rounds):
        for name, function in sides.items():
            if k < 2 or name not in slow:
                times[name].append(seconds(function))
    return {name: float(np.median(values)) for name, values in times.items()}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    blas = {f"{library['internal_api']} {library['version']}" for library in threadpool_info()}
    print(f"python {platform.python_version()}, numpy {np.__version__}, numba {numba.__version__}, {', '.join(blas)}")
    print(f"{options.tokens} tokens, sequences of {options.length}, n = 512, median of {options.rounds} rounds")
    print("one thread each; `gemms` = F @ W and F.T @ R, `faster` = W.T @ F.T and R.T @ F; times in ms\n")
    columns = "dtype    L   ours  gemms  faster  numpy | ours/gemms (bar)  ours/faster  numpy/ours | 2 threads  2 alone"
    print(columns + "\n" + "-" * len(columns))
    pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([options.length] * (options.tokens // options.length))
    for dtype in (np.float64, np.float32):
        F = rng.normal(size=(chains.n_nodes, 512)).astype(dtype)
        for n_labels, bar in BARS.items():
            scores = rng.normal(size=(chains.n_nodes, n_labels)).astype(dtype)
            w = rng.normal(size=(n_labels, n_labels)).astype(dtype)
            W = rng.normal(size=(512, n_labels)).astype(dtype)
            result, expected = moments(scores, w, chains), numpy_moments(scores.astype(float), w, options.length)
            tolerance = 1e-9 if dtype == np.float64 else 1e-3
            np.testing.assert_allclose(result.log_partition, expected[0], rtol=tolerance)
            np.testing.assert_allclose(result.nodes, expected[1], atol=tolerance)
            np.testing.assert_allclose(result.edges, expected[2], rtol=tolerance)

            def products(F: np.ndarray = F, W: np.ndarray = W, R: np.ndarray = scores) -> None:
                F @ W, F.T @ R

            def faster(F: np.ndarray = F, W: np.ndarray = W, R: np.ndarray = scores) -> None:
                W.T @ F.T, R.T @ F

            def ours(n_threads: int = 1, scores: np.ndarray = scores, w: np.ndarray = w) -> None:
                moments(scores, w, chains, n_threads=n_threads)

            def in_numpy(scores: np.ndarray = scores, w: np.ndarray = w) -> None:
                numpy_moments(scores, w, options.length)

            sides = {"ours": ours, "two": lambda ours=ours: ours(2)}
            sides |= {"gemms": products, "faster": faster, "numpy": in_numpy}
            with threadpool_limits(1, user_api="blas"):
                t = medians(sides, options.rounds, slow=("numpy",) if n_labels > 9 else ())
            shown = f"({bar:.2f})" if dtype == np.float64 else "      "
            alone = f"{two_alone(pool, n_labels):7.2f}x" if dtype == np.float64 else ""
            print(
                f"{dtype.__name__} {n_labels:3d} {1e3 * t['ours']:6.1f} {1e3 * t['gemms']:6.1f} "
                f"{1e3 * t['faster']:7.1f} {1e3 * t['numpy']:6.0f} | {t['ours'] / t['gemms']:10.3f} {shown} "
                f"{t['ours'] / t['faster']:11.3f} {t['numpy'] / t['ours']:11.1f} | {t['ours'] / t['two']:8.2f}x {alone}"
            )


if __name__ == "__main__":
    main()
