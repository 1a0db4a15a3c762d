"""Calibrate a fitted model with one number, a temperature, which is chosen on held-out data.

posterior="map"       All weights are divided by a temperature T: p(y|x) is proportional to exp(score(x, y) / T). This T
                      maximises one of three likelihoods on held-out data: that of labellings, that of single labels, or
                      that of flags which say whether each predicted span is right. The result is a complete model, with
                      marginals, entropies, samples and n-best. The best labelling of a sequence does not change.
posterior="laplace"   Probabilities are averaged over draws of the weights. The covariance of the draws is multiplied by
                      the temperature tau, which maximises the mean log-probability of held-out labels. With tau = 0,
                      all draws equal the most probable weights.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted

from kernelcrf.answers.spans import right_spans
from kernelcrf.arrays import Array, Flags, Floats, UserData
from kernelcrf.decoding import VITERBI
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.kernel import KernelEstimator
from kernelcrf.estimators.parameters import DRAWS, POSTERIOR, ValidatedEstimator
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.validation import either, instance_of, one_of

COLDEST, HOTTEST = 0.05, 20.0
LEAST_TAU, MOST_TAU = 1e-3, 10.0


@dataclass(frozen=True, eq=False)
class Calibrated:
    """The result of a calibration: the estimator that predicts, with its temperature.

    average : a function that returns the probabilities of X at a temperature; None if the estimator itself returns
        them.
    """

    estimator: Any
    temperature: float
    average: Callable[[UserData, float], Any] | None


@dataclass(eq=False, repr=False)
class TemperatureScaling(MetaEstimatorMixin, ValidatedEstimator):  # type: ignore[misc]
    """Calibrate the probabilities of a fitted ChainCRF, SegmentCRF or KernelClassifier on held-out data.

    Parameters
    ----------
    estimator : ChainCRF, SegmentCRF or KernelClassifier
        The fitted estimator, which is not changed; posterior="laplace" needs one that was fitted with `laplace`.
    posterior : "map" or "laplace", default="map"
        Which probabilities are calibrated. "map" uses the most probable weights, and divides them, and thus all scores,
        by a temperature T. "laplace" averages probabilities over draws from the posterior of the weights, and
        multiplies the covariance of this posterior by a temperature tau.
    likelihood : "labelling", "token" or "span", default="labelling"
        The likelihood that T maximises on the held-out data. "labelling" is that of whole labellings, and "token" is
        that of the labels of single tokens. "span" is the likelihood of whether the spans of the likeliest labelling
        are right, which needs a ChainCRF or SegmentCRF. With posterior="laplace", tau always maximises the likelihood
        of single labels.
    n_samples : int or None, default=None
        Number of draws from the posterior; None means 100, or as many as the estimator kept.

    Attributes
    ----------
    temperature_ : the temperature T or, for posterior="laplace", tau.
    estimator_ : a copy of the estimator with weights divided by T; for posterior="laplace", the estimator itself. The
        divided weights are not an optimum: their certificate has the status "tempered", no objective and no bound.
    classes_ : the labels, in the order of the columns of probabilities.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, TemperatureScaling
    >>> from kernelcrf.datasets import make_sequences
    >>> train, held_out = make_sequences(60, random_state=0), make_sequences(60, random_state=1)
    >>> crf = ChainCRF(C=1000.0, n_components=100, random_state=0).fit(train.X, train.y)
    >>> scaled = TemperatureScaling(crf).fit(held_out.X, held_out.y)
    >>> round(scaled.temperature_, 1)  # above 1: the model was too sure
    2.1
    >>> sure, calibrated = crf.predict_proba(held_out.X[:1])[0][0], scaled.predict_proba(held_out.X[:1])[0][0]
    >>> sure.round(2), calibrated.round(2)
    (array([0.  , 0.02, 0.98]), array([0.  , 0.13, 0.87]))
    >>> scaled.classes_, scaled.predict(held_out.X[:1])[0][:3], round(scaled.score(held_out.X, held_out.y), 2)
    (array([0, 1, 2]), array([2, 2, 1]), 0.92)
    """

    estimator: Annotated[Any, either(instance_of(KernelEstimator, text="a fitted ChainCRF or KernelClassifier"))]
    _: KW_ONLY
    posterior: Annotated[str, POSTERIOR] = "map"
    likelihood: Annotated[str, either(one_of("labelling", "token", "span"))] = "labelling"
    n_samples: Annotated[int | None, DRAWS["n_samples"]] = None

    def fit(self, X: UserData, y: UserData) -> TemperatureScaling:
        """Find the temperature with which the held-out labels y of X are likeliest; `estimator` is not changed."""
        self._validate_params()
        check_is_fitted(self.estimator)
        # If the original is fitted again, the copy keeps its model.
        estimator, average = copy(self.estimator), None
        # This raises an error if no label is known; all temperatures would be equally good then.
        estimator.score(X, y)
        if self.posterior == "map":
            if self.likelihood == "span" and not isinstance(estimator, SequenceEstimator):
                raise ValueError(
                    f"likelihood='span' with a {type(estimator).__name__}: expected a ChainCRF or SegmentCRF, "
                    "which have spans. Use likelihood='labelling' instead"
                )
            temperature = _minimise(lambda T: -self._likelihood(estimator, T, X, y), COLDEST, HOTTEST)
            estimator = _divided(estimator, temperature)
        else:
            average = partial(_average, estimator, self.n_samples)

            def loss(tau: float) -> float:
                return -float(estimator.model_.log_score(y, average(X, tau)))

            tau = _minimise(loss, LEAST_TAU, MOST_TAU)
            temperature = tau if loss(tau) < loss(0.0) else 0.0
        self.calibrated_ = Calibrated(estimator, temperature, average)
        return self

    @property
    def _calibrated(self) -> Calibrated:
        check_is_fitted(self, "calibrated_")
        return self.calibrated_

    @property
    def temperature_(self) -> float:
        """Return the temperature T or, for posterior="laplace", tau."""
        return self._calibrated.temperature

    @property
    def estimator_(self) -> Any:
        """Return the calibrated estimator."""
        return self._calibrated.estimator

    def predict(self, X: UserData) -> Any:
        """Return the labels that the calibrated model predicts."""
        return self._calibrated.estimator.predict(X)

    def predict_proba(self, X: UserData) -> Any:
        """Return calibrated probabilities, in the format of `estimator.predict_proba`."""
        calibrated = self._calibrated
        return (
            calibrated.estimator.predict_proba(X)
            if calibrated.average is None
            else calibrated.average(X, calibrated.temperature)
        )

    def score(self, X: UserData, y: UserData) -> float:
        """Return the score of the calibrated model, as `estimator.score` defines it."""
        return float(self._calibrated.estimator.score(X, y))

    @property
    def classes_(self) -> Array:
        """Return the classes, in the order of the columns of `predict_proba`."""
        return np.asarray(self._calibrated.estimator.classes_)

    def _likelihood(self, estimator: Any, T: float, X: UserData, y: UserData) -> float:
        """Return the mean log-likelihood of labellings, labels or spans, for weights that are divided by T."""
        divided = _divided(estimator, T)
        if self.likelihood == "token":
            return float(divided.model_.log_score(y, divided.predict_proba(X)))
        if self.likelihood == "span":
            # Other decoding rules would predict other spans for each T.
            divided.decoding = VITERBI
            return _likelihood_of_spans(*right_spans(y, divided.distribution(X).spans()))
        return float(divided.model_.log_likelihood(X, y, LocalEngine(divided.n_jobs or 1)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _divided(estimator: Any, temperature: float) -> Any:
    """Return a copy of the estimator whose weights are divided by the temperature."""
    divided = copy(estimator)
    divided.model_ = estimator.model_.divide_weights(temperature)
    return divided


def _average(estimator: Any, n_samples: int | None, X: UserData, tau: float) -> Any:
    return estimator.predict_proba(X, posterior="laplace", n_samples=n_samples, variance_temperature=tau)


def _likelihood_of_spans(p: Floats, right: Flags) -> float:
    """Return the mean log-likelihood of the flags `right`, which are True with the probabilities p; 0 without spans."""
    q = np.clip(np.where(right, p, 1 - p), np.finfo(np.float64).eps, 1.0)
    return float(np.log(q).sum() / max(len(q), 1))


def _minimise(loss: Callable[[float], float], least: float, most: float) -> float:
    """Return the argument between `least` and `most` at which the loss is smallest; search on a logarithmic scale."""
    minimum = minimize_scalar(
        lambda x: loss(float(np.exp(x))),
        bounds=(np.log(least), np.log(most)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return float(np.exp(minimum.x))
