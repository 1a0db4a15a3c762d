"""Enumerate all labelings of a sample: a slow and simple reference for tests of inference.

A sample is a list of factors. A factor is a pair (nodes, table), and its table has one score for each joint labelling
of its nodes. The score of a labelling y is the sum of the entries that y selects in all tables (equation 8 of the
paper), and p(y) = exp(score(y)) / Z. With T nodes of L labels each, there are L^T labelings.
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
    """Return the factors of one sequence: a pair (nodes, table of scores) for each clique.

    tables : for each template, the table of scores that its cliques share, with one axis per node of a clique. If the
        table has an additional first axis, it contains one table per clique.
    """
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
    """Return the score of each labelling: the sum of the entries that its labels select in all tables."""
    scores = np.zeros(len(labelings))
    for nodes, table in sample:
        scores += table[tuple(labelings[:, node] for node in nodes)]
    return scores


@dataclass(frozen=True)
class Enumeration:
    """All labelings of one sample and their scores.

    cards : the number of labels of each node.
    labelings : one row per labelling, one column per node.
    scores : the score of each labelling.
    """

    cards: tuple[int, ...]
    labelings: Places
    scores: Floats

    @property
    def log_partition(self) -> float:
        """Return log sum_y exp(score(y)), which is -inf if every labelling is forbidden."""
        return float(logsumexp(self.scores))

    @property
    def probabilities(self) -> Floats:
        """Return the probability p(y) of every labelling."""
        return np.asarray(np.exp(self.scores - self.log_partition))

    @property
    def entropy(self) -> float:
        """Return the entropy -sum_y p(y) log p(y)."""
        return float(entr(self.probabilities).sum())

    def marginal(self, nodes: Sequence[int]) -> Floats:
        """Return the joint probabilities of the labels of the given nodes, as an array with one axis per node."""
        return self._table(nodes, self.probabilities)

    def tangent(self, nodes: Sequence[int], direction: Iterable[Factor]) -> Floats:
        """Return the derivative of `marginal(nodes)` if the scores change along a direction.

        The direction is a list of factors. The score of each labelling changes by the sum of the entries that the
        labelling selects in the tables of these factors. The derivative is the covariance between this change and the
        indicators of the nodes' labels (equation 6b of the paper).
        """
        f = total_scores(self.labelings, direction)
        return self._table(nodes, self.probabilities * (f - self.probabilities @ f))

    def best(self, k: int) -> tuple[Places, Floats]:
        """Return the k best labelings and their scores, best first; forbidden labelings are left out."""
        order = np.argsort(-self.scores, kind="stable")[:k]
        order = order[np.isfinite(self.scores[order])]
        return self.labelings[order], self.scores[order]

    def _table(self, nodes: Sequence[int], weights: Floats) -> Floats:
        table = np.zeros([self.cards[v] for v in nodes])
        np.add.at(table, tuple(self.labelings[:, node] for node in nodes), weights)
        return table


def enumerate_labelings(n_nodes: int, n_labels: int | Sequence[int], sample: Iterable[Factor]) -> Enumeration:
    """Return all labelings of `n_nodes` nodes with their scores.

    n_labels : the number of labels of every node, or a list with one number per node.
    sample : the factors that define the scores.
    """
    cards = (n_labels,) * n_nodes if isinstance(n_labels, int) else tuple(n_labels)
    count = math.prod(cards)
    if count > MOST_LABELINGS:
        raise ValueError(
            f"n_nodes={n_nodes} and n_labels={n_labels} give {count} labelings: expected at most {MOST_LABELINGS}; use "
            "fewer nodes or labels, or inference that does not enumerate, such as kernelcrf.inference.clique_tree"
        )
    labelings = np.indices(cards).reshape(n_nodes, count).T
    return Enumeration(cards, labelings, total_scores(labelings, sample))
