"""An approximation of the diagonal of the curvature of the loss, and the posterior of weights that it determines.

Covariances between cliques are omitted, as in equation (30) of the paper. The weight of feature f in column k of the
factor A of a label kernel then has the curvature

    d_fk = sum over cliques c of omega_c F_cf^2 Var_c,    Var_c = sum_y p_c(y) A_yk^2 - [sum_y p_c(y) A_yk]^2,

where p_c(y) is the probability of the joint label y of the clique, and omega_c the weight of its sample. With the prior
precisions lam, the posterior is about N(theta_hat, 1 / (lam + d)), independently for each weight. Computing d takes one
pass over the data, however many weights there are.

The diagonal of the Hessian is the variance of sum_c F_cf A_{y_c k} per sample. It equals d for single rows, and for a
feature that occurs in one clique per sequence. Otherwise d lacks 2 F_cf F_c'f Cov(A_{y_c k}, A_{y_c' k}) for each pair
of cliques c, c' of a sequence that both have the feature. This matters most for the weights of transitions, because
every step has a transition. The exact diagonal would need one pass over the data for each weight, to compute a product
with the Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from kernelcrf.arrays import Array, Floats
from kernelcrf.inference.chain import edge_marginals
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.partition import PartitionState
from kernelcrf.score.terms import Term

# Probabilities of transitions are computed for this many numbers at a time.
MOST_NUMBERS = 2**22


@dataclass(frozen=True, eq=False)
class DiagonalPosterior:
    """A posterior under which the weights are independent, with the mean `mode` and standard deviations `scale`."""

    mode: Floats
    scale: Floats
    n_kept: ClassVar[int | None] = None

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return n draws of the weights minus their mode, one row per draw."""
        return np.asarray(self.scale * rng.standard_normal((n, len(self.mode))))


def curvature_diagonal(objective: Objective, at: Evaluation) -> Floats:
    """Return the diagonal d of the curvature of the loss at the point `at`, one number per weight.

    The samples must be sequences in this process, or single rows.
    """

    def of_term(term: Term) -> Floats:
        diagonal = objective.sum(lambda k: objective.partitions[k].total(partial(_of_partition, term), at.parts[k]))
        return np.maximum(np.asarray(diagonal, np.float64).ravel(), 0.0)

    return np.concatenate([of_term(term) for term in objective.layout.terms])


def _of_partition(term: Term, partition: ChainPartition, state: PartitionState) -> Floats:
    if not term.kind.is_step:
        weights = partition.apply_weights(term.kind.covers(partition.chains).astype(np.float64))
        return _squares(term, partition, slice(None), _variances(term, state.residuals.nodes, weights))
    chains, width = partition.chains, partition.n_labels**2
    weights, total = partition.apply_weights(np.ones(partition.n_nodes)), np.zeros(term.size)
    for low, high in chains.runs(max(MOST_NUMBERS // width, 1)):
        nodes = slice(int(chains.offsets[low]), int(chains.offsets[high]))
        w = state.scores.w if state.scores.w.ndim == 2 else state.scores.w[nodes]
        q = edge_marginals(state.scores.s[nodes], w, chains.part(low, high)).reshape(-1, width)
        total += _squares(term, partition, nodes, _variances(term, q, weights[nodes])).ravel()
    return total


def _variances(term: Term, p: Array, weights: Floats) -> Floats:
    """Return omega_c Var_c (see the module docstring), one row per clique c and one column per column of A."""
    A = None if term.k_y.is_identity else term.k_y.factor
    mean, square = (p, p) if A is None else (p @ A, p @ np.square(A))
    return np.asarray(np.maximum(square - np.square(mean), 0.0) * weights[:, None])


def _squares(term: Term, partition: ChainPartition, rows: slice, V: Floats) -> Floats:
    """Return the sums of F^2 V over cliques, in the shape of the term's weights; F has the cliques' features."""
    if term.name not in partition.features:
        return term.pack(V.sum(axis=0, keepdims=True))
    features = partition.features[term.name]
    chosen = features if rows == slice(None) else features.part(rows)
    return np.asarray(chosen.squares_transposed_times(np.ascontiguousarray(V)))
