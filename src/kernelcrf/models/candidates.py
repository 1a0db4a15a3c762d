"""A fitted conditional random field on sequences whose tokens have candidates of their own.

The probability of the candidates c of a sequence x is

    p(c|x) = exp(sum_t f(x_t, c_t) + sum_{t>1} g(x_t, c_{t-1}, c_t)) / Z(x),

where f is a function of the features of a candidate, and g a function of the features of a pair of candidates of
neighbouring tokens. Both are the same for all tokens. Z(x) is a sum over the candidates that the tokens have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Floats, UserData
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.training import Trained
from kernelcrf.models.chain_field import ChainField
from kernelcrf.models.kernel import KernelModel
from kernelcrf.persistence.checks import read_count
from kernelcrf.readers.candidates import CandidateData, CandidateReader
from kernelcrf.score.terms import TOKEN_TERM, named_term


def candidate_term(name: str, reader: CandidateReader) -> str:
    """Return the name of the term of the input called `name`."""
    return TOKEN_TERM if reader.entries is None else named_term(name)


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateModel(KernelModel):
    """A fitted model that chooses one of the candidates of each token.

    n_candidates : the largest number of candidates of a training token; new tokens may have more.
    """

    reader: CandidateReader  # type: ignore[assignment]
    n_candidates: int

    @classmethod
    def of(cls, trained: Trained, reader: CandidateReader, n_candidates: int, specification: Config) -> Self:
        """Return the model, given the result of training and the reader of candidates.

        specification : the settings of the fit, as plain values.
        """
        return cls(**cls._fields_of(trained, specification), reader=reader, n_candidates=n_candidates)

    @property
    def column_labels(self) -> list[UserData]:
        """Return the label of the only column of the weights, which all candidates share."""
        return ["candidate"]

    @property
    def shared_weights(self) -> Floats:
        """Return the weights of the features of candidates, one number per feature of all inputs of tokens."""
        return self.coef[:, 0]

    @property
    def step_weights(self) -> Floats | None:
        """Return the weights of the features of pairs of candidates, or None if there are no such features."""
        steps = [self._weights(term).ravel() for term in self.layout.terms if term.kind.is_step]
        return np.concatenate(steps) if steps else None

    def field(self, data: CandidateData, engine: LocalEngine) -> ChainField:
        """Return the random field of the candidates of sequences that `reader` has read."""
        scores = self.term_scores(lambda term: data.inputs[str(term.input)].rows, engine)
        N, L, dtype = len(data.counts), data.most, np.result_type(*(Z.dtype for _, Z in scores))
        s, w = np.zeros((N, L), dtype), np.zeros((L, L), dtype)
        for term, Z in scores:
            index = data.inputs[str(term.input)].index
            of_cliques = np.append(Z[:, 0], Z.dtype.type(0))[index]
            if term.kind.is_step:
                w = w + of_cliques.reshape(N, L, L)
            else:
                s += of_cliques
        s[~data.present] = -np.inf
        return ChainField(s, np.ascontiguousarray(w), data.chains, engine.n_threads)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        return config | {"inputs": self.reader.to_config(), "n_candidates": self.n_candidates}, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        reader, most = CandidateReader.from_config(config["inputs"]), read_count(config, "n_candidates", 1)
        expected = {candidate_term(name, reader): (reader.scores[name], name) for name in reader.readers}
        widths = {name: reader.width(name) for name in reader.readers}
        shared = cls._read_terms(config, arrays, most, expected, widths)
        return cls(**shared, reader=reader, n_candidates=most)


def log_probabilities(field: ChainField, labels: Array) -> Floats:
    """Return the log-probability of the known candidates of each sequence; -1 stands for a candidate not known."""
    known = labels >= 0
    if known.all():
        return field.log_prob(labels.astype(np.int32))
    allowed = np.ones(field.s.shape, bool)
    allowed[known] = np.eye(field.s.shape[1], dtype=bool)[labels[known]]
    return field.log_prob(labels, allowed)
