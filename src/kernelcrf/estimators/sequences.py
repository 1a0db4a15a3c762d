"""Base class of ChainCRF and SegmentCRF: their common parameters, and the methods that use a fitted model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np

from kernelcrf.answers.explain import explain
from kernelcrf.answers.explanation import Explanation
from kernelcrf.answers.selection import COST, STRATEGY, select_sequences
from kernelcrf.answers.summary import summary_html
from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Array, Floats, Places, UserData
from kernelcrf.decoding import VITERBI, DecodingRule, rules_for
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.sequences import SequenceDistribution, count_right
from kernelcrf.estimators.base import Fitted, fitted_model
from kernelcrf.estimators.kernel import KernelEstimator
from kernelcrf.estimators.parameters import (
    CLASSES,
    INTERCEPT,
    OBSERVED_PAIRS,
    OF_POSTERIORS,
    POSTERIOR,
    WEIGHTS,
    least_counts,
)
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import ChainModel
from kernelcrf.readers.constraints import CONSTRAINTS
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.feature_items import HASH_FEATURES
from kernelcrf.rules import PRIOR_VARIANCE_OR_RULE, VarianceRule
from kernelcrf.score.terms import TRANSITION_TERM
from kernelcrf.validation import COUNT, SEED, SIZE, either, validated

Sequential = TypeVar("Sequential", bound=ChainModel)


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceEstimator(KernelEstimator[Sequential]):
    """Base class of estimators of sequences: labels, probabilities, scores, explanations and tables."""

    C: Annotated[float | str | VarianceRule, PRIOR_VARIANCE_OR_RULE] = "auto"
    fit_intercept: Annotated[bool | str, INTERCEPT] = "auto"
    constraints: Annotated[Any, CONSTRAINTS] = None
    classes: Annotated[Any, CLASSES] = None
    hash_features: Annotated[int | None, HASH_FEATURES] = None
    weights: Annotated[Any, WEIGHTS] = OBSERVED_PAIRS
    decoding: Annotated[str | DecodingRule, rules_for(SequenceDistribution)] = VITERBI

    classes_ = Fitted[Array]("labels.classes")
    transitions_ = Fitted[Floats]("transitions")
    start_scores_ = Fitted[Floats]("start_scores")
    end_scores_ = Fitted[Floats]("end_scores")
    landmark_positions_ = Fitted[Places | None]("landmark_positions")
    gap_curve_ = Fitted[Floats]("gap_curve")

    @property
    def metadata_(self) -> dict[str, Any]:
        """Return the dict of plain values that `save` stores with the model. You may assign your own dict."""
        return self._model.metadata

    @metadata_.setter
    def metadata_(self, metadata: dict[str, Any]) -> None:
        self.model_ = replace(self._model, metadata=metadata)

    def distribution(
        self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None
    ) -> SequenceDistribution:
        """Return an object for the distribution p(y|x) of the labels of the sequences X."""
        raise NotImplementedError

    def _distribution(
        self, model: Sequential, X: UserData, lengths: UserData = None, base_scores: UserData = None
    ) -> SequenceDistribution:
        """Return the distribution that the given model predicts."""
        raise NotImplementedError

    def predict(self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None) -> list[Array]:
        """Return the predicted labels, one array per sequence; the parameter `decoding` sets the rule.

        X : sequences in one of the forms that `fit` accepts. For a Dask collection, the result is a dask.bag with one
            array per sequence, and for a list of delayed values a list of delayed values.
        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        if is_distributed(X):
            answers: list[Array] = self._answer_parts("predict", X, lengths=lengths, base_scores=base_scores)
            return answers
        labels: list[Array] = self.distribution(X, lengths, base_scores=base_scores).decode()
        return labels

    def _distribution_of_parts(self, X: UserData, lengths: UserData, base_scores: UserData) -> Any:
        from kernelcrf.distributed.answers import DistributionOfParts, refuse_on_parts

        fitted_model(self)
        refuse_on_parts({"lengths": lengths, "base_scores": base_scores})
        return DistributionOfParts(copy(self), X)

    def _answer_parts(self, method: str, X: UserData, **options: UserData) -> Any:
        from kernelcrf.distributed.answers import answer_sequences

        fitted_model(self)
        return answer_sequences(self, method, X, **options)

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
        base_scores: UserData = None,
    ) -> list[Array]:
        """Return one array per sequence, with one row per token: entry [t, j] is p(y_t = classes_[j] | x).

        X : sequences in one of the forms that `predict` accepts.
        posterior : "map" uses the most probable weights; "laplace" averages over weights drawn from their posterior.
        n_samples : number of weight vectors that are drawn from the posterior. None means 100. For models of more than
            5,000 weights, `fit` itself stores draws, and None means all of them.
        variance_temperature : factor by which the covariance of the posterior is multiplied.
        random_state : seed of the draws.
        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        draws = n_samples, variance_temperature, random_state
        if is_distributed(X):
            options = {"posterior": posterior, "lengths": lengths, "base_scores": base_scores}
            names = ("n_samples", "variance_temperature", "random_state")
            answers: list[Array] = self._answer_parts(
                "predict_proba", X, **options, **dict(zip(names, draws, strict=True))
            )
            return answers
        model = self._model
        if posterior == "laplace":
            return self._average(model, X, lengths, draws, base_scores)[0]
        return self._marginals(model, X, lengths, base_scores)

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self,
        X: UserData,
        lengths: UserData = None,
        *,
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
        base_scores: UserData = None,
    ) -> Uncertainty:
        """Return the epistemic and aleatoric uncertainty per token in nats; `predict_proba` explains the parameters."""
        draws = n_samples, variance_temperature, random_state
        return Uncertainty(*self._average(self._model, X, lengths, draws, base_scores)[1:])

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
        """Draw k uncertain and diverse sequences of a pool, which should be labelled next; return their indices.

        strategy : the measure of uncertainty: "entropy" of p(y|x), "margin" between the two likeliest labellings, or
            "information" that the labels would give about the weights, which needs a fit with laplace=True.
        cost : "token" if the cost of labelling is per token, "sequence" if it is per sequence.
        random_state : seed of the draws. For several rounds pass one RandomState object, or None: the same integer in
            every round would draw from the same part of the pool.
        """
        rng = rng_of(random_state)
        return select_sequences(self._model, X_pool, lengths, k, strategy, cost == "token", rng, self._engine)

    def predict_marginals(
        self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None
    ) -> list[list[dict[Any, float]]]:
        """Return one list per sequence, in the format of CRFsuite: one dict per token, from labels to probabilities."""
        return self.distribution(X, lengths, base_scores=base_scores).labelled_marginals()

    def log_prob(self, X: UserData, y: UserData, lengths: UserData = None, *, base_scores: UserData = None) -> Floats:
        """Return log p(y|x) of each sequence; if labels are missing, return the log-probability of the known labels."""
        return self.distribution(X, lengths, base_scores=base_scores).log_prob(y)

    def score(
        self,
        X: UserData,
        y: UserData = None,
        sample_weight: UserData = None,
        lengths: UserData = None,
        *,
        base_scores: UserData = None,
    ) -> float:
        """Return the fraction of known labels that are predicted correctly.

        X, y : sequences with their labels in one of the forms that `fit` accepts. Dask collections are labelled where
            they are, and only counts are fetched.
        sample_weight : one weight per sequence, or a list of arrays with one weight per token.
        """
        if is_distributed(X):
            from kernelcrf.distributed.answers import SEQUENCES, score_parts

            fitted_model(self)
            return score_parts(SEQUENCES, self, X, y, sample_weight, lengths=lengths, base_scores=base_scores)
        right, total = count_right(self.distribution(X, lengths, base_scores=base_scores), y, sample_weight, lengths)
        return right / total

    def transition_table(self) -> Any:
        """Return `transitions_` as a pandas.DataFrame: row a and column b have the score of label b after label a.

        Transitions that `constraints` forbid have the score -inf.
        """
        model = self._model
        classes, scores, legal = model.column_labels, model.transitions, model.legal
        scores = scores if legal is None else np.where(legal.steps, scores, -np.inf)
        return data_frame("transition_table", "transitions_", scores, index=classes, columns=classes)

    @validated(n_terms=COUNT)
    def explain(self, x: UserData, t: int, label: UserData = None, n_terms: int = 10) -> Explanation:
        """Explain the score of a label at token t of one sequence x; `label` is by default the predicted label.

        The result lists the `n_terms` features that contribute most to the score; `print` shows it as tables. For a
        kernel with landmarks there are three tables: the columns with the largest effect on the score, the landmarks
        most similar to the token, and the contribution of each landmark to the score. Contributions of single landmarks
        can be large and cancel each other.
        """
        model = self._model
        return explain(model, x, t, label, n_terms, partial(self._distribution, model))

    def _repr_html_inner(self) -> str:
        """Return the HTML of scikit-learn's diagram, with a summary of the fit below it."""
        html: str = super()._repr_html_inner()
        return html + summary_html(self) if hasattr(self, "model_") else html

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # No estimator_type: for a "classifier", cv=3 would stratify by y, which fails for sequences of labels.
        tags.target_tags.required = True
        tags.input_tags.sparse = tags.input_tags.dict = True
        return tags

    def _refuse_on_cluster(self, others: Mapping[str, UserData]) -> None:
        """Raise if data on a cluster cannot be combined with an argument.

        others : a dict from names of arguments and parameters to their values, which must be None.
        """
        advice = {
            "groups": "pass sequences in this process and engine=None, or C as a number",
            "base_scores": "pass sequences in this process and engine=None, or add the scores as columns of X",
        }
        for name, value in others.items():
            if value is not None:
                usual = f"pass sequences in this process and engine=None, or {name}=None"
                raise ValueError(f"{name} cannot be combined with data on a cluster: {advice.get(name, usual)}")

    def _least_counts_of(self, of_inputs: Collection[str]) -> dict[str, float]:
        """Return a dict from names of terms to numbers: how often a pair must occur in the data to have a weight.

        A pair is a feature and a label, or two labels. Terms in which all pairs have a weight are not in the dict.

        of_inputs : the names of the terms that read inputs.
        """
        least, of_transitions = least_counts(self.weights)
        counts = {**dict.fromkeys(of_inputs, least), TRANSITION_TERM: of_transitions}
        return {name: count for name, count in counts.items() if count is not None}

    def _marginals(self, model: Sequential, X: UserData, lengths: UserData, base_scores: UserData) -> list[Array]:
        """Return the label probabilities that a model predicts, one array per sequence."""
        return self._distribution(model, X, lengths, base_scores).marginals()

    def _average(
        self,
        model: Sequential,
        X: UserData,
        lengths: UserData,
        draws: tuple[int | None, float, UserData],
        base_scores: UserData,
    ) -> list[list[Array]]:
        """Return three lists with one array per sequence: mean marginals, epistemic and aleatoric uncertainty."""
        parts = average_draws(model.draw_marginals(X, lengths, *draws, self._engine, base_scores))
        chains = model.reader.read_entries(X, lengths)[1]
        return [Ragged.cut(part, chains.offsets) for part in parts]
