"""Predict the labels of one sequence of feature dicts, or their probabilities, in one or two compiled calls.

For a single short sequence, the general prediction for many sequences would spend most of its time in calls of Python
functions. This module uses the same compiled loops and adds scores in the same order, so that its results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Floats, Ints, Labels, UserData
from kernelcrf.basis.kernel_weights import LARGEST_SCORE
from kernelcrf.basis.pairs import add_record_scores
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.engines.compiled import compiled
from kernelcrf.inference.loops import scaled
from kernelcrf.inference.loops.decoding import viterbi
from kernelcrf.inference.scaled import Edges
from kernelcrf.readers.sequences import SequenceReader

LARGEST = LARGEST_SCORE[np.dtype(np.float64)]


@dataclass(frozen=True, eq=False)
class OneSequence:
    """Predict the labels of one sequence at a time, for models with a single input.

    The input must have weights only for the pairs of a feature and a label that the training data contain.

    pointers, records : the weights of each feature, as in `basis.pairs`.
    constant : (3, L), the scores of the labels of every token, of the first and of the last one; -inf forbids a label.
    w : (1, L, L), the scores of transitions; -inf forbids a transition.
    """

    reader: SequenceReader
    pointers: Ints
    records: Floats
    constant: Floats
    w: Floats

    @cached_property
    def _edges(self) -> Edges:
        return Edges.of(self.w[0])

    def label(self, x: UserData) -> Labels | None:
        """Return the likeliest labels of a sequence as indices, or None if this object cannot find them.

        If the result is None, use the general prediction for many sequences, which finds the labels or raises an error.
        """
        entries = self.reader.look_up(x, zeros=False)
        if entries is None:
            return None
        labels = np.empty(entries.shape[0], np.int32)
        is_valid = _label(*self._arrays(entries), self.w, labels)
        return labels if is_valid else None

    def marginals(self, x: UserData) -> Floats | None:
        """Return the label probabilities of a sequence, one row per token, or None if this object cannot find them."""
        entries, edges = self.reader.look_up(x, zeros=False), self._edges
        if entries is None or edges.guarded:
            return None
        n_nodes, n_labels = entries.shape[0], self.constant.shape[1]
        u, highest = np.empty((n_nodes, len(edges.e[0]))), np.empty(n_nodes)
        if not _shift(*self._arrays(entries), u, highest):
            return None
        np.exp(u, out=u)
        nodes = np.empty((n_nodes, n_labels))
        is_valid = _infer(edges.e, edges.e_T, edges.shift, highest, u, nodes)
        return nodes if is_valid else None

    def _arrays(self, entries: Entries) -> tuple[Labels, Floats, Ints, Ints, Floats, Floats]:
        return entries.columns, entries.values, entries.offsets, self.pointers, self.records, self.constant


@compiled
def _score(
    columns: Labels, values: Floats, offsets: Ints, pointers: Ints, records: Floats, constant: Floats, s: Floats
) -> bool:
    """Write the scores of the labels of one sequence to `s`; return False if they are too large."""
    s[:] = 0.0
    add_record_scores(columns, values, offsets, pointers, records, s)
    n_nodes, n_labels = s.shape
    for t in range(n_nodes):
        for j in range(n_labels):
            if not -LARGEST <= s[t, j] <= LARGEST:
                return False
            s[t, j] += constant[0, j]
    for j in range(n_labels):
        s[0, j] += constant[1, j]
        s[n_nodes - 1, j] += constant[2, j]
    return True


@compiled
def _label(
    columns: Labels, values: Floats, offsets: Ints, pointers: Ints, records: Floats, constant: Floats, w: Floats,
    labels: Labels,
) -> bool:  # fmt: skip
    """Write the likeliest labels of one sequence to `labels`.

    Return False if a score is too large, or if all labels are forbidden.
    """
    s, best = np.empty((len(labels), constant.shape[1])), np.empty(1)
    if not _score(columns, values, offsets, pointers, records, constant, s):
        return False
    viterbi(s, w, True, np.array([0, len(s)]), np.empty(s.shape, np.int32), labels, best)
    return bool(np.isfinite(best[0]))


@compiled
def _shift(
    columns: Labels, values: Floats, offsets: Ints, pointers: Ints, records: Floats, constant: Floats, u: Floats,
    highest: Floats,
) -> bool:  # fmt: skip
    """Write to `u` the scores of labels minus the largest score of their token, which is written to `highest`.

    Return False if a score is too large.
    """
    s, failed = np.empty((len(u), constant.shape[1])), np.zeros(1, np.bool_)
    if not _score(columns, values, offsets, pointers, records, constant, s):
        return False
    scaled.shift(s, np.array([0, len(s)]), np.inf, u, highest, failed)
    return True


@compiled
def _infer(e: Floats, e_T: Floats, shift: Floats, highest: Floats, u: Floats, nodes: Floats) -> bool:
    """Write the node marginals of one sequence to `nodes`; return False if numbers underflow."""
    ends, alpha, log_partition, failed = np.array([0, len(u)]), np.empty_like(u), np.empty(1), np.zeros(1, np.bool_)
    scaled.forward(ends, nodes.shape[1], e, True, shift, highest, 0.0, u, alpha, log_partition, failed)
    scaled.backward(ends, e_T, True, failed, alpha, u, nodes)
    return not failed[0]
