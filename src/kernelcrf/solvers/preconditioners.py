"""Preconditioners: approximations M of the Hessian, computed from the blocks in equation (30) of the paper.

A term of the score has features F with one row per clique, sample weights omega and regularisation lam. Let p_l be the
probabilities of label l, one per clique. The weights of label l have the block F' diag(omega p_l (1 - p_l)) F + lam I.
There are three forms of M:

    per label    the blocks themselves, for few features: L n^2 N operations for L labels, n features, N cliques
    kronecker    F' diag(omega) F times the mean of p_l (1 - p_l), plus lam I: one eigendecomposition for every theta,
                 or, if the mean is the same for all labels, as at theta = 0, one Cholesky factor
    diagonal     the diagonals of the blocks, for many features or sparse features

For terms without inputs, M is diagonal. Its entry for label l is lam plus the sum of omega p_l (1 - p_l) over cliques.
The probabilities of transitions in sequences are not stored, so M has a constant for them: the weighted number of
tokens divided by the number of weights, plus lam. If weights have their own lam, the form "kronecker" uses its mean.

Conjugate gradients use M^-1. With a factor E of M = E E', the change of variables theta = E^-T phi turns M into the
identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, DType, Floats
from kernelcrf.objective import Evaluation, Gram, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.partition import PartitionState, RowPartition
from kernelcrf.score.terms import Term
from kernelcrf.solvers.linear_systems import Product, lower_factor

PER_LABEL_UP_TO = 64
KRONECKER_UP_TO = 4000
# Labels whose mean variances differ by at most this factor count as equally likely.
EQUAL = 1e-6


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """A positive definite matrix M = E E' with a factor E, given by functions of a vector v.

    forward : a function that returns E^-1 v.
    back : a function that returns E^-T v, the product of the transposed inverse and v.
    log_determinant : the logarithm of the determinant of M.
    """

    forward: Product
    back: Product
    log_determinant: float

    def inverse(self, v: Floats) -> Floats:
        """Return M^-1 v, where M is the matrix of this preconditioner."""
        return self.back(self.forward(v))


def _join(parts: list[tuple[slice, Preconditioner]]) -> Preconditioner:
    """Return a block-diagonal preconditioner; each block applies to one slice of the parameters."""
    return Preconditioner(
        lambda v: np.concatenate([M.forward(v[part]) for part, M in parts]),
        lambda v: np.concatenate([M.back(v[part]) for part, M in parts]),
        sum(M.log_determinant for _, M in parts),
    )


def _diagonal(d: Floats) -> Preconditioner:
    """Return the preconditioner whose matrix is diag(d)."""
    root = np.sqrt(d)
    return Preconditioner(lambda v: v / root, lambda v: v / root, float(np.log(d).sum()))


def _kronecker(Q: Floats, scale: Floats) -> Preconditioner:
    """Return the block-diagonal preconditioner with one block Q diag(s) Q' for each column s of `scale`.

    Q is an orthogonal matrix.
    """
    root = np.sqrt(scale)
    return Preconditioner(
        lambda v: np.asarray((Q.T @ v.reshape(scale.shape)) / root).ravel(),
        lambda v: np.asarray(Q @ (v.reshape(scale.shape) / root)).ravel(),
        float(np.log(scale).sum()),
    )


def _per_label(factors: list[Floats]) -> Preconditioner:
    """Return the block-diagonal preconditioner with one block E E' per label.

    factors : the lower triangular matrices E, one per label.
    """

    def solve(trans: Literal["N", "T"], v: Floats) -> Floats:
        V = v.reshape(-1, len(factors))
        columns = [solve_triangular(E, V[:, k], trans, lower=True) for k, E in enumerate(factors)]
        return np.column_stack(columns).ravel()

    log_determinant = 2.0 * float(sum(np.log(np.diagonal(E)).sum() for E in factors))
    return Preconditioner(partial(solve, "N"), partial(solve, "T"), log_determinant)


def _same_for_labels(E: Floats, n_columns: int) -> Preconditioner:
    """Return the block-diagonal preconditioner with the block E E' for each column of the weights."""

    def solve(trans: Literal["N", "T"], v: Floats) -> Floats:
        return np.ascontiguousarray(
            solve_triangular(E, v.reshape(-1, n_columns), trans, lower=True, check_finite=False)
        ).ravel()

    log_determinant = 2.0 * n_columns * float(np.log(np.diagonal(E)).sum())
    return Preconditioner(partial(solve, "N"), partial(solve, "T"), log_determinant)


def _of_gram(gram: Gram, means: Floats, lam: float, dtype: DType) -> Preconditioner:
    """Return the block-diagonal preconditioner with one block m G + lam I for each number m in `means`.

    gram : the matrix G.
    dtype : the type of the features.
    """
    if means.max() - means.min() <= EQUAL * means.max():
        M = means.mean() * gram.matrix
        M.flat[:: len(M) + 1] += lam
        return _same_for_labels(lower_factor(M, dtype), len(means))
    values, vectors = gram.spectrum
    return _kronecker(vectors, np.outer(values, means) + lam)


@dataclass(frozen=True, eq=False)
class Preconditioning:
    """Computes a preconditioner for any parameters, and stores the results that do not depend on the parameters.

    grams : for some terms with many dense features, the matrix F' diag(omega) F of their features.
    """

    objective: Objective
    grams: dict[str, Gram]

    @classmethod
    def of(cls, objective: Objective) -> Preconditioning:
        """Prepare preconditioners for an objective: compute matrices that do not depend on the parameters."""
        grams, known = {}, objective.grams
        for term in objective.layout.terms:
            if not term.kind.is_step and PER_LABEL_UP_TO < term.n <= KRONECKER_UP_TO and _is_dense(objective, term):
                same = tuple(id(partition.features[term.name]) for partition in objective.partitions)
                if same not in known:
                    known[same] = Gram(_sum_partitions(objective, None, _gram, term))
                grams[term.name] = known[same]
        return cls(objective, grams)

    def at(self, at: Evaluation, share: float = 1.0) -> Preconditioner:
        """Return the preconditioner for the evaluated point `at`.

        share : the factor by which the variances p (1 - p) of labels with probability p are multiplied.
        """
        layout = self.objective.layout
        return _join([(layout.slices[term.name], self._of_term(term, at, share)) for term in layout.terms])

    def diagonal(self, at: Evaluation, share: float) -> Floats:
        """Return the diagonal form of the preconditioner for the point `at`, as a vector."""
        return np.concatenate([self._diagonal(term, at, share) for term in self.objective.layout.terms])

    def _diagonal(self, term: Term, at: Evaluation, share: float) -> Floats:
        objective, lam = self.objective, term.lam
        if term.kind.is_step:
            return np.asarray(_mass(objective, term) / max(term.size, 1) + lam)
        function = _spread_squares if term.name in objective.partitions[0].features else _spread
        spread = share * _sum_partitions(objective, at, function, term)
        return np.asarray(_over_weights(term, spread).ravel() + lam)

    def _of_term(self, term: Term, at: Evaluation, share: float) -> Preconditioner:
        objective = self.objective

        def total(function: Callable[..., Floats], *arguments: int) -> Floats:
            return np.asarray(share * _sum_partitions(objective, at, function, term, *arguments))

        if term.name in self.grams:
            mass = term.k_y.views * _mass(objective, term)
            means = _over_weights(term, total(_spread)) / max(mass, np.finfo(np.float64).tiny)
            lam = 1.0 / term.C if term.precision is None else float(term.precision.mean())
            return _of_gram(self.grams[term.name], means, lam, objective.precision)
        if not term.kind.is_step and term.n <= PER_LABEL_UP_TO and term.k_y.is_identity and _is_dense(objective, term):
            ridges = term.lam.reshape(term.shape)
            blocks = (total(_spread_gram, label) + np.diag(ridges[:, label]) for label in range(term.k_y.L))
            return _per_label([lower_factor(block, objective.precision) for block in blocks])
        return _diagonal(self._diagonal(term, at, share))


def _over_weights(term: Term, of_labels: Floats) -> Floats:
    """Convert an array with one column per label to an array with one column per weight of a feature.

    If the label kernel is the identity, or if a clique has several rows of features, both are the same. Otherwise, all
    columns of the result are the mean over labels, times the norm of the label kernel.
    """
    if term.k_y.is_identity or term.k_y.views > 1:
        return of_labels
    return np.repeat(of_labels.mean(axis=-1, keepdims=True) * term.k_y.norm, term.k_y.rank, axis=-1)


def has_single_nodes(objective: Objective) -> bool:
    """Return whether every sample is a single token, and only one term scores single labels.

    This term must have dense features and label_kernel="delta". A term for first or last labels is one term too many.
    """
    nodes = [term for term in objective.layout.terms if not term.kind.is_step]
    for partition in objective.partitions:
        if not isinstance(partition, ChainPartition) or partition.chains.lengths.max(initial=0) > 1:
            return False
    return len(nodes) == 1 and nodes[0].k_y.is_identity and _is_dense(objective, nodes[0])


def node_covariances(objective: Objective, at: Evaluation) -> tuple[str, Floats] | None:
    """Return the Hessian of the loss for samples that are single tokens, or None if `has_single_nodes` is False.

    The result is the name of the term that scores tokens, and an array with one matrix for each pair of labels l, k.
    The matrix is F' diag(omega p_l ([l = k] - p_k)) F, with the features F, the sample weights omega, and the
    probabilities p_l of label l.
    """
    if not has_single_nodes(objective):
        return None
    term = next(term for term in objective.layout.terms if not term.kind.is_step)
    n_labels, n = term.k_y.L, term.n
    covariances = np.zeros((n_labels, n_labels, n, n))
    for row in range(n_labels):
        for column in range(row):
            gram = _sum_partitions(objective, at, _pair_gram, term, row, column)
            covariances[row, column] = covariances[column, row] = -gram
            # Probabilities sum to one, so that each row of blocks sums to zero.
            covariances[row, row] += gram
            covariances[column, column] += gram
    return term.name, covariances


def _is_dense(objective: Objective, term: Term) -> bool:
    features = objective.partitions[0].features.get(term.name)
    return features is not None and not features.is_sparse


def _mass(objective: Objective, term: Term) -> float:
    return sum(partition.mass(term) for partition in objective.partitions)


def _sum_partitions(objective: Objective, at: Evaluation | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the sum of function(*arguments, partition, state) over all partitions of the data.

    The state has the results of inference of this partition at the evaluated point `at`. It is None if `at` is None.
    """
    bound = partial(function, *arguments)
    return objective.sum(lambda k: objective.partitions[k].total(bound, None if at is None else at.parts[k]))


# Functions of a term, the rows of one partition and its state at a point, for `_sum_partitions`.


def _gram(term: Term, partition: RowPartition, local: None) -> Floats:
    return partition.features[term.name].gram(partition.clique_weights(term))


def _pair_gram(term: Term, row: int, column: int, partition: ChainPartition, local: PartitionState) -> Floats:
    p = local.residuals.nodes
    return partition.features[term.name].gram(partition.apply_weights(p[:, row] * p[:, column]))


def _spread_gram(term: Term, label: int, partition: RowPartition, local: PartitionState) -> Floats:
    """Return F' diag(omega p (1 - p)) F for one label, with the features F of a term.

    omega are the sample weights, and p the probabilities of the label, one per clique.
    """
    return partition.features[term.name].gram(partition.spread(term, local)[:, label])


def _spread_squares(term: Term, partition: RowPartition, local: PartitionState) -> Floats:
    """Return the diagonal of F' diag(omega p (1 - p)) F for each label, one column per label.

    F are the features of a term, omega the sample weights, and p the probabilities of the label, one per clique.
    """
    return partition.features[term.name].squares_transposed_times(_of_views(term, partition.spread(term, local)))


def _spread(term: Term, partition: RowPartition, local: PartitionState) -> Floats:
    """Return, for each label, the sum of omega p (1 - p) over all cliques of a term.

    omega is the weight of the sample, and p the probability of the label. If a clique has several rows of features, the
    columns are those of the weights.
    """
    rows = _of_views(term, partition.spread(term, local))
    return np.asarray(rows.reshape(-1, rows.shape[1] // term.k_y.views).sum(axis=0, dtype=np.float64))


def _of_views(term: Term, spread: Array) -> Array:
    """Return the spread of labels, with a column for each row of features and each weight if a clique has several rows.

    The label kernel has the factor A. The spread of its columns is that of the labels times A^2.
    """
    if term.k_y.views == 1:
        return spread
    return np.ascontiguousarray(spread @ np.square(term.k_y.factor, dtype=spread.dtype))
