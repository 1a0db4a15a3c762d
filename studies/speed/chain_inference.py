"""Chain inference beside the matrix products it accompanies, and beside a vectorised NumPy version.

One pass computes the log-partition, the marginals of nodes and the summed marginals of edges, for L labels on 100,000
tokens in sequences of 20, on one thread. *Products* are the two matrix products `F @ W` and `F.T @ R` that go with a
pass if there are 512 features per token. The *transposed layout* computes them as `W.T @ F.T` and `R.T @ F`. *NumPy*
computes the same marginals in log space, vectorised over sequences. Each number is the median over rounds in which all
sides run in turn.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.chain import moments
from studies import common

LABELS = (2, 9, 23, 45)


def log_sum_exp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis=axis, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))).squeeze(axis)


def numpy_moments(scores: np.ndarray, w: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run forward-backward in log space over sequences of one length, all sequences at a time."""
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


def hidden_markov(w: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return a model of hmmlearn whose inputs are log-likelihoods, and the logarithms of its transitions.

    w : scores of transitions; each row of their exponentials is divided by its sum.
    """
    from hmmlearn.base import BaseHMM

    class GivenLikelihoods(BaseHMM):
        def _compute_log_likelihood(self, X: np.ndarray) -> np.ndarray:
            return X

    L = len(w)
    model = GivenLikelihoods(L)
    model.startprob_ = np.full(L, 1 / L)
    model.transmat_ = np.exp(w) / np.exp(w).sum(axis=1, keepdims=True)
    return model, np.log(model.transmat_)


def row(scores: np.ndarray, w: np.ndarray, F: np.ndarray, chains: Chains, length: int, rounds: int) -> dict[str, float]:
    """Return the seconds of each side, after a check that they agree."""
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
    if F.dtype == np.float64:
        hmm, steps = hidden_markov(w)
        lengths = np.diff(chains.offsets)
        peer = hmm.predict_proba(scores, lengths)
        np.testing.assert_allclose(peer, moments(scores, steps, chains).nodes, atol=tolerance)
        sides["hmmlearn"] = lambda: hmm.predict_proba(scores, lengths)
    with threadpool_limits(1, user_api="blas"):
        found = common.side_by_side(sides, rounds)
        return found | common.side_by_side({"numpy": lambda: numpy_moments(scores, w, length)}, 1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([options.length] * (options.tokens // options.length))
    results: dict[str, Any] = {}
    for dtype in (np.float64, np.float32):
        F = rng.normal(size=(chains.n_nodes, 512)).astype(dtype)
        found = results[dtype.__name__] = {}
        for n_labels in LABELS:
            scores = rng.normal(size=(chains.n_nodes, n_labels)).astype(dtype)
            w = rng.normal(size=(n_labels, n_labels)).astype(dtype)
            found[n_labels] = row(scores, w, F, chains, options.length, options.rounds)
    return results


def table(results: dict[str, Any]) -> str:
    times = ["ours, ms", "products, ms", "transposed, ms", "NumPy, ms"]
    ratios = ["ours / products", "ours / transposed", "NumPy / ours", "hmmlearn / ours", "1 thread / 2 threads"]
    rows = []
    for dtype in ("float64", "float32"):
        for n_labels, t in results[dtype].items():
            cells = [f"{1e3 * t[side]:.1f}" for side in ("ours", "gemms", "faster", "numpy")]
            cells += [
                f"{t['ours'] / t['gemms']:.3f}",
                f"{t['ours'] / t['faster']:.3f}",
                f"{t['numpy'] / t['ours']:.1f}",
                f"{t['hmmlearn'] / t['ours']:.1f}" if "hmmlearn" in t else "",
            ]
            rows.append([dtype, str(n_labels), *cells, f"{t['ours'] / t['two']:.2f}"])
    text = "hmmlearn gets the scores of tokens as log-likelihoods, and computes marginals of nodes alone, in float64."
    return f"{common.markdown(['', 'L', *times, *ratios], rows)}\n\n{text}"


OPTIONS = {"tokens": 100_000, "length": 20, "rounds": 5}
