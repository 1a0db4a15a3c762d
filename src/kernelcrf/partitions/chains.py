"""A resident part of the data of chains: the linear map between theta and scores, and inference on them.

    s_t = sum over node templates of A (W' F_t),     w_t = sum over edge templates of A (F_t W) A',

with A the factor of the label kernel and F_t = 1 for a template without inputs. `scores` applies the map, `pull_back`
its transpose: from residuals of scores to a gradient.

Dense features without duplicates are cut into as many partitions as threads may share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Resident
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain import edge_marginals, entropy, forward_backward, labelling_scores
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions import fused
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.independent import Softmax
from kernelcrf.partitions.partition import Local, Sums, Total

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MOST_PARTITIONS, LEAST_NODES = 64, 512
BLOCK_BYTES, LEAST_BLOCK_NODES = 2**19, 64


@dataclass(frozen=True, eq=False)
class ChainScores(Resident):
    """Node scores s (N, L) and edge scores w, (L, L) or (N, L, L), of a partition; (0, 0) if it has no edges."""

    s: Array
    w: Array

    def moved(self, direction: ChainScores, step: float) -> ChainScores:
        """s + step ds, w + step dw."""
        dtype = self.s.dtype.type
        return ChainScores(self.s + dtype(step) * direction.s, self.w + dtype(step) * direction.w)


@dataclass(frozen=True, eq=False)
class ChainResiduals(Resident):
    """What a partition gives at given scores: its loss, and the residuals r of node and q of edge scores.

    q has the shape of the edge scores; both are weighted. `curvature` is there where it was asked for.
    """

    loss: float
    r: Array
    q: Array
    nodes: Array
    curvature: Linearisation | fused.Messages | Softmax | None


@dataclass(frozen=True, eq=False)
class ChainPartition(Resident):
    """Some sequences with their features and labels.

    features : of each template that has inputs, by its name.
    labels : (N,), an index a token; not read where `allowed` is given.
    allowed : (N, L) booleans, the labels that a token may have, or None where all are observed.
    weights : (m,), what each sequence counts for, or None for one each.
    legal : what labelings may be, or None for any.
    """

    chains: Chains
    n_labels: int
    labels: npt.NDArray[np.int32]
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    allowed: npt.NDArray[np.bool_] | None = None
    weights: Floats | None = None
    legal: Legal | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of scores: float32 where all features are."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    @property
    def n_nodes(self) -> int:
        """Tokens."""
        return self.chains.n_nodes

    @property
    def is_convex(self) -> bool:
        """Whether all labels are observed."""
        return self.allowed is None

    def weighted(self, rows: Array) -> Array:
        """Rows of tokens, each times the weight of its sequence."""
        if self.weights is None:
            return rows
        weights = np.repeat(self.weights, self.chains.lengths)
        return np.asarray(rows * weights.reshape(-1, *(1,) * (rows.ndim - 1)), rows.dtype)

    def has_edges(self, layout: Layout) -> bool:
        """Return whether labels depend on each other, or are restricted by what is legal or allowed."""
        templates = any(block.clique.nodes == 2 for block in layout.blocks)
        return templates or self.legal is not None or self.allowed is not None

    def scores(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> tuple[Array, Array]:
        """Node scores (N, L), and edge scores (L, L) where no edge template has inputs, else (N, L, L)."""
        n_nodes, L = self.chains.n_nodes, self.n_labels
        n_steps = L if self.has_edges(layout) else 0
        s, w = np.zeros((n_nodes, L), self.dtype), np.zeros((n_steps, n_steps), self.dtype)
        for block, W in zip(layout.blocks, layout.split(theta).values(), strict=True):
            Z = W[0].astype(self.dtype)
            if block.clique.name in self.features:
                Z = self.features[block.clique.name].times(W.reshape(block.n, -1), n_jobs)
                Z = Z.reshape(n_nodes, *block.clique.shape)
            if block.clique.nodes == 1:
                s += block.clique.expand(Z)
            else:
                w = w + block.clique.expand(Z)
        return s, w

    def pull_back(self, layout: Layout, r: Array, q: Array, n_jobs: int = 1) -> Floats:
        """The gradient in theta of <r, s> + <q, w>; q has the shape of the edge scores."""

        def gradient(block: TemplateBlock) -> Array:
            residual = r if block.clique.nodes == 1 else q
            if block.clique.name in self.features:
                R = np.ascontiguousarray(block.clique.adjoint(residual)).reshape(len(r), -1)
                return self.features[block.clique.name].transposed_times(R, n_jobs)
            if block.clique.nodes == 1 or q.ndim == 3:
                residual = residual.sum(axis=0, dtype=np.float64)
            return block.clique.adjoint(residual[None])

        return layout.join({block.clique.name: gradient(block) for block in layout.blocks})

    def with_features(self, features: Mapping[str, TokenFeatures]) -> ChainPartition:
        """The same samples with other features."""
        return replace(self, features=features)

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """Loss and gradient at theta, in one compiled pass where the partition allows it."""
        found = fused.evaluate(layout, self, theta, keep=fused.Keep.MESSAGES if curvature else fused.Keep.RESIDUALS)
        if found is None:
            s, w = self.scores(layout, theta, n_jobs)
            if self.legal is not None:
                s, w = self.legal.impose(self.chains, s, w)
            return self.evaluate_at(layout, ChainScores(s, w), n_jobs, curvature=curvature)
        messages = found.messages if curvature else None
        result = ChainResiduals(found.loss, found.r, found.q, found.messages.p, messages)
        return Sums(found.loss, found.gradient), Local(ChainScores(found.s, found.w), result)

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Loss and gradient at theta, of which nothing else is kept."""
        found = fused.evaluate(layout, self, theta, keep=fused.Keep.NOTHING)
        if found is None:
            return self.evaluate(layout, theta, n_jobs, curvature=False)[0]
        return Sums(found.loss, found.gradient)

    def evaluate_at(self, layout: Layout, scores: ChainScores, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """The same where scores are known already."""
        result = self.residuals(scores, n_jobs, curvature=curvature)
        gradient = self.pull_back(layout, result.r, result.q, n_jobs)
        return Sums(result.loss, gradient), Local(scores, result)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> ChainScores:
        """Scores along a direction of theta."""
        return ChainScores(*self.scores(layout, v, n_jobs))

    def along(self, scores: ChainScores, direction: ChainScores, n_jobs: int) -> tuple[float, float]:
        """Loss at some scores, and its derivative along a direction of them."""
        result = self.residuals(scores, n_jobs, curvature=False)
        return result.loss, float(np.vdot(result.r, direction.s)) + float(np.vdot(result.q, direction.w))

    def residuals(self, scores: ChainScores, n_jobs: int = 1, *, curvature: bool) -> ChainResiduals:
        """Loss and residuals at given scores; infeasible sequences go by their place in all data."""
        try:
            return self._residuals(scores, n_jobs, curvature)
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.chains.number(error.sample), error.token) from None

    def _independent_residuals(self, s: Array, w: Array, curvature: bool) -> ChainResiduals:
        """Loss and residuals of tokens without edges."""
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
        linearisation = Linearisation.of(batch, n_jobs) if curvature else None
        model = linearisation.moments if linearisation else forward_backward(batch, n_jobs, keep=False).moments
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
            moments = forward_backward(clamped, n_jobs, keep=False).moments
            target = moments.log_partition
            r -= moments.nodes
            q -= moments.edges
        losses = model.log_partition - target
        loss = losses.sum() if self.weights is None else np.dot(self.weights, losses)
        q = q if batch.tied else self.weighted(q)
        return ChainResiduals(float(loss), self.weighted(r), q, model.nodes, linearisation)

    def hessian_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The derivative of the gradient along v, exact covariances (22)."""
        curvature = at.residuals.curvature
        if curvature is None:
            raise ValueError("at was evaluated without curvature: pass curvature=True to evaluate")
        if isinstance(curvature, fused.Messages):
            return fused.hessian_product(layout, self, curvature, v)
        tangents = curvature.tangents(*self.scores(layout, v, n_jobs))
        dq = tangents.edges if tangents.edges.ndim == 2 else self.weighted(tangents.edges)
        return self.pull_back(layout, self.weighted(tangents.nodes), dq, n_jobs)

    def block_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The paper's blocks (30) times v: node templates share one block and edge templates another."""
        p = at.residuals.nodes
        du, dw = self.scores(layout, v, n_jobs)
        dp = p * (du - np.einsum("tj,tj->t", p, du)[:, None])
        return self.pull_back(layout, self.weighted(dp), self._edge_block(at, dw), n_jobs)

    def _edge_block(self, at: Local, dw: Array) -> Array:
        """sum_t of q_t o (dw - <q_t, dw>), or each of them where dw is one a token."""
        if not dw.size:
            return dw
        q = edge_marginals(at.scores.s, at.scores.w, self.chains)
        means = np.einsum("tij,ij->t" if dw.ndim == 2 else "tij,tij->t", q, dw)
        if dw.ndim == 3:
            return self.weighted(q * (dw - means[:, None, None]))
        weighted = self.weighted(q)
        return np.asarray(weighted.sum(axis=0) * dw - np.einsum("t,tij->ij", means, weighted))

    def entropy(self, at: Local, n_jobs: int) -> float:
        """sum_i omega_i H(p_i)."""
        if not at.scores.w.size:
            return float(self.weighted(Softmax.of(at.scores.s).entropy).sum())
        h = entropy(at.scores.s, at.scores.w, self.chains, n_threads=n_jobs)
        return float(h.sum() if self.weights is None else np.dot(self.weights, h))

    def residual(self, block: TemplateBlock, at: Local) -> Array:
        """r (N, L) or q, (N, L, L) where steps have inputs, with the label kernel's factor applied."""
        residual = at.residuals.r if block.clique.nodes == 1 else at.residuals.q
        return block.clique.adjoint(residual.astype(np.float64))

    def knows_spread(self, block: TemplateBlock) -> bool:
        """Nodes alone: edge marginals are kept as sums."""
        return block.clique.nodes == 1

    def spread(self, block: TemplateBlock, at: Local) -> Array:
        """(N, L) of nodes."""
        p = at.residuals.nodes
        return self.weighted(p * (1 - p))

    def mass(self, block: TemplateBlock) -> float:
        """Tokens, by weight."""
        lengths = self.chains.lengths
        return float(lengths.sum() if self.weights is None else np.dot(self.weights, lengths))

    def total(self, term: Callable[[Any, Any], Total], at: Local | None) -> Total:
        """The one term that there is."""
        return term(self, at)

    def clique_weights(self, block: TemplateBlock) -> Floats:
        """(N,): the weight of each token's sequence."""
        return self.weighted(np.ones(self.chains.n_nodes))

    @cached_property
    def observed_steps(self) -> Floats:
        """(L, L): how often the labels step from one to another, by weight."""
        before, into = self.chains.cliques(EDGE).T
        steps = np.zeros((self.n_labels, self.n_labels))
        weights = 1.0 if self.weights is None else np.repeat(self.weights, self.chains.lengths)[into]
        np.add.at(steps, (self.labels[before], self.labels[into]), weights)
        return steps

    @cached_property
    def block_cuts(self) -> npt.NDArray[np.int64]:
        """The sequences at which blocks begin whose dense features a cache holds, and the number of sequences."""
        row_bytes = sum(features.F.shape[1] * features.F.itemsize for features in self.features.values())
        runs = self.chains.runs(max(BLOCK_BYTES // max(row_bytes, 1), LEAST_BLOCK_NODES))
        return np.array([low for low, _ in runs] + [self.chains.n_samples])

    def part(self, low: int, high: int) -> ChainPartition:
        """Sequences low to high."""
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
        """Partitions that threads may take; one where features are sparse or shared between tokens."""
        if not self.features or any(f.index is not None or f.is_sparse for f in self.features.values()):
            return [self]
        n_nodes = max(-(-self.chains.n_nodes // MOST_PARTITIONS), LEAST_NODES)
        return [self.part(low, high) for low, high in self.chains.runs(n_nodes)]
