"""The pairs of a feature and a label that have a weight, if not all pairs have one.

Most sparse features occur with few labels. If only the pairs that occur in the training data have weights, a model is
much smaller, and hardly less accurate. The weights of all pairs are then a vector, sorted by feature and then by label.
The scores of a token with the features x, and the gradient for residuals r_t of all tokens t, are

    s[l] = sum over pairs (f, l) of x[f] w[f, l],      g[f, l] = sum over tokens t of x_t[f] r_t[l].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Ints, Labels
from kernelcrf.engines.compiled import compiled

TRACE = 1e-30


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a feature and a label, sorted by feature and then by label.

    pointers : feature f has the pairs `pointers[f]:pointers[f+1]` (int64).
    labels : the label of each pair (int32).
    n_labels : the number of labels.
    """

    pointers: Ints
    labels: Labels
    n_labels: int

    @classmethod
    def of(cls, flags: Flags) -> Pairs:
        """Return the pairs with a True flag, given one row of flags per feature and one column per label."""
        counts = np.count_nonzero(flags, axis=1)
        pointers = np.append(0, np.cumsum(counts)).astype(np.int64)
        return cls(pointers, np.nonzero(flags)[1].astype(np.int32), flags.shape[1])

    def select(self, kept: Flags) -> Pairs:
        """Return the pairs with a True flag, given one flag per pair."""
        return Pairs(np.append(0, np.cumsum(kept))[self.pointers], self.labels[kept], self.n_labels)

    def with_places(self, places: Ints) -> Pairs:
        """Return these pairs and the pairs at `places`: indices into the matrix [feature, label], row by row."""
        rows, labels = np.divmod(np.union1d(self.places, places), self.n_labels)
        pointers = np.append(0, np.cumsum(np.bincount(rows, minlength=self.n)))
        return Pairs(pointers.astype(np.int64), labels.astype(np.int32), self.n_labels)

    @property
    def n(self) -> int:
        """Return the number of features."""
        return len(self.pointers) - 1

    @property
    def size(self) -> int:
        """Return the number of pairs."""
        return len(self.labels)

    @cached_property
    def flags(self) -> Flags:
        """Return an array with one row per feature and one column per label: True if the pair has a weight."""
        return np.asarray(self.unpack(np.ones(self.size, bool)))

    def unpack(self, weights: Array) -> Array:
        """Return weights as an array with one row per feature and one column per label, and 0 for all other pairs.

        If `weights` has several axes, the last one has the pairs.
        """
        full = np.zeros((*weights.shape[:-1], self.n * self.n_labels), weights.dtype)
        full[..., self.places] = weights
        return full.reshape(*weights.shape[:-1], self.n, self.n_labels)

    def pack(self, full: Array) -> Array:
        """Return the entries of `full` that belong to pairs; `full` has one row per feature, one column per label."""
        return full.reshape(-1)[self.places]

    def scores(self, columns: Array, values: Array, offsets: Array, weights: Array, s: Array) -> None:
        """Add the scores of tokens to s, one row per token and one column per label.

        columns, values, offsets : the features of the tokens, as in `Entries`.
        """
        _add_scores(columns, values, offsets, self.pointers, self.labels, weights, s)

    def records(self, weights: Array) -> Floats:
        """Return an array for `add_record_scores`: one record per feature, one after the other.

        A record has the number of pairs of the feature, and the label and the weight of each pair. The record of
        feature f begins at f + 2 * pointers[f].
        """
        records = np.empty(self.n + 2 * self.size)
        _fill_records(self.pointers, self.labels, weights, records)
        return records

    def gradient(self, tokens: Array, values: Array, offsets: Array, R: Array, first: int, g: Array) -> None:
        """Compute the gradient with respect to the weights of some consecutive features, and write it into g.

        The array g has one entry per pair; only the entries of these features change.

        tokens, values, offsets : for each of these features, the tokens in which it occurs, and its values there.
        R : the gradient with respect to the scores, one row per token.
        first : the first of these features.
        """
        _fill_gradient(tokens, values, offsets, self.pointers, self.labels, R, first, g)

    def add_gradient(self, columns: Array, values: Array, offsets: Array, R: Array, g: Array) -> None:
        """Add the gradient with respect to the weights to g, which has one entry per pair.

        columns, values, offsets : the features of the tokens, as in `Entries`.
        R : the gradient with respect to the scores, one row per token.
        """
        _add_gradient(columns, values, offsets, self.pointers, self.labels, R, g)

    @cached_property
    def places(self) -> Ints:
        """Return the index of each pair in the matrix [feature, label], counted row by row."""
        return np.repeat(np.arange(self.n) * self.n_labels, np.diff(self.pointers)) + self.labels


def frequencies(X: Inputs, allowed: Flags) -> Array:
    """Return how often each feature occurs with each label: one row per column of the CSR matrix X.

    An entry x of X counts |x| times. An entry that is stored but zero counts as TRACE, so that its feature is observed
    with the label, as in CRFsuite. `allowed` are the labels that each row of X may have, one column per label.
    """
    counts = np.zeros((X.shape[1], allowed.shape[1]), np.float32)
    _count(X.indices, X.data, X.indptr, allowed, counts)
    return counts


@compiled
def _count(columns: Array, values: Array, offsets: Array, allowed: Flags, counts: Array) -> None:
    for t in range(len(offsets) - 1):
        for e in range(offsets[t], offsets[t + 1]):
            x = abs(values[e]) + TRACE
            for j in range(allowed.shape[1]):
                if allowed[t, j]:
                    counts[columns[e], j] += x


@compiled
def _add_scores(
    columns: Array, values: Array, offsets: Array, pointers: Ints, labels: Labels, weights: Array, s: Array
) -> None:
    for t in range(len(s)):
        for e in range(offsets[t], offsets[t + 1]):
            f, x = columns[e], values[e]
            if f >= 0:
                for k in range(pointers[f], pointers[f + 1]):
                    s[t, labels[k]] += x * weights[k]


@compiled
def _fill_records(pointers: Ints, labels: Labels, weights: Array, records: Floats) -> None:
    at = 0
    for f in range(len(pointers) - 1):
        records[at] = pointers[f + 1] - pointers[f]
        at += 1
        for k in range(pointers[f], pointers[f + 1]):
            records[at], records[at + 1] = labels[k], weights[k]
            at += 2


@compiled
def add_record_scores(columns: Array, values: Array, offsets: Array, pointers: Ints, records: Floats, s: Array) -> None:
    """Add the scores of tokens to s, as `Pairs.scores` does, given the result of `Pairs.records`."""
    most = 0
    for t in range(len(s)):
        most = max(most, offsets[t + 1] - offsets[t])
    first, last = np.empty(most, np.int64), np.empty(most, np.int64)
    for t in range(len(s)):
        low, n = offsets[t], offsets[t + 1] - offsets[t]
        # Loops without branches let the processor wait for the records of all features of the token at the same time.
        for e in range(n):
            f = columns[low + e]
            first[e] = f + 2 * pointers[f] if f >= 0 else -1
        for e in range(n):
            k = first[e]
            last[e] = k + 2 * int(records[k]) if k >= 0 else -1
        for e in range(n):
            x = values[low + e]
            for m in range(first[e] + 1, last[e], 2):
                s[t, int(records[m])] += x * records[m + 1]


@compiled
def _fill_gradient(
    tokens: Array, values: Array, offsets: Array, pointers: Ints, labels: Labels, R: Array, first: int, g: Array
) -> None:
    for row in range(len(offsets) - 1):
        low, high = pointers[first + row], pointers[first + row + 1]
        for k in range(low, high):
            g[k] = 0
        for e in range(offsets[row], offsets[row + 1]):
            t, x = tokens[e], values[e]
            for k in range(low, high):
                g[k] += x * R[t, labels[k]]


@compiled
def _add_gradient(
    columns: Array, values: Array, offsets: Array, pointers: Ints, labels: Labels, R: Array, g: Array
) -> None:
    for t in range(len(R)):
        for e in range(offsets[t], offsets[t + 1]):
            f, x = columns[e], values[e]
            for k in range(pointers[f], pointers[f + 1]):
                g[k] += x * R[t, labels[k]]
