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
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, solve_triangular

from kernelcrf.objective import Evaluation, Objective
from kernelcrf.parameters import TemplateBlock
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
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
                    values, vectors = eigh(_gram(objective, block, None), overwrite_a=True)
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
        spread = _spread(objective, block, at, share)
        if spread is not None and block.clique.name in self.spectra:
            values, vectors = self.spectra[block.clique.name]
            return Kronecker(vectors, np.outer(values, _mean_spread(objective, block, spread)) + lam)
        if spread is not None and block.clique.name in objective.partitions[0].features:
            if block.n <= PER_LABEL_UP_TO and block.clique.k_y.is_identity and _is_dense(objective, block):
                return _per_label(objective, block, spread, lam)
            return Diagonal(_squares(objective, block, spread).ravel() + lam)
        if spread is not None:
            return Diagonal(_summed_spread(block, spread) + lam)
        size = int(np.prod(block.shape))
        return Diagonal(np.full(size, _mass(objective, block) / size + lam))


def has_single_nodes(objective: Objective) -> bool:
    """Whether samples are single nodes, with one template on them that has dense features and a plain label kernel."""
    nodes = [block for block in objective.layout.blocks if block.clique.nodes == 1]
    single = all(chains.chains.lengths.max(initial=0) <= 1 for chains in _chains(objective))
    one = len(_chains(objective)) == len(objective.partitions) and len(nodes) == 1
    return single and one and nodes[0].clique.k_y.is_identity and _is_dense(objective, nodes[0])


def _chains(objective: Objective) -> list[ChainPartition]:
    return [partition for partition in objective.partitions if isinstance(partition, ChainPartition)]


def node_covariances(objective: Objective, at: Evaluation) -> tuple[str, Floats] | None:
    """Where samples are single nodes: F' diag(omega p_l ([l = k] - p_k)) F, (L, L, n, n), of the template with inputs.

    That is all of the curvature of the loss. None where there is more, or where features are sparse.
    """
    if not has_single_nodes(objective):
        return None
    nodes = [block for block in objective.layout.blocks if block.clique.nodes == 1]
    p = [local.residuals.nodes for local in at.parts]
    n_labels, n = p[0].shape[1], nodes[0].n
    found = np.zeros((n_labels, n_labels, n, n))
    for row in range(n_labels):
        for column in range(row):
            d = [part.weighted(one[:, row] * one[:, column]) for part, one in zip(_chains(objective), p, strict=True)]
            gram = _gram(objective, nodes[0], d)
            found[row, column] = found[column, row] = -gram
            # Probabilities sum to one, and with them each row of blocks to zero.
            found[row, row] += gram
            found[column, column] += gram
    return nodes[0].clique.name, found


def _mass(objective: Objective, block: TemplateBlock) -> float:
    return sum(partition.mass(block) for partition in objective.partitions)


def _spread(objective: Objective, block: TemplateBlock, at: Evaluation, share: float) -> list[Array] | None:
    """`share` times omega p (1 - p) of a template's cliques in each partition."""
    found = []
    for partition, local in zip(objective.partitions, at.parts, strict=True):
        spread = partition.spread(block, local)
        if spread is None:
            return None
        found.append(share * spread)
    return found


def _is_dense(objective: Objective, block: TemplateBlock) -> bool:
    features = objective.partitions[0].features.get(block.clique.name)
    return features is not None and not features.is_sparse


def _summed(objective: Objective, block: TemplateBlock, term: Callable[[TokenFeatures, int], Floats]) -> Floats:
    """The sum over partitions of a term of the template's features."""

    def one(k: int) -> tuple[Floats, None]:
        return term(objective.partitions[k].features[block.clique.name], k), None

    return objective.engine.reduce(one, range(len(objective.partitions)), objective.costs)[0]


def _gram(objective: Objective, block: TemplateBlock, d: list[Array] | None) -> Floats:
    """F' diag(d) F, d (rows,) in each partition; None is omega."""

    def term(features: TokenFeatures, k: int) -> Floats:
        return features.gram(objective.partitions[k].clique_weights(block) if d is None else d[k])

    return _summed(objective, block, term)


def _squares(objective: Objective, block: TemplateBlock, spread: list[Array]) -> Floats:
    """The diagonals of F' diag(omega p_l (1 - p_l)) F, (n, L); their mean over labels where labels share strength."""

    def term(features: TokenFeatures, k: int) -> Floats:
        return features.squares_transposed_times(spread[k])

    squares = _summed(objective, block, term)
    if block.clique.k_y.is_identity:
        return squares
    return np.repeat(squares.mean(axis=1, keepdims=True) * _label_norm(block), block.clique.shape[0], axis=1)


def _mean_spread(objective: Objective, block: TemplateBlock, spread: list[Array]) -> Floats:
    """c: the mean of p_l (1 - p_l) by weight; its mean over labels where labels share strength."""
    return _summed_spread(block, spread) / max(_mass(objective, block), np.finfo(np.float64).tiny)


def _summed_spread(block: TemplateBlock, spread: list[Array]) -> Floats:
    """p_l (1 - p_l) by weight, summed over cliques; its mean over labels where labels share strength."""
    total = np.sum([part.sum(axis=0, dtype=np.float64) for part in spread], axis=0)
    if block.clique.k_y.is_identity:
        return np.asarray(total)
    return np.full(block.clique.shape, total.mean() * _label_norm(block))


def _label_norm(block: TemplateBlock) -> float:
    return float(np.linalg.norm(block.clique.k_y.gram, 2))


def _per_label(objective: Objective, block: TemplateBlock, spread: list[Array], lam: float) -> PerLabel:
    ridge = lam * np.eye(block.n)
    grams = (_gram(objective, block, [s[:, label] for s in spread]) for label in range(spread[0].shape[1]))
    return PerLabel(tuple(lower_factor(gram + ridge) for gram in grams))
