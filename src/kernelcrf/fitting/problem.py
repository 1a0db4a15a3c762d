"""A problem: the terms of a score, and labelled samples with the inputs that these terms read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelcrf.fitting.corpus import Corpus
from kernelcrf.terms import Term


@dataclass(frozen=True, eq=False)
class Problem:
    """Terms, and the data that they are fitted to. The numbers of features of the terms are chosen by the fit."""

    terms: Sequence[Term]
    corpus: Corpus

    def only(self, cliques: Collection[str]) -> Problem:
        """Return the problem with the terms of some kinds of cliques."""
        return replace(self, terms=[term for term in self.terms if term.cliques in cliques])

    def changed(self, names: Collection[str], **changes: Any) -> Problem:
        """Return the problem with another prior variance `C` or input kernel `kernel` of some terms."""
        return replace(self, terms=[replace(term, **changes) if term.name in names else term for term in self.terms])
