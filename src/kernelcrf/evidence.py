"""C and the kernel by the evidence: no data held out, no grid.

    C      MacKay's fixed point. The evidence is stationary in C where
               C = |theta_hat|^2 / (gamma + delta),  gamma = size - tr(H^-1) / C,  delta = tr(H^-1 dH_L / dlog C),
           delta the change of H_L with theta_hat, which moves by dtheta_hat / dlog C = H^-1 theta_hat / C.
           MacKay holds H_L, which leaves delta out: right where the loss is quadratic. Labels make curvature fall as
           weights grow, and C comes out too small without it. From one C to the next by secant steps on log C, the fit
           at one starting from that at the one before.
    kernel log p(y | X) is maximised over the logarithms of its hyperparameters by SciPy's L-BFGS-B within their bounds,
           with differences of the evidence as its gradient; where C is free too, over log C as well, from its fixed
           point under the kernel given. The landmarks stay where they are; a fit starts from the function f of the one
           before, whose weights in the new basis are those that agree with f on the landmarks, R theta = f(B).

While C or the kernel is looked for, chains of more than EXACT_IN_SEARCH weights have their determinants and traces by
few directions, the same ones at every point, so that differences are smoother than the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from kernelcrf.basis.features import WhitenedMap, make_features
from kernelcrf.corpora.corpus import Data
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting import Fit, Settings, Start, fit
from kernelcrf.kernels.hyperparameters import hyperparameters, with_hyperparameters
from kernelcrf.laplace import MOST_EXACT, N_DRAWS, FactoredPosterior, Laplace, hessian, laplace
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.parameters import Layout
from kernelcrf.solvers import Record, solver_named
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import minimise
from kernelcrf.solvers.preconditioners import Preconditioning, has_single_nodes

Floats = npt.NDArray[np.float64]
Callback = Callable[[Record], None] | None

FIRST_C = 1.0
LEAST_C, MOST_C = 1e-6, 1e6
CLOSE, MOST_STEPS, LONGEST_STEP, C_RANGE = 0.03, 30, np.log(30.0), 100.0
EXACT_IN_SEARCH, SEARCH_DRAWS, VALUE_DRAWS, SEARCH_RTOL = 1000, 4, 16, 1e-2
PATH_RTOL, PATH_STEPS = 1e-2, 100
DIFFERENCE, SEARCH_TOL, MOST_ITERATIONS = 1e-2, 1e-6, 30


@dataclass(frozen=True, eq=False)
class Selected:
    """A fit at the C and the kernel that were found, with what Laplace's approximation says of it.

    converged : whether the search ended by itself, rather than by its number of steps or at a bound.
    """

    fit: Fit
    settings: Settings
    laplace: Laplace
    converged: bool


def choose_C(fitted: Fit, settings: Settings, callback: Callback = None, *, n_draws: int = N_DRAWS) -> Selected:
    """MacKay's fixed point, from a fit with `settings`; templates share one C.

    n_draws : of the approximation that is returned, where it is sampled.
    """
    preconditioning = _preconditioning(fitted)
    fitted, converged = _at_fixed_point(fitted, settings, preconditioning, callback)
    C, own = fitted.layout.blocks[0].C, _moved(preconditioning, fitted)
    found = laplace(fitted.objective, fitted.solution.evaluation, n_draws=n_draws, preconditioning=own)
    return Selected(fitted, settings.with_variance(C), found, converged)


def _at_fixed_point(
    fitted: Fit, settings: Settings, preconditioning: Preconditioning | None, callback: Callback
) -> tuple[Fit, bool]:
    """The fit at the C that reproduces itself, and whether it was found."""
    x, before = float(np.log(fitted.layout.blocks[0].C)), None
    for _ in range(MOST_STEPS):
        found = _searched(fitted, preconditioning, SEARCH_DRAWS)
        move = float(np.log(_fixed_point(fitted, found, preconditioning))) - x
        if abs(move) <= CLOSE:
            return fitted, True
        step = _secant(x, move, before)
        before = x, move
        x = float(np.clip(x + step, np.log(LEAST_C), np.log(MOST_C)))
        if x == before[0]:
            break
        fitted = _with_variance(fitted, float(np.exp(x)), settings, callback)
    return fitted, False


def _fixed_point(fitted: Fit, found: Laplace, preconditioning: Preconditioning | None) -> float:
    """|theta|^2 / (gamma + delta), within bounds: below them gamma is all noise, since the data say nothing."""
    theta = fitted.solution.theta
    determined = found.n_effective + _curvature_change(fitted, found, preconditioning)
    return float(np.clip(np.dot(theta, theta) / max(determined, 1e-9), LEAST_C, MOST_C))


def _curvature_change(fitted: Fit, found: Laplace, preconditioning: Preconditioning | None) -> float:
    """Delta = tr(H^-1 dH_L / dlog C), by a central difference along the path of theta_hat."""
    objective, theta, posterior = fitted.objective, fitted.solution.theta, found.posterior
    assert posterior is not None
    prior_gradient = objective.layout.times_lam(theta)
    if isinstance(posterior, FactoredPosterior):
        covariance = posterior.covariance(slice(0, len(theta)))
        ends = _ends(objective, theta, covariance @ prior_gradient)
        change = hessian(objective, ends[1]) - hessian(objective, ends[0])
        return float(np.vdot(covariance, change)) / (2 * DIFFERENCE)
    at = objective.evaluate(theta, curvature=True)
    inverse = (_moved(preconditioning, fitted) or Preconditioning.of(objective)).at(at).inverse
    path, _ = solve_cg(lambda v: objective.hessian_product(at, v), -prior_gradient, inverse, PATH_RTOL, PATH_STEPS)
    ends = _ends(objective, theta, path)
    draws = posterior.deviations(SEARCH_DRAWS, np.random.default_rng(0))
    changes = [np.dot(v, objective.hessian_product(ends[1], v) - objective.hessian_product(ends[0], v)) for v in draws]
    return float(np.mean(changes)) / (2 * DIFFERENCE)


def _ends(objective: Objective, theta: Floats, path: Floats) -> list[Evaluation]:
    return [objective.evaluate(theta + step * path, curvature=True) for step in (-DIFFERENCE, DIFFERENCE)]


def _secant(x: float, move: float, before: tuple[float, float] | None) -> float:
    """The step to where the move would vanish on the line through the last two; the move itself at first."""
    step = move
    if before is not None and x != before[0]:
        slope = (move - before[1]) / (x - before[0])
        if slope < 0:
            step = -move / slope
    return float(np.clip(step, -LONGEST_STEP, LONGEST_STEP))


def _preconditioning(fitted: Fit) -> Preconditioning | None:
    return None if fitted.layout.size <= _most_exact(fitted) else Preconditioning.of(fitted.objective)


def _most_exact(fitted: Fit) -> int:
    """Single nodes have their Hessian from few Gram matrices; chains from a product for each weight."""
    return MOST_EXACT if has_single_nodes(fitted.objective) else EXACT_IN_SEARCH


def _searched(fitted: Fit, preconditioning: Preconditioning | None, n_draws: int) -> Laplace:
    return laplace(
        fitted.objective,
        fitted.solution.evaluation,
        n_draws=n_draws,
        rtol=SEARCH_RTOL,
        preconditioning=_moved(preconditioning, fitted),
        most_exact=_most_exact(fitted),
    )


def _moved(preconditioning: Preconditioning | None, fitted: Fit) -> Preconditioning | None:
    """The same eigenvectors for the same data under another C."""
    return None if preconditioning is None else replace(preconditioning, objective=fitted.objective)


def _with_variance(fitted: Fit, C: float, settings: Settings, callback: Callback) -> Fit:
    """The same data and basis at another C, from the weights that are there."""
    layout = Layout(tuple(replace(block, C=C) for block in fitted.layout.blocks))
    objective = Objective(layout, fitted.objective.partitions, fitted.objective.engine)
    solver = solver_named(settings.solver, objective)
    solution = minimise(
        objective, solver, fitted.solution.theta, tol=settings.tol, max_iter=settings.max_iter, callback=callback
    )
    return replace(fitted, solution=solution, certificate=solution.certificate, objective=objective)


def choose_kernel(
    data: Data,
    fitted: Fit,
    settings: Settings,
    engine: LocalEngine,
    *,
    with_C: bool,
    n_restarts: int = 0,
    callback: Callback = None,
    n_draws: int = N_DRAWS,
) -> Selected:
    """The hyperparameters of the node kernel, and C with them where `with_C`, at which the evidence is greatest.

    n_restarts : searches beyond the first, from hyperparameters drawn evenly within their bounds.
    n_draws : of the approximation that is returned, where it is sampled.
    """
    theta, bounds = hyperparameters(settings.kernel)
    if not len(theta):
        raise ValueError(
            f"optimize_kernel=True and {settings.kernel.described} has no hyperparameters to choose: expected a "
            "kernel of sklearn.gaussian_process with bounds that are not fixed, or one of rbf, poly, laplacian, chi2"
        )
    search = _Search(data, replace(settings, tol=min(settings.tol, SEARCH_TOL)), engine, with_C, callback, fitted)
    if with_C:
        search.latest, _ = _at_fixed_point(fitted, search.settings, _preconditioning(fitted), callback)
        log_C = np.log(search.latest.layout.blocks[0].C)
        theta = np.append(theta, log_C)
        bounds = np.vstack((bounds, log_C + np.log([1 / C_RANGE, C_RANGE])))
    rng = np.random.default_rng(settings.random_state)
    starts = [theta, *(rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts))]
    options: Any = {"maxiter": MOST_ITERATIONS, "ftol": 1e-7, "gtol": 0.02}
    box: Any = bounds
    results = [
        minimize(search.evaluate, start, (bounds,), jac=True, method="L-BFGS-B", bounds=box, options=options)
        for start in starts
    ]
    best = min(results, key=lambda result: float(result.fun))
    final = search.fitted_at(best.x, search.latest)
    found = laplace(final.objective, final.solution.evaluation, n_draws=n_draws)
    return Selected(final, replace(search.settings_at(best.x), tol=settings.tol), found, bool(best.success))


@dataclass(eq=False)
class _Search:
    """The evidence as a function of log hyperparameters; `latest` is the fit at the last point asked for."""

    data: Data
    settings: Settings
    engine: LocalEngine
    with_C: bool
    callback: Callback
    latest: Fit

    def settings_at(self, x: Floats) -> Settings:
        kernel = with_hyperparameters(self.settings.kernel, x[:-1] if self.with_C else x)
        C = float(np.exp(x[-1])) if self.with_C else self.settings.C
        return replace(self.settings, kernel=kernel).with_variance(C)

    def fitted_at(self, x: Floats, near: Fit) -> Fit:
        """The fit at x, on the landmarks and from the function of another."""
        # The landmarks stay: a basis that grows would make the evidence jump from point to point.
        settings = replace(self.settings_at(x), n_components=None)
        return fit(self.data, settings, self.engine, self.callback, _carried(near, settings))

    def evaluate(self, x: Floats, bounds: Floats) -> tuple[float, Floats]:
        """Minus the evidence, and its differences to a point DIFFERENCE away in each hyperparameter."""
        self.latest = self.fitted_at(x, self.latest)
        value, gradient = -self._evidence(self.latest), np.empty(len(x))
        for k in range(len(x)):
            step = DIFFERENCE if x[k] + DIFFERENCE <= bounds[k, 1] else -DIFFERENCE
            there = x.copy()
            there[k] += step
            gradient[k] = (-self._evidence(self.fitted_at(there, self.latest)) - value) / step
        return value, gradient

    @staticmethod
    def _evidence(fitted: Fit) -> float:
        return _searched(fitted, None, VALUE_DRAWS).log_evidence


def _carried(near: Fit, settings: Settings) -> Start:
    """Landmarks of a fit under another kernel, and the weights that agree with its function on them."""
    earlier, end = near.features.map, near.end
    if not isinstance(earlier, WhitenedMap):
        return end
    features = make_features(settings.kernel, earlier.landmarks, None, "exact").map
    assert isinstance(features, WhitenedMap)
    weights = dict(near.weights)
    f = np.asarray(earlier.transform(features.landmarks), np.float64) @ weights["node"]
    weights["node"] = solve_triangular(np.asarray(features.R, np.float64), f, lower=True)
    layout = Layout(tuple(replace(b, n=features.n) if b.clique.name == "node" else b for b in near.layout.blocks))
    return Start(features, end.edge_map, layout.join(weights))
