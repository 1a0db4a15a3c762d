"""A sequence that is left out of an objective, and a bound on the error of its log-probability.

Sequence i adds omega_i f_i to the objective P, where f_i = -log p(y_i | x_i) and omega_i is its weight. The objective
without the sequence, P_i = P - omega_i f_i, is strongly convex in the norm |theta|_P^2 = sum_k |theta_k|^2 / C_k over
the terms k. Its minimum is therefore at most r = |gradient of P_i|_D away from theta, where |v|_D^2 = sum_k C_k |v_k|^2
is the dual norm. The loss f_i is convex, and its curvature in a direction is the variance of the score. If theta
changes by r, the difference between the scores of two labelings changes by at most r D, so that the variance is at most
r^2 D^2 / 4. With G = |gradient of f_i|_D, the loss at the minimum of P_i satisfies

    |f_i(theta) - f_i(minimum of P_i)| <= min(r D, r G + r^2 D^2 / 8)
    D = sum_t [sum_k C_k |F_k(x_t)|^2 max_ab |A_k(a) - A_k(b)|^2]^1/2.

D is a sum over the tokens t and the terms k that score the label of t or the transition to t. F_k are features, and
A_k(a) is the row of label a in the factor of the label kernel.

Relative rounding errors eps of all scores change the expected features of a sequence by at most eps S D, where S is the
sum over tokens of the largest score. The error of the gradient of P_i is therefore about eps sum_j omega_j D_j
(1 + S_j), and a multiple of it is added to r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.layout import Layout

# A relative error that covers the rounding of norms, and a factor of the rounding errors of sums.
CLOSE, FEW = 1e-6, 16


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A sequence that is left out of an objective.

    part, row : the index of the partition that has the sequence, and the index of the sequence in this partition.
    weight : omega, the weight of the sequence.
    width : D, as defined in the module docstring.
    """

    objective: Objective
    part: int
    row: int
    weight: float
    width: float

    @property
    def alone(self) -> ChainPartition:
        """Return a partition with this sequence only, with weight 1."""
        partition = partition_of(self.objective, self.part).part(self.row, self.row + 1)
        features = {
            name: one if one.index is None else replace(one, F=one.F[one.index], index=None)
            for name, one in partition.features.items()
        }
        return replace(partition, features=features, weights=None)

    @property
    def others(self) -> Objective:
        """Return the objective of all other sequences, in which the weight of this sequence is 0."""
        partition = partition_of(self.objective, self.part)
        weights = np.ones(partition.chains.n_samples) if partition.weights is None else partition.weights.copy()
        weights[self.row] = 0.0
        partitions = list(self.objective.partitions)
        partitions[self.part] = replace(partition, weights=weights)
        return replace(self.objective, partitions=partitions)

    def radius(self, gradient: Floats, error: float) -> float:
        """Return the distance r from the minimum at which r G + r^2 D^2 / 8 equals `error`.

        gradient : the gradient of the loss f of this sequence, whose dual norm is G.
        """
        G = dual_norm(self.objective.layout, gradient)
        size = G + np.sqrt(G**2 + error * self.width**2 / 2)
        return float(2 * error / size) if size > 0 else np.inf

    def bound(self, theta: Floats, gradient: Floats, rounding: float, tol: float) -> tuple[float, float, float]:
        """Return log p(y|x) of the sequence at theta, a bound on the error of this number, and a radius.

        The error is the difference to log p(y|x) at the minimum of the objective of all other sequences. The radius
        is the distance from this minimum at which the bound equals `tol`.

        gradient : the gradient at theta of the objective of all other sequences.
        rounding : a bound on the rounding error of the dual norm of this gradient.
        """
        layout = self.objective.layout
        one = Objective(layout, [self.alone], self.objective.engine)
        at = one.evaluate(theta)
        loss_gradient = at.gradient - layout.penalty_gradient(theta)
        r, G = ((1 + CLOSE) * dual_norm(layout, g) for g in (gradient, loss_gradient))
        r += rounding
        error = min(r * self.width, r * G + (r * self.width) ** 2 / 8) + one.noise(at)
        return layout.penalty(theta) - at.value, error, self.radius(loss_gradient, tol)


def left_out(objective: Objective) -> list[LeftOut]:
    """Return one LeftOut object per sequence of an objective, in the order of the data."""
    sequences = []
    for k in range(len(objective.partitions)):
        partition = partition_of(objective, k)
        weights = np.ones(partition.chains.n_samples) if partition.weights is None else partition.weights
        pairs = zip(weights.tolist(), widths(objective.layout, partition).tolist(), strict=True)
        sequences += [LeftOut(objective, k, row, *pair) for row, pair in enumerate(pairs)]
    return sequences


def gradient_rounding(objective: Objective, at: Evaluation, sequences: Sequence[LeftOut]) -> float:
    """Return a bound on the rounding error of the dual norm of a gradient, by the formula in the module docstring.

    at : the objective at the fitted weights.
    """
    sizes = list[Floats]()
    for k, state in enumerate(at.parts):
        partition = partition_of(objective, k)
        sizes.append(_sum_tokens(partition.score_sizes(objective.layout, state), partition.chains))
    total = sum(one.width * (one.weight + size) for one, size in zip(sequences, np.concatenate(sizes), strict=True))
    return FEW * float(np.finfo(np.float64).eps * total)


def widths(layout: Layout, partition: ChainPartition) -> Floats:
    """Return D of each sequence of a partition, as defined in the module docstring."""
    chains, squares = partition.chains, np.zeros(partition.n_nodes)
    for term in layout.terms:
        distance = term.C * _label_distance(term.k_y)
        norms = np.ones(partition.n_nodes)
        if term.name in partition.features:
            norms = partition.features[term.name].squared_norms()
        squares += distance * norms * term.kind.covers(chains)
    return (1 + CLOSE) * _sum_tokens(np.sqrt(squares), chains)


def dual_norm(layout: Layout, gradient: Floats) -> float:
    """Return |gradient|_D, the square root of the sum over terms of C |gradient of the term|^2."""
    return float(np.sqrt(sum(layout.squared_dual_norms(gradient).values())))


def _label_distance(k_y: LabelMap) -> float:
    """Return the largest |A(a) - A(b)|^2 over all labels a and b, for the factor A of a label kernel."""
    if k_y.is_identity:
        return 2.0
    squares = np.diagonal(k_y.gram)
    return float((squares[:, None] + squares - 2 * k_y.gram).max())


def partition_of(objective: Objective, k: int) -> ChainPartition:
    """Return partition k of an objective of sequences in this process."""
    partition = objective.partitions[k]
    assert isinstance(partition, ChainPartition)
    return partition


def _sum_tokens(values: Floats, chains: Chains) -> Floats:
    """Return the sum over the tokens of each sequence, given one value per token."""
    return np.diff(np.append(0.0, np.cumsum(values))[chains.offsets])
