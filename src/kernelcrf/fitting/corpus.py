"""A problem: the terms of a score and a corpus of labelled samples, which is in this process or on a cluster.

Let R be the residuals of a term, summed over the cliques of each distinct input. Outside the span of the features F,
the gradient of the term is E R with E = K - F F'. The term adds its squared norm <R, E R> times C / 2 to `gap_full`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.distinct import Distinct, distinct, each
from kernelcrf.basis.factor import EXCESS, INDEFINITE, Basis, not_a_kernel, row_blocks
from kernelcrf.basis.features import FeatureMap, Features, WhitenedMap, features_of
from kernelcrf.basis.growth import Rule
from kernelcrf.basis.panels import in_double
from kernelcrf.certificate import residual_products
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.partition import Partition, RowPartition
from kernelcrf.terms import Term


@dataclass(frozen=True, eq=False)
class WholeGap:
    """The gap `value`: P minus a lower bound on P over the whole spaces of the kernels.

    If P is not convex, `value` is not a bound: it measures how far the point is from stationary in these spaces.

    shares : how much a group of terms with the same features adds to the gap in the span, by its first term's name.
    scores : (U,) how much each distinct input of a group would gain as a landmark, by the same names.
    """

    value: float
    shares: dict[str, float]
    scores: dict[str, Floats]


class Corpus(ABC):
    """Labelled samples with named inputs; features are computed once for the U distinct rows of an input."""

    @abstractmethod
    def n_inputs(self, term: Term) -> int:
        """Return U, the number of distinct rows of the input of a term."""

    @abstractmethod
    def n_columns(self, name: str) -> int:
        """Return the number of columns of an input."""

    @abstractmethod
    def digest(self) -> dict[str, Any]:
        """Return digests of all data that P depends on, by which a checkpoint recognises them."""

    @abstractmethod
    def features(
        self, term: Term, n: int | None, rule: str | Rule, seed: Any, engine: LocalEngine, start: Basis | None
    ) -> Features:
        """Choose n atoms for a term, or all distinct rows if n is None or larger, and return the features.

        start : a basis to extend, or None.
        """

    @abstractmethod
    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine) -> Features:
        """Apply the feature map of an earlier fit to the input of a term."""

    @abstractmethod
    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[Partition]:
        """Return the samples in partitions, with the cliques of the given terms and their features if they have any."""

    @abstractmethod
    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        """Return the gap at the point `at`, measured in the whole spaces of the kernels."""

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        """Return the sample and the node of each landmark, (n, 2); None if there are no landmarks or no sequences."""
        return None

    def where(self) -> str:
        """Return where the data are, for progress messages; an empty string if they are in this process."""
        return ""


@dataclass(frozen=True, eq=False)
class Problem:
    """Terms and the data to fit them to. The fit chooses how many features each term has."""

    terms: Sequence[Term]
    corpus: Corpus

    def only(self, cliques: Collection[str]) -> Problem:
        """Return the problem with only the terms on the given kinds of cliques."""
        return replace(self, terms=[term for term in self.terms if term.cliques in cliques])

    def changed(self, names: Collection[str], **changes: Any) -> Problem:
        """Return the problem with another prior variance `C` or input `kernel` for the named terms."""
        return replace(self, terms=[replace(term, **changes) if term.name in names else term for term in self.terms])


@dataclass(frozen=True, eq=False)
class CliqueFeatures(Features):
    """Features of the distinct inputs `found`, which `rows` expands to one row per clique."""

    found: Distinct

    @cached_property
    def rows(self) -> TokenFeatures:
        """Return the features of each clique."""
        return TokenFeatures.of(self.found, self.F)


class LocalCorpus(Corpus):
    """Labelled samples in the memory of this process."""

    @abstractmethod
    def rows(self, name: str) -> Inputs:
        """Return the rows of an input, one per clique of the terms that read it."""

    @cached_property
    def _distinct(self) -> dict[str, Distinct]:
        return {}

    def found(self, term: Term) -> Distinct:
        """Return the distinct rows of a term's input; return every row if the kernel is linear and the input sparse."""
        name, kernel = input_of(term)
        X = self.rows(name)
        if kernel.is_linear and is_sparse(X):
            return each(X)
        if name not in self._distinct:
            self._distinct[name] = distinct(X)
        return self._distinct[name]

    def n_inputs(self, term: Term) -> int:
        """Return U, the number of distinct rows of the input of a term."""
        return self.found(term).U

    def n_columns(self, name: str) -> int:
        """Return the number of columns of an input."""
        return int(self.rows(name).shape[1])

    def features(
        self, term: Term, n: int | None, rule: str | Rule, seed: Any, engine: LocalEngine, start: Basis | None
    ) -> CliqueFeatures:
        """Choose a basis of n atoms for a term, or extend the basis `start`, and return the features."""
        found, kernel = self.found(term), input_of(term)[1]
        made = features_of(kernel, found.inputs, n, rule, seed, engine, start)
        return CliqueFeatures(made.map, made.F, made.basis, found)

    def apply_map(self, term: Term, earlier: FeatureMap, engine: LocalEngine) -> CliqueFeatures:
        """Apply the feature map of an earlier fit to the input of a term."""
        found = self.found(term)
        F, basis = earlier.transform(found.inputs, engine), None
        if isinstance(earlier, WhitenedMap):
            residual, trace = residual_of(input_of(term)[1], found.inputs, F)
            basis = Basis(earlier.landmarks, earlier.R, F, residual, None, trace)
        return CliqueFeatures(earlier, F, basis, found)

    def gap_full(self, objective: Objective, at: Evaluation, features: Mapping[str, Features]) -> WholeGap:
        """Return the gap in the whole spaces of the kernels, computed from blocks of K - F F'."""
        value, shares, scores = objective.gap(at), {}, {}
        for terms in sharing_inputs(objective.layout.terms):
            own, kernel = features[terms[0].name], input_of(terms[0])[1]
            if own.basis is None:
                continue
            found = self.found(terms[0])
            residuals = [self._sum_residual(term, objective, at, found) for term in terms]
            scales = [size_of(float(np.abs(R).max(initial=0.0))) for R in residuals]
            R = np.hstack([R / scale for R, scale in zip(residuals, scales, strict=True)])
            ER = residual_products(kernel, found.inputs, own.F, R, objective.engine)
            ends = np.cumsum([one.shape[1] for one in residuals])
            factors = [(term.C * scale) * scale for term, scale in zip(terms, scales, strict=True)]
            top, share, total = max(factors), 0.0, np.zeros(len(R))
            for factor, end, one in zip(factors, ends, residuals, strict=True):
                columns = slice(end - one.shape[1], end)
                absolute = np.abs(R[:, columns]).sum(axis=0)
                square = float(np.vdot(R[:, columns], ER[:, columns]))
                share += 0.5 * factor * out_of_span(kernel, own.basis, square, absolute, len(R))
                ratio = factor / top if 0 < top < np.inf else 1.0
                total += ratio * atom_scores(ER[:, columns], own.basis.residual)
            value += share
            shares[terms[0].name], scores[terms[0].name] = share, total
        return WholeGap(value, shares, scores)

    @staticmethod
    def _sum_residual(term: Term, objective: Objective, at: Evaluation, found: Distinct) -> Floats:
        pairs = zip(cast(Sequence[RowPartition], objective.partitions), at.parts, strict=True)
        rows = np.concatenate([partition.residual(term, local) for partition, local in pairs])
        return np.asarray(found.sum(np.ascontiguousarray(rows)))


def sharing_inputs(terms: Iterable[Term]) -> list[list[Term]]:
    """Return the terms that have inputs, grouped by their input and kernel object; a group shares its features."""
    groups: dict[tuple[str, int], list[Term]] = {}
    for term in terms:
        if term.input is not None:
            groups.setdefault((term.input, id(term.kernel)), []).append(term)
    return list(groups.values())


def input_of(term: Term) -> tuple[str, InputKernel]:
    """Return the name of a term's input and the kernel that compares it; the term must have an input."""
    assert term.input is not None
    assert term.kernel is not None
    return term.input, term.kernel


def size_of(largest: float) -> float:
    """Return the largest power of two <= `largest`, a divisor that keeps squares from underflowing; 1 for zero."""
    return float(2.0 ** (np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def residual_of(kernel: InputKernel, X: Inputs, F: Inputs) -> tuple[Floats, float]:
    """Return the diagonal of K - F F' and the trace of K, for features F of the inputs X under an earlier map.

    Raise if rounding has made an entry of the diagonal clearly negative: norms computed with F would be too small.
    """
    diagonal = np.concatenate([np.empty(0), *(kernel.diagonal(in_double(X[rows])) for rows in row_blocks(X.shape[0]))])
    residual = diagonal - np.einsum("un,un->u", F, F, dtype=np.float64)
    excess = EXCESS[F.dtype] * float(diagonal.max(initial=0.0))
    if residual.min(initial=0.0) < -excess:
        row = int(residual.argmin())
        raise ValueError(
            f"the features of distinct input x number {row} have the squared norm {diagonal[row] - residual[row]:.6g}: "
            f"expected at most k(x, x) = {diagonal[row]:.6g}. The stored landmarks are too inaccurate to continue from "
            "this model or checkpoint: fit again from the start"
        )
    return np.maximum(residual, 0.0), float(diagonal.sum())


def out_of_span(kernel: InputKernel, basis: Basis, square: float, absolute: Floats, n_rows: int) -> float:
    """Return |<R, E R>| for the residuals R and E = K - F F'; raise if square = <R, E R> is negative beyond rounding.

    absolute : |R| summed over its n_rows rows.
    """
    # A slightly negative square means that F F' exceeds K along R by rounding: P may then be too low by as much.
    rounding = INDEFINITE[basis.landmarks.dtype] * basis.trace / max(n_rows, 1) * float(np.square(absolute).sum())
    if square < -rounding:
        raise not_a_kernel(kernel, f"the squared norm of a function in its space came out as {square:.3g}")
    return abs(square)


def atom_scores(ER: Array, residual: Floats) -> Floats:
    """Return |(E R)_u|^2 / E_uu of each input u: the squared gradient along its direction; 0 if u is in the span."""
    squares = np.einsum("ul,ul->u", ER, ER)
    return np.asarray(np.divide(squares, residual, out=np.zeros(len(ER)), where=residual > 0))
