"""Labelled sequences on the workers of a cluster, with their distinct inputs.

`gap_full`, the optimality gap over all functions of the kernel, needs kernel values between all pairs of inputs. The
inputs of each part of the data are therefore sent to all workers, one part at a time. A worker then needs its own
inputs and those of a single other part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from kernelcrf.arrays import Array, Config, Floats, Inputs, Places, UserData, is_sparse
from kernelcrf.basis.builder import Rule
from kernelcrf.basis.choice import capacity_for, find_rule
from kernelcrf.basis.distinct_inputs import Distinct, distinct, each
from kernelcrf.basis.factor import Basis, row_blocks, stack
from kernelcrf.basis.features import FeatureMap, Features, PrimalMap, WhitenedMap, zero_kernel
from kernelcrf.basis.pairs import Pairs
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.pivots import drive
from kernelcrf.basis.recomputed_features import FeatureRows, RecomputedFeatures, compute_rows
from kernelcrf.certificate import GRAM_ROWS, feature_products
from kernelcrf.distributed.basis import DistributedBasisBuilder, find_new_inputs
from kernelcrf.distributed.cluster import Cluster, Handle, Value, first, method, second
from kernelcrf.distributed.partition import DistributedPartition
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import (
    Corpus,
    WholeGap,
    atom_scores,
    can_omit_pairs,
    input_of,
    observed_pairs,
    out_of_span,
    residual_of,
    size_of,
)
from kernelcrf.fitting.digest import digest_texts
from kernelcrf.fitting.sequences import LabelledSequences, divide, nearest
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.partition import PartitionState, RowPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term

# Used instead of handles if the features are the inputs themselves; these are loaded together with the partition.
INPUTS: Value = None


@dataclass(frozen=True, eq=False)
class DistributedSequences(Corpus):
    """Labelled sequences that are divided among the workers of a cluster.

    If an input occurs in several parts, only the first of these parts counts it. Distinct inputs are searched for only
    when they are needed. A fit with the linear kernel does not need them, and stores no copies of the inputs.

    parts : for each part of the data, a handle that refers to `LabelledSequences` on a worker.
    """

    cluster: Cluster
    parts: Sequence[Handle]
    n_labels: int
    n_features: int
    is_sparse: bool
    legal: Legal | None = None

    @cached_property
    def distinct_inputs(self) -> Sequence[Handle]:
        """Return handles to `Distinct` objects on the workers, one per part of the data.

        Such an object has the distinct inputs of its part and, for each token, the index of its input.
        """
        return self.cluster.each(_find_distinct, self.parts)

    def n_columns(self, name: str) -> int:
        return self.n_features

    def digest(self) -> Config:
        words = self.cluster.sum(method("digest_words"), self.parts)
        return digest_texts(words, self.legal)

    def where(self) -> str:
        return f"{len(self.parts)} parts on {self.cluster.status()}"

    @cached_property
    def inputs(self) -> Sequence[Handle]:
        """Return handles to the matrices of distinct inputs on the workers, one per part of the data."""
        return self.cluster.each(attrgetter("inputs"), self.distinct_inputs)

    @cached_property
    def new_inputs(self) -> Sequence[Handle]:
        """Return handles to arrays of indices on the workers, one per part of the data.

        The indices select those inputs of the part that do not occur in an earlier part.
        """
        return find_new_inputs(self.inputs, self.cluster)

    @cached_property
    def n_new_inputs(self) -> list[int]:
        """Return, for each part of the data, the number of inputs that do not occur in an earlier part."""
        return self.cluster.fetch(self.cluster.each(len, self.new_inputs))

    def n_inputs(self, term: Term) -> int:
        return sum(self.n_new_inputs)

    def has_room(self, n_values: int) -> bool:
        return self.cluster.fits(8 * n_values)

    def features(
        self,
        term: Term,
        n: int | None,
        rule: str | Rule,
        seed: UserData,
        engine: LocalEngine,
        start: Basis | None,
        *,
        stored: bool = True,
    ) -> Features:
        # The field F of the result is a list with one handle per part, or INPUTS.
        kernel = input_of(term)[1]
        if kernel.is_linear:
            return Features(PrimalMap(self.n_features), INPUTS, None)
        n_inputs = self.n_inputs(term)
        if start is None and (n is None or n >= n_inputs):
            n, rule = None, "exact"
        chosen = find_rule(rule, kernel, self.is_sparse)
        capacity = capacity_for(n, n_inputs, chosen, start)
        rng = np.random.default_rng(check_random_state(seed).randint(2**31, size=4))
        builder = DistributedBasisBuilder(
            kernel, self.inputs, self.new_inputs, capacity, self.cluster, start, stored=stored
        )
        if not builder.remaining and start is None:
            raise zero_kernel(kernel)
        drive(chosen, builder, rng)
        basis = builder.finish()
        return Features(WhitenedMap(kernel, basis.landmarks, basis.R), basis.F, basis)

    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine, *, stored: bool = True) -> Features:
        if not isinstance(earlier, WhitenedMap):
            return Features(earlier, INPUTS, None)
        F: Value = self.cluster.each(_transform if stored else _recompute, self.inputs, shared=(earlier,))
        pairs = self.cluster.each(_residual_of_new, self.inputs, F, self.new_inputs, shared=(input_of(term)[1],))
        residual: Value = self.cluster.each(first, pairs)
        trace = float(self.cluster.sum(second, pairs))
        return Features(earlier, F, Basis(earlier.landmarks, earlier.R, F, residual, None, trace))

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[DistributedPartition]:
        pairs = {term.name: term.pairs for term in terms if term.name in features}
        columns: list[Value] = [term_features.F for term_features in features.values()]
        if all(F is INPUTS for F in columns):
            parts = self.cluster.each(_linear_partition, self.parts, shared=(pairs,))
        else:
            columns = [self.inputs if F is INPUTS else F for F in columns]
            parts = self.cluster.each(_partition, self.parts, self.distinct_inputs, *columns, shared=(pairs,))
        return [DistributedPartition(self.cluster, parts)]

    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[LabelledSequences, LabelledSequences]]:
        """Fetch some sequences from the workers, and return folds: pairs of training and held-out data.

        All folds together have about `n_tokens` tokens, or about `n_few` tokens if there are five folds. The tokens and
        the folds are the same as for data in one process.
        """
        drawn: list[Any] = self.cluster.fetch(self.cluster.each(method("draw"), self.parts, shared=(n_tokens,)))
        keys, fifths = (np.concatenate([one[k] for one in drawn]) for k in (1, 2))
        return divide(self._join([one[0] for one in drawn]), keys, fifths, n_tokens, n_few)

    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        value, shares, scores = objective.gap(at), {}, {}
        partition = cast(DistributedPartition, objective.partitions[0])
        for term in objective.layout.terms:
            term_features = features.get(term.name)
            if term_features is None or term_features.basis is None or term.kernel is None:
                continue
            F: Value = term_features.F
            residual: Value = term_features.basis.residual
            states = at.parts[0].residuals()
            R = self.cluster.each(_sum_residual, self.distinct_inputs, partition.parts, states, shared=(term,))
            scale = size_of(max(self.cluster.fetch(self.cluster.each(_largest, R))))
            R = self.cluster.each(np.divide, R, shared=(scale,))
            weights = self.cluster.sum(feature_products, F, R)
            ER = self.cluster.each(_subtract_span, F, shared=(weights,))
            for X, S in zip(self.inputs, R, strict=True):
                ER = self.cluster.each(_add_products, ER, self.inputs, shared=(X, S, term.kernel))
            square, n_rows, absolute = self.cluster.sum(_dots, R, ER)
            square = out_of_span(term.kernel, term_features.basis, float(square), absolute, int(n_rows))
            shares[term.name] = 0.5 * (term.C * scale) * scale * square
            value += shares[term.name]
            scores[term.name] = np.concatenate(
                self.cluster.fetch(self.cluster.each(_scores, ER, self.new_inputs, residual))
            )
        return WholeGap(value, shares, scores)

    def observed(self, term: Term, least: float) -> Pairs | None:
        if not can_omit_pairs(term, self.is_sparse):
            return None
        return observed_pairs(self.cluster.sum(method("frequencies"), self.parts, shared=(term,)), least)

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        basis = features.basis
        if basis is None:
            return None
        if basis.indices is not None:
            offsets = np.concatenate([[0], np.cumsum(self.n_new_inputs)])
            part = np.searchsorted(offsets, basis.indices, side="right") - 1
            indices_by_part = [basis.indices[part == k] - offsets[k] for k in range(len(self.n_new_inputs))]
            positions = self.cluster.fetch(
                self.cluster.each(_places, self.parts, self.distinct_inputs, self.new_inputs, indices_by_part)
            )
            return np.concatenate(positions)[np.argsort(np.argsort(part, kind="stable"))]
        pairs = self.cluster.each(
            _nearest, self.parts, self.distinct_inputs, shared=(input_of(term)[1], basis.landmarks)
        )
        candidates = self.cluster.fetch(pairs)
        best = np.stack([distances for _, distances in candidates]).argmin(axis=0)
        return np.asarray(np.stack([places for places, _ in candidates])[best, np.arange(len(best))])

    def _join(self, parts: Sequence[LabelledSequences]) -> LabelledSequences:
        """Join the sequences of all parts, in the order of the parts."""
        return join_parts(parts)


def join_parts(parts: Sequence[LabelledSequences]) -> LabelledSequences:
    """Join the sequences of all parts, in the order of the parts."""
    chains = Chains.from_lengths(np.concatenate([part.chains.lengths for part in parts]))
    labels, n_labels = np.concatenate([part.labels for part in parts]), parts[0].n_labels
    allowed = [np.eye(n_labels, dtype=bool)[part.labels] if part.allowed is None else part.allowed for part in parts]
    weights = [np.ones(part.chains.n_samples) if part.weights is None else part.weights for part in parts]
    return LabelledSequences(
        stack([part.X for part in parts]),
        replace(chains, numbers=np.concatenate([part.chains.numbers for part in parts])),
        labels,
        n_labels,
        None if (labels >= 0).all() else np.concatenate(allowed),
        None if all(part.weights is None for part in parts) else np.concatenate(weights),
        parts[0].legal,
    )


# A worker calls the functions below with one part.


def _find_distinct(data: LabelledSequences) -> Distinct:
    return distinct(data.X)


def _transform(X: Inputs, map: FeatureMap) -> Inputs:
    return map.transform(X)


def _recompute(X: Inputs, map: WhitenedMap) -> RecomputedFeatures:
    return map.recompute(X)


def _residual_of_new(X: Inputs, F: FeatureRows, indices: Places, kernel: InputKernel) -> tuple[Floats, float]:
    return residual_of(kernel, X[indices], F[indices])


def _partition(data: LabelledSequences, distinct_inputs: Distinct, *features: Value) -> RowPartition:
    *columns, pairs = features
    rows = (TokenFeatures.of(distinct_inputs, F) for F in columns)
    return data.partition({name: tokens.with_pairs(pairs[name]) for name, tokens in zip(pairs, rows, strict=True)})


def _linear_partition(data: LabelledSequences, pairs: dict[str, Pairs | None]) -> RowPartition:
    distinct_inputs = each(data.X) if is_sparse(data.X) else distinct(data.X)
    return _partition(data, distinct_inputs, *[distinct_inputs.inputs] * len(pairs), pairs)


def _sum_residual(distinct_inputs: Distinct, part: RowPartition, state: PartitionState, term: Term) -> Floats:
    residual = part.residual(term, state)
    return np.asarray(distinct_inputs.sum(np.ascontiguousarray(residual).reshape(len(residual), -1)), np.float64)


def _largest(R: Floats) -> float:
    return float(np.abs(R).max(initial=0.0))


def _subtract_span(F: FeatureRows, weights: Floats) -> Floats:
    products = [compute_rows(F, rows) @ weights for rows in row_blocks(len(F))]
    return -np.concatenate([np.empty((0, weights.shape[1])), *products])


def _add_products(ER: Floats, X: Inputs, others: Inputs, R: Floats, kernel: InputKernel) -> Floats:
    """Add the product K R to the array ER, and return the sum as a new array.

    K is the kernel matrix between X and `others`, and is computed block by block. R has one row per row of `others`.
    """
    total = ER.copy()
    for rows in row_blocks(X.shape[0], GRAM_ROWS):
        for columns in row_blocks(others.shape[0], GRAM_ROWS):
            total[rows] += kernel.gram(in_double(X[rows]), in_double(others[columns])) @ R[columns]
    return total


def _dots(R: Floats, ER: Floats) -> Array:
    """Return the inner product of the arrays R and ER, the number of rows of R, and the sum of |R| in each column."""
    return np.array([np.vdot(R, ER), len(R), np.abs(R).sum(axis=0)], object)


def _scores(ER: Floats, indices: Places, residual: Floats) -> Floats:
    return atom_scores(ER[indices], residual)


def _places(data: LabelledSequences, distinct_inputs: Distinct, indices: Places, chosen: Places) -> Places:
    return data.places(distinct_inputs.first[indices[chosen]])


def _nearest(
    data: LabelledSequences, distinct_inputs: Distinct, kernel: InputKernel, landmarks: Inputs
) -> tuple[Places, npt.NDArray[np.floating]]:
    rows, distances = nearest(kernel, landmarks, distinct_inputs.inputs, LocalEngine(1))
    return data.places(distinct_inputs.first[rows]), distances
