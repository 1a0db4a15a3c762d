"""A resident part of the data of general graphs: the linear map between theta and tables, and inference on them.

m samples have one graph, or one row has the union of many. The tables of a template's K cliques in sample i are

    t_ik = A (W' F_ik),    the labels of a clique taken jointly as one of S = prod of its nodes' numbers of labels,

with A the factor of the label kernel over these S, F_ik = 1 for a template without inputs, and a sum where several
blocks of theta speak of one template. Blocks that share features go through one product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loss import MISSING, InfeasibleSampleError, Inference, Loss, loss_of_statistics
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.partition import LinearBound, Local, Sums, Total

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables (m, n_entries) of a partition."""

    t: Floats

    def moved(self, direction: Tables, step: float) -> Tables:
        """t + step dt."""
        return Tables(self.t + step * direction.t)


@dataclass(frozen=True, eq=False)
class GraphPartition:
    """Some samples with their features and labels, all on one graph or on a union of graphs.

    labels : (m, V), MISSING where there is none.
    statistics : (m, n_entries), shares of the labelings of each clique, in place of labels: a row then stands for
        many samples with the same inputs.
    features : of each block of theta that has inputs, by its name; rows are cliques, sample by sample.
    templates : the graph's template that each block of theta speaks of; its own name where it is not listed.
    weights : (m * n_samples,), what each sample counts for, or None for one each.
    first : the place of the first sample among all of the data, for messages.
    """

    inference: Inference
    labels: npt.NDArray[np.int32]
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    weights: Floats | None = None
    first: int = 0
    statistics: Floats | None = None

    @property
    def graph(self) -> Graph:
        """The graph of every row."""
        return self.inference.graph

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of features; tables are always float64."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    @property
    def n_nodes(self) -> int:
        """Label nodes of all samples."""
        return int(self.labels.size)

    @cached_property
    def is_convex(self) -> bool:
        """Whether all labels are observed."""
        return self.statistics is not None or not (self.labels == MISSING).any()

    def _place(self, block: TemplateBlock) -> slice:
        return self.graph.slices[self.templates.get(block.clique.name, block.clique.name)]

    def _rows(self, block: TemplateBlock, tables: Array) -> Array:
        """The tables of a block's cliques, (m * K, S)."""
        return tables[:, self._place(block)].reshape(-1, block.clique.k_y.L)

    def _shared(self, layout: Layout) -> list[list[TemplateBlock]]:
        """Blocks with inputs, those that share features together."""
        groups: dict[int, list[TemplateBlock]] = {}
        for block in layout.blocks:
            if block.clique.name in self.features:
                groups.setdefault(id(self.features[block.clique.name]), []).append(block)
        return list(groups.values())

    def tables(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> Floats:
        """(m, n_entries)."""
        weights = layout.split(theta)
        constant = np.zeros(self.graph.n_entries)
        for block in layout.blocks:
            if block.clique.name not in self.features:
                table = block.clique.expand(weights[block.clique.name]).reshape(1, -1)
                own = constant[self._place(block)].reshape(-1, table.shape[1])
                own += table
        tables = np.repeat(constant[None], len(self.labels), axis=0)
        for group in self._shared(layout):
            Z = self.features[group[0].clique.name].times(
                np.concatenate([weights[block.clique.name] for block in group], axis=1), n_jobs
            )
            for block, columns in zip(group, _columns(group), strict=True):
                place = self._place(block)
                scores = block.clique.expand(Z[:, columns])
                tables[:, place] += scores.reshape(len(tables), place.stop - place.start)
        return tables

    def pull_back(self, layout: Layout, residual: Floats, n_jobs: int = 1) -> Floats:
        """The gradient in theta of <residual, tables>: the transpose of `tables`."""
        gradients: dict[str, Array] = {}
        for group in self._shared(layout):
            R = np.concatenate([block.clique.adjoint(self._rows(block, residual)) for block in group], axis=1)
            G = self.features[group[0].clique.name].transposed_times(np.ascontiguousarray(R), n_jobs)
            for block, columns in zip(group, _columns(group), strict=True):
                gradients[block.clique.name] = G[:, columns]
        totals = residual.sum(axis=0, keepdims=True)
        for block in layout.blocks:
            if block.clique.name not in self.features:
                total = self._rows(block, totals).sum(axis=0, keepdims=True)
                gradients[block.clique.name] = block.clique.adjoint(total)
        return layout.join(gradients)

    @cached_property
    def _entry_weights(self) -> Floats | None:
        """(m, 1) or (m, n_entries): the weight of the sample that an entry belongs to."""
        if self.weights is None:
            return None
        weights = self.weights.reshape(len(self.labels), self.graph.n_samples)
        if self.graph.n_samples == 1:
            return weights
        sizes = [
            np.full(len(nodes), np.prod(self.graph.shape(name), dtype=np.int64))
            for name, nodes in self.graph.cliques.items()
        ]
        return weights[:, np.repeat(self.graph.clique_samples, np.concatenate(sizes))]

    def _weighted(self, tables: Floats) -> Floats:
        return tables if self._entry_weights is None else tables * self._entry_weights

    def _loss(self, tables: Floats, n_jobs: int, curvature: bool) -> tuple[float, Loss]:
        try:
            if self.statistics is None:
                found = self.inference.loss(tables, self.labels, n_jobs, curvature=curvature)
            else:
                found = loss_of_statistics(self.inference, tables, self.statistics, n_jobs, curvature=curvature)
        except InfeasibleSampleError as error:
            raise InfeasibleSampleError(self.first + error.sample) from None
        losses = found.losses.ravel()
        return float(losses.sum() if self.weights is None else np.dot(self.weights, losses)), found

    def with_features(self, features: Mapping[str, TokenFeatures]) -> GraphPartition:
        """The same samples with other features."""
        return replace(self, features=features)

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """Loss and gradient at theta."""
        return self.evaluate_at(layout, Tables(self.tables(layout, theta, n_jobs)), n_jobs, curvature=curvature)

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """The same alone."""
        return self.evaluate(layout, theta, n_jobs, curvature=False)[0]

    def evaluate_at(self, layout: Layout, scores: Tables, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """The same where tables are known already."""
        loss, found = self._loss(scores.t, n_jobs, curvature)
        gradient = self.pull_back(layout, self._weighted(found.residual), n_jobs)
        return Sums(loss, gradient, self._bound(layout, found, n_jobs)), Local(scores, found)

    def _bound(self, layout: Layout, found: Loss, n_jobs: int) -> LinearBound | None:
        if found.dual is None:
            return None
        entropies = found.dual.entropy.ravel()
        constant = float(entropies.sum() if self.weights is None else np.dot(self.weights, entropies))
        return LinearBound(constant, self.pull_back(layout, self._weighted(found.dual.residual), n_jobs))

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Tables:
        """Tables along a direction of theta."""
        return Tables(self.tables(layout, v, n_jobs))

    def along(self, scores: Tables, direction: Tables, n_jobs: int) -> tuple[float, float]:
        """Loss at some tables, and its derivative along a direction of them."""
        loss, found = self._loss(scores.t, n_jobs, curvature=False)
        return loss, float(np.vdot(self._weighted(found.residual), direction.t))

    def hessian_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The derivative of the gradient along v."""
        if at.residuals.curvature is None:
            raise ValueError("at was evaluated without curvature: pass curvature=True to evaluate")
        tangents = at.residuals.curvature.tangents(self.tables(layout, v, n_jobs), n_jobs)
        return self.pull_back(layout, self._weighted(tangents), n_jobs)

    def block_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The paper's blocks (30) times v: covariances within each clique of the graph."""
        direction, p = self.tables(layout, v, n_jobs), at.residuals.marginals
        out = np.zeros_like(direction)
        for name, place in self.graph.slices.items():
            shape = (len(p), -1, int(np.prod(self.graph.shape(name))))
            own, d = p[:, place].reshape(shape), direction[:, place].reshape(shape)
            means = np.einsum("iks,iks->ik", own, d)[..., None]
            out[:, place] = (own * (d - means)).reshape(len(p), -1)
        return self.pull_back(layout, self._weighted(out), n_jobs)

    def entropy(self, at: Local, n_jobs: int) -> float:
        """sum_i omega_i H(p_i)."""
        h = self.inference.entropy(at.scores.t, n_jobs).ravel()
        return float(h.sum() if self.weights is None else np.dot(self.weights, h))

    def residual(self, block: TemplateBlock, at: Local) -> Array:
        """(m * K, r) of a block's cliques, with the label kernel's factor applied."""
        return block.clique.adjoint(self._rows(block, self._weighted(at.residuals.residual)))

    def knows_spread(self, block: TemplateBlock) -> bool:
        """All of them are."""
        return True

    def spread(self, block: TemplateBlock, at: Local) -> Array:
        """(m * K, S)."""
        p = self._rows(block, at.residuals.marginals)
        return np.asarray(p * (1 - p) * self.clique_weights(block)[:, None])

    def mass(self, block: TemplateBlock) -> float:
        """Cliques, by weight."""
        return float(self.clique_weights(block).sum())

    def total(self, term: Callable[[Any, Any], Total], at: Local | None) -> Total:
        """The one term that there is."""
        return term(self, at)

    def clique_weights(self, block: TemplateBlock) -> Floats:
        """(m * K,)."""
        place, size = self._place(block), block.clique.k_y.L
        n_cliques = (place.stop - place.start) // size
        if self._entry_weights is None:
            return np.ones(len(self.labels) * n_cliques)
        if self.graph.n_samples == 1:
            return np.repeat(self._entry_weights[:, 0], n_cliques)
        return self._entry_weights[:, place][:, ::size].ravel()


def _columns(group: Sequence[TemplateBlock]) -> list[slice]:
    """Where the weights of each block are among those of a group, side by side."""
    ends = np.cumsum([block.clique.k_y.rank for block in group]).tolist()
    return [slice(end - block.clique.k_y.rank, end) for end, block in zip(ends, group, strict=True)]
