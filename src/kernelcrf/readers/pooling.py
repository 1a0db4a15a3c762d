"""Inputs of whole segments, computed from the inputs x_t of their tokens.

    mean    the mean of the inputs of all tokens of the segment
    max     the largest value of each column
    ends    the inputs of the first and of the last token, next to each other

A user may pass a function instead. Its arguments are a sequence, the index of the first token of a segment, and the
index after the last token. It returns a feature dict, a list of feature names, or a vector.

Candidates are all segments of up to D tokens; see `inference.segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Inputs, Ints, UserData, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.segments import candidate_rows
from kernelcrf.readers.containers import read_list
from kernelcrf.validation import Constraint, either, one_of

MEAN, MAX, ENDS = "mean", "max", "ends"
POOLING = either(one_of(MEAN, MAX, ENDS), Constraint("a function of a sequence, a start and an end", callable))


def candidates(chains: Chains, D: int) -> tuple[Ints, Ints]:
    """Return two arrays with one entry per candidate segment: its first row, and the row after its last row."""
    rows = candidate_rows(chains, D)
    counts = np.diff(rows)
    starts = np.repeat(np.arange(chains.n_nodes), counts)
    return starts, starts + 1 + np.arange(rows[-1]) - np.repeat(rows[:-1], counts)


def pool(X: Inputs, chains: Chains, D: int, pooling: str) -> Inputs:
    """Return the inputs of all candidate segments, one per row, given the inputs of all tokens."""
    starts, ends = candidates(chains, D)
    if pooling == ENDS:
        first, last = X[starts], X[ends - 1]
        return sp.hstack([first, last], "csr") if is_sparse(X) else np.hstack([first, last])
    if pooling == MEAN:
        durations = ends - starts
        indptr = np.concatenate(([0], np.cumsum(durations)))
        tokens = np.repeat(starts - indptr[:-1], durations) + np.arange(indptr[-1])
        shares = np.repeat(1.0 / durations, durations).astype(X.dtype)
        means = sp.csr_array((shares, tokens, indptr), shape=(len(starts), X.shape[0])) @ X
        return sp.csr_array(means) if is_sparse(X) else np.asarray(means)
    durations = ends - starts
    tokens, level, levels = np.arange(X.shape[0]), X, [X]
    for d in range(2, int(durations.max(initial=1)) + 1):
        longer = starts[durations == d]
        level, last = level[np.searchsorted(tokens, longer)], X[longer + d - 1]
        level, tokens = level.maximum(last) if is_sparse(X) else np.maximum(level, last), longer
        levels.append(level)
    # The rows of each duration are in the order of their first tokens.
    order = np.argsort(np.argsort(durations, kind="stable"), kind="stable")
    return sp.vstack(levels, format="csr")[order] if is_sparse(X) else np.vstack(levels)[order]


def described(
    X: UserData, lengths: UserData, chains: Chains, D: int, function: Callable[[Any, int, int], Any]
) -> list[list[Any]]:
    """Describe all candidate segments with a function of the user; return one list of its results per sequence.

    The candidates are all segments of up to D tokens. The arguments of the function are the sequence, the index of the
    first token of the segment, and the index after its last token.

    chains : the sequences to read; `chains.number(i)` is the index in X of sequence i.
    """
    if lengths is not None:
        raise ValueError(
            "lengths was passed, but pooling is a function of one sequence: expected X as a list of sequences; omit "
            "lengths="
        )
    sequences: Sequence[Any] = read_list(X, "X")
    descriptions = []
    for i, T in enumerate(chains.lengths.tolist()):
        x = sequences[chains.number(i)]
        descriptions.append([function(x, b, b + d) for b in range(T) for d in range(1, min(D, T - b) + 1)])
    return descriptions
