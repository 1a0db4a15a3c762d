"""Choose C and the kernel by maximising the evidence, without held-out data and without a grid.

The prior variance C is found by MacKay's fixed point. The module `laplace` defines theta_hat, H, H_L and size. The
evidence is stationary if

    C = |theta_hat|^2 / (gamma + delta),  gamma = size - tr(H^-1) / C,  delta = tr(H^-1 dH_L / dlog C).

The derivative in delta is taken along dtheta_hat / dlog C = H^-1 theta_hat / C. MacKay omits delta, because it is 0 for
a quadratic loss. For the loss of a CRF, the curvature decreases as the weights grow, so that C would be too small
without delta. The fixed point is found by the secant method on log C; each fit starts from the weights of the previous
fit. The terms of the score may be in groups, each with its own C. For each group, theta_hat then has the weights of
this group only, size is their number, and the trace in gamma is over them. The secant method treats each C separately.
If determinants are estimated, each step is expensive, and the search starts at the C that the module `held_out`
chooses.

The hyperparameters of the kernel are found by SciPy's L-BFGS-B, which maximises the evidence over their logarithms
within their bounds; gradients are finite differences. If C is chosen as well, log C is one more variable, which starts
at its fixed point for the given kernel. The landmarks do not change. Each fit starts with weights that give the same
scores at the landmarks as the previous fit.

During the search, determinants and traces of chains with more than EXACT_IN_SEARCH weights are estimated from a few
random vectors. The vectors are the same for all hyperparameters, so that differences of the evidence are more accurate
than its values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from kernelcrf.arrays import Flags, Floats
from kernelcrf.basis.features import FeatureMap, WhitenedMap, make_features
from kernelcrf.fitting.corpus import Groups, Problem, input_of
from kernelcrf.fitting.fit import Fit, Settings, Start, fit, solve
from kernelcrf.fitting.held_out import FIRST_C, choose_held_out_C
from kernelcrf.fitting.laplace import (
    MOST_EXACT,
    FactoredPosterior,
    Laplace,
    PartialPosterior,
    drop_unseen,
    hessian,
    laplace,
    preconditioned,
)
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.linear_systems import solve_cg
from kernelcrf.solvers.preconditioners import Preconditioning, has_single_nodes

LEAST_C, MOST_C = 1e-6, 1e6
CLOSE, CLOSE_BY_DRAWS, MOST_STEPS, LONGEST_STEP, C_RANGE = 0.03, 0.1, 30, np.log(30.0), 100.0
EXACT_IN_SEARCH, SEARCH_DRAWS, VALUE_DRAWS, SEARCH_RTOL = 1000, 4, 16, 1e-2
PATH_RTOL, PATH_STEPS = 1e-2, 100
DIFFERENCE, SEARCH_TOL, MOST_ITERATIONS = 1e-2, 1e-6, 30


def variances(fitted: Fit, groups: Groups) -> Floats:
    """Return the prior variance C of each group of terms."""
    return np.array([next(term.C for term in fitted.layout.terms if term.name in names) for names in groups])


def choose_C(fitted: Fit, groups: Groups, settings: Settings) -> tuple[Fit, Laplace | None]:
    """Find the C of each group that maximises the evidence, by MacKay's fixed point, starting from `fitted`.

    Return the last fit and its evidence. The evidence is None if the search did not converge.

    groups : for each C to choose, the names of the terms that share it; all other terms keep their C.
    """
    settings = replace(settings, certify_full=False)
    is_exact = fitted.layout.size <= _most_exact(fitted)
    known = None if is_exact else Preconditioning.of(fitted.objective)
    if not is_exact and (variances(fitted, groups) == FIRST_C).all():
        Cs = choose_held_out_C(fitted.problem, groups, settings, Start(fitted.maps))
        problem = fitted.problem.with_variances(groups, Cs)
        fitted = solve(problem, fitted.features, settings, Start(weights=fitted.weights))
    x, before = np.log(variances(fitted, groups)), None
    for _ in range(MOST_STEPS):
        approximation = _approximate(fitted, SEARCH_DRAWS, known)
        moves = np.log(_fixed_points(fitted, groups, known, approximation)) - x
        if np.abs(moves).max() <= (CLOSE if is_exact else CLOSE_BY_DRAWS):
            return fitted, approximation
        steps = _secant(x, moves, before)
        before = x, moves
        x = np.clip(x + steps, np.log(LEAST_C), np.log(MOST_C))
        if (x == before[0]).all():
            break
        problem = fitted.problem.with_variances(groups, np.exp(x))
        fitted = solve(problem, fitted.features, settings, Start(weights=fitted.weights))
    return fitted, None


def _fixed_points(fitted: Fit, groups: Groups, known: Preconditioning | None, approximation: Laplace) -> Floats:
    """Return the next C of each group, |theta|^2 / (gamma + delta), for the weights theta of the terms of the group.

    The results are clipped to LEAST_C and MOST_C. The docstring of this module defines gamma and delta.
    """
    terms = fitted.layout.terms
    chosen = [np.concatenate([np.full(term.size, term.name in names) for term in terms]) for names in groups]
    squares = np.array([np.dot(fitted.theta[flags], fitted.theta[flags]) for flags in chosen])
    gammas = np.array(
        [approximation.n_effective if flags.all() else approximation.determined(flags) for flags in chosen]
    )
    determined = gammas + _curvature_changes(fitted, chosen, approximation, known)
    return np.clip(squares / np.maximum(determined, 1e-9), LEAST_C, MOST_C)


def _curvature_changes(
    fitted: Fit, chosen: list[Flags], approximation: Laplace, known: Preconditioning | None
) -> Floats:
    """Return delta = tr(H^-1 dH_L / dlog C) of each group, by central differences; the module docstring explains delta.

    chosen : for each group, flags that select its weights.
    """
    objective, theta, posterior = fitted.objective, fitted.solution.theta, approximation.posterior
    assert posterior is not None
    if isinstance(posterior, PartialPosterior) and isinstance(posterior.inner, FactoredPosterior):
        # Features that never occur do not change the curvature.
        reduced = drop_unseen(objective)
        assert reduced is not None
        (objective, kept), posterior = reduced, posterior.inner
        theta, chosen = theta[kept], [flags[kept] for flags in chosen]
    prior_gradient, changes = objective.layout.penalty_gradient(theta), []
    if isinstance(posterior, FactoredPosterior):
        covariance = posterior.covariance(slice(0, len(theta)))
        for flags in chosen:
            ends = _ends(objective, theta, covariance @ (prior_gradient * flags))
            changes.append(float(np.vdot(covariance, hessian(objective, ends[1]) - hessian(objective, ends[0]))))
        return np.array(changes) / (2 * DIFFERENCE)
    at = objective.evaluate(theta, curvature=True)
    inverse = preconditioned(objective, known).at(at).inverse
    draws = posterior.deviations(SEARCH_DRAWS, np.random.default_rng(0))
    for flags in chosen:
        path, _ = solve_cg(
            lambda v: objective.hessian_product(at, v), -prior_gradient * flags, inverse, PATH_RTOL, PATH_STEPS
        )
        low, high = _ends(objective, theta, path)
        along = [v @ (objective.hessian_product(high, v) - objective.hessian_product(low, v)) for v in draws]
        changes.append(float(np.mean(along)))
    return np.array(changes) / (2 * DIFFERENCE)


def _ends(objective: Objective, theta: Floats, path: Floats) -> list[Evaluation]:
    return [objective.evaluate(theta + step * path, curvature=True) for step in (-DIFFERENCE, DIFFERENCE)]


def _secant(x: Floats, moves: Floats, before: tuple[Floats, Floats] | None) -> Floats:
    """Return the next step of the secant method for each entry of x; the search ends where `moves` is zero.

    moves : for each entry of x, the step of the fixed-point iteration at x.
    before : a pair of the previous x and the previous `moves`. In the first iteration, `before` is None, and the result
        is `moves`.
    """
    steps = moves.copy()
    if before is not None:
        for k in np.flatnonzero(x != before[0]):
            slope = (moves[k] - before[1][k]) / (x[k] - before[0][k])
            if slope < 0:
                steps[k] = -moves[k] / slope
    return np.clip(steps, -LONGEST_STEP, LONGEST_STEP)


def _most_exact(fitted: Fit) -> int:
    """Return the largest number of weights for which the search computes determinants exactly.

    The number is larger if samples are single nodes, because their Hessian is cheap to compute.
    """
    return MOST_EXACT if has_single_nodes(fitted.objective) else EXACT_IN_SEARCH


def _approximate(fitted: Fit, n_draws: int, known: Preconditioning | None = None) -> Laplace:
    return laplace(
        fitted.objective,
        fitted.solution.evaluation,
        n_draws=n_draws,
        rtol=SEARCH_RTOL,
        preconditioning=known,
        most_exact=_most_exact(fitted),
    )


def choose_kernel(
    fitted: Fit, names: Collection[str], groups: Groups, settings: Settings, n_restarts: int = 0
) -> tuple[Fit, bool]:
    """Find the hyperparameters of the kernel, and if requested the C, that maximise the evidence.

    Return the fit with these values, and whether the search converged within its largest number of iterations.

    names : names of the terms that share the kernel.
    groups : for each C that is chosen as well, the names of the terms that share it.
    n_restarts : number of additional searches, which start from hyperparameters drawn uniformly within their bounds.
    """
    kernel = _kernel_of(fitted.problem, names)
    theta, bounds = kernel.hyperparameters()
    if not len(theta):
        with_gamma = ", ".join(name for name, named in NAMED.items() if named.reads_gamma)
        raise ValueError(
            f"C has optimize_kernel=True, but {kernel.described} has no hyperparameters to choose: pass a kernel "
            f"of sklearn.gaussian_process whose bounds are not all 'fixed', or one of {with_gamma}"
        )
    # The landmarks stay fixed: with a growing basis, the evidence would jump from point to point.
    fixed = replace(settings, tol=min(settings.tol, SEARCH_TOL), certify_full=False).with_numbers(lambda _: None)
    latest = fitted
    if groups:
        latest, _ = choose_C(fitted, groups, fixed)
        log_C = np.log(variances(latest, groups))
        theta = np.append(theta, log_C)
        bounds = np.vstack((bounds, log_C[:, None] + np.log([1 / C_RANGE, C_RANGE])))
    n_own = len(theta) - len(groups)

    def fit_at(x: Floats, settings: Settings = fixed) -> Fit:
        """Fit with the hyperparameters exp(x); the last entries of x are log C of each group.

        The fit uses the landmarks of the first fit, and starts with the scores of the latest fit at these landmarks.
        """
        kernel = _kernel_of(latest.problem, names).with_hyperparameters(x[:n_own])
        problem = latest.problem.changed(names, kernel=kernel).with_variances(groups, np.exp(x[n_own:]))
        start = _carry_over(latest, kernel, names, fitted.maps)
        return fit(problem, settings, start if settings is fixed else Start(start.maps, extend=True))

    def evaluate(x: Floats) -> tuple[float, Floats]:
        """Return minus the log evidence at the log hyperparameters x, and its gradient by finite differences."""
        nonlocal latest
        latest = fit_at(x)
        value, gradient = -_approximate(latest, VALUE_DRAWS).log_evidence, np.empty(len(x))
        for k in range(len(x)):
            step = DIFFERENCE if x[k] + DIFFERENCE <= bounds[k, 1] else -DIFFERENCE
            there = x.copy()
            there[k] += step
            gradient[k] = (-_approximate(fit_at(there), VALUE_DRAWS).log_evidence - value) / step
        return value, gradient

    rng = np.random.default_rng(settings.random_state)
    starts = [theta, *(rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts))]
    options: Any = {"maxiter": MOST_ITERATIONS, "ftol": 1e-7, "gtol": 0.02}
    box: Any = bounds
    results = [minimize(evaluate, start, jac=True, method="L-BFGS-B", bounds=box, options=options) for start in starts]
    best = min(results, key=lambda result: float(result.fun))
    # The first kernel may have been so smooth that it has fewer landmarks than the settings ask for.
    last = replace(fixed, landmarks=settings.landmarks, of_inputs=settings.of_inputs)
    return fit_at(best.x, fixed if settings.adds_landmarks else last), bool(best.success)


def _kernel_of(problem: Problem, names: Collection[str]) -> InputKernel:
    return input_of(next(term for term in problem.terms if term.name in names))[1]


def _carry_over(near: Fit, kernel: InputKernel, names: Collection[str], first: Mapping[str, FeatureMap]) -> Start:
    """Return the starting point of a fit with a new kernel, based on the fit `near` with another kernel.

    The landmarks are those of the maps `first`. The weights give the same scores at these landmarks as the weights of
    `near`. The fit `near` may have fewer landmarks than `first`, if its kernel is very smooth.
    """
    end = near.end
    maps, weights = dict(end.maps), dict(end.weights)
    # Terms that share landmarks share one map.
    for earlier in {id(feature_map): feature_map for name, feature_map in end.maps.items() if name in names}.values():
        if not isinstance(earlier, WhitenedMap):
            continue
        group = [name for name in end.weights if name in names and end.maps[name] is earlier]
        chosen = first[group[0]]
        assert isinstance(chosen, WhitenedMap)
        features = make_features(kernel, chosen.landmarks, None, "exact").map
        assert isinstance(features, WhitenedMap)
        on_landmarks = np.asarray(earlier.transform(features.landmarks), np.float64)
        R = np.asarray(features.R, np.float64)
        for name in group:
            maps[name] = features
            weights[name] = solve_triangular(R, on_landmarks @ end.weights[name], lower=True)
    return Start(maps, weights)
