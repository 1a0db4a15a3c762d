"""A partition of chains in this process: the linear map from theta to scores, and inference.

    s_t = sum over terms of tokens of A (W' F_t),     w_t = sum over terms of steps of A (W' F_t),

with A the factor of the label kernel, and F_t = 1 for a term without inputs. `scores` computes this map; `pull_back`
computes its transpose, which maps residuals of scores to a gradient.

Data with dense features and no equal inputs are divided into several partitions for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, DType, Flags, Floats, Ints, Labels, Places
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain import edge_marginals, entropy, labelling_scores
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.fused import ChainResiduals, ChainScores, FusedChains, FusedMessages
from kernelcrf.partitions.independent import Softmax
from kernelcrf.partitions.partition import PartitionState, Sums, Total
from kernelcrf.terms import STEPS, TOKENS, Layout, Term

MOST_PARTITIONS, LEAST_NODES = 64, 512
BLOCK_BYTES, LEAST_BLOCK_NODES = 2**19, 64


@dataclass(frozen=True, eq=False)
class ChainPartition:
    """Some sequences with their features and labels.

    features : the features of each term that has inputs, by the name of the term.
    labels : (N,), one label index per token; not used if `allowed` is given.
    allowed : (N, L) booleans, the labels that each token may have, or None if all labels are observed.
    weights : (m,), the weight of each sequence, or None if all are 1.
    legal : the labelings that constraints permit, or None if all are legal.
    """

    chains: Chains
    n_labels: int
    labels: Labels
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    allowed: Flags | None = None
    weights: Floats | None = None
    legal: Legal | None = None

    @property
    def dtype(self) -> DType:
        """Return the dtype of the scores: float32 if all features are float32."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    @property
    def n_nodes(self) -> int:
        """Return the number of tokens."""
        return self.chains.n_nodes

    @property
    def is_convex(self) -> bool:
        """Return whether all labels are observed."""
        return self.allowed is None

    def weighted(self, rows: Array) -> Array:
        """Multiply each row, one per token, by the weight of its sequence."""
        if self.weights is None:
            return rows
        weights = np.repeat(self.weights, self.chains.lengths)
        return np.asarray(rows * weights.reshape(-1, *(1,) * (rows.ndim - 1)), rows.dtype)

    def has_edges(self, layout: Layout) -> bool:
        """Return whether labels depend on each other, or are restricted by `legal` or `allowed`."""
        templates = any(term.cliques == STEPS for term in layout.terms)
        return templates or self.legal is not None or self.allowed is not None

    def scores(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> tuple[Array, Array]:
        """Return node scores (N, L), and edge scores (L, L), or (N, L, L) if a term of steps has inputs."""
        n_nodes, L = self.chains.n_nodes, self.n_labels
        n_steps = L if self.has_edges(layout) else 0
        s, w = np.zeros((n_nodes, L), self.dtype), np.zeros((n_steps, n_steps), self.dtype)
        for term, W in zip(layout.terms, layout.split(theta).values(), strict=True):
            Z = W[0].astype(self.dtype)
            if term.name in self.features:
                Z = self.features[term.name].times(W, n_jobs)
            if term.cliques == TOKENS:
                s += term.k_y.expand(Z)
            else:
                w = w + term.k_y.expand(Z).reshape(*Z.shape[:-1], L, L)
        return s, w

    def pull_back(self, layout: Layout, r: Array, q: Array, n_jobs: int = 1) -> Floats:
        """Return the gradient of <r, s> + <q, w> with respect to theta; q has the shape of the edge scores w."""

        def gradient(term: Term) -> Array:
            residual = r if term.cliques == TOKENS else q.reshape(*q.shape[:-2], -1)
            if term.name in self.features:
                R = np.ascontiguousarray(term.k_y.adjoint(residual))
                return self.features[term.name].transposed_times(R, n_jobs)
            if residual.ndim == 2:
                residual = residual.sum(axis=0, dtype=np.float64)
            return term.k_y.adjoint(residual[None])

        return layout.join({term.name: gradient(term) for term in layout.terms})

    def with_columns(self, term: Term, columns: Places) -> ChainPartition:
        """Return the same sequences, with only these columns of a term's features."""
        return replace(self, features={**self.features, term.name: self.features[term.name].columns(columns)})

    def _fused(self, layout: Layout) -> FusedChains | None:
        """Return the arrays for a fused pass in blocks, or None if the fused pass does not cover this partition."""
        with_inputs = [term for term in layout.terms if term.name in self.features]
        if self.allowed is not None or len(with_inputs) != 1 or with_inputs[0].cliques != TOKENS:
            return None
        term, features = with_inputs[0], self.features[with_inputs[0].name]
        if features.is_sparse or features.index is not None or not features.F.flags.c_contiguous:
            return None
        if not self.has_edges(layout) or self.n_nodes == 0:
            return None
        counts, cuts = self.observed_steps, self.block_cuts
        return FusedChains(
            layout, term, features.F, self.chains, self.labels, self.weights, self.legal, counts, cuts, self.dtype
        )

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at theta, and the state there, by one compiled pass if possible."""
        fused = self._fused(layout)
        found = fused.evaluate(theta, "messages" if curvature else "residuals") if fused else None
        if found is None:
            s, w = self.scores(layout, theta, n_jobs)
            if self.legal is not None:
                s, w = self.legal.impose(self.chains, s, w)
            return self.evaluate_at(layout, ChainScores(s, w), n_jobs, curvature=curvature)
        return found

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return loss and gradient at theta, without a state."""
        fused = self._fused(layout)
        found = fused.evaluate(theta, "nothing") if fused else None
        return (found or self.evaluate(layout, theta, n_jobs, curvature=False))[0]

    def evaluate_at(
        self, layout: Layout, scores: ChainScores, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at a point whose scores are known."""
        result = self.residuals(scores, n_jobs, curvature=curvature)
        gradient = self.pull_back(layout, result.r, result.q, n_jobs)
        return Sums(result.loss, gradient), PartitionState(scores, result)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> ChainScores:
        """Return the derivative of the scores along a direction v of theta."""
        return ChainScores(*self.scores(layout, v, n_jobs))

    def along(self, scores: ChainScores, direction: ChainScores, n_jobs: int) -> tuple[float, float]:
        """Return the loss at these scores, and its derivative along a direction of the scores."""
        result = self.residuals(scores, n_jobs, curvature=False)
        return result.loss, float(np.vdot(result.r, direction.s)) + float(np.vdot(result.q, direction.w))

    def residuals(self, scores: ChainScores, n_jobs: int = 1, *, curvature: bool) -> ChainResiduals:
        """Return loss and residuals at given scores; errors name a sequence by its index in the user's data."""
        try:
            return self._residuals(scores, n_jobs, curvature)
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.chains.number(error.sample), error.token) from None

    def _independent_residuals(self, s: Array, w: Array, curvature: bool) -> ChainResiduals:
        model = Softmax.of(s)
        tokens = np.arange(self.chains.n_nodes)
        losses = model.log_partition - s[tokens, self.labels]
        r = model.p.copy()
        r[tokens, self.labels] -= 1
        loss = float(self.weighted(losses).sum())
        return ChainResiduals(loss, self.weighted(r), np.zeros_like(w), model.p, model if curvature else None)

    def _residuals(self, scores: ChainScores, n_jobs: int, curvature: bool) -> ChainResiduals:
        if not scores.w.size:
            return self._independent_residuals(scores.s, scores.w, curvature)
        batch = Batch(scores.s, np.ascontiguousarray(scores.w), self.chains, self.weights)
        linearisation = Linearisation.of(batch, n_jobs, keep=curvature)
        model = linearisation.moments
        r, q = model.nodes.copy(), model.edges.copy()
        if self.allowed is None:
            tokens, y = np.arange(self.chains.n_nodes), self.labels
            target = labelling_scores(scores.s, scores.w, self.chains, y)
            r[tokens, y] -= 1
            if batch.tied:
                q -= self.observed_steps
            else:
                before, into = self.chains.cliques(EDGE).T
                q[into, y[before], y[into]] -= 1
        else:
            nothing = scores.s.dtype.type(-np.inf)
            clamped = replace(batch, scores=np.where(self.allowed, scores.s, nothing))
            moments = Linearisation.of(clamped, n_jobs, keep=False).moments
            target = moments.log_partition
            r -= moments.nodes
            q -= moments.edges
        losses = model.log_partition - target
        loss = losses.sum() if self.weights is None else np.dot(self.weights, losses)
        q = q if batch.tied else self.weighted(q)
        return ChainResiduals(float(loss), self.weighted(r), q, model.nodes, linearisation if curvature else None)

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the derivative of the gradient along v, from exact covariances (22)."""
        curvature = at.residuals.curvature
        if curvature is None:
            raise ValueError("the point `at` has no curvature: call evaluate(..., curvature=True) first")
        if isinstance(curvature, FusedMessages):
            fused = self._fused(layout)
            if fused is None:
                raise ValueError("at was evaluated on another partition or layout: expected a state of this partition")
            return fused.hessian_product(curvature, v)
        tangents = curvature.tangents(*self.scores(layout, v, n_jobs))
        dq = tangents.edges if tangents.edges.ndim == 2 else self.weighted(tangents.edges)
        return self.pull_back(layout, self.weighted(tangents.nodes), dq, n_jobs)

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the product of the paper's blocks (30) with v: one block for terms of tokens, one for steps."""
        p = at.residuals.nodes
        du, dw = self.scores(layout, v, n_jobs)
        dp = p * (du - np.einsum("tj,tj->t", p, du)[:, None])
        return self.pull_back(layout, self.weighted(dp), self._edge_block(at, dw), n_jobs)

    def _edge_block(self, at: PartitionState, dw: Array) -> Array:
        """Return the sum over t of q_t o (dw - <q_t, dw>), or each summand if dw has one matrix per token."""
        if not dw.size:
            return dw
        q = edge_marginals(at.scores.s, at.scores.w, self.chains)
        means = np.einsum("tij,ij->t" if dw.ndim == 2 else "tij,tij->t", q, dw)
        if dw.ndim == 3:
            return self.weighted(q * (dw - means[:, None, None]))
        weighted = self.weighted(q)
        return np.asarray(weighted.sum(axis=0) * dw - np.einsum("t,tij->ij", means, weighted))

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return the weighted sum of the sequences' entropies, sum_i omega_i H(p_i)."""
        if not at.scores.w.size:
            return float(self.weighted(Softmax.of(at.scores.s).entropy).sum())
        h = entropy(at.scores.s, at.scores.w, self.chains, n_threads=n_jobs)
        return float(h.sum() if self.weights is None else np.dot(self.weights, h))

    def residual(self, term: Term, at: PartitionState) -> Array:
        """Return the residuals r of tokens, or q of steps with inputs, times the label kernel's factor, (N, rank)."""
        residual = at.residuals.r if term.cliques == TOKENS else at.residuals.q
        return term.k_y.adjoint(residual.astype(np.float64).reshape(len(residual), -1))

    def knows_spread(self, term: Term) -> bool:
        """Return whether the term is a term of tokens: marginals of steps are kept only as sums."""
        return term.cliques == TOKENS

    def spread(self, term: Term, at: PartitionState) -> Array:
        """Return the weighted variances omega p (1 - p) of each token's labels, (N, L)."""
        p = at.residuals.nodes
        return self.weighted(p * (1 - p))

    def mass(self, term: Term) -> float:
        """Return the weighted number of tokens."""
        lengths = self.chains.lengths
        return float(lengths.sum() if self.weights is None else np.dot(self.weights, lengths))

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        """Return function(self, at): this partition is the only one to sum over."""
        return function(self, at)

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        """Return omega times the largest finite |score| of each token and of the step into it, (N,)."""
        sizes = _largest(at.scores.s, (1,)) + _largest(at.scores.w, (-2, -1))
        return self.weighted(sizes.astype(np.float64))

    def clique_weights(self, term: Term) -> Floats:
        """Return the weight of each token's sequence, (N,)."""
        return self.weighted(np.ones(self.chains.n_nodes))

    @cached_property
    def observed_steps(self) -> Floats:
        """Return the weighted number of observed steps from each label to each label, (L, L)."""
        before, into = self.chains.cliques(EDGE).T
        steps = np.zeros((self.n_labels, self.n_labels))
        weights = 1.0 if self.weights is None else np.repeat(self.weights, self.chains.lengths)[into]
        np.add.at(steps, (self.labels[before], self.labels[into]), weights)
        return steps

    @cached_property
    def block_cuts(self) -> Ints:
        """Return the first sequence of each block that fits into the cache, and the number of sequences."""
        row_bytes = sum(features.F.shape[1] * features.F.itemsize for features in self.features.values())
        runs = self.chains.runs(max(BLOCK_BYTES // max(row_bytes, 1), LEAST_BLOCK_NODES))
        return np.array([low for low, _ in runs] + [self.chains.n_samples])

    def part(self, low: int, high: int) -> ChainPartition:
        """Return a partition with the sequences low .. high - 1."""
        offsets = self.chains.offsets
        nodes = slice(int(offsets[low]), int(offsets[high]))
        return replace(
            self,
            chains=self.chains.part(low, high),
            labels=self.labels[nodes],
            features={name: features.part(nodes) for name, features in self.features.items()},
            allowed=None if self.allowed is None else self.allowed[nodes],
            weights=None if self.weights is None else self.weights[low:high],
        )

    def cut(self) -> list[ChainPartition]:
        """Divide into partitions for threads; only one if features are sparse or tokens share rows of them."""
        if not self.features or any(f.index is not None or f.is_sparse for f in self.features.values()):
            return [self]
        n_nodes = max(-(-self.chains.n_nodes // MOST_PARTITIONS), LEAST_NODES)
        return [self.part(low, high) for low, high in self.chains.runs(n_nodes)]


def _largest(scores: Array, axis: tuple[int, ...]) -> Array:
    """Return the largest finite |score| along some axes, without a copy of all scores."""
    finite = np.isfinite(scores)
    top, bottom = scores.max(axis=axis, initial=0.0, where=finite), scores.min(axis=axis, initial=0.0, where=finite)
    return np.asarray(np.maximum(top, -bottom))
