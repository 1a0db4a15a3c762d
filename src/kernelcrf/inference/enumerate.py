"""Enumerate all labelings of a sample: a slow and simple reference for tests of inference.

A sample is a list of factors (nodes, table). A labelling y has the score sum_C table_C[y_C] as in (8), and
p(y) = exp(score(y)) / Z. Any graph can be written as such a list. The work is L^T.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import entr, logsumexp

from kernelcrf.arrays import Floats, Places
from kernelcrf.graphs.structure import Chains, Template

Factor = tuple[Sequence[int], Floats]

MOST_LABELINGS = 2**22


def factors(structure: Chains, sample: int, tables: Mapping[Template, npt.ArrayLike]) -> list[Factor]:
    """Return the factors of a sample; cliques share a table (L, ..., L), or have one each, (n_cliques, L, ..., L)."""
    first, last = structure.offsets[sample], structure.offsets[sample + 1]
    result: list[Factor] = []
    for template, table in tables.items():
        cliques = structure.cliques(template)
        table = np.asarray(table, dtype=np.float64)
        tied = table.ndim == template.arity
        for index in np.flatnonzero((cliques[:, 0] >= first) & (cliques[:, 0] < last)):
            result.append((tuple(cliques[index] - first), table if tied else table[index]))
    return result


def total_scores(labelings: Places, sample: Iterable[Factor]) -> Floats:
    """Return the score sum_C table_C[y_C] of each labelling, (n_labelings,)."""
    scores = np.zeros(len(labelings))
    for nodes, table in sample:
        scores += table[tuple(labelings[:, node] for node in nodes)]
    return scores


@dataclass(frozen=True)
class Enumeration:
    """All labelings (L^T, T) of one sample and their scores (L^T,); node v has cards[v] = L_v labels."""

    cards: tuple[int, ...]
    labelings: Places
    scores: Floats

    @property
    def log_partition(self) -> float:
        """Return log sum_y exp(score(y)); -inf if every labelling is forbidden."""
        return float(logsumexp(self.scores))

    @property
    def probabilities(self) -> Floats:
        """Return the probability p(y) of every labelling."""
        return np.asarray(np.exp(self.scores - self.log_partition))

    @property
    def entropy(self) -> float:
        """Return -sum_y p(y) log p(y)."""
        return float(entr(self.probabilities).sum())

    def marginal(self, nodes: Sequence[int]) -> Floats:
        """Return p(y_C) as a table (L, ..., L) over the labels of the given nodes."""
        return self._table(nodes, self.probabilities)

    def tangent(self, nodes: Sequence[int], direction: Iterable[Factor]) -> Floats:
        """Return the derivative of p(y_C) along a direction f of the scores: Cov[1(y_C = .), f(y)] (6b)."""
        f = total_scores(self.labelings, direction)
        return self._table(nodes, self.probabilities * (f - self.probabilities @ f))

    def best(self, k: int) -> tuple[Places, Floats]:
        """Return the k labelings with the highest scores, best first, without forbidden ones, and their scores."""
        order = np.argsort(-self.scores, kind="stable")[:k]
        order = order[np.isfinite(self.scores[order])]
        return self.labelings[order], self.scores[order]

    def _table(self, nodes: Sequence[int], weights: Floats) -> Floats:
        table = np.zeros([self.cards[v] for v in nodes])
        np.add.at(table, tuple(self.labelings[:, node] for node in nodes), weights)
        return table


def enumerate_labelings(n_nodes: int, n_labels: int | Sequence[int], sample: Iterable[Factor]) -> Enumeration:
    """Compute the scores of all labelings of `n_nodes` nodes, each with `n_labels` labels or with n_labels[v]."""
    cards = (n_labels,) * n_nodes if isinstance(n_labels, int) else tuple(n_labels)
    count = math.prod(cards)
    if count > MOST_LABELINGS:
        raise ValueError(
            f"n_nodes={n_nodes} and n_labels={n_labels} give {count} labelings: expected at most {MOST_LABELINGS} to "
            "enumerate; use the inference of the graph instead"
        )
    labelings = np.indices(cards).reshape(n_nodes, count).T
    return Enumeration(cards, labelings, total_scores(labelings, sample))
