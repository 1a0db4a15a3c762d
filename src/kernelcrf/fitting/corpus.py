"""The problem that a fit solves: the terms of a score, and a corpus of labelled samples.

The samples are in this process or on a cluster. The fit only finds functions in the span of the landmarks. The bound
`gap_full` also covers all other functions of the kernel. Let K be the kernel matrix of the distinct inputs, and F their
features, one row per input. Let R be the derivatives of the loss with respect to the scores of a term, summed for each
distinct input. The gradient outside the span is E R, where E = K - F F'. The term adds C / 2 <R, E R> to `gap_full`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.builder import Rule
from kernelcrf.basis.distinct_inputs import Distinct, distinct, each
from kernelcrf.basis.factor import EXCESS, INDEFINITE, Basis, not_a_kernel, row_blocks
from kernelcrf.basis.features import FeatureMap, Features, WhitenedMap, features_of
from kernelcrf.basis.pairs import Pairs
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.recomputed_features import FeatureRows, compute_rows
from kernelcrf.certificate import residual_products
from kernelcrf.engines.local import LocalEngine
from kernelcrf.engines.memory import memory_limit
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.partition import Partition, RowPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term

# One of HELD_OUT samples is held out to choose C. If there are fewer than FEW samples, each of them is held out once.
HELD_OUT, FEW = 5, 50
# Features are stored if they need at most this share of the memory. A fit also holds inputs, scores and its model.
STORED_SHARE = 0.5

# Names of terms, in groups; the terms of a group share one prior variance C.
Groups: TypeAlias = Sequence[Collection[str]]


@dataclass(frozen=True, eq=False)
class WholeGap:
    """The gap between the objective and a lower bound on its minimum over all functions of the kernels.

    Terms with the same features form a group, which has the name of its first term.

    value : the gap. If the objective is not convex, this is no bound, but a measure of the distance from a stationary
        point.
    shares : a dict from names of groups to parts of the gap: what functions outside the span of the landmarks add.
    scores : a dict from names of groups to arrays: for each distinct input, how much it would help as a landmark.
    """

    value: float
    shares: dict[str, float]
    scores: dict[str, Floats]


class Corpus(ABC):
    """Labelled samples with one or more named matrices of inputs; equal rows of a matrix are processed only once."""

    @abstractmethod
    def n_inputs(self, term: Term) -> int:
        """Return the number of distinct inputs of a term."""

    @abstractmethod
    def n_columns(self, name: str) -> int:
        """Return the number of columns of the inputs called `name`."""

    @abstractmethod
    def is_sparse(self, name: str) -> bool:
        """Return whether the inputs called `name` are sparse."""

    @abstractmethod
    def digest(self) -> dict[str, Any]:
        """Return digests of all data on which the objective depends; a checkpoint uses them to recognise the data."""

    @abstractmethod
    def has_room(self, n_values: int) -> bool:
        """Return whether the place where the data are has enough memory to store this many numbers of features."""

    @abstractmethod
    def features(
        self,
        term: Term,
        n: int | None,
        rule: str | Rule,
        seed: Any,
        engine: LocalEngine,
        start: Basis | None,
        *,
        stored: bool = True,
    ) -> Features:
        """Choose n landmarks for a term, and return its features; if n is None, all distinct inputs become landmarks.

        start : an earlier basis to which landmarks are added, or None.
        stored : whether features are stored; if not, they are computed each time they are needed.
        """

    @abstractmethod
    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine, *, stored: bool = True) -> Features:
        """Apply the feature map of an earlier fit to the inputs of a term, and return their features."""

    @abstractmethod
    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[Partition]:
        """Return the samples, divided into partitions, with the cliques and features of the given terms."""

    @abstractmethod
    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        """Return the gap of the weights `at` to the optimum among all functions of the kernels.

        This includes functions outside the span of the landmarks.
        """

    @abstractmethod
    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[Corpus, Corpus]]:
        """Return folds, each as a pair: four fifths of the samples for training, and a fifth that is held out.

        With 50 samples or more, there is one fold. With fewer samples, there are five folds, because a fifth of a few
        samples may differ much from the others. With fewer than five samples, there is no fold. Some tokens may be left
        out if all folds together would have more than `n_tokens` tokens, or `n_few` tokens if there are five folds.
        """

    def blocks(self) -> Places | None:
        """Return the number of the block of each sample; None if all samples are one block.

        The log-likelihoods of two models are compared block by block.
        """
        return None

    @property
    def n_groups(self) -> int:
        """Return the number of samples, or of groups of samples that are held out together."""
        raise NotImplementedError

    @property
    def n_tokens(self) -> int:
        """Return the number of labelled tokens, rows or nodes."""
        raise NotImplementedError

    def observed(self, term: Term, least: float) -> Pairs | None:
        """Return the pairs (feature, label) of a term that occur in the data at least `least` times.

        Return None if every pair must have a weight, because features are dense or labels are not compared by "delta".
        """
        return None

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        """Return the position of each landmark in the data: the index of a sequence, and of a token in this sequence.

        A landmark that is not an input gets the position of the nearest input. Return None if there are no landmarks,
        or if samples are not sequences.
        """
        return None

    def where(self) -> str:
        """Return a text for progress bars that says where the data are, or "" if the data are in this process."""
        return ""


@dataclass(frozen=True, eq=False)
class Problem:
    """The terms of a score, and the data to which their weights are fitted.

    The terms do not have features yet: the fit chooses the number of features.

    least_counts : a dict from names of terms to numbers: how often a pair must occur in the data to have a weight. A
        pair is a feature and a label, or two labels. Terms that are not in the dict have a weight for every pair.
    """

    terms: Sequence[Term]
    corpus: Corpus
    least_counts: Mapping[str, float] = field(default_factory=dict)

    def only(self, cliques: Collection[str]) -> Problem:
        """Return a copy of the problem that has only the terms on the given kinds of cliques."""
        return replace(self, terms=[term for term in self.terms if term.cliques in cliques])

    def without(self, names: Collection[str]) -> Problem:
        """Return a copy of the problem that does not have the named terms."""
        return replace(self, terms=[term for term in self.terms if term.name not in names])

    def only_observed(self) -> Problem:
        """Return a copy of the problem with weights only for pairs that occur as often as `least_counts` demands.

        If an earlier model is the prior, pairs that have a weight in this model keep the weight.
        """
        least = self.least_counts
        pairs = {term.name: self.corpus.observed(term, least[term.name]) for term in self.terms if term.name in least}
        for term in self.terms:
            observed, required = pairs.get(term.name), term.penalty.required
            if observed is not None and required is not None:
                pairs[term.name] = observed.with_places(required)
        return replace(self, terms=[replace(term, pairs=pairs.get(term.name, term.pairs)) for term in self.terms])

    def on(self, corpus: Corpus) -> Problem:
        """Return the problem for other samples.

        Terms that have weights only for observed pairs get the pairs of these samples.
        """
        return replace(self, corpus=corpus).only_observed()

    def changed(self, names: Collection[str], **changes: Any) -> Problem:
        """Return a copy of the problem in which the named terms have a new prior variance `C` or input `kernel`."""
        return replace(self, terms=[replace(term, **changes) if term.name in names else term for term in self.terms])

    def with_variances(self, groups: Groups, Cs: Iterable[float]) -> Problem:
        """Return a copy of the problem in which the terms of each group have a new prior variance C."""
        problem = self
        for names, C in zip(groups, Cs, strict=True):
            problem = problem.changed(names, C=float(C))
        return problem


def folds(n_samples: int, least: int = HELD_OUT) -> Sequence[Flags]:
    """Return one array per fold, whose flags are True for held-out samples; `Corpus.hold_out` explains the folds.

    least : the least number of samples; if there are fewer, the result is empty.
    """
    if n_samples < least:
        return []
    remainders = range(min(n_samples, HELD_OUT)) if n_samples < FEW else [HELD_OUT - 1]
    return [np.arange(n_samples) % HELD_OUT == r for r in remainders]


@dataclass(frozen=True, eq=False)
class CliqueFeatures(Features):
    """Features of distinct inputs. The property `rows` has one row per clique instead of one per distinct input."""

    distinct_rows: Distinct

    @cached_property
    def rows(self) -> TokenFeatures:
        """Return the features with one row per clique; cliques with equal inputs have equal rows."""
        return TokenFeatures.of(self.distinct_rows, self.F)


class LocalCorpus(Corpus):
    """Labelled samples in the memory of this process."""

    @abstractmethod
    def rows(self, name: str) -> Inputs:
        """Return the inputs called `name`, with one row per clique of the terms that use them."""

    @cached_property
    def _distinct(self) -> dict[str, Distinct]:
        return {}

    @abstractmethod
    def partition(self, terms: Sequence[Term], rows: Mapping[str, TokenFeatures]) -> RowPartition:
        """Return all samples as one partition, with the cliques of the given terms.

        rows : a dict from names of terms to their features, one row per clique, for terms that have inputs.
        """

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[RowPartition]:
        return [self.partition(terms, rows_of(features))]

    def distinct_rows(self, term: Term) -> Distinct:
        """Return the distinct inputs of a term; sparse inputs of the linear kernel are all treated as distinct."""
        name, kernel = input_of(term)
        X = self.rows(name)
        if kernel.is_linear and is_sparse(X):
            return each(term.rows(X))
        if name not in self._distinct:
            self._distinct[name] = distinct(term.rows(X))
        return self._distinct[name]

    def n_inputs(self, term: Term) -> int:
        return self.distinct_rows(term).U

    def n_columns(self, name: str) -> int:
        return int(self.rows(name).shape[1])

    def is_sparse(self, name: str) -> bool:
        return is_sparse(self.rows(name))

    def has_room(self, n_values: int) -> bool:
        limit = memory_limit()
        return limit is None or 8 * n_values <= STORED_SHARE * limit

    def features(
        self,
        term: Term,
        n: int | None,
        rule: str | Rule,
        seed: Any,
        engine: LocalEngine,
        start: Basis | None,
        *,
        stored: bool = True,
    ) -> CliqueFeatures:
        distinct_rows, kernel = self.distinct_rows(term), input_of(term)[1]
        made = features_of(kernel, distinct_rows.inputs, n, rule, seed, engine, start, stored=stored)
        return CliqueFeatures(made.map, made.F, made.basis, distinct_rows)

    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine, *, stored: bool = True) -> CliqueFeatures:
        distinct_rows = self.distinct_rows(term)
        basis = None
        if stored or not isinstance(earlier, WhitenedMap):
            F: FeatureRows = earlier.transform(distinct_rows.inputs, engine)
        else:
            F = earlier.recompute(distinct_rows.inputs)
        if isinstance(earlier, WhitenedMap):
            residual, trace = residual_of(input_of(term)[1], distinct_rows.inputs, F)
            basis = Basis(earlier.landmarks, earlier.R, F, residual, None, trace)
        return CliqueFeatures(earlier, F, basis, distinct_rows)

    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        value, shares, scores = objective.gap(at), {}, {}
        for terms in sharing_inputs(objective.layout.terms):
            of_group, kernel = features[terms[0].name], input_of(terms[0])[1]
            if of_group.basis is None:
                continue
            distinct_rows = self.distinct_rows(terms[0])
            residuals = [self._sum_residual(term, objective, at, distinct_rows) for term in terms]
            scales = [size_of(float(np.abs(R).max(initial=0.0))) for R in residuals]
            R = [one / scale for one, scale in zip(residuals, scales, strict=True)]
            products = residual_products(kernel, distinct_rows.inputs, of_group.F, np.hstack(R), objective.engine)
            ER = np.split(products, np.cumsum([one.shape[1] for one in R])[:-1], axis=1)
            factors = [(term.C * scale) * scale for term, scale in zip(terms, scales, strict=True)]
            top, share, total = max(factors), 0.0, np.zeros(len(products))
            for factor, R_k, ER_k in zip(factors, R, ER, strict=True):
                square, absolute = float(np.vdot(R_k, ER_k)), np.abs(R_k).sum(axis=0)
                share += 0.5 * factor * out_of_span(kernel, of_group.basis, square, absolute, len(R_k))
                ratio = factor / top if 0 < top < np.inf else 1.0
                total += ratio * atom_scores(ER_k, of_group.basis.residual)
            value += share
            shares[terms[0].name], scores[terms[0].name] = share, total
        return WholeGap(value, shares, scores)

    @staticmethod
    def _sum_residual(term: Term, objective: Objective, at: Evaluation, distinct_rows: Distinct) -> Floats:
        pairs = zip(cast(Sequence[RowPartition], objective.partitions), at.parts, strict=True)
        rows = np.concatenate([partition.residual(term, local) for partition, local in pairs])
        return np.asarray(distinct_rows.sum(np.ascontiguousarray(rows).reshape(-1, term.k_y.rank)))


def rows_of(features: Mapping[str, Features]) -> dict[str, TokenFeatures]:
    """Return a dict from names of terms to their features in this process, with one row per clique."""
    return {name: of_term.rows for name, of_term in features.items() if isinstance(of_term, CliqueFeatures)}


def can_omit_pairs(term: Term, sparse: bool) -> bool:
    """Return whether a term may have weights for only some pairs of a feature and a label.

    sparse : whether the inputs of the term are sparse.
    """
    return term.k_y.is_identity and (term.kernel is None or (term.kernel.is_linear and sparse))


def observed_pairs(counts: Array, least: float) -> Pairs:
    """Return the pairs that occur at least `least` times, given how often each feature occurs with each label."""
    return Pairs.of((counts > 0) & (counts >= least))


def sharing_inputs(terms: Iterable[Term]) -> list[list[Term]]:
    """Group the terms that have inputs; the terms of a group have the same inputs and kernel, and share features."""
    groups: dict[tuple[str, int], list[Term]] = {}
    for term in terms:
        if term.input is not None:
            groups.setdefault((term.input, id(term.kernel)), []).append(term)
    return list(groups.values())


def input_of(term: Term) -> tuple[str, InputKernel]:
    """Return the name and the kernel of the inputs of a term; the term must have inputs."""
    assert term.input is not None
    assert term.kernel is not None
    return term.input, term.kernel


def size_of(largest: float) -> float:
    """Return the largest power of two that is at most `largest`, or 1 if `largest` is 0 or infinite.

    Callers divide numbers of absolute value up to `largest` by the result, so that squares do not underflow.
    """
    return float(2.0 ** (np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def residual_of(kernel: InputKernel, X: Inputs, F: FeatureRows) -> tuple[Floats, float]:
    """Return the residual k(x, x) - |F_x|^2 of each input x, and the sum of k(x, x) over all inputs.

    F_x is the row of the features F that belongs to x. Raise ValueError if rounding errors have made a residual clearly
    negative: |F_x|^2 is then too large, and the norm of a function with given values too small.
    """
    blocks = row_blocks(X.shape[0])
    diagonal = np.concatenate([np.empty(0), *(kernel.diagonal(in_double(X[rows])) for rows in blocks)])
    squares = [np.einsum("un,un->u", *2 * (compute_rows(F, rows),), dtype=np.float64) for rows in blocks]
    residual = diagonal - np.concatenate([np.empty(0), *squares])
    excess = EXCESS[F.dtype] * float(diagonal.max(initial=0.0))
    if residual.min(initial=0.0) < -excess:
        row = int(residual.argmin())
        raise ValueError(
            f"the features of distinct input {row} have the squared norm {diagonal[row] - residual[row]:.6g}: expected "
            f"at most k(x, x) = {diagonal[row]:.6g}. The fit cannot continue from this model or checkpoint, because "
            "its landmarks are too inaccurate: fit again from the start"
        )
    return np.maximum(residual, 0.0), float(diagonal.sum())


def out_of_span(kernel: InputKernel, basis: Basis, square: float, absolute: Floats, n_rows: int) -> float:
    """Return |square|; raise if `square` is so negative that the kernel cannot be positive semi-definite.

    square : the squared norm <R, (K - F F') R>, where R has `n_rows` rows; the head of this module defines K, F and R.
        Rounding errors can make it slightly negative.
    absolute : the sum of |R| over the rows, one number per column.
    """
    # A slightly negative square means that F F' exceeds K along R by rounding: P may then be too low by as much.
    rounding = INDEFINITE[basis.landmarks.dtype] * basis.trace / max(n_rows, 1) * float(np.square(absolute).sum())
    if square < -rounding:
        raise not_a_kernel(kernel, f"the squared norm of a function in its space came out as {square:.3g}")
    return abs(square)


def atom_scores(ER: Array, residual: Floats) -> Floats:
    """Return, for each input u, the squared gradient |(E R)_u|^2 / E_uu in the direction that a landmark at u adds.

    ER : the product of E = K - F F' and R, one row per input; the head of this module defines K, F and R.
    residual : the diagonal of E; if an entry is 0, the result is 0 too.
    """
    squares = np.einsum("ul,ul->u", ER, ER)
    return np.asarray(np.divide(squares, residual, out=np.zeros(len(ER)), where=residual > 0))
