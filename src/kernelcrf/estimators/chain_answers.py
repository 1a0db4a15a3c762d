"""Methods of ChainCRF that use a fitted model: labels, probabilities, samples, scores, explanations and tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np

from kernelcrf.answers.accepted import PREDICATE, accepted
from kernelcrf.answers.explain import explain
from kernelcrf.answers.explanation import Explanation
from kernelcrf.answers.f1_decoding import f1_labels
from kernelcrf.answers.selection import COST, STRATEGY, select_sequences
from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Array, Floats, Labels, Places, UserData
from kernelcrf.estimators.base import Fitted
from kernelcrf.estimators.inputs import InputsEstimator
from kernelcrf.estimators.parameters import OF_POSTERIORS, POSTERIOR, STORED_DTYPE
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import ChainDistribution, ChainModel
from kernelcrf.models.crfsuite import from_crfsuite, to_crfsuite
from kernelcrf.persistence import PathLike
from kernelcrf.persistence.crfsuite.model_file import SUFFIX, read_model, write_model
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.labels import flat_labels
from kernelcrf.readers.schemes import are_spans, span_rules
from kernelcrf.readers.weights import score_weights
from kernelcrf.validation import COUNT, PATH, SEED, SIZE, either, one_of, shown_list, validated


@dataclass(eq=False, repr=False, kw_only=True)
class ChainAnswers(InputsEstimator[ChainModel]):
    """Base class of ChainCRF, with methods that use a fitted model."""

    decoding: Annotated[str, either(one_of("viterbi", "marginal", "f1"))] = "viterbi"

    _model_type = ChainModel

    classes_ = Fitted[Array]("labels.classes")
    transitions_ = Fitted[Floats]("transitions")
    start_scores_ = Fitted[Floats]("start_scores")
    end_scores_ = Fitted[Floats]("end_scores")
    edge_coef_ = Fitted[Floats | None]("edge_coef")
    input_variances_ = Fitted[dict[str, float]]("variances")
    landmark_positions_ = Fitted[Places | None]("landmark_positions")
    gap_curve_ = Fitted[Floats]("gap_curve")

    @property
    def metadata_(self) -> dict[str, Any]:
        """Return the dict of plain values that `save` stores with the model. You may assign your own dict."""
        return self._model.metadata

    @metadata_.setter
    def metadata_(self, metadata: dict[str, Any]) -> None:
        self.model_ = replace(self._model, metadata=metadata)

    @validated(path=PATH, dtype=STORED_DTYPE)
    def save(self, path: PathLike, *, dtype: str | None = None) -> None:
        """Write the fitted model to a file that `kernelcrf.load` reads; the file contains no executable code.

        If the name ends with ".crfsuite", the file is a model of CRFsuite, which python-crfsuite opens too. It has the
        labels, the features and their weights, but not the parameters, the certificate and `metadata_`. Only models
        with the linear kernel on feature dicts, without `edge_kernel` and `constraints`, can be written to such a file.

        dtype : "float32" rounds the weights to single precision, so that the file is smaller; None keeps them as they
            are. CRFsuite's files have double precision.
        """
        if not os.fspath(path).endswith(SUFFIX):
            super().save(path, dtype=dtype)
        elif dtype == "float32":
            raise ValueError(f"dtype={dtype!r}: expected None for a file of CRFsuite, which has double precision")
        else:
            write_model(to_crfsuite(self._model), path)

    @classmethod
    def from_crfsuite(cls, source: PathLike | bytes) -> Self:
        """Return the ChainCRF of a model file of CRFsuite, or of its bytes; `kernelcrf.load` reads such files too."""
        crf = cls("linear")
        crf.model_ = from_crfsuite(read_model(source))
        return crf

    def predict(self, X: UserData, lengths: UserData = None) -> list[Array]:
        """Return the predicted labels, one array per sequence."""
        found = self._distribution(X, lengths)
        return self._model.labels.decode(self._best(found), found.chains)

    @validated(posterior=POSTERIOR, **OF_POSTERIORS)
    def predict_proba(
        self,
        X: UserData,
        lengths: UserData = None,
        *,
        posterior: str = "map",
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
    ) -> list[Array]:
        """Return one array per sequence, with one row per token: entry [t, j] is p(y_t = classes_[j] | x).

        posterior : "map" uses the most probable weights; "laplace" averages over weights drawn from their posterior.
        n_samples : number of draws; None means 100 or, for models of more than 5,000 weights, all draws of `fit`.
        variance_temperature : factor by which the covariance of the posterior is multiplied.
        random_state : seed of the draws.
        """
        if posterior == "laplace":
            return self._average(X, lengths, (n_samples, variance_temperature, random_state))[0]
        found = self._distribution(X, lengths)
        return Ragged.cut(found.marginals(), found.chains.offsets)

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self,
        X: UserData,
        lengths: UserData = None,
        *,
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
    ) -> Uncertainty:
        """Return the epistemic and aleatoric uncertainty per token in nats; `predict_proba` explains the parameters."""
        return Uncertainty(*self._average(X, lengths, (n_samples, variance_temperature, random_state))[1:])

    @validated(k=either(SIZE), strategy=STRATEGY, cost=COST, random_state=SEED)
    def select_for_labelling(
        self,
        X_pool: UserData,
        k: int,
        strategy: str = "entropy",
        *,
        cost: str = "token",
        random_state: UserData = None,
        lengths: UserData = None,
    ) -> Places:
        """Draw k uncertain and diverse sequences from a pool, which should be labelled next; return their indices.

        strategy : the measure of uncertainty: "entropy" of p(y|x), "margin" between the two likeliest labellings, or
            "information" that the labels would give about the weights, which needs a fit with laplace=True.
        cost : "token" if the cost of labelling is per token, "sequence" if it is per sequence.
        random_state : seed of the draws. For several rounds pass one RandomState object, or None: the same integer in
            every round would draw from the same part of the pool.
        """
        rng = rng_of(random_state)
        return select_sequences(self._model, X_pool, lengths, k, strategy, cost == "token", rng, self._engine)

    def predict_marginals(self, X: UserData, lengths: UserData = None) -> list[list[dict[Any, float]]]:
        """Return one list per sequence, with one dict from labels to probabilities per token, as CRFsuite does."""
        classes, proba = self.classes_.tolist(), self.predict_proba(X, lengths)
        return Ragged([dict(zip(classes, row, strict=True)) for row in p.tolist()] for p in proba)

    def edge_marginals(self, X: UserData, lengths: UserData = None) -> list[Array]:
        """Return one array per sequence: entry [t, i, j] is p(y_{t-1} = i, y_t = j | x), or 0 for the first token."""
        found = self._distribution(X, lengths)
        return Ragged.cut(found.edge_marginals(), found.chains.offsets)

    @validated(n_best=either(SIZE), where=PREDICATE, max_tried=either(SIZE))
    def decode(
        self,
        X: UserData,
        n_best: int = 1,
        lengths: UserData = None,
        *,
        where: Callable[[Array], object] | None = None,
        max_tried: int = 1000,
    ) -> list[list[tuple[Array, float]]]:
        """Return the `n_best` likeliest labellings of each sequence with their log-probabilities, best first.

        where : a function that takes the labels of one sequence, as an array, and returns whether to accept them. The
            labellings of each sequence are tried from the likeliest on, until `n_best` of them are accepted.
        max_tried : the largest number of labellings of a sequence that `where` is called with. If too few of them are
            accepted, the list of the sequence is shorter than `n_best`, or empty.
        """
        found, classes = self._distribution(X, lengths), self.classes_
        ranked = found.k_best(n_best) if where is None else accepted(found, classes, n_best, where, max_tried)
        return Ragged([(classes[y], log_p) for y, log_p in one] for one in ranked)

    def log_prob(self, X: UserData, y: UserData, lengths: UserData = None) -> Floats:
        """Return log p(y|x) of each sequence; if labels are missing, return the log-probability of the known labels."""
        found = self._distribution(X, lengths)
        tokens = flat_labels(y, found.chains, flat=lengths is not None)
        return found.log_prob(*self._model.labels.encode(tokens, found.chains))

    def entropy(self, X: UserData, lengths: UserData = None) -> Floats:
        """Return the entropy of p(y|x) in nats, -sum_y p(y|x) log p(y|x), for each sequence."""
        return self._distribution(X, lengths).entropy()

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(
        self, X: UserData, n_samples: int = 1, random_state: UserData = None, lengths: UserData = None
    ) -> list[Array]:
        """Return labels drawn from p(y|x): one array per sequence, with one row per draw and one column per token."""
        found = self._distribution(X, lengths)
        draws = self.classes_[found.sample(n_samples, rng_of(random_state))]
        return Ragged.cut(draws, found.chains.offsets, axis=1)

    def score(self, X: UserData, y: UserData, sample_weight: UserData = None, lengths: UserData = None) -> float:
        """Return the fraction of known labels that are predicted correctly, with one `sample_weight` per sequence."""
        found = self._distribution(X, lengths)
        best, tokens = self._best(found), flat_labels(y, found.chains, flat=lengths is not None)
        right, known = self._model.labels.compare(best, tokens)
        weights = score_weights(sample_weight, found.chains.lengths, known, "sequence")
        return float(np.average(right[known], weights=weights))

    def transition_table(self) -> Any:
        """Return `transitions_` as a pandas.DataFrame: row a and column b have the score of label b after label a.

        Transitions that `constraints` forbid have the score -inf.
        """
        classes, scores, legal = self.classes_.tolist(), self.transitions_, self._model.legal
        scores = scores if legal is None else np.where(legal.steps, scores, -np.inf)
        return data_frame("transition_table", "transitions_", scores, index=classes, columns=classes)

    @validated(n_terms=COUNT)
    def explain(self, x: UserData, t: int, label: UserData = None, n_terms: int = 10) -> Explanation:
        """Explain the score of a label at token t of one sequence x; `label` is by default the predicted label.

        The result lists the `n_terms` features that contribute most to the score; `print` shows it as tables. If the
        kernel has landmarks, it lists the columns with the largest effects, the landmarks that are most similar to the
        token, and the contributions of landmarks, which may be large and cancel each other.
        """
        return explain(self._model, x, t, label, n_terms, self._best, self._engine)

    def _best(self, found: ChainDistribution) -> Labels:
        """Return the labels that the decoding rule chooses, as integers, one per token."""
        self._validate_params("decoding")
        if self.decoding != "f1":
            return found.best(self.decoding)
        classes = self.classes_.tolist()
        if not are_spans(classes):
            raise ValueError(
                f"decoding='f1' with the labels {shown_list(classes)}: expected tags of spans, such as O, B-PER and "
                "I-PER. Use decoding='viterbi' or 'marginal' instead"
            )
        return f1_labels(found, span_rules(classes, "lenient"))

    def _average(self, X: UserData, lengths: UserData, draws: tuple[int | None, float, UserData]) -> list[list[Array]]:
        """Return three lists with one array per sequence: mean marginals, epistemic and aleatoric uncertainty."""
        flat, chains = self._model.reader.read(X, lengths)
        parts = average_draws(self._model.draw_marginals(flat, chains, *draws, self._engine))
        return [Ragged.cut(part, chains.offsets) for part in parts]

    def _distribution(self, X: UserData, lengths: UserData) -> ChainDistribution:
        return self._model.distribution(X, lengths, self._engine)
