"""A problem: the terms of a score, and labelled samples with the inputs that these terms read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from kernelcrf.fitting.corpus import Corpus
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.terms import Term


class Data(Protocol):
    """Labelled samples before the rows of their inputs are compared."""

    def corpus(self, terms: tuple[Term, ...]) -> Corpus:
        """Return the samples with the distinct rows of the inputs that some terms read."""
        ...


@dataclass(frozen=True, eq=False)
class Problem:
    """Terms, and the data that they are fitted to. The numbers of features of the terms are chosen by the fit."""

    terms: tuple[Term, ...]
    corpus: Corpus

    @classmethod
    def of(cls, terms: Iterable[Term], data: Data) -> Problem:
        """Return the problem of fitting some terms to data."""
        terms = tuple(terms)
        return cls(terms, data.corpus(terms))

    def groups(self) -> list[list[Term]]:
        """Return the terms that have inputs, those that read one input by one kernel object together."""
        groups: dict[tuple[str, int], list[Term]] = {}
        for term in self.terms:
            if term.input is not None:
                groups.setdefault((term.input, id(term.kernel)), []).append(term)
        return list(groups.values())

    def only(self, cliques: Collection[str]) -> Problem:
        """Return the problem with the terms of some kinds of cliques."""
        return replace(self, terms=tuple(term for term in self.terms if term.cliques in cliques))

    def with_variance(self, C: float, names: Collection[str]) -> Problem:
        """Return the problem with another prior variance of some terms."""
        return replace(self, terms=tuple(replace(term, C=C) if term.name in names else term for term in self.terms))

    def with_kernel(self, kernel: InputKernel, names: Collection[str]) -> Problem:
        """Return the problem with another input kernel of some terms."""
        return replace(
            self, terms=tuple(replace(term, kernel=kernel) if term.name in names else term for term in self.terms)
        )
