"""The negative log posterior (15) of a chain CRF with tied templates, spelt once.

    P(theta) = sum_i omega_i [log Z_i - log Z_i(allowed)] + sum_k lam_k/2 |theta_k|^2
    g        = sum_i omega_i [E_p Phi - E_p(. | allowed) Phi] + lam theta                      (21), (28)
    H v      = sum_i omega_i Cov_p[Phi, <Phi, v>] + lam v                                       (22)

omega are the weights of the sequences; log Z(allowed) sums over the labelings that the labels allow: where all of them
are observed it is the score of the one labelling, and P is convex. Where some are missing, H leaves the covariance
under p(. | allowed) out: the Gauss-Newton part, positive definite, with which P can be minimised but which certifies
nothing.

A pass is F W and F' R once. Sums run over partitions through an engine, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf import fused
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import EDGE
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain import edge_marginals, entropy, forward_backward, labelling_scores
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.parameters import Layout
from kernelcrf.partition import Partition

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Node scores s (N, L) and edge scores w, (L, L) or (N, L, L), of a partition."""

    s: Array
    w: Array

    def moved(self, direction: Scores, step: float) -> Scores:
        """s + step ds, w + step dw."""
        dtype = self.s.dtype.type
        return Scores(self.s + dtype(step) * direction.s, self.w + dtype(step) * direction.w)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What a partition gives at given scores: its loss, and the residuals r of node and q of edge scores.

    q has the shape of the edge scores; both are weighted. `curvature` is there where it was asked for.
    """

    loss: float
    r: Array
    q: Array
    nodes: Array
    curvature: Linearisation | fused.Messages | None


@dataclass(frozen=True, eq=False)
class Local:
    """A partition at a point: its scores there and what they gave."""

    scores: Scores
    residuals: Residuals


@dataclass(frozen=True, eq=False)
class Sums:
    """A loss and a gradient of it."""

    loss: float
    gradient: Floats

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.loss + other.loss, self.gradient + other.gradient)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """P at theta: its value, gradient, and what is kept of each partition."""

    theta: Floats
    value: float
    gradient: Floats
    lower_bound: float
    parts: tuple[Local, ...]


@dataclass(frozen=True, eq=False)
class Ray:
    """P(theta + step direction) from cached scores: no product with F in a trial."""

    objective: Objective
    start: Evaluation
    direction: Floats
    scores: tuple[Scores, ...]

    def along(self, step: float) -> tuple[float, float]:
        """The value and its derivative in `step`."""
        objective = self.objective

        def one(k: int) -> tuple[Floats, None]:
            moved = self.start.parts[k].scores.moved(self.scores[k], step)
            result = objective.residuals(k, moved, curvature=False)
            slope = float(np.vdot(result.r, self.scores[k].s)) + float(np.vdot(result.q, self.scores[k].w))
            return np.array([result.loss, slope]), None

        (loss, slope), _ = objective.engine.reduce(one, range(len(self.scores)), objective.costs)
        theta = self.start.theta + step * self.direction
        layout = objective.layout
        return (
            float(loss) + 0.5 * layout.squared_norm(theta),
            float(slope) + float(np.dot(layout.times_lam(theta), self.direction)),
        )

    def point(self, step: float, *, curvature: bool) -> Evaluation:
        """The evaluation at a step: half a pass, since the scores are there."""
        scores = [part.scores.moved(ds, step) for part, ds in zip(self.start.parts, self.scores, strict=True)]
        return self.objective.at(self.start.theta + step * self.direction, scores, curvature=curvature)


@dataclass(frozen=True, eq=False)
class Objective:
    """P over resident partitions."""

    layout: Layout
    partitions: Sequence[Partition]
    engine: LocalEngine

    @cached_property
    def costs(self) -> list[float]:
        """Tokens of each partition."""
        return [float(partition.chains.n_nodes) for partition in self.partitions]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The least precision that scores have in any partition."""
        return min((partition.dtype for partition in self.partitions), key=lambda dtype: dtype.itemsize)

    @property
    def is_convex(self) -> bool:
        """Whether all labels are observed."""
        return all(partition.allowed is None for partition in self.partitions)

    def evaluate(self, theta: Floats, *, curvature: bool = False) -> Evaluation:
        """P and its gradient at theta: one pass."""
        return self.at(theta, None, curvature=curvature)

    def at(self, theta: Floats, scores: Sequence[Scores] | None, *, curvature: bool) -> Evaluation:
        """P and its gradient at theta, whose scores may be known already."""
        theta, n_jobs = np.asarray(theta, np.float64), self.engine.n_jobs

        def one(k: int) -> tuple[Sums, Local]:
            partition = self.partitions[k]
            found = None if scores is not None else fused.evaluate(self.layout, partition, theta, keep=curvature)
            if found is not None:
                messages = found.messages if curvature else None
                result = Residuals(found.loss, found.r, found.q, found.messages.p, messages)
                return Sums(found.loss, found.gradient), Local(Scores(found.s, found.w), result)
            own = scores[k] if scores is not None else self._scores(k, theta)
            result = self.residuals(k, own, curvature=curvature)
            gradient = partition.pull_back(self.layout, result.r, result.q, n_jobs)
            return Sums(result.loss, gradient), Local(own, result)

        sums, parts = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        value = sums.loss + 0.5 * self.layout.squared_norm(theta)
        gradient = sums.gradient + self.layout.times_lam(theta)
        lower = value - 0.5 * sum(self.layout.squared_dual_norms(gradient).values()) if self.is_convex else -np.inf
        return Evaluation(theta, value, gradient, lower, tuple(parts))

    def _scores(self, k: int, theta: Floats) -> Scores:
        partition = self.partitions[k]
        s, w = partition.scores(self.layout, theta, self.engine.n_jobs)
        return Scores(s, w) if partition.legal is None else Scores(*partition.legal.impose(partition.chains, s, w))

    def ray(self, start: Evaluation, direction: Floats) -> Ray:
        """The line from an evaluation along a direction: half a pass."""
        n_jobs = self.engine.n_jobs
        scores = self.engine.map(
            lambda partition: Scores(*partition.scores(self.layout, direction, n_jobs)), self.partitions, self.costs
        )
        return Ray(self, start, direction, tuple(scores))

    def hessian_product(self, at: Evaluation, v: Floats) -> Floats:
        """H v at an evaluation made with curvature: one pass."""
        n_jobs = self.engine.n_jobs

        def one(k: int) -> tuple[Floats, None]:
            partition, curvature = self.partitions[k], at.parts[k].residuals.curvature
            if curvature is None:
                raise ValueError("at was evaluated without curvature: pass curvature=True to evaluate")
            if isinstance(curvature, fused.Messages):
                return fused.hessian_product(self.layout, partition, curvature, v), None
            tangents = curvature.tangents(*partition.scores(self.layout, v, n_jobs))
            dq = tangents.edges if tangents.edges.ndim == 2 else partition.weighted(tangents.edges)
            return partition.pull_back(self.layout, partition.weighted(tangents.nodes), dq, n_jobs), None

        total, _ = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        return total + self.layout.times_lam(v)

    def block_product(self, at: Evaluation, v: Floats) -> Floats:
        """The paper's blocks (30) times v: covariances within each clique, none between cliques.

        Node templates share one block and edge templates another: Cov[Phi_t, Phi_t'] of t = t' alone.
        """
        n_jobs = self.engine.n_jobs

        def one(k: int) -> tuple[Floats, None]:
            partition, p = self.partitions[k], at.parts[k].residuals.nodes
            du, dw = partition.scores(self.layout, v, n_jobs)
            dp = p * (du - np.einsum("tj,tj->t", p, du)[:, None])
            return partition.pull_back(self.layout, partition.weighted(dp), self._edge_block(k, at, dw), n_jobs), None

        total, _ = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        return total + self.layout.times_lam(v)

    def _edge_block(self, k: int, at: Evaluation, dw: Array) -> Array:
        """sum_t of q_t o (dw - <q_t, dw>), or each of them where dw is one a token."""
        partition, scores = self.partitions[k], at.parts[k].scores
        q = edge_marginals(scores.s, scores.w, partition.chains)
        means = np.einsum("tij,ij->t" if dw.ndim == 2 else "tij,tij->t", q, dw)
        if dw.ndim == 3:
            return partition.weighted(q * (dw - means[:, None, None]))
        weighted = partition.weighted(q)
        return np.asarray(weighted.sum(axis=0) * dw - np.einsum("t,tij->ij", means, weighted))

    def residuals(self, k: int, scores: Scores, *, curvature: bool) -> Residuals:
        """Loss and residuals of partition k at given scores; infeasible sequences go by their place in all data."""
        try:
            return self._residuals(k, scores, curvature)
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.partitions[k].first + error.sample, error.token) from None

    def _residuals(self, k: int, scores: Scores, curvature: bool) -> Residuals:
        partition, n_jobs = self.partitions[k], self.engine.n_jobs
        batch = Batch(scores.s, np.ascontiguousarray(scores.w), partition.chains, partition.weights)
        linearisation = Linearisation.of(batch, n_jobs) if curvature else None
        model = linearisation.moments if linearisation else forward_backward(batch, n_jobs, keep=False).moments
        r, q = model.nodes.copy(), model.edges.copy()
        if partition.allowed is None:
            tokens, y = np.arange(partition.chains.n_nodes), partition.labels
            target = labelling_scores(scores.s, scores.w, partition.chains, y)
            r[tokens, y] -= 1
            if batch.tied:
                q -= partition.observed_steps
            else:
                before, into = partition.chains.cliques(EDGE).T
                q[into, y[before], y[into]] -= 1
        else:
            nothing = scores.s.dtype.type(-np.inf)
            clamped = replace(batch, scores=np.where(partition.allowed, scores.s, nothing))
            moments = forward_backward(clamped, n_jobs, keep=False).moments
            target = moments.log_partition
            r -= moments.nodes
            q -= moments.edges
        losses = model.log_partition - target
        loss = losses.sum() if partition.weights is None else np.dot(partition.weights, losses)
        q = q if batch.tied else partition.weighted(q)
        return Residuals(float(loss), partition.weighted(r), q, model.nodes, linearisation)

    def entropy(self, at: Evaluation) -> float:
        """sum_i omega_i H(p_i)."""

        def one(k: int) -> tuple[Any, None]:
            partition, scores = self.partitions[k], at.parts[k].scores
            h = entropy(scores.s, scores.w, partition.chains, n_threads=self.engine.n_jobs)
            return np.float64(h.sum() if partition.weights is None else np.dot(partition.weights, h)), None

        return float(self.engine.reduce(one, range(len(self.partitions)), self.costs)[0])
