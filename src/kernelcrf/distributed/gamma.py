"""The value of gamma="scale" for inputs that are on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, is_sparse
from kernelcrf.distributed.corpus import DistributedCorpus
from kernelcrf.fitting.corpus import LocalCorpus
from kernelcrf.kernels.gamma import gamma_of_variance


def gamma_by_scale(data: DistributedCorpus, names: Sequence[str], *, weighted: bool = False) -> float:
    """Return the value of gamma="scale", computed from the variance of all entries of the inputs.

    names : the names of the matrices whose rows are the inputs; they have the same columns.
    weighted : whether rows count with the weight of their sample; each sample then has equally many rows.
    """
    cluster, parts, d = data.cluster, data.parts, data.n_columns(names[0])
    total, mass = cluster.sum(_sum_entries, parts, shared=(list(names), weighted))
    n = max(mass * d, np.finfo(np.float64).tiny)
    squares = float(cluster.sum(_sum_squares, parts, shared=(list(names), total / n, weighted)))
    return gamma_of_variance(squares / n, d)


# A worker calls the functions below with one part.


def _weights_of_rows(part: LocalCorpus, X: Inputs, weighted: bool) -> Floats:
    weights: Array | None = getattr(part, "weights", None)
    if weights is None or not weighted:
        return np.ones(X.shape[0])
    return np.repeat(weights, X.shape[0] // len(weights))


def _sum_entries(part: LocalCorpus, names: list[str], weighted: bool) -> Floats:
    """Return the weighted sum of all entries of the inputs, and the sum of the weights of all rows."""
    sums = np.zeros(2)
    for X in map(part.rows, names):
        weights = _weights_of_rows(part, X, weighted)
        sums += weights @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel(), weights.sum()
    return sums


def _sum_squares(part: LocalCorpus, names: list[str], mean: float, weighted: bool) -> float:
    """Return the weighted sum of (x - mean)^2 over all entries x, including zeros that are not stored."""
    total = 0.0
    for X in map(part.rows, names):
        weights: Any = _weights_of_rows(part, X, weighted)
        stored = np.asarray(X.data if is_sparse(X) else X, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.square(stored - mean)
            if not is_sparse(X):
                total += float(weights @ squares.sum(axis=1))
                continue
            counts = np.diff(X.indptr)
            total += float(np.repeat(weights, counts) @ squares + (weights @ (X.shape[1] - counts)) * mean * mean)
    return total
