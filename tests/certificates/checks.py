"""Check everything that a fitted model says of itself against its dense twin."""

import warnings
from dataclasses import fields

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from certificates.chains import ChainProblem
from certificates.classifiers import ClassifierProblem
from certificates.graphs import GraphProblem
from certificates.label_sets import MultiLabelProblem
from certificates.tables import MarkovProblem
from kernelcrf import TemperatureScaling, load

ROUNDING = {np.float64: 1e-11, np.float32: 5e-6}
"""The rounding that is granted to a sum of scores, relative to its size, by the type of the inputs."""

SHAKEN = 20.0
"""How many times the effect of one other rounding of the kernel's values is granted."""

STATUSES = ("optimal", "stationary", "max_iter", "stalled")

KINDS = (
    (ChainProblem, 0.45),
    (ClassifierProblem, 0.6),
    (GraphProblem, 0.8),
    (MultiLabelProblem, 0.9),
    (MarkovProblem, 1.0),
)
"""Estimators, with the share of the seeds up to which each is drawn."""


def draw(seed, *, plain=False):
    """Return the problem of a seed; `plain` leaves out the draws that `Problem` names."""
    share = np.random.default_rng(seed).random()
    return next(kind for kind, upto in KINDS if share < upto)(seed, plain=plain)


def check(problem, folder):
    """Fit a problem and compare all that its certificate says with the truth; return how the fit ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if problem.refusal is not None:
            return _refused(problem, folder)
        model = problem.fit(folder)
    twin = problem.twin(model, exact=False)
    z = twin.coordinates(problem.weights_of(model))
    slack, noise = rounding(problem, model, twin, z)
    certificate = model.certificate_
    assert certificate.status in STATUSES, certificate.status
    problem.check_gamma(model)
    if hasattr(problem, "is_bound") and problem.is_bound(model):
        _bound(problem, certificate, twin, z, slack)
        return certificate.status
    close(certificate.objective, twin.value(z), slack, "the objective is not that of the weights")
    problem.check_predictions(model, twin, z, noise + (1e-7 if problem.dtype == np.float64 else 1e-3))
    if twin.is_convex:
        _convex(problem, model, twin, z, slack)
        if getattr(problem, "laplace", False):
            allowed = 100 * slack + twin.rounding_of_evidence(z)
            close(model.log_marginal_likelihood(), twin.log_evidence(z), allowed, "the evidence is not Laplace's")
    else:
        assert certificate.status != "optimal", "optimal, with labels missing"
        assert certificate.lower_bound == -np.inf
        if certificate.status == "stationary":
            g = twin.gradient(z)
            assert 0.5 * g @ g <= problem.tol * abs(certificate.objective) + slack, "stationary, with a gradient"
    _saved(problem, model, folder)
    _tempered(problem, model)
    return certificate.status


def rounding(problem, model, twin, z):
    """Return the rounding that is granted to P, and to probabilities beyond what they are granted anyway.

    That of P is relative to P and to the scores that it is a difference of. If K_BB is ill-conditioned, what another
    rounding of the kernel's values changes comes on top, SHAKEN times.
    """
    scores = np.maximum.reduceat(np.abs(twin.phi @ z), twin.starts)
    slack = ROUNDING[problem.dtype] * (1.0 + abs(twin.value(z)) + float(twin.omega @ scores))
    others = problem.shaken_twins(model)
    moved = max((abs(other.value(z) - twin.value(z)) for other in others), default=0.0)
    probabilities = [zip(twin.probabilities(z), other.probabilities(z), strict=True) for other in others]
    noise = max((float(np.abs(p - q).max()) for pairs in probabilities for p, q in pairs), default=0.0)
    return slack + SHAKEN * moved, SHAKEN * noise


def _convex(problem, model, twin, z, slack):
    certificate, tol = model.certificate_, problem.tol
    objective = certificate.objective
    span = twin.optimum(near=z)
    assert span.lower <= objective + slack, "the objective is below the optimum in the span"
    assert certificate.lower_bound <= span.upper + slack, "the lower bound is above the optimum in the span"
    if certificate.status == "optimal":
        assert objective - span.lower <= tol * abs(objective) + slack, "optimal, but not in the span"
        assert certificate.relative_gap <= tol
    if hasattr(problem, "check_certified"):
        problem.check_certified(model, twin, span, slack)
    if certificate.gap_full is None:
        return
    # gap_full speaks of all functions in the space of the kernel.
    exact = problem.twin(model, exact=True)
    full = exact.optimum()
    if hasattr(problem, "check_certified"):
        problem.check_certified(model, exact, full, slack, full=True)
    assert full.lower <= span.upper + slack, "the twins disagree"
    assert objective - certificate.gap_full <= full.upper + slack, "gap_full is below the distance to the optimum"
    if certificate.status == "optimal" and problem.n_components == "auto":
        assert certificate.gap_full <= tol * abs(objective), "optimal, but gap_full is above tol"
        assert objective - full.lower <= tol * abs(objective) + slack, "optimal, but not in the kernel's space"


def _bound(problem, certificate, twin, z, slack):
    """Check that a bound on the negative log posterior is above it, and that no other fit is below the lower bound."""
    assert certificate.objective >= twin.value(z) - slack, "the objective is below what it bounds"
    if not twin.is_convex:
        assert certificate.status != "optimal"
        assert certificate.lower_bound == -np.inf
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        other = problem.refit(solver="newton-cg", tol=1e-7, max_iter=100).certificate_.objective
    assert certificate.lower_bound <= other + slack, "the lower bound is above the objective of another fit"
    if certificate.status == "optimal":
        assert certificate.objective - other <= problem.tol * abs(certificate.objective) + slack, "not optimal"


def _refused(problem, folder):
    message = "no error"
    try:
        problem.fit(folder)
    except (ValueError, TypeError) as error:
        message = str(error)
    assert problem.refusal in message, f"expected {problem.refusal!r} in: {message}"
    return "refused"


def _saved(problem, model, folder):
    """Check that a loaded model has the certificate that was saved, and the same probabilities to the bit."""
    if getattr(problem, "kernel", None) == "tent":
        return
    model.save(folder / "model.kcrf")
    again = load(folder / "model.kcrf")
    for one in fields(model.certificate_):
        assert getattr(again.certificate_, one.name) == getattr(model.certificate_, one.name), one.name
    problem.check_same(model, again)


def _tempered(problem, model):
    """Check that a calibrated model says nothing of itself that does not hold for its own weights."""
    if not hasattr(problem, "held_out") or problem.missing or not problem.dice.pick("tempered", False, True, share=0.2):
        return
    scaled = TemperatureScaling(model).fit(*problem.held_out()).estimator_
    certificate = getattr(scaled, "certificate_", None)
    if certificate is None:
        return
    if np.isnan(certificate.objective):
        assert certificate.status != "optimal"
        assert certificate.lower_bound == -np.inf
        return
    twin = problem.twin(scaled, exact=False)
    z = twin.coordinates(problem.weights_of(scaled))
    slack, _ = rounding(problem, scaled, twin, z)
    close(certificate.objective, twin.value(z), slack, "the objective is not that of the calibrated weights")
    if certificate.status == "optimal":
        assert certificate.objective - twin.optimum().lower <= problem.tol * abs(certificate.objective) + slack


def close(got, expected, slack, message):
    """Raise unless two numbers agree up to rounding."""
    assert abs(got - expected) <= slack, f"{message}: {got!r} for {expected!r}, rounding {slack:.1e}"
