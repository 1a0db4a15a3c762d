"""A partition of samples on graphs in this process: it computes the scores of cliques, and runs inference on them.

The partition has m rows on the same graph. Each row is one sample, or there is a single row in which samples with
different graphs are joined to one large graph. The table of a clique has one score for each joint labelling of its
nodes. Clique k of row i has the table

    t_ik = sum over the terms that score clique k of A (W' F_ik),

where each term has weights W, a factor A of its label kernel, and features F_ik, which are 1 if the term has no inputs.
The parameters theta are the weights of all terms; `score.Score` is the map from theta to tables, and its transpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels, Places
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loss import MISSING, Inference, Loss, loss_of_statistics
from kernelcrf.partitions.partition import LinearBound, PartitionState, RowPartition, Sums
from kernelcrf.score.cliques import NO_CHAINS
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.score import Score, add_base, add_terms
from kernelcrf.score.terms import Term


@dataclass(frozen=True, eq=False)
class Tables:
    """The scores of all joint labellings of all cliques; the scores of one clique are called its table.

    t : one row per sample, or per graph that joins several samples. A row has the tables of all cliques, one after
        another.
    """

    t: Floats

    def move(self, direction: Tables, step: float) -> Tables:
        """Return these scores plus `step` times the scores `direction`."""
        return Tables(self.t + step * direction.t)


@dataclass(frozen=True, eq=False)
class GraphPartition(RowPartition):
    """Samples with their features and labels, in m rows that share one graph; a graph may contain several samples.

    inference : the graph, with the method that computes probabilities on it.
    labels : (m, number of nodes), the label of each node, or MISSING if it was not observed.
    features : a dict from names of terms to their features, for terms that have inputs. Features have one row per
        clique: all cliques of the first row of labels, then those of the second, and so on.
    weights : the weight of each sample, row by row; None if all weights are 1.
    statistics : None, or an array that is used instead of labels, with one column for each joint labelling of each
        clique. It has the probability of this labelling, if labels are soft. If each row represents many samples with
        the same inputs, it has the fraction of samples with this labelling.
    base : a dict from kinds of cliques to scores that are added and not learned, one row per clique; None if there are
        none.
    """

    inference: Inference
    labels: Labels
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    weights: Floats | None = None
    statistics: Floats | None = None
    base: Mapping[str, Array] | None = None

    @property
    def graph(self) -> Graph:
        """Return the graph that all rows of labels share."""
        return self.inference.graph

    @property
    def n_nodes(self) -> int:
        return int(self.labels.size)

    @cached_property
    def is_convex(self) -> bool:
        return self.statistics is not None or not (self.labels == MISSING).any()

    def _place(self, term: Term) -> slice:
        return self.graph.slices[term.cliques]

    def _rows(self, term: Term, tables: Array) -> Array:
        """Return the part of `tables` for a term's cliques, one row per clique and one column per joint labelling."""
        return tables[:, self._place(term)].reshape(-1, term.k_y.L)

    def _arrays(self, layout: Layout, tables: Array) -> dict[str, Array]:
        """Return a dict from kinds of cliques to views of `tables` with the axes [row, clique, joint labelling]."""
        sizes = {term.cliques: term.k_y.L for term in layout.terms}
        places = {name: self.graph.slices[name] for name in sizes}
        shapes = {name: ((place.stop - place.start) // sizes[name], sizes[name]) for name, place in places.items()}
        return {name: tables[:, place].reshape(len(tables), *shapes[name]) for name, place in places.items()}

    def _score(self, layout: Layout) -> Score:
        return Score(layout, self.features, NO_CHAINS)

    def tables(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> Floats:
        """Return the scores of all joint labellings of all cliques, for the parameters theta, without base scores.

        The result has one row per row of labels. The scores of one clique are next to each other.
        """
        return self.add_up(layout, self._score(layout).terms(theta, n_jobs))

    def add_up(self, layout: Layout, scores: Iterable[tuple[Term, Array]]) -> Floats:
        """Return the sum of the scores of all terms, in the shape that `tables` returns.

        scores : each term with one row of scores per clique, or with a single row for all cliques.
        """
        tables = np.zeros((len(self.labels), self.graph.n_entries))
        add_terms(self._arrays(layout, tables), scores, NO_CHAINS)
        return tables

    def with_base(self, layout: Layout, tables: Floats) -> Floats:
        """Add the base scores to `tables` in place, and return `tables`."""
        add_base(self._arrays(layout, tables), self.base)
        return tables

    def pull_back(self, layout: Layout, residual: Floats, n_jobs: int = 1) -> Floats:
        """Return the gradient with respect to the parameters theta.

        residual : the gradient with respect to the scores of cliques, in the shape that `tables` returns.
        """
        return self._score(layout).adjoint(self._arrays(layout, residual), n_jobs)

    @cached_property
    def _entry_weights(self) -> Floats | None:
        """Return, for each score, the weight of its sample, as an array that broadcasts to the result of `tables`.

        Return None if all weights are 1.
        """
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

    def _apply_weights(self, tables: Floats) -> Floats:
        return tables if self._entry_weights is None else tables * self._entry_weights

    def _loss(self, tables: Floats, n_jobs: int, curvature: bool) -> tuple[float, Loss]:
        if self.statistics is None:
            loss = self.inference.loss(tables, self.labels, n_jobs, curvature=curvature)
        else:
            loss = loss_of_statistics(self.inference, tables, self.statistics, n_jobs, curvature=curvature)
        return self.weighted_sum(loss.losses.ravel()), loss

    def losses(self, scores: Tables, n_jobs: int = 1) -> Floats:
        return self.weighted(self._loss(scores.t, n_jobs, curvature=False)[1].losses.ravel())

    def with_columns(self, term: Term, columns: Places) -> GraphPartition:
        return replace(self, features={**self.features, term.name: self.features[term.name].columns(columns)})

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        tables = self.with_base(layout, self.tables(layout, theta, n_jobs))
        return self.evaluate_at(layout, Tables(tables), n_jobs, curvature=curvature)

    def evaluate_at(
        self, layout: Layout, scores: Tables, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        value, loss = self._loss(scores.t, n_jobs, curvature)
        gradient = self.pull_back(layout, self._apply_weights(loss.residual), n_jobs)
        bound = None
        if loss.dual is not None:
            slope = self.pull_back(layout, self._apply_weights(loss.dual.residual), n_jobs)
            bound = LinearBound(self.weighted_sum(loss.dual.entropy.ravel()), slope)
        return Sums(value, gradient, bound), PartitionState(scores, loss)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Tables:
        return Tables(self.tables(layout, v, n_jobs))

    def along(self, scores: Tables, direction: Tables, n_jobs: int) -> tuple[float, float]:
        value, loss = self._loss(scores.t, n_jobs, curvature=False)
        return value, float(np.vdot(self._apply_weights(loss.residual), direction.t))

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        tangents = self.curvature(at).tangents(self.tables(layout, v, n_jobs), n_jobs)
        return self.pull_back(layout, self._apply_weights(tangents), n_jobs)

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        direction, p = self.tables(layout, v, n_jobs), at.residuals.marginals
        out = np.zeros_like(direction)
        for name, place in self.graph.slices.items():
            shape = (len(p), -1, int(np.prod(self.graph.shape(name))))
            marginals, d = p[:, place].reshape(shape), direction[:, place].reshape(shape)
            means = np.einsum("iks,iks->ik", marginals, d)[..., None]
            out[:, place] = (marginals * (d - means)).reshape(len(p), -1)
        return self.pull_back(layout, self._apply_weights(out), n_jobs)

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        return self.weighted_sum(self.inference.entropy(at.scores.t, n_jobs).ravel())

    def residual(self, term: Term, at: PartitionState) -> Array:
        # If inference returned a linear lower bound on the loss, its coefficients replace the gradient.
        residual = at.residuals.residual if at.residuals.dual is None else at.residuals.dual.residual
        return term.k_y.adjoint(self._rows(term, self._apply_weights(residual)))

    def spread(self, term: Term, at: PartitionState) -> Array:
        p = self._rows(term, at.residuals.marginals)
        # Rounding lets p exceed 1, and a large weight makes a negative variance greater than lam.
        return np.asarray(np.maximum(p * (1 - p), 0) * self.clique_weights(term)[:, None])

    def mass(self, term: Term) -> float:
        return float(self.clique_weights(term).sum())

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        # A clique counts once, even if several terms add to its table.
        tables = self._apply_weights(np.where(np.isfinite(at.scores.t), np.abs(at.scores.t), 0.0))
        places = {(self._place(term).start, self._place(term).stop, term.k_y.L) for term in layout.terms}
        blocks = [tables[:, start:stop].reshape(-1, size).max(axis=1) for start, stop, size in sorted(places)]
        return np.concatenate([np.zeros(0), *blocks])

    def clique_weights(self, term: Term) -> Floats:
        place, size = self._place(term), term.k_y.L
        n_cliques = (place.stop - place.start) // size
        if self._entry_weights is None:
            return np.ones(len(self.labels) * n_cliques)
        if self.graph.n_samples == 1:
            return np.repeat(self._entry_weights[:, 0], n_cliques)
        return self._entry_weights[:, place][:, ::size].ravel()
