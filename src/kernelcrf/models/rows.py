"""A fitted classifier of rows: with the scores f_l(x) of the classes l, p(y|x) = exp(f_y(x)) / sum_l exp(f_l(x))."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import softmax

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, NamedInputs, UserData, matrix_of
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.training import Trained
from kernelcrf.graphs.structure import Chains
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import TINY
from kernelcrf.models.kernel import KernelModel
from kernelcrf.readers.base_scores import check_base_scores, read_row_scores
from kernelcrf.readers.labels import values_to_config
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.rows import RowReader, read_classes
from kernelcrf.readers.stored_values import values_from_config
from kernelcrf.score.cliques import NO_CHAINS, TOKENS
from kernelcrf.score.score import add_base, add_terms
from kernelcrf.score.terms import BIAS_TERM, TOKEN_TERM, named_term


@dataclass(frozen=True, eq=False, kw_only=True)
class RowModel(KernelModel):
    """A fitted classifier, which predicts one of `classes` for each row of the inputs."""

    reader: RowReader
    classes: Array

    @classmethod
    def of(
        cls, trained: Trained, reader: RowReader, classes: Array, specification: Config, base: Iterable[str] = ()
    ) -> Self:
        """Return the model, given the result of training, the reader that converts rows to arrays, and the classes.

        specification : the settings of the fit, as plain values.
        base : the names of the base scores of the fit.
        """
        fields = cls._fields_of(trained, specification) | {"base": tuple(sorted(base))}
        return cls(**fields, reader=reader, classes=classes)

    @property
    def column_labels(self) -> list[UserData]:
        """Return the class of each column of the scores."""
        classes: list[UserData] = self.classes.tolist()
        return classes

    def scores(self, X: UserData, engine: LocalEngine, base_scores: UserData = None) -> Array:
        """Return the scores f_l(x) plus base scores, with one row per row x of X and one column per class l."""
        rows = self.reader.read(X)
        scores = self._scores(rows, engine)
        add_base({TOKENS: scores}, self.read_base(base_scores, rows.shape[0]))
        return scores

    def read_base(self, base_scores: UserData, n_rows: int) -> dict[str, Floats] | None:
        """Read base scores; raise if they are not of the same kinds as in the fit."""
        base = read_row_scores(base_scores, n_rows, len(self.classes))
        check_base_scores(self.base, base)
        return base

    def _scores(self, rows: Inputs | NamedInputs, engine: LocalEngine) -> Array:
        scores = self.term_scores(lambda term: matrix_of(rows, str(term.input)), engine)
        s = scores[0][1]
        add_terms({TOKENS: s}, scores[1:], NO_CHAINS)
        return s

    def draw_probabilities(
        self,
        X: UserData,
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
        base_scores: UserData = None,
    ) -> Iterator[Array]:
        """Yield, for each draw from the posterior, the class probabilities, one row per row of X."""
        X, rng = self.reader.read(X), rng_of(random_state)
        chains = Chains.from_lengths(np.ones(X.shape[0], np.int64))
        base = self.read_base(base_scores, X.shape[0])
        for scores, _ in self.score_posterior.draws(X, chains, n_samples, rng, temperature, engine, base):
            yield softmax(scores, axis=1)

    def latent_mean_and_variance(self, X: UserData, engine: LocalEngine) -> tuple[Floats, Floats]:
        """Return the posterior mean and variance of the scores f_l(x), one row per x in X and one column per class l.

        With two classes, return the mean and the variance of f_1(x) - f_0(x), one number per row.
        """
        rows, L = self.reader.read(X), len(self.classes)
        contrasts = np.array([[-1.0, 1.0]]) if L == 2 else np.eye(L)
        means = np.asarray(self._scores(rows, engine) @ contrasts.T, np.float64)
        variances = self.score_posterior.node_variances(rows, contrasts, engine)
        return (means[:, 0], variances[:, 0]) if L == 2 else (means, variances)

    def log_likelihood(self, X: UserData, y: UserData, engine: LocalEngine) -> float:
        """Return the log-probability of the class y of a row of X, averaged over rows."""
        return self.log_score(y, softmax(self.scores(X, engine), axis=1))

    def log_score(self, y: UserData, proba: Array) -> float:
        """Return the log-probability of the class y of a row, averaged over rows whose class is known."""
        labels = read_classes(y, self.classes, len(proba))
        known = np.flatnonzero(labels != UNKNOWN)
        return float(np.log(np.maximum(proba[known, labels[known]], TINY)).mean())

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config["classes"] = values_to_config(self.classes)
        return config | self.reader.to_config(), arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        reader, classes = RowReader.from_config(config), values_from_config(config["classes"])
        widths = {TOKENS: reader.n_features} if reader.named is None else reader.named.widths
        terms: dict[str, tuple[str, str | None]] = {TOKEN_TERM: (TOKENS, TOKENS)}
        if reader.named is not None:
            terms = {named_term(name): (TOKENS, name) for name in widths}
        if len(config["terms"]) > len(terms):
            terms[BIAS_TERM] = TOKENS, None
        shared = cls._read_terms(config, arrays, len(classes), terms, widths)
        return cls(**shared, reader=reader, classes=classes)
