"""Approximations M of the Hessian from the paper's blocks (30), for conjugate gradients and for scaling.

Between the weights of one label the block of a node template is F' diag(omega p_l (1 - p_l)) F + lam. Three ways to it:

    per label    the blocks themselves, factored: the best, at L n^2 N operations a point; for few features
    kronecker    F' Omega F (x) diag(c) + lam, c_l the mean of p_l (1 - p_l): one eigendecomposition serves all points
    diagonal     their diagonals: all that is left where n is large or F is sparse

Templates without inputs have the sum of p_l (1 - p_l); edges whose marginals are not at hand take a constant: the
tokens that they see, spread evenly over their entries. Each part M = E E' gives M^-1 for conjugate gradients and E^-T
for a change of variables theta = E^-T phi, under which M becomes the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, solve_triangular

from kernelcrf.objective import Evaluation, Objective
from kernelcrf.parameters import TemplateBlock
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.partition import Local, Partition
from kernelcrf.solvers.cholesky import lower_factor

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

PER_LABEL_UP_TO = 64
KRONECKER_UP_TO = 4000


class Factor(Protocol):
    """A positive definite M = E E' of one template."""

    def forward(self, v: Floats) -> Floats:
        """E^-1 v."""
        ...

    def back(self, v: Floats) -> Floats:
        """E^-T v."""
        ...

    @property
    def log_determinant(self) -> float:
        """Log det M."""
        ...


@dataclass(frozen=True, eq=False)
class Diagonal:
    """M = diag(d)."""

    d: Floats

    def forward(self, v: Floats) -> Floats:
        """v / sqrt(d)."""
        return v / np.sqrt(self.d)

    def back(self, v: Floats) -> Floats:
        """v / sqrt(d)."""
        return v / np.sqrt(self.d)

    @property
    def log_determinant(self) -> float:
        """The sum of log d."""
        return float(np.log(self.d).sum())


@dataclass(frozen=True, eq=False)
class Kronecker:
    """M = (Q x I) diag(scale) (Q x I)', scale (n, r)."""

    Q: Floats
    scale: Floats

    def forward(self, v: Floats) -> Floats:
        """diag(scale)^-1/2 Q' v."""
        return np.asarray((self.Q.T @ v.reshape(self.scale.shape)) / np.sqrt(self.scale)).ravel()

    def back(self, v: Floats) -> Floats:
        """Q diag(scale)^-1/2 v."""
        return np.asarray(self.Q @ (v.reshape(self.scale.shape) / np.sqrt(self.scale))).ravel()

    @property
    def log_determinant(self) -> float:
        """The sum of log scale."""
        return float(np.log(self.scale).sum())


@dataclass(frozen=True, eq=False)
class PerLabel:
    """M with one Cholesky factor (n, n) a label."""

    factors: tuple[Floats, ...]

    def forward(self, v: Floats) -> Floats:
        """E_l^-1 v_l of each label."""
        return self._solved(v, transposed=False)

    def back(self, v: Floats) -> Floats:
        """E_l^-T v_l of each label."""
        return self._solved(v, transposed=True)

    @property
    def log_determinant(self) -> float:
        """Twice the sum of the logarithms of the factors' diagonals."""
        return 2.0 * float(sum(np.log(np.diagonal(E)).sum() for E in self.factors))

    def _solved(self, v: Floats, transposed: bool) -> Floats:
        V = v.reshape(-1, len(self.factors))
        trans: Literal["N", "T"] = "T" if transposed else "N"
        columns = [solve_triangular(E, V[:, k], trans, lower=True) for k, E in enumerate(self.factors)]
        return np.column_stack(columns).ravel()


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """M of all templates, each by its own factor."""

    parts: tuple[tuple[slice, Factor], ...]

    def inverse(self, v: Floats) -> Floats:
        """M^-1 v."""
        return self.back(self.forward(v))

    def forward(self, v: Floats) -> Floats:
        """E^-1 v."""
        return np.concatenate([factor.forward(v[part]) for part, factor in self.parts])

    def back(self, v: Floats) -> Floats:
        """E^-T v."""
        return np.concatenate([factor.back(v[part]) for part, factor in self.parts])

    @property
    def log_determinant(self) -> float:
        """Log det M."""
        return sum(factor.log_determinant for _, factor in self.parts)


@dataclass(frozen=True, eq=False)
class Preconditioning:
    """What does not change from point to point: eigenvalues and eigenvectors of F' Omega F of some templates."""

    objective: Objective
    spectra: dict[str, tuple[Floats, Floats]]

    @classmethod
    def of(cls, objective: Objective) -> Preconditioning:
        """Decompose where it pays."""
        spectra = {}
        known: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
        for block in objective.layout.blocks:
            if block.clique.nodes == 1 and PER_LABEL_UP_TO < block.n <= KRONECKER_UP_TO and _is_dense(objective, block):
                same = tuple(id(partition.features[block.clique.name]) for partition in objective.partitions)
                if same not in known:
                    values, vectors = eigh(_summed(objective, None, partial(_gram, block)), overwrite_a=True)
                    known[same] = np.maximum(values, 0), vectors
                spectra[block.clique.name] = known[same]
        return cls(objective, spectra)

    def at(self, at: Evaluation, share: float = 1.0) -> Preconditioner:
        """M at a point, with `share` times the spread p (1 - p) of its marginals."""
        slices = self.objective.layout.slices
        return Preconditioner(
            tuple((slices[block.clique.name], self._factor(block, at, share)) for block in self.objective.layout.blocks)
        )

    def _factor(self, block: TemplateBlock, at: Evaluation, share: float) -> Factor:
        objective, lam = self.objective, 1.0 / block.C
        if not all(partition.knows_spread(block) for partition in objective.partitions):
            size = int(np.prod(block.shape))
            return Diagonal(np.full(size, _mass(objective, block) / size + lam))
        if block.clique.name in self.spectra:
            values, vectors = self.spectra[block.clique.name]
            return Kronecker(vectors, np.outer(values, _mean_spread(objective, block, at, share)) + lam)
        if block.clique.name in objective.partitions[0].features:
            if block.n <= PER_LABEL_UP_TO and block.clique.k_y.is_identity and _is_dense(objective, block):
                return _per_label(objective, block, at, share)
            return Diagonal(_squares(objective, block, at, share).ravel() + lam)
        return Diagonal(_summed_spread(objective, block, at, share) + lam)


def has_single_nodes(objective: Objective) -> bool:
    """Whether samples are single nodes, with one template on them that has dense features and a plain label kernel."""
    nodes = [block for block in objective.layout.blocks if block.clique.nodes == 1]
    chains = [partition for partition in objective.partitions if isinstance(partition, ChainPartition)]
    single = all(partition.chains.lengths.max(initial=0) <= 1 for partition in chains)
    one = len(chains) == len(objective.partitions) and len(nodes) == 1
    return single and one and nodes[0].clique.k_y.is_identity and _is_dense(objective, nodes[0])


def node_covariances(objective: Objective, at: Evaluation) -> tuple[str, Floats] | None:
    """Where samples are single nodes: F' diag(omega p_l ([l = k] - p_k)) F, (L, L, n, n), of the template with inputs.

    That is all of the curvature of the loss. None where there is more, or where features are sparse.
    """
    if not has_single_nodes(objective):
        return None
    block = next(block for block in objective.layout.blocks if block.clique.nodes == 1)
    n_labels, n = block.clique.k_y.L, block.n
    found = np.zeros((n_labels, n_labels, n, n))
    for row in range(n_labels):
        for column in range(row):
            gram = _summed(objective, at, partial(_pair_gram, block, row, column))
            found[row, column] = found[column, row] = -gram
            # Probabilities sum to one, and with them each row of blocks to zero.
            found[row, row] += gram
            found[column, column] += gram
    return block.clique.name, found


def _is_dense(objective: Objective, block: TemplateBlock) -> bool:
    features = objective.partitions[0].features.get(block.clique.name)
    return features is not None and not features.is_sparse


def _summed(objective: Objective, at: Evaluation | None, term: Callable[[Any, Any], Any]) -> Any:
    """The sum over partitions of a term of each and of what it keeps of a point."""

    def one(k: int) -> tuple[Any, None]:
        return objective.partitions[k].total(term, None if at is None else at.parts[k]), None

    return objective.engine.reduce(one, range(len(objective.partitions)), objective.costs)[0]


# Terms of single partitions; `local` is what one keeps of a point.


def _gram(block: TemplateBlock, partition: Partition, local: None) -> Floats:
    """F' Omega F."""
    return partition.features[block.clique.name].gram(partition.clique_weights(block))


def _pair_gram(block: TemplateBlock, row: int, column: int, partition: ChainPartition, local: Local) -> Floats:
    """F' diag(omega p_row p_column) F."""
    p = local.residuals.nodes
    return partition.features[block.clique.name].gram(partition.weighted(p[:, row] * p[:, column]))


def _spread_gram(block: TemplateBlock, label: int, partition: Partition, local: Local) -> Floats:
    """F' diag(omega p_l (1 - p_l)) F of one label l."""
    return partition.features[block.clique.name].gram(partition.spread(block, local)[:, label])


def _spread_squares(block: TemplateBlock, partition: Partition, local: Local) -> Floats:
    """The diagonals of F' diag(omega p_l (1 - p_l)) F, (n, L)."""
    return partition.features[block.clique.name].squares_transposed_times(partition.spread(block, local))


def _spread(block: TemplateBlock, partition: Partition, local: Local) -> Floats:
    """omega p_l (1 - p_l) summed over cliques, (L,)."""
    return np.asarray(partition.spread(block, local).sum(axis=0, dtype=np.float64))


def _mass(objective: Objective, block: TemplateBlock) -> float:
    return sum(partition.mass(block) for partition in objective.partitions)


def _squares(objective: Objective, block: TemplateBlock, at: Evaluation, share: float) -> Floats:
    """The diagonals of the blocks (30), (n, L); their mean over labels where labels share strength."""
    squares = share * _summed(objective, at, partial(_spread_squares, block))
    if block.clique.k_y.is_identity:
        return np.asarray(squares)
    return np.repeat(squares.mean(axis=1, keepdims=True) * _label_norm(block), block.clique.shape[0], axis=1)


def _mean_spread(objective: Objective, block: TemplateBlock, at: Evaluation, share: float) -> Floats:
    """c: the mean of p_l (1 - p_l) by weight; its mean over labels where labels share strength."""
    return _summed_spread(objective, block, at, share) / max(_mass(objective, block), np.finfo(np.float64).tiny)


def _summed_spread(objective: Objective, block: TemplateBlock, at: Evaluation, share: float) -> Floats:
    """p_l (1 - p_l) by weight, summed over cliques; its mean over labels where labels share strength."""
    total = share * _summed(objective, at, partial(_spread, block))
    if block.clique.k_y.is_identity:
        return np.asarray(total)
    return np.full(block.clique.shape, total.mean() * _label_norm(block))


def _label_norm(block: TemplateBlock) -> float:
    return block.clique.k_y.norm


def _per_label(objective: Objective, block: TemplateBlock, at: Evaluation, share: float) -> PerLabel:
    ridge = np.eye(block.n) / block.C
    labels = range(block.clique.k_y.L)
    grams = (share * _summed(objective, at, partial(_spread_gram, block, label)) for label in labels)
    return PerLabel(tuple(lower_factor(gram + ridge) for gram in grams))
