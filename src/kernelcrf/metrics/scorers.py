"""Scorers for the argument `scoring` of GridSearchCV: `scorer(estimator, X, y)` returns a number to maximise.

A scorer of labels returns metric(y, estimator.predict(X)); `LaggedScorer` takes the labels that a stream gives at a lag
instead. A scorer of probabilities has a name that begins with neg_
and returns - metric(y, estimator.predict_proba(X), estimator.classes_). A score that would be 0 / 0 is 0, without a
warning, because candidates of a search often predict no span, or never predict some label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.metrics import make_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from kernelcrf.arrays import UserData
from kernelcrf.metrics.labels import flat_accuracy, flat_f1, sequence_accuracy, span_f1, span_precision, span_recall
from kernelcrf.metrics.probabilities import brier, expected_calibration_error, log_loss
from kernelcrf.validation import LAG, either, one_of, validated

Scorer = Callable[..., float]


@dataclass
class WeightedScorer:
    """Base class of scorers that scikit-learn's `make_scorer` cannot make.

    sample_weight : whether scikit-learn's metadata routing passes weights to the scorer. A string is the name of the
        weights in calls such as `GridSearchCV.fit`.
    """

    sample_weight: bool | str | None = field(default=None, kw_only=True)

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """Set whether scikit-learn's metadata routing passes `sample_weight` to the scorer.

        If `sample_weight` is a string, it is the name of the weights in calls such as `GridSearchCV.fit`.
        """
        self.sample_weight = sample_weight
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the metadata request of the scorer; scikit-learn calls this method."""
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="sample_weight", alias=self.sample_weight)
        return request


@dataclass
class LaggedScorer(WeightedScorer):
    """A scorer of the labels that `stream` gives to each token after `lag` further tokens.

    Use it to choose parameters for data that arrive token by token. The estimator is a ChainCRF or a SegmentCRF, or a
    pipeline that ends with one.

    Parameters
    ----------
    lag : int
        The number of later tokens that the label of a token waits for.
    scoring : str or callable, default="flat_accuracy"
        The name of a scorer of `get_scorer` that reads labels, or a function metric(y_true, y_pred) of two lists of
        label sequences.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.metrics import LaggedScorer
    >>> data = make_sequences(30, random_state=0)
    >>> crf, grid = ChainCRF(n_components=30, random_state=0), {"C": [0.01, 10.0]}
    >>> GridSearchCV(crf, grid, scoring=LaggedScorer(lag=2), cv=2).fit(data.X, data.y).best_params_
    {'C': 10.0}
    >>> fitted = crf.set_params(C=10.0).fit(data.X, data.y)
    >>> [round(LaggedScorer(lag)(fitted, data.X, data.y), 2) for lag in (0, 2, 50)]
    [0.94, 0.97, 0.97]
    """

    lag: int
    scoring: str | Callable[..., float] = "flat_accuracy"

    def __post_init__(self) -> None:
        LAG.check("lag", self.lag)
        label_metric(self.scoring)

    def __call__(self, estimator: Any, X: UserData, y: UserData, sample_weight: UserData = None) -> float:
        """Return the score of a fitted estimator on the data X and y."""
        steps = getattr(estimator, "steps", None)
        if steps is not None:
            X, estimator = estimator[:-1].transform(X), steps[-1][1]
        predicted = []
        for x in X:
            live = estimator.stream(lag=self.lag)
            parts = [live.extend(x).lagged.labels, live.finish().lagged.labels]
            predicted.append(np.concatenate(parts))
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(label_metric(self.scoring)(y, predicted, **weights))


@dataclass
class NegativeLoss(WeightedScorer):
    """A scorer that returns - metric(y, estimator.predict_proba(X), estimator.classes_).

    This class is needed because scikit-learn's `make_scorer` does not support probabilities of sequences.

    metric : a metric of probabilities, such as `log_loss`.
    """

    metric: Callable[..., float]

    def __call__(self, estimator: Any, X: UserData, y: UserData, sample_weight: UserData = None) -> float:
        """Return the score of a fitted estimator on the data X and y."""
        return -self.metric(y, estimator.predict_proba(X), estimator.classes_, sample_weight=sample_weight)


# The metrics of labels, metric(y_true, y_pred), with their options.
METRICS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "flat_accuracy": (flat_accuracy, {}),
    "flat_f1": (flat_f1, {"zero_division": 0}),
    "flat_f1_micro": (flat_f1, {"average": "micro", "zero_division": 0}),
    "flat_f1_weighted": (flat_f1, {"average": "weighted", "zero_division": 0}),
    "sequence_accuracy": (sequence_accuracy, {}),
    "span_precision": (span_precision, {"zero_division": 0}),
    "span_recall": (span_recall, {"zero_division": 0}),
    "span_f1": (span_f1, {"zero_division": 0}),
}
SCORERS: Mapping[str, Scorer] = {
    **{name: make_scorer(metric, **options) for name, (metric, options) in METRICS.items()},
    "neg_log_loss": NegativeLoss(log_loss),
    "neg_brier": NegativeLoss(brier),
    "neg_expected_calibration_error": NegativeLoss(expected_calibration_error),
}


def label_metric(scoring: str | Callable[..., float]) -> Callable[..., float]:
    """Return the metric of the scorer called `scoring`, as a function metric(y_true, y_pred).

    If `scoring` is a function, return it unchanged.
    """
    if not isinstance(scoring, str):
        return scoring
    either(one_of(*METRICS), advice="a scorer of labels").check("scoring", scoring)
    metric, options = METRICS[scoring]
    return partial(metric, **options)


@validated(name=either(one_of(*SCORERS), advice="scikit-learn's f1_macro is called flat_f1 here"))
def get_scorer(name: str) -> Scorer:
    """Return the scorer with this name, for the argument `scoring` of scikit-learn's GridSearchCV.

    The scorer is a copy, so that calling its method `set_score_request` does not affect later calls of `get_scorer`.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.metrics import get_scorer
    >>> data = make_sequences(30, random_state=0)
    >>> crf, grid = ChainCRF(n_components=30, random_state=0), {"C": [0.01, 10.0]}
    >>> GridSearchCV(crf, grid, scoring=get_scorer("flat_f1"), cv=2).fit(data.X, data.y).best_params_
    {'C': 10.0}
    """
    return deepcopy(SCORERS[name])
