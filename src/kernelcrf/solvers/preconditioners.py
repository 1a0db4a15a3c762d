"""Preconditioners: approximations M of the Hessian, made from the paper's blocks (30).

For the weights of label l, the block of a term is F' diag(omega p_l (1 - p_l)) F + lam. There are three approximations:

    per label    the blocks themselves, factored: most exact, L n^2 N operations per point; for few features
    kronecker    F' Omega F (x) diag(c) + lam, c_l the mean of p_l (1 - p_l): one eigendecomposition for all points
    diagonal     the diagonals of the blocks, for large n or sparse F

For terms without inputs, M has the sum of p_l (1 - p_l). For terms of steps with unknown marginals it has a constant:
the number of tokens divided by the number of weights. Each M = E E' gives M^-1 for conjugate gradients, and E^-T for a
change of variables theta = E^-T phi, after which M is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.linalg import eigh, solve_triangular

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.partition import PartitionState, RowPartition
from kernelcrf.solvers.linear_systems import Product, lower_factor
from kernelcrf.terms import STEPS, TOKENS, Term

PER_LABEL_UP_TO = 64
KRONECKER_UP_TO = 4000


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """A positive definite M = E E': `forward` computes E^-1 v, `back` computes E^-T v; with log det M."""

    forward: Product
    back: Product
    log_determinant: float

    def inverse(self, v: Floats) -> Floats:
        """Return the solution M^-1 v."""
        return self.back(self.forward(v))


def _join(parts: list[tuple[slice, Preconditioner]]) -> Preconditioner:
    """Combine the preconditioners of the terms, each with its slice of theta, to one block diagonal M."""

    def forward(v: Floats) -> Floats:
        return np.concatenate([M.forward(v[part]) for part, M in parts])

    def back(v: Floats) -> Floats:
        return np.concatenate([M.back(v[part]) for part, M in parts])

    return Preconditioner(forward, back, sum(M.log_determinant for _, M in parts))


def _diagonal(d: Floats) -> Preconditioner:
    """Return M = diag(d)."""

    def divide(v: Floats) -> Floats:
        return v / np.sqrt(d)

    return Preconditioner(divide, divide, float(np.log(d).sum()))


def _kronecker(Q: Floats, scale: Floats) -> Preconditioner:
    """Return M = (Q x I) diag(scale) (Q x I)', scale (n, r)."""
    root = np.sqrt(scale)

    def forward(v: Floats) -> Floats:
        return np.asarray((Q.T @ v.reshape(scale.shape)) / root).ravel()

    def back(v: Floats) -> Floats:
        return np.asarray(Q @ (v.reshape(scale.shape) / root)).ravel()

    return Preconditioner(forward, back, float(np.log(scale).sum()))


def _per_label(factors: list[Floats]) -> Preconditioner:
    """Return a block diagonal M with one Cholesky factor (n, n) per label."""

    def solve(trans: Literal["N", "T"], v: Floats) -> Floats:
        V = v.reshape(-1, len(factors))
        columns = [solve_triangular(E, V[:, k], trans, lower=True) for k, E in enumerate(factors)]
        return np.column_stack(columns).ravel()

    log_determinant = 2.0 * float(sum(np.log(np.diagonal(E)).sum() for E in factors))
    return Preconditioner(partial(solve, "N"), partial(solve, "T"), log_determinant)


@dataclass(frozen=True, eq=False)
class Preconditioning:
    """Makes preconditioners at any point; keeps what is the same at all points: the spectra of F' Omega F by term."""

    objective: Objective
    spectra: dict[str, tuple[Floats, Floats]]

    @classmethod
    def of(cls, objective: Objective) -> Preconditioning:
        """Compute the eigenvalues and eigenvectors of F' Omega F for the terms that use the kronecker form."""
        spectra = {}
        known: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
        for term in objective.layout.terms:
            if term.cliques != STEPS and PER_LABEL_UP_TO < term.n <= KRONECKER_UP_TO and _is_dense(objective, term):
                same = tuple(id(partition.features[term.name]) for partition in objective.partitions)
                if same not in known:
                    values, vectors = eigh(_sum_partitions(objective, None, _gram, term), overwrite_a=True)
                    known[same] = np.maximum(values, 0), vectors
                spectra[term.name] = known[same]
        return cls(objective, spectra)

    def at(self, at: Evaluation, share: float = 1.0) -> Preconditioner:
        """Return the preconditioner M at the point `at`, with the variances p (1 - p) multiplied by `share`."""
        layout = self.objective.layout
        return _join([(layout.slices[term.name], self._of_term(term, at, share)) for term in layout.terms])

    def _of_term(self, term: Term, at: Evaluation, share: float) -> Preconditioner:
        objective, lam = self.objective, 1.0 / term.C
        if not all(partition.knows_spread(term) for partition in objective.partitions):
            return _diagonal(np.full(term.size, _mass(objective, term) / term.size + lam))

        def total(function: Callable[..., Floats], *arguments: int) -> Floats:
            return np.asarray(share * _sum_partitions(objective, at, function, term, *arguments))

        if term.name in self.spectra:
            values, vectors = self.spectra[term.name]
            mean = _over_weights(term, total(_spread)) / max(_mass(objective, term), np.finfo(np.float64).tiny)
            return _kronecker(vectors, np.outer(values, mean) + lam)
        if term.name not in objective.partitions[0].features:
            return _diagonal(_over_weights(term, total(_spread)) + lam)
        if term.n <= PER_LABEL_UP_TO and term.k_y.is_identity and _is_dense(objective, term):
            ridge = np.eye(term.n) / term.C
            return _per_label([lower_factor(total(_spread_gram, label) + ridge) for label in range(term.k_y.L)])
        return _diagonal(_over_weights(term, total(_spread_squares)).ravel() + lam)


def _over_weights(term: Term, of_labels: Floats) -> Floats:
    """Convert values of labels (..., L) to values of weights (..., rank): the mean, unless the label kernel is I."""
    if term.k_y.is_identity:
        return of_labels
    return np.repeat(of_labels.mean(axis=-1, keepdims=True) * term.k_y.norm, term.k_y.rank, axis=-1)


def has_single_nodes(objective: Objective) -> bool:
    """Return whether samples are single nodes, and their one term has dense features and label_kernel="delta"."""
    nodes = [term for term in objective.layout.terms if term.cliques == TOKENS]
    for partition in objective.partitions:
        if not isinstance(partition, ChainPartition) or partition.chains.lengths.max(initial=0) > 1:
            return False
    return len(nodes) == 1 and nodes[0].k_y.is_identity and _is_dense(objective, nodes[0])


def node_covariances(objective: Objective, at: Evaluation) -> tuple[str, Floats] | None:
    """Return the term's name and F' diag(omega p_l ([l = k] - p_k)) F, (L, L, n, n), if `has_single_nodes`, else None.

    For such samples, these blocks are the whole Hessian of the loss.
    """
    if not has_single_nodes(objective):
        return None
    term = next(term for term in objective.layout.terms if term.cliques == TOKENS)
    n_labels, n = term.k_y.L, term.n
    found = np.zeros((n_labels, n_labels, n, n))
    for row in range(n_labels):
        for column in range(row):
            gram = _sum_partitions(objective, at, _pair_gram, term, row, column)
            found[row, column] = found[column, row] = -gram
            # Probabilities sum to one, so that each row of blocks sums to zero.
            found[row, row] += gram
            found[column, column] += gram
    return term.name, found


def _is_dense(objective: Objective, term: Term) -> bool:
    features = objective.partitions[0].features.get(term.name)
    return features is not None and not features.is_sparse


def _mass(objective: Objective, term: Term) -> float:
    return sum(partition.mass(term) for partition in objective.partitions)


def _sum_partitions(objective: Objective, at: Evaluation | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the sum of function(*arguments, rows, state) over partitions; the state is None if `at` is None."""
    bound = partial(function, *arguments)
    return objective.sum(lambda k: objective.partitions[k].total(bound, None if at is None else at.parts[k]))


# Functions of a term, the rows of one partition and its state at a point, for `_sum_partitions`.


def _gram(term: Term, partition: RowPartition, local: None) -> Floats:
    return partition.features[term.name].gram(partition.clique_weights(term))


def _pair_gram(term: Term, row: int, column: int, partition: ChainPartition, local: PartitionState) -> Floats:
    p = local.residuals.nodes
    return partition.features[term.name].gram(partition.apply_weights(p[:, row] * p[:, column]))


def _spread_gram(term: Term, label: int, partition: RowPartition, local: PartitionState) -> Floats:
    """Return F' diag(omega p_l (1 - p_l)) F of one label l."""
    return partition.features[term.name].gram(partition.spread(term, local)[:, label])


def _spread_squares(term: Term, partition: RowPartition, local: PartitionState) -> Floats:
    """Return the diagonals of F' diag(omega p_l (1 - p_l)) F, (n, L)."""
    return partition.features[term.name].squares_transposed_times(partition.spread(term, local))


def _spread(term: Term, partition: RowPartition, local: PartitionState) -> Floats:
    """Return omega p_l (1 - p_l) summed over cliques, (L,)."""
    return np.asarray(partition.spread(term, local).sum(axis=0, dtype=np.float64))
