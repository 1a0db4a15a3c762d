"""Store the weights of sparse features in one flat array, with one row of consecutive entries per feature.

Most features have weights for few of the labels. If not all pairs of a feature and a label have a weight, the row of a
feature with few weights contains only these weights, and the array `labels` says which labels they belong to. All other
rows have one entry per label, padded with zeros to `width`, so that the processor can use SIMD instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.score.terms import Term

# A row is short if it has at most this share of the entries of a full row. Loops over a full row are faster per entry.
SHORT = 1 / 8


@dataclass(frozen=True, eq=False)
class WeightRows:
    """The rows of several terms, whose features follow each other in the order of the terms.

    pointers : feature f has the entries `pointers[f]:pointers[f+1]`. They are unsigned (uint64), so that compiled loops
        need not check for negative indices.
    labels : the label of each entry (int32). Padding has the index of its position in the row.
    width : the number of entries of a full row.
    places : for each weight of the terms, the index of its entry.
    """

    pointers: Array
    labels: Labels
    width: int
    places: Ints

    @classmethod
    def of(cls, terms: Sequence[Term], width: int) -> WeightRows:
        """Return the rows of the weights of `terms`, whose label kernels must be the identity."""
        if not terms:
            return cls(np.zeros(1, np.uint64), np.zeros(0, np.int32), width, np.zeros(0, np.int64))
        counts = [np.full(term.n, width) if term.pairs is None else np.diff(term.pairs.pointers) for term in terms]
        sizes = np.concatenate(counts)
        short = sizes <= SHORT * width
        pointers = np.append(0, np.cumsum(np.where(short, sizes, width)))
        labels = np.arange(pointers[-1]) - np.repeat(pointers[:-1], np.diff(pointers))
        places, low = [], 0
        for term in terms:
            starts, is_short = pointers[low : low + term.n], short[low : low + term.n]
            if term.pairs is None:
                places.append((starts[:, None] + np.arange(term.k_y.L)).ravel())
            else:
                per_feature = np.diff(term.pairs.pointers)
                within = np.arange(term.size) - np.repeat(term.pairs.pointers[:-1], per_feature)
                of_short = np.repeat(is_short, per_feature)
                here = np.repeat(starts, per_feature) + np.where(of_short, within, term.pairs.labels)
                labels[here] = term.pairs.labels
                places.append(here)
            low += term.n
        return cls(pointers.astype(np.uint64), labels.astype(np.int32), width, np.concatenate(places))

    def spread(self, weights: Array) -> Array:
        """Return the flat array of rows that contains the given weights, and 0 everywhere else."""
        rows = np.zeros(len(self.labels), weights.dtype)
        rows[self.places] = weights
        return rows

    def gather(self, rows: Floats) -> Floats:
        """Return the weights of all terms, one term after the other, given the flat array of rows."""
        return rows[self.places]
