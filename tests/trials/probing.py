"""Fit an estimator, ask it everything, and judge the answers.

An answer is fine if every number is finite, probabilities are probabilities, the certificate is valid, and no
warning of the arithmetic was raised. A refusal is fine if it is a ValueError or TypeError that kernelcrf, or
scikit-learn's check of the input, raises itself, in words that say what to do.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF

STATUSES = ("optimal", "stationary", "max_iter", "stalled", "interrupted", "tempered")
REMEDY = re.compile(
    r"expected|use |scale|set |raise |lower |fit |drop |a classifier needs|is required|too large for|contains",
    re.IGNORECASE,
)
OWN = ("kernelcrf", "sklearn")
KEPT = ("coef_", "transitions_", "landmarks_", "objective_curve_", "gap_curve_", "intercept_", "interactions_")
LEAKS = (RuntimeWarning, DeprecationWarning, FutureWarning, np.exceptions.ComplexWarning, LinAlgWarning)


class WrongAnswerError(Exception):
    """Signal an answer that users should never get."""


def outcome(action: Callable[[], Any]) -> str:
    """Return "answered", "refused", or a description of what is wrong."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            action()
            said = "answered"
        except WrongAnswerError as wrong:
            return str(wrong)
        except Exception as error:
            said = _refusal(error)
    leaked = [one for one in heard if issubclass(one.category, LEAKS)]
    if said in ("answered", "refused") and leaked:
        place = f"{Path(leaked[0].filename).name}:{leaked[0].lineno}"
        return f"leaked {leaked[0].category.__name__} at {place}: {leaked[0].message}"
    return said


def _refusal(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = any(f"/{name}/" in frames[-1].filename for name in OWN)
    if isinstance(error, ValueError | TypeError) and ours and REMEDY.search(str(error)):
        return "refused"
    inner = next((f for f in reversed(frames) if "/kernelcrf/" in f.filename), frames[-1])
    place = f"{Path(inner.filename).name}:{inner.lineno}"
    return f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:160]}"


def finite(value: Any, name: str) -> None:
    """Raise if any number in a nested value is not finite."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        if not np.isfinite(value).all():
            raise WrongAnswerError(f"{name} is not finite")
    elif isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise WrongAnswerError(f"{name} is {value}")
    elif isinstance(value, dict):
        for one in value.values():
            finite(one, name)
    elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        for one in value:
            finite(one, name)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            finite(getattr(value, part.name), f"{name}.{part.name}")


def distribution(p: np.ndarray, name: str, tolerance: float) -> None:
    """Raise if rows are not probabilities."""
    finite(p, name)
    if p.size and (p.min() < 0 or p.max() > 1 + tolerance or np.abs(p.sum(axis=-1) - 1).max() > tolerance):
        sums = p.sum(axis=-1)
        raise WrongAnswerError(f"{name} has rows that are no probabilities: sums {sums.min()} to {sums.max()}")


def certificate(model: Any) -> None:
    """Raise if the certificate has an unknown status, numbers that are not finite or a gap above tol."""
    found = model.certificate_
    if found.status not in STATUSES:
        raise WrongAnswerError(f"status {found.status!r}")
    for name in ("objective", "lower_bound", "gap_in_span", "relative_gap"):
        finite(float(getattr(found, name)), f"certificate_.{name}")
    if found.status == "optimal" and found.relative_gap > model.tol * (1 + 1e-6):
        raise WrongAnswerError(f"status optimal at a relative gap of {found.relative_gap:.1e}")


def ask(model: Any, X: Any, y: Any) -> None:
    """Ask a fitted model everything about X and y."""
    certificate(model)
    for name in KEPT:
        finite(getattr(model, name, 0.0), name)
    for name, value in _answers(model, X, y):
        finite(value, name)


def _answers(model: Any, X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    yield "predict", model.predict(X) if not isinstance(model, MarkovNetwork) else 0.0
    if isinstance(model, ChainCRF):
        yield from _chain_answers(model, X, y)
    elif isinstance(model, KernelClassifier):
        p = model.predict_proba(X)
        distribution(p, "predict_proba", 1e-5 if p.dtype == np.float32 else 1e-9)
        yield "decision_function", model.decision_function(X)
        yield "score", model.score(X, y)
        if model.laplace:
            yield "log_marginal_likelihood", model.log_marginal_likelihood()
            distribution(model.predict_proba(X, posterior="laplace", n_samples=5), "averaged", 1e-5)
            yield "latent_mean_and_variance", model.latent_mean_and_variance(X)
            yield "uncertainty", model.uncertainty(X, n_samples=5)
    elif isinstance(model, MultiLabelCRF):
        p = model.predict_proba(X)
        distribution(np.stack((p, 1 - p), axis=-1), "predict_proba", 1e-9)
        yield "decode", model.distribution(X).k_best(2)
        yield "log_prob", model.log_prob(X, y)
        yield "entropy", model.distribution(X).entropy()
        yield "sample", model.distribution(X).sample(2, random_state=0)
        yield "score", model.score(X, y)
    elif isinstance(model, GraphCRF):
        distribution(np.concatenate(list(model.predict_proba(X))), "predict_proba", 1e-9)
        if model.inference == "exact":
            yield "decode", model.distribution(X).k_best(2)
        if model.inference != "gibbs":
            yield "log_prob", model.log_prob(X, y)
            yield "entropy", model.distribution(X).entropy()
        yield "sample", model.distribution(X).sample(2, random_state=0)
        yield "score", model.score(X, y)
    elif isinstance(model, MarkovNetwork):
        yield "score_samples", model.score_samples(X)
        yield "sample", model.sample(3, random_state=0)
        yield "impute", model.impute(X)
        for p in model.predict_proba(X):
            distribution(p, "predict_proba", 1e-9)


def _chain_answers(model: ChainCRF, X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    proba = list(model.predict_proba(X))
    tolerance = 1e-4 if any(p.dtype == np.float32 for p in proba) else 1e-9
    distribution(np.concatenate(proba), "predict_proba", tolerance)
    yield "predict_marginals", list(model.predict_marginals(X))
    for p in model.distribution(X).edge_marginals():
        finite(p, "edge_marginals")
        if len(p) > 1:
            distribution(p[1:].reshape(len(p) - 1, -1), "edge_marginals", tolerance)
    yield "decode", list(model.distribution(X).k_best(2))
    yield "log_prob", model.log_prob(X, y)
    entropy = model.distribution(X).entropy()
    yield "entropy", entropy
    if (entropy < -1e-3).any():
        raise WrongAnswerError(f"entropy is {entropy.min()}")
    yield "sample", list(model.distribution(X).sample(2, random_state=0))
    yield "score", model.score(X, y)
    i = next(i for i, own in enumerate(proba) if len(own))
    explained = model.explain(X[i], 0)
    yield (
        "explain",
        [explained.total, *(term.contribution for term in getattr(explained, "terms", ()))]
        if hasattr(explained, "total")
        else explained,
    )
    yield "select_for_labelling", model.select_for_labelling(X, 1, random_state=0)
    if model.laplace:
        yield "log_marginal_likelihood", model.log_marginal_likelihood()
        yield "averaged", list(model.predict_proba(X, posterior="laplace", n_samples=5))
        yield "uncertainty", model.uncertainty(X, n_samples=5)


def ask_long(model: ChainCRF, X: Any, y: Any) -> None:
    """Ask for what takes little memory per token."""
    certificate(model)
    distribution(model.predict_proba(X)[0], "predict_proba", 1e-9)
    for name, value in (
        ("log_prob", model.log_prob(X, y)),
        ("entropy", model.distribution(X).entropy()),
        ("score", model.score(X, y)),
        ("sample", model.distribution(X).sample(1, random_state=0)),
        ("decode", [score for _, score in model.distribution(X).k_best(2)[0]]),
    ):
        finite(value, name)


def probe(make: Callable[[], Any], X: Any, y: Any, new: Any = None) -> str:
    """Fit, ask about the same data and about new inputs if given, and return the outcome."""

    def action() -> None:
        model = make()
        model.fit(X) if isinstance(model, MarkovNetwork) else model.fit(X, y)
        ask(model, X, y)
        if new is not None:
            ask(model, new, y)

    return outcome(action)
