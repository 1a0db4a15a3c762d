"""Labelled sequences whose parts the workers of a cluster hold: the same questions, answered by maps and sums.

Residuals meet Gram matrices of all pairs of parts for `gap_full`: the inputs of one part travel to the other, block by
block, and no part sees more than two at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from kernelcrf.basis.choice import capacity_for, find_rule
from kernelcrf.basis.distinct import Distinct
from kernelcrf.basis.factor import Basis, row_blocks
from kernelcrf.basis.features import FeatureMap, Features, PrimalMap, WhitenedMap
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.pivots import Rule, drive
from kernelcrf.basis.shards import SharedGrowth, own_inputs
from kernelcrf.certificate import GRAM_ROWS, feature_products
from kernelcrf.corpora.digest import digest_texts
from kernelcrf.corpora.sequences import LabelledSequences, atom_scores, nearest, out_of_span, residual_of, size_of
from kernelcrf.engines.cluster import Cluster, Handle, first, second
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import Array, InputKernel, Inputs
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.shards import Shards

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

# In place of handles of features, where the features are the inputs: they are then made with the partition.
INPUTS: Any = None


@dataclass(frozen=True, eq=False)
class SharedSequences:
    """Handles of `LabelledSequences`, a part each, and what is known of all of them."""

    cluster: Cluster
    parts: Sequence[Handle]
    n_labels: int
    n_features: int
    is_sparse: bool
    size: tuple[int, int]

    def digest(self) -> dict[str, str]:
        """Return digests of the data, computed by the workers and summed."""
        return digest_texts(self.cluster.sum(self.cluster.each(LabelledSequences.digest_words, self.parts)))

    def where(self) -> str:
        """Parts and workers."""
        return f"{len(self.parts)} parts on {self.cluster.status()}"

    def corpus(self, *, matched: bool) -> SharedCorpus:
        """With the distinct inputs of each part."""
        return SharedCorpus(self, matched)


@dataclass(frozen=True, eq=False)
class SharedCorpus:
    """Parts with their distinct inputs; an input that several parts have belongs to the first of them.

    What is not asked for is not made: a linear fit, whose features are the inputs, keeps no further copies of them.
    """

    data: SharedSequences
    matched: bool

    @cached_property
    def found(self) -> list[Handle]:
        """The distinct inputs of each part, and which of them a token has."""
        return self.cluster.each(_found, self.data.parts, shared=(self.matched,))

    @property
    def cluster(self) -> Cluster:
        """Where the parts are."""
        return self.data.cluster

    @property
    def n_labels(self) -> int:
        """L."""
        return self.data.n_labels

    @cached_property
    def inputs(self) -> list[Handle]:
        """Distinct inputs (u, d) of each part."""
        return self.cluster.each(_inputs, self.found)

    @cached_property
    def own(self) -> list[Handle]:
        """Places of those that no earlier part has."""
        return own_inputs(self.inputs, self.cluster)

    @cached_property
    def n_own(self) -> list[int]:
        """How many each part owns."""
        return self.cluster.fetch(self.cluster.each(len, self.own))

    @property
    def n_inputs(self) -> int:
        """U."""
        return sum(self.n_own)

    def features(
        self,
        kernel: InputKernel,
        n_components: int | None,
        rule: str | Rule,
        random_state: Any,
        engine: LocalEngine,
        start: Basis | None = None,
    ) -> Features:
        """Features of the distinct inputs; F is a list of handles, or None where they are the inputs themselves."""
        if kernel.name == "linear":
            return Features(PrimalMap(self.data.n_features), INPUTS, None)
        if start is None and (n_components is None or n_components >= self.n_inputs):
            n_components, rule = None, "exact"
        chosen = find_rule(rule, kernel, self.data.is_sparse)
        capacity = capacity_for(n_components, self.n_inputs, chosen, start)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
        growth = SharedGrowth(kernel, self.inputs, self.own, capacity, 0.0, self.cluster, start)
        drive(chosen, growth, rng)
        basis = growth.finish()
        return Features(WhitenedMap(kernel, basis.landmarks, basis.R), basis.F, basis)

    def carried_over(self, earlier: FeatureMap, kernel: InputKernel, engine: LocalEngine) -> Features:
        """The features of these inputs under an earlier map."""
        if isinstance(earlier, PrimalMap):
            return Features(earlier, INPUTS, None)
        F: Any = self.cluster.each(_transformed, self.inputs, shared=(earlier,))
        if not isinstance(earlier, WhitenedMap):
            return Features(earlier, F, None)
        pairs = self.cluster.each(_own_residual, self.inputs, F, self.own, shared=(kernel,))
        residual: Any = self.cluster.each(first, pairs)
        trace = float(self.cluster.sum(self.cluster.each(second, pairs)))
        return Features(earlier, F, Basis(earlier.landmarks, earlier.R, F, residual, None, trace))

    def partitions(self, by_template: Mapping[str, Features]) -> Sequence[Shards]:
        """One, of as many shards as there are parts."""
        names = tuple(by_template)
        columns: list[Any] = [features.F for features in by_template.values()]
        if all(F is INPUTS for F in columns):
            parts = self.cluster.each(_linear_partition, self.data.parts, shared=(self.matched, names))
        else:
            columns = [self.inputs if F is INPUTS else F for F in columns]
            parts = self.cluster.each(_partition, self.data.parts, self.found, *columns, shared=(names,))
        return [Shards(self.cluster, parts)]

    def gap_full(
        self, objective: Objective, at: Evaluation, by_template: Mapping[str, Features]
    ) -> tuple[float, Floats]:
        """Residuals of each part against blocks of K - F F' with every other."""
        gap, scores = objective.gap(at), np.zeros(self.n_inputs)
        shards = objective.partitions[0]
        if not isinstance(shards, Shards):
            raise TypeError(f"partition is of type {type(shards).__name__}: expected shards")
        for block in objective.layout.blocks:
            features = by_template.get(block.clique.name)
            if features is None or features.basis is None or block.clique.k_x is None:
                continue
            F: Any = features.F
            R = self.cluster.each(_summed, self.found, shards.residuals(block, at.parts[0]))
            scale = size_of(max(self.cluster.fetch(self.cluster.each(_largest, R))))
            R = self.cluster.each(np.divide, R, shared=(scale,))
            weights = self.cluster.sum(self.cluster.each(_weights, F, R))
            ER = self.cluster.each(_within, F, shared=(weights,))
            for shift in range(len(R)):
                # Each part meets another one in turn, so that all are at work.
                others = [(k + shift) % len(R) for k in range(len(R))]
                X, S = [self.inputs[k] for k in others], [R[k] for k in others]
                ER = self.cluster.each(_met, ER, self.inputs, X, S, shared=(block.clique.k_x,))
            square, n_rows, absolute = self.cluster.sum(self.cluster.each(_dots, R, ER))
            k_x = block.clique.k_x
            square = out_of_span(k_x, features.basis, float(square), absolute, int(n_rows))
            gap += 0.5 * (block.C * scale) * scale * square
            if block.clique.nodes == 1:
                residual: Any = features.basis.residual
                scores = np.concatenate(self.cluster.fetch(self.cluster.each(_scores, ER, self.own, residual)))
        return gap, scores

    def positions(self, features: Features, kernel: InputKernel, engine: LocalEngine) -> Places | None:
        """The first tokens of landmarks, or of the inputs nearest to them."""
        basis = features.basis
        if basis is None:
            return None
        if basis.indices is not None:
            offsets = np.concatenate([[0], np.cumsum(self.n_own)])
            part = np.searchsorted(offsets, basis.indices, side="right") - 1
            own = [basis.indices[part == k] - offsets[k] for k in range(len(self.n_own))]
            found = self.cluster.fetch(self.cluster.each(_places, self.data.parts, self.found, self.own, own))
            positions = np.empty((len(part), 2), np.intp)
            for k, places in enumerate(found):
                positions[part == k] = places
            return positions
        pairs = self.cluster.each(_nearest, self.data.parts, self.found, shared=(kernel, basis.landmarks))
        found = self.cluster.fetch(pairs)
        best = np.stack([distances for _, distances in found]).argmin(axis=0)
        return np.asarray(np.stack([places for places, _ in found])[best, np.arange(len(best))])


# What workers do with a part.


def _found(data: LabelledSequences, matched: bool) -> Distinct:
    return data.found(matched=matched)


def _inputs(found: Distinct) -> Inputs:
    return found.inputs


def _transformed(X: Inputs, map: FeatureMap) -> Inputs:
    return map.transform(X)


def _own_residual(X: Inputs, F: Array, own: Places, kernel: InputKernel) -> tuple[Floats, float]:
    return residual_of(kernel, X[own], F[own])


def _partition(data: LabelledSequences, found: Distinct, *features: Any) -> ChainPartition:
    *columns, names = features
    tokens = {name: TokenFeatures.of(found, F) for name, F in zip(names, columns, strict=True)}
    return data.partition(tokens)


def _linear_partition(data: LabelledSequences, matched: bool, names: tuple[str, ...]) -> ChainPartition:
    found = data.found(matched=matched)
    return _partition(data, found, *[found.inputs] * len(names), names)


def _summed(found: Distinct, residual: Array) -> Floats:
    return np.asarray(found.sum(np.ascontiguousarray(residual).reshape(len(residual), -1)), np.float64)


def _largest(R: Floats) -> float:
    return float(np.abs(R).max(initial=0.0))


def _weights(F: Array, R: Floats) -> Floats:
    return feature_products(F, R)


def _within(F: Array, weights: Floats) -> Floats:
    return -np.concatenate([np.empty((0, weights.shape[1])), *(F[rows] @ weights for rows in row_blocks(len(F)))])


def _met(ER: Floats, X: Inputs, others: Inputs, R: Floats, kernel: InputKernel) -> Floats:
    """ER + K(X, others) R, by blocks of K."""
    total = ER.copy()
    for low in range(0, X.shape[0], GRAM_ROWS):
        rows = slice(low, low + GRAM_ROWS)
        for begin in range(0, others.shape[0], GRAM_ROWS):
            columns = slice(begin, begin + GRAM_ROWS)
            total[rows] += kernel.gram(in_double(X[rows]), in_double(others[columns])) @ R[columns]
    return total


def _dots(R: Floats, ER: Floats) -> Array:
    """<R, ER>, the number of rows, and |R| summed over them."""
    return np.array([np.vdot(R, ER), len(R), np.abs(R).sum(axis=0)], object)


def _scores(ER: Floats, own: Places, residual: Floats) -> Floats:
    return atom_scores(ER[own], residual)


def _places(data: LabelledSequences, found: Distinct, own: Places, chosen: Places) -> Places:
    return data.places(found.first[own[chosen]])


def _nearest(
    data: LabelledSequences, found: Distinct, kernel: InputKernel, landmarks: Inputs
) -> tuple[Places, npt.NDArray[np.floating]]:
    rows, distances = nearest(kernel, landmarks, found.inputs, LocalEngine(1))
    return data.places(found.first[rows]), distances
