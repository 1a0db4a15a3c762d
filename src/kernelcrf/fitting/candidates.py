"""Labelled sequences whose tokens have candidates of their own, in place of labels that all tokens share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Inputs, NamedInputs, Places, is_sparse
from kernelcrf.basis.distinct_inputs import Distinct, distinct, each
from kernelcrf.basis.features import Features
from kernelcrf.basis.pairs import Pairs
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import CliqueFeatures, input_of
from kernelcrf.fitting.digest import Words, digest_array, digest_words
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.readers.candidates import CandidateRows, with_zero_row
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term


@dataclass(frozen=True, eq=False)
class LabelledCandidates(LabelledSequences):
    """Labelled sequences of candidates; labels are numbers of candidates.

    The inputs X are `CandidateRows` by name. `base` has scores of -inf for candidates that a token does not have.
    """

    def _candidates(self, name: str) -> CandidateRows:
        assert isinstance(self.X, NamedInputs)
        found = self.X.matrices[name]
        assert isinstance(found, CandidateRows)
        return found

    def rows(self, name: str) -> Inputs:
        return self._candidates(name).used()[0]

    def distinct_rows(self, term: Term) -> Distinct:
        name, kernel = input_of(term)
        if name not in self._distinct:
            rows, index = self._candidates(name).used()
            found = each(rows) if kernel.is_linear and is_sparse(rows) else distinct(rows)
            # Candidates that a token does not have get any row: their residuals are 0.
            flat = found.index[np.maximum(index.ravel(), 0)] if len(found.index) else np.zeros(index.size, np.intp)
            self._distinct[name] = Distinct(found.inputs, flat, found.first)
        return self._distinct[name]

    def digest_words(self) -> Words:
        indices = NamedInputs({name: one.index for name, one in self.X.matrices.items()})
        return digest_words(indices, self.chains.offsets, self.labels, self.allowed, self.weights)

    def digest(self) -> dict[str, Any]:
        inputs = {name: digest_array(self.rows(name)) for name in self.X.matrices}
        return super().digest() | {"candidates": inputs}

    def has_room(self, n_values: int) -> bool:
        # Features are always stored: a row of zeros is added to them.
        return True

    def observed(self, term: Term, least: float) -> Pairs | None:
        return None

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        return None

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[ChainPartition]:
        rows = {}
        for term in terms:
            of_term = features.get(term.name)
            if isinstance(of_term, CliqueFeatures):
                index: Array = self._candidates(str(term.input)).index.ravel()
                places = np.where(index < 0, of_term.F.shape[0], of_term.distinct_rows.index)
                rows[term.name] = TokenFeatures(with_zero_row(of_term.F), places, term.k_y.views)
        return [self.partition(terms, rows)]
