"""Choose C and the kernel by maximising the evidence, without held-out data and without a grid.

The prior variance C is found by MacKay's fixed point. The module `laplace` defines theta_hat, H, H_L and size. The
evidence is stationary if

    C = |theta_hat|^2 / (gamma + delta),  gamma = size - tr(H^-1) / C,  delta = tr(H^-1 dH_L / dlog C).

The derivative in delta is taken along dtheta_hat / dlog C = H^-1 theta_hat / C. MacKay omits delta, because it is 0 for
a quadratic loss. For the loss of a CRF, the curvature decreases as the weights grow, so that C would be too small
without delta. The fixed point is found by the secant method on log C; each fit starts from the weights of the previous
fit. If determinants are estimated, each step is expensive, and the search starts at the C that the module `held_out`
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

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from kernelcrf.arrays import Flags, Floats
from kernelcrf.basis.features import WhitenedMap, make_features
from kernelcrf.fitting.corpus import Problem, input_of
from kernelcrf.fitting.fit import Fit, Settings, Start, fit, solve
from kernelcrf.fitting.held_out import FIRST_C, choose_held_out_C
from kernelcrf.fitting.laplace import MOST_EXACT, FactoredPosterior, Laplace, hessian, laplace, preconditioned
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.named import NAMED
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.linear_systems import solve_cg
from kernelcrf.solvers.preconditioners import Preconditioning, has_single_nodes

LEAST_C, MOST_C = 1e-6, 1e6
CLOSE, CLOSE_BY_DRAWS, MOST_STEPS, LONGEST_STEP, C_RANGE = 0.03, 0.1, 30, np.log(30.0), 100.0
EXACT_IN_SEARCH, SEARCH_DRAWS, VALUE_DRAWS, SEARCH_RTOL = 1000, 4, 16, 1e-2
PATH_RTOL, PATH_STEPS = 1e-2, 100
DIFFERENCE, SEARCH_TOL, MOST_ITERATIONS = 1e-2, 1e-6, 30


def shared_variance(fitted: Fit, free: Collection[str]) -> float:
    """Return the prior variance C that the terms named in `free` share."""
    return next(term.C for term in fitted.layout.terms if term.name in free)


def choose_C(fitted: Fit, free: Collection[str], settings: Settings) -> tuple[Fit, Laplace | None]:
    """Find the C that maximises the evidence, by MacKay's fixed point, starting from `fitted`.

    Return the last fit and its evidence. The evidence is None if the search did not converge.

    free : names of the terms that share this C; all other terms keep their C.
    """
    settings = replace(settings, certify_full=False)
    is_exact = fitted.layout.size <= _most_exact(fitted)
    known = None if is_exact else Preconditioning.of(fitted.objective)
    if not is_exact and shared_variance(fitted, free) == FIRST_C:
        C = choose_held_out_C(fitted.problem, free, settings, Start(fitted.maps))
        fitted = solve(fitted.problem.changed(free, C=C), fitted.features, settings, Start(weights=fitted.weights))
    x, before = float(np.log(shared_variance(fitted, free))), None
    for _ in range(MOST_STEPS):
        found = _approximate(fitted, SEARCH_DRAWS, known)
        move = float(np.log(_fixed_point(fitted, free, known, found))) - x
        if abs(move) <= (CLOSE if is_exact else CLOSE_BY_DRAWS):
            return fitted, found
        step = _secant(x, move, before)
        before = x, move
        x = float(np.clip(x + step, np.log(LEAST_C), np.log(MOST_C)))
        if x == before[0]:
            break
        problem = fitted.problem.changed(free, C=float(np.exp(x)))
        fitted = solve(problem, fitted.features, settings, Start(weights=fitted.weights))
    return fitted, None


def _fixed_point(fitted: Fit, free: Collection[str], known: Preconditioning | None, found: Laplace) -> float:
    """Return the next C of the search, |theta|^2 / (gamma + delta), for the weights theta of the terms in `free`.

    The result is clipped to LEAST_C and MOST_C. The docstring of this module defines gamma and delta.
    """
    chosen = np.concatenate([np.full(term.size, term.name in free) for term in fitted.layout.terms])
    theta = fitted.theta[chosen]
    gamma = found.n_effective if chosen.all() else found.determined(chosen)
    determined = gamma + _curvature_change(fitted, chosen, found, known)
    return float(np.clip(np.dot(theta, theta) / max(determined, 1e-9), LEAST_C, MOST_C))


def _curvature_change(fitted: Fit, chosen: Flags, found: Laplace, known: Preconditioning | None) -> float:
    """Return delta = tr(H^-1 dH_L / dlog C), by a central difference; the module docstring explains delta."""
    objective, theta, posterior = fitted.objective, fitted.solution.theta, found.posterior
    assert posterior is not None
    prior_gradient = objective.layout.times_lam(theta) * chosen
    if isinstance(posterior, FactoredPosterior):
        covariance = posterior.covariance(slice(0, len(theta)))
        ends = _ends(objective, theta, covariance @ prior_gradient)
        change = hessian(objective, ends[1]) - hessian(objective, ends[0])
        return float(np.vdot(covariance, change)) / (2 * DIFFERENCE)
    at = objective.evaluate(theta, curvature=True)
    inverse = preconditioned(objective, known).at(at).inverse
    path, _ = solve_cg(lambda v: objective.hessian_product(at, v), -prior_gradient, inverse, PATH_RTOL, PATH_STEPS)
    ends = _ends(objective, theta, path)
    draws = posterior.deviations(SEARCH_DRAWS, np.random.default_rng(0))
    changes = [np.dot(v, objective.hessian_product(ends[1], v) - objective.hessian_product(ends[0], v)) for v in draws]
    return float(np.mean(changes)) / (2 * DIFFERENCE)


def _ends(objective: Objective, theta: Floats, path: Floats) -> list[Evaluation]:
    return [objective.evaluate(theta + step * path, curvature=True) for step in (-DIFFERENCE, DIFFERENCE)]


def _secant(x: float, move: float, before: tuple[float, float] | None) -> float:
    """Return the next step from x of the secant method, which looks for the x at which `move` is zero.

    before : the x and the `move` of the previous step, or None in the first step. The first step is equal to `move`.
    """
    step = move
    if before is not None and x != before[0]:
        slope = (move - before[1]) / (x - before[0])
        if slope < 0:
            step = -move / slope
    return float(np.clip(step, -LONGEST_STEP, LONGEST_STEP))


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
    fitted: Fit, names: Collection[str], free: Collection[str], settings: Settings, n_restarts: int = 0
) -> tuple[Fit, bool]:
    """Find the hyperparameters of the kernel, and if requested the C, that maximise the evidence.

    Return the fit with these values, and whether the search converged within its largest number of iterations.

    names : names of the terms that share the kernel.
    free : names of the terms whose C is chosen as well; empty if C is not chosen.
    n_restarts : number of further searches, from hyperparameters drawn uniformly within their bounds.
    """
    kernel = _kernel_of(fitted.problem, names)
    theta, bounds = kernel.hyperparameters()
    if not len(theta):
        with_gamma = ", ".join(name for name, named in NAMED.items() if named.reads_gamma)
        raise ValueError(
            f"optimize_kernel=True, but {kernel.described} has no hyperparameters to choose: pass a kernel of "
            f"sklearn.gaussian_process whose bounds are not all 'fixed', or one of {with_gamma}"
        )
    # The landmarks stay fixed: with a growing basis, the evidence would jump from point to point.
    fixed, latest = replace(settings, tol=min(settings.tol, SEARCH_TOL), n_components=None, certify_full=False), fitted
    if free:
        latest, _ = choose_C(fitted, free, fixed)
        log_C = np.log(shared_variance(latest, free))
        theta = np.append(theta, log_C)
        bounds = np.vstack((bounds, log_C + np.log([1 / C_RANGE, C_RANGE])))

    def fit_at(x: Floats) -> Fit:
        """Fit with the hyperparameters exp(x); if C is chosen too, the last entry of x is log C.

        The fit uses the landmarks of the latest fit, and starts with the same scores at these landmarks.
        """
        kernel = _kernel_of(latest.problem, names).with_hyperparameters(x[:-1] if free else x)
        problem = latest.problem.changed(names, kernel=kernel)
        if free:
            problem = problem.changed(free, C=float(np.exp(x[-1])))
        return fit(problem, fixed, _carry_over(latest, kernel, names))

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
    return fit_at(best.x), bool(best.success)


def _kernel_of(problem: Problem, names: Collection[str]) -> InputKernel:
    return input_of(next(term for term in problem.terms if term.name in names))[1]


def _carry_over(near: Fit, kernel: InputKernel, names: Collection[str]) -> Start:
    """Return the starting point of a fit with a new kernel, based on the fit `near` with another kernel.

    The landmarks are those of `near`. The weights give the same scores at the landmarks as `near`.
    """
    end = near.end
    earlier = next(end.maps[name] for name in near.maps if name in names)
    if not isinstance(earlier, WhitenedMap):
        return end
    features = make_features(kernel, earlier.landmarks, None, "exact").map
    assert isinstance(features, WhitenedMap)
    on_landmarks, R = np.asarray(earlier.transform(features.landmarks), np.float64), np.asarray(features.R, np.float64)
    own = {name: W for name, W in end.weights.items() if name in names}
    weights = {name: solve_triangular(R, on_landmarks @ W, lower=True) for name, W in own.items()}
    return Start({**end.maps, **dict.fromkeys(own, features)}, {**end.weights, **weights})
