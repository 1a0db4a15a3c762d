"""Labelled samples on the workers of a cluster.

A worker has each part of the data as a `LocalCorpus`, such as sequences or graphs, and does with it what a fit in one
process does with all data.

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
from kernelcrf.basis.factor import Basis, row_blocks
from kernelcrf.basis.features import FeatureMap, Features, PrimalMap, WhitenedMap, zero_kernel
from kernelcrf.basis.pairs import Pairs
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.pivots import drive
from kernelcrf.basis.recomputed_features import FeatureRows, RecomputedFeatures, compute_rows
from kernelcrf.certificate import GRAM_ROWS, feature_products
from kernelcrf.distributed.basis import DistributedBasisBuilder
from kernelcrf.distributed.cluster import Cluster, Handle, Value, first, method, second
from kernelcrf.distributed.inputs import DistributedInputs, describe, stack_inputs
from kernelcrf.distributed.partition import DistributedPartition
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import (
    Corpus,
    LocalCorpus,
    WholeGap,
    atom_scores,
    can_omit_pairs,
    input_of,
    observed_pairs,
    out_of_span,
    residual_of,
    sharing_inputs,
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
class DistributedCorpus(Corpus):
    """Labelled samples that are divided among the workers of a cluster.

    A fit with the linear kernel needs no distinct inputs, and stores no copies of the inputs.

    parts : for each part of the data, a handle that refers to a `LocalCorpus` on a worker.
    """

    cluster: Cluster
    parts: Sequence[Handle]

    @cached_property
    def _inputs(self) -> dict[str, DistributedInputs]:
        return {}

    def inputs(self, name: str) -> DistributedInputs:
        """Return the inputs called `name`; inputs that read the same matrix share one object."""
        if name not in self._inputs:
            shared_name, n_columns, sparse = self.cluster.fetch(
                self.cluster.each(describe, self.parts[:1], shared=(name,))
            )[0]
            matrix = DistributedInputs(self.cluster, self.parts, shared_name, n_columns, sparse)
            self._inputs[name] = self._inputs.setdefault(shared_name, matrix)
        return self._inputs[name]

    def inputs_of(self, term: Term) -> DistributedInputs:
        """Return the inputs of a term, which must have inputs."""
        return self.inputs(input_of(term)[0])

    def n_columns(self, name: str) -> int:
        return self.inputs(name).n_columns

    @property
    def n_tokens(self) -> int:
        return int(self.cluster.sum(attrgetter("n_tokens"), self.parts)) if len(self.parts) else 0

    def is_sparse(self, name: str) -> bool:
        return self.inputs(name).is_sparse

    def where(self) -> str:
        return f"{len(self.parts)} parts on {self.cluster.status()}"

    def n_inputs(self, term: Term) -> int:
        return sum(self.inputs_of(term).n_new)

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
        kernel, inputs = input_of(term)[1], self.inputs_of(term)
        if kernel.is_linear:
            return Features(PrimalMap(inputs.n_columns), INPUTS, None)
        n_inputs = sum(inputs.n_new)
        if start is None and (n is None or n >= n_inputs):
            n, rule = None, "exact"
        chosen = find_rule(rule, kernel, inputs.is_sparse)
        capacity = capacity_for(n, n_inputs, chosen, start)
        rng = np.random.default_rng(check_random_state(seed).randint(2**31, size=4))
        builder = DistributedBasisBuilder(
            kernel, inputs.matrices, inputs.new, capacity, self.cluster, start, stored=stored
        )
        if not builder.remaining and start is None:
            raise zero_kernel(kernel)
        drive(chosen, builder, rng)
        basis = builder.finish()
        return Features(WhitenedMap(kernel, basis.landmarks, basis.R), basis.F, basis)

    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine, *, stored: bool = True) -> Features:
        if not isinstance(earlier, WhitenedMap):
            return Features(earlier, INPUTS, None)
        kernel, inputs = input_of(term)[1], self.inputs_of(term)
        F: Value = self.cluster.each(_transform if stored else _recompute, inputs.matrices, shared=(earlier,))
        pairs = self.cluster.each(_residual_of_new, inputs.matrices, F, inputs.new, shared=(kernel,))
        residual: Value = self.cluster.each(first, pairs)
        trace = float(self.cluster.sum(second, pairs))
        return Features(earlier, F, Basis(earlier.landmarks, earlier.R, F, residual, None, trace))

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[DistributedPartition]:
        named = {term.name: self.inputs_of(term) for term in terms if term.name in features}
        distinct_inputs: list[Sequence[Value]] = []
        columns: list[Sequence[Value]] = []
        for name, inputs in named.items():
            F: Value = features[name].F
            # Without landmarks, a worker looks for distinct inputs while it makes the partition, and keeps no copy.
            is_known = F is not INPUTS or inputs.has_distinct
            distinct_inputs.append(inputs.distinct if is_known else [None] * len(self.parts))
            columns.append([None] * len(self.parts) if F is INPUTS else F)
        matrices = {name: inputs.name for name, inputs in named.items()}
        parts = self.cluster.each(_partition, self.parts, *distinct_inputs, *columns, shared=(list(terms), matrices))
        return [DistributedPartition(self.cluster, parts)]

    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        value, shares, scores = objective.gap(at), {}, {}
        partition = cast(DistributedPartition, objective.partitions[0])
        states = None
        for terms in sharing_inputs(objective.layout.terms):
            of_group, (_, kernel), inputs = features[terms[0].name], input_of(terms[0]), self.inputs_of(terms[0])
            if of_group.basis is None:
                continue
            F: Value = of_group.F
            residual: Value = of_group.basis.residual
            states = at.parts[0].residuals() if states is None else states
            R = self.cluster.each(_sum_residuals, inputs.distinct, partition.parts, states, shared=(terms,))
            largest = np.max(self.cluster.fetch(self.cluster.each(_largest, R)), axis=0)
            scales = [size_of(float(one)) for one in largest]
            R = self.cluster.each(_scaled, R, shared=(scales,))
            S = self.cluster.each(np.hstack, R)
            weights = self.cluster.sum(feature_products, F, S)
            ER = self.cluster.each(_subtract_span, F, shared=(weights,))
            for X, S_of_part in zip(inputs.matrices, S, strict=True):
                ER = self.cluster.each(_add_products, ER, inputs.matrices, shared=(X, S_of_part, kernel))
            factors = [(term.C * scale) * scale for term, scale in zip(terms, scales, strict=True)]
            top, share = max(factors), 0.0
            for factor, (square, n_rows, absolute) in zip(factors, self.cluster.sum(_dots, R, ER), strict=True):
                norm = out_of_span(kernel, of_group.basis, float(square), absolute, int(n_rows))
                share += 0.5 * factor * norm
            ratios = [factor / top if 0 < top < np.inf else 1.0 for factor in factors]
            widths = [term.k_y.rank for term in terms]
            value += share
            shares[terms[0].name] = share
            scores[terms[0].name] = np.concatenate(
                self.cluster.fetch(self.cluster.each(_scores, ER, inputs.new, residual, shared=(widths, ratios)))
            )
        return WholeGap(value, shares, scores)


@dataclass(frozen=True, eq=False)
class DistributedSequences(DistributedCorpus):
    """Labelled sequences that are divided among the workers of a cluster.

    parts : for each part of the data, a handle that refers to `LabelledSequences` on a worker.
    legal : constraints on labellings, or None.
    """

    legal: Legal | None = None

    def digest(self) -> Config:
        words = self.cluster.sum(method("digest_words"), self.parts)
        return digest_texts(words, self.legal)

    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[LabelledSequences, LabelledSequences]]:
        """Fetch some sequences from the workers, and return folds: pairs of training and held-out data.

        All folds together have about `n_tokens` tokens, or about `n_few` tokens if there are five folds. The tokens and
        the folds are the same as for data in one process.
        """
        drawn: list[Any] = self.cluster.fetch(self.cluster.each(method("draw"), self.parts, shared=(n_tokens,)))
        keys, fifths = (np.concatenate([one[k] for one in drawn]) for k in (1, 2))
        return divide(self._join([one[0] for one in drawn]), keys, fifths, n_tokens, n_few)

    def observed(self, term: Term, least: float) -> Pairs | None:
        if not can_omit_pairs(term, term.input is not None and self.inputs_of(term).is_sparse):
            return None
        return observed_pairs(self.cluster.sum(method("frequencies"), self.parts, shared=(term,)), least)

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        basis = features.basis
        if basis is None:
            return None
        inputs = self.inputs_of(term)
        if basis.indices is not None:
            offsets = np.concatenate([[0], np.cumsum(inputs.n_new)])
            part = np.searchsorted(offsets, basis.indices, side="right") - 1
            indices_by_part = [basis.indices[part == k] - offsets[k] for k in range(len(inputs.n_new))]
            positions = self.cluster.fetch(
                self.cluster.each(_places, self.parts, inputs.distinct, inputs.new, indices_by_part)
            )
            return np.concatenate(positions)[np.argsort(np.argsort(part, kind="stable"))]
        pairs = self.cluster.each(_nearest, self.parts, inputs.distinct, shared=(input_of(term)[1], basis.landmarks))
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
        stack_inputs([part.X for part in parts]),
        replace(chains, numbers=np.concatenate([part.chains.numbers for part in parts])),
        labels,
        n_labels,
        None if (labels >= 0).all() else np.concatenate(allowed),
        None if all(part.weights is None for part in parts) else np.concatenate(weights),
        parts[0].legal,
    )


# A worker calls the functions below with one part.


def _transform(X: Inputs, map: FeatureMap) -> Inputs:
    return map.transform(X)


def _recompute(X: Inputs, map: WhitenedMap) -> RecomputedFeatures:
    return map.recompute(X)


def _residual_of_new(X: Inputs, F: FeatureRows, indices: Places, kernel: InputKernel) -> tuple[Floats, float]:
    return residual_of(kernel, X[indices], F[indices])


def _partition(data: LocalCorpus, *values: Value) -> RowPartition:
    """Return one part of the data as a partition.

    values : first the distinct inputs of each term that has inputs, or None if they are not known. Then the features of
        these terms, or None if they are the distinct inputs. Then all terms, and a dict from the names of the terms
        that have inputs to the names of their matrices.
    """
    *columns, terms, matrices = values
    n, rows = len(matrices), dict[str, TokenFeatures]()
    made: dict[str, Distinct] = {}
    for (name, matrix), known, F in zip(matrices.items(), columns[:n], columns[n:], strict=True):
        if known is None and matrix not in made:
            X = data.rows(matrix)
            made[matrix] = each(X) if is_sparse(X) else distinct(X)
        distinct_inputs = made[matrix] if known is None else known
        rows[name] = TokenFeatures.of(distinct_inputs, distinct_inputs.inputs if F is None else F)
    return data.partition(terms, rows)


def _sum_residuals(
    distinct_inputs: Distinct, part: RowPartition, state: PartitionState, terms: Sequence[Term]
) -> list[Floats]:
    residuals = (part.residual(term, state) for term in terms)
    return [np.asarray(distinct_inputs.sum(np.ascontiguousarray(R).reshape(len(R), -1)), np.float64) for R in residuals]


def _largest(R: list[Floats]) -> list[float]:
    return [float(np.abs(one).max(initial=0.0)) for one in R]


def _scaled(R: list[Floats], scales: list[float]) -> list[Floats]:
    return [one / scale for one, scale in zip(R, scales, strict=True)]


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


def _columns(ER: Floats, widths: Sequence[int]) -> list[Floats]:
    """Return the columns of each term."""
    return np.split(ER, np.cumsum(widths)[:-1], axis=1)


def _dots(R: list[Floats], ER: Floats) -> Array:
    """Return one row per term: the inner product of its columns of R and E R, their number of rows, and column sums.

    The column sums are those of |R|.
    """
    pairs = zip(R, _columns(ER, [one.shape[1] for one in R]), strict=True)
    table = np.empty((len(R), 3), object)
    for k, (one, columns) in enumerate(pairs):
        table[k] = np.vdot(one, columns), len(one), np.abs(one).sum(axis=0)
    return table


def _scores(ER: Floats, indices: Places, residual: Floats, widths: list[int], ratios: list[float]) -> Floats:
    total = np.zeros(len(indices))
    for columns, ratio in zip(_columns(ER[indices], widths), ratios, strict=True):
        total += ratio * atom_scores(columns, residual)
    return total


def _places(data: LabelledSequences, distinct_inputs: Distinct, indices: Places, chosen: Places) -> Places:
    return data.places(distinct_inputs.first[indices[chosen]])


def _nearest(
    data: LabelledSequences, distinct_inputs: Distinct, kernel: InputKernel, landmarks: Inputs
) -> tuple[Places, npt.NDArray[np.floating]]:
    rows, distances = nearest(kernel, landmarks, distinct_inputs.inputs, LocalEngine(1))
    return data.places(distinct_inputs.first[rows]), distances
