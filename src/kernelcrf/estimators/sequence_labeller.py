"""Predictions of a fitted model of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from kernelcrf.answers.explanation import Explanation, explain
from kernelcrf.answers.selection import COST, STRATEGY, select_sequences
from kernelcrf.answers.summary import summary_html
from kernelcrf.answers.uncertainty import Uncertainty, averaged
from kernelcrf.arrays import Array, Floats, Places, UserData
from kernelcrf.estimators.base import OF_POSTERIORS, POSTERIOR, KernelEstimator
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import ChainDistribution, ChainModel
from kernelcrf.readers.ragged import Ragged
from kernelcrf.readers.weights import score_weights
from kernelcrf.validation import COUNT, SEED, SIZE, either, one_of, validated


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceLabeller(KernelEstimator[ChainModel]):
    """Methods of an estimator that holds a fitted ChainModel."""

    decoding: Annotated[str, either(one_of("viterbi", "marginal"))] = "viterbi"

    def predict(self, X: UserData, lengths: UserData = None) -> list[Array]:
        """Return one array of labels per sequence."""
        found = self._distribution(X, lengths)
        return Ragged(self._model.labels.decode(found.best(self._checked_decoding), found.chains))

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
        """Return p(y_t = classes_[j] | x), (T_i, L) for each sequence.

        posterior : "map" uses the mode of the posterior of the weights, "laplace" the mean over draws from it.
        n_samples : number of draws; None is 100, or as many as the fit kept if it has more than 5,000 weights.
        variance_temperature : factor of the posterior's covariance.
        random_state : seed of the draws.
        """
        if posterior == "laplace":
            flat, chains = self._model.reader.read(X, lengths)
            draws = n_samples, variance_temperature, random_state
            p = averaged(self._model.draw_marginals(flat, chains, *draws, self._engine))[0]
            return Ragged.cut(p, chains.offsets)
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
        """Return epistemic and aleatoric parts of the entropy of averaged marginals in nats, (T_i,) per sequence."""
        flat, chains = self._model.reader.read(X, lengths)
        draws = n_samples, variance_temperature, random_state
        _, epistemic, aleatoric = averaged(self._model.draw_marginals(flat, chains, *draws, self._engine))
        return Uncertainty(*(Ragged.cut(part, chains.offsets) for part in (epistemic, aleatoric)))

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
        """Return the places (k,) of the sequences of a pool to label next: the least certain ones, and diverse.

        strategy : "entropy" of whole labellings, "margin" between the best two, or "information" about the weights,
            for which the fit needs laplace=True.
        cost : "token" if labelling is paid per token, "sequence" if per sequence.
        random_state : seed of the draws. Over several rounds pass one RandomState, or None: the same number in every
            round would draw from the same part of the pool.
        """
        rng = rng_of(random_state)
        return select_sequences(self._model, X_pool, lengths, k, strategy, cost == "token", rng, self._engine)

    def predict_marginals(self, X: UserData, lengths: UserData = None) -> list[list[dict[Any, float]]]:
        """Return the probabilities of each token as a dict from labels, as CRFsuite returns them."""
        classes = self.classes_.tolist()
        proba = self.predict_proba(X, lengths)
        return Ragged([dict(zip(classes, row, strict=True)) for row in p.tolist()] for p in proba)

    def edge_marginals(self, X: UserData, lengths: UserData = None) -> list[Array]:
        """Return p(y_{t-1} = i, y_t = j | x), (T_i, L, L) for each sequence, zero at first tokens."""
        found = self._distribution(X, lengths)
        return Ragged.cut(found.edge_marginals(), found.chains.offsets)

    @validated(n_best=either(SIZE))
    def decode(self, X: UserData, n_best: int = 1, lengths: UserData = None) -> list[list[tuple[Array, float]]]:
        """Return the `n_best` likeliest labellings of each sequence with their log-probabilities, best first."""
        ranked, classes = self._distribution(X, lengths).k_best(n_best), self.classes_
        return Ragged([(classes[y], log_p) for y, log_p in one] for one in ranked)

    def log_prob(self, X: UserData, y: UserData, lengths: UserData = None) -> Floats:
        """Return log p(y|x) of each sequence, (m,).

        If labels are missing, p is the probability of all labellings that agree with y.
        """
        found = self._distribution(X, lengths)
        return found.log_prob(*self._model.labels.encode(y, found.chains, flat=lengths is not None))

    def entropy(self, X: UserData, lengths: UserData = None) -> Floats:
        """Return -sum_y p(y|x) log p(y|x) of each sequence, (m,)."""
        return self._distribution(X, lengths).entropy()

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(
        self, X: UserData, n_samples: int = 1, random_state: UserData = None, lengths: UserData = None
    ) -> list[Array]:
        """Return labels drawn from p(y|x), (n_samples, T_i) for each sequence."""
        found = self._distribution(X, lengths)
        draws = self.classes_[found.sample(n_samples, rng_of(random_state))]
        return Ragged.cut(draws, found.chains.offsets, axis=1)

    def score(self, X: UserData, y: UserData, sample_weight: UserData = None, lengths: UserData = None) -> float:
        """Return the share of right labels among the known ones; `sample_weight` (m,) weighs sequences."""
        found = self._distribution(X, lengths)
        best = found.best(self._checked_decoding)
        right, known = self._model.labels.compare(best, y, found.chains, flat=lengths is not None)
        weights = score_weights(sample_weight, found.chains.lengths, known, "token")
        return float(np.average(right[known], weights=weights))

    @validated(n_terms=COUNT)
    def explain(self, x: UserData, t: int, label: UserData = None, n_terms: int = 10) -> Explanation:
        """Explain why token t of one sequence x gets its label, or would get another one.

        The result has the `n_terms` terms that contribute most: landmarks with their places in the training data, or
        features for the linear kernel. It prints as a table, and `to_frame()` makes a DataFrame of it. Contributions
        of landmarks that are close to each other under the kernel may be large and cancel.
        """
        return explain(self._model, x, t, label, n_terms, self._checked_decoding, self._engine)

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's diagram with a summary of the fit below it."""
        html: str = super()._repr_html_inner()
        return html + summary_html(self) if hasattr(self, "model_") else html

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # No estimator_type: for a "classifier", cv=3 would stratify by y, one label per sample, and refuse sequences.
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.input_tags.dict = True
        return tags

    @property
    def _checked_decoding(self) -> str:
        self._validate_params("decoding")
        return self.decoding

    def _distribution(self, X: UserData, lengths: UserData) -> ChainDistribution:
        return self._model.distribution(X, lengths, self._engine)
