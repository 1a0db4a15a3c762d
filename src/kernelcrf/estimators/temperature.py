"""Calibration of a fitted model by one number, found on held-out data.

posterior="map"       p(y|x) proportional to exp(score(x, y) / T), the T of the greatest likelihood of held-out
                      labelings: the weights are divided by T, so that the model stays a normalised one of its kind,
                      with marginals, entropies, samples and n-best. The best labelling of a sequence stays the best.
posterior="laplace"   probabilities averaged over N(theta_hat, tau H^-1), the variance temperature tau of the greatest
                      mean log-probability of held-out labels; tau = 0 is the mode alone, and among the choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted

from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.base import DRAWS, POSTERIOR, KernelEstimator
from kernelcrf.estimators.parameter_constraints import ValidatedEstimator
from kernelcrf.validation import Parameter, either, instance_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

COLDEST, HOTTEST = 0.05, 20.0
LEAST_TAU, MOST_TAU = 1e-3, 10.0


class TemperatureScaling(MetaEstimatorMixin, ValidatedEstimator):  # type: ignore[misc]
    """A fitted ChainCRF or KernelClassifier with probabilities calibrated on data that it was not fitted to.

    Parameters
    ----------
    estimator : ChainCRF or KernelClassifier
        Fitted; with laplace=True for posterior="laplace".
    posterior : "map" or "laplace"
        Scale the scores by a temperature, or average over the posterior with a variance temperature.
    n_samples : int or None
        Draws from the posterior; None is 100, or as many as the estimator kept.

    Attributes
    ----------
    temperature_ : T, or tau.
    model_ : for posterior="map", the estimator with its weights divided by T; else the estimator itself. Divided
        weights are no optimum: the status of their certificate is "tempered", with no objective and no bound.

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

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        "estimator": either(instance_of(KernelEstimator, text="a fitted ChainCRF or KernelClassifier")),
        "posterior": POSTERIOR,
        "n_samples": DRAWS["n_samples"],
    }

    def __init__(self, estimator: Any, *, posterior: str = "map", n_samples: int | None = None) -> None:
        self.estimator = estimator
        self.posterior = posterior
        self.n_samples = n_samples

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> TemperatureScaling:
        """Find the temperature on held-out samples; the estimator stays as it is."""
        self._validate_params()
        check_is_fitted(self.estimator)
        if self.posterior == "map":
            self.temperature_ = _minimum(lambda T: -self.estimator._tempered(T)._log_likelihood(X, y), COLDEST, HOTTEST)
            self.model_ = self.estimator._tempered(self.temperature_)
            return self

        def loss(tau: float) -> Any:
            return -self.estimator._mean_log_probability(X, y, self._averaged(X, tau))

        tau = _minimum(loss, LEAST_TAU, MOST_TAU)
        self.temperature_ = tau if loss(tau) < loss(0.0) else 0.0
        self.model_ = self.estimator
        return self

    def predict(self, X: Any) -> Any:
        """What the calibrated model predicts."""
        check_is_fitted(self)
        return self.model_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, as the estimator returns them."""
        check_is_fitted(self)
        return self.model_.predict_proba(X) if self.posterior == "map" else self._averaged(X, self.temperature_)

    def score(self, X: Any, y: Any) -> float:
        """The estimator's own score, of the calibrated model."""
        check_is_fitted(self)
        return float(self.model_.score(X, y))

    @property
    def classes_(self) -> Array:
        """The estimator's classes."""
        return np.asarray(self.estimator.classes_)

    def _averaged(self, X: Any, tau: float) -> Any:
        return self.estimator.predict_proba(X, posterior="laplace", n_samples=self.n_samples, variance_temperature=tau)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _minimum(loss: Any, least: float, most: float) -> float:
    """Where the loss is least between two positive numbers, by Brent's method on the logarithm."""
    found = minimize_scalar(
        lambda x: loss(float(np.exp(x))),
        bounds=(np.log(least), np.log(most)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return float(np.exp(found.x))
