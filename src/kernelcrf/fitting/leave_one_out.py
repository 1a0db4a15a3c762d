"""Predict each training sequence by the weights that a fit without this sequence would find, with a certified error.

Let P be the objective, with gradient g and Hessian H at the fitted weights theta. Sequence i adds omega_i f_i to P,
where f_i = -log p(y_i | x_i) and omega_i is its weight; g_i and H_i are the gradient and the Hessian of this part.
Without the sequence, the objective is P_i = P - omega_i f_i. One Newton step from theta almost minimises it,

    theta_i = theta + d_i,    (H - H_i) d_i = g_i - g.

The system is solved by preconditioned conjugate gradients. With up to MOST_EXACT weights, the preconditioner is H,
whose inverse is computed once. Let r be the residual, z = H^-1 r, and p the direction of the last iteration. The next
direction is z + beta p, with the usual number beta of conjugate gradients. Its product with H is r + beta H p, and H p
is known from the last iteration. An iteration thus costs one product with H^-1, for many sequences together, and one
product with H_i. With more weights, H is not stored: each product with H is a pass over the data, and the accuracy is
lower.

The module `left_out` has a bound on the error of the result. If this bound is above a tolerance, further Newton steps
with line searches lower the error. Everything is computed in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelcrf.arrays import Flags, Floats
from kernelcrf.fitting.laplace import MOST_EXACT, FactoredPosterior, hessian, prior_scale
from kernelcrf.fitting.left_out import LeftOut, dual_norm, gradient_rounding, left_out, partition_of
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.linear_systems import Product, lower_factor, solve_cg
from kernelcrf.solvers.loop import Progress, Solver, descend, minimise
from kernelcrf.solvers.preconditioners import Preconditioning

BATCH, CG_ITER, LEAST_RTOL, MOST_RTOL = 64, 250, 1e-10, 1e-3
REFITS, REFIT_ITER = 3, 30
# Linear systems and refits aim at this share of the tolerance.
SHARE = 0.1


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The log-probability of the labels of each training sequence, under weights fitted to all other sequences.

    The landmarks, the kernel and C are those of the fit to all sequences. Arrays have one entry per sequence.

    log_prob : log p(y|x) of the sequence under the weights that were fitted without it.
    error : a certified bound on the absolute difference between `log_prob` and its exact value.
    refitted : whether the weights were fitted again without the sequence, because one Newton step was too inaccurate.
    """

    log_prob: Floats
    error: Floats
    refitted: Flags


@dataclass(frozen=True)
class _NewtonFrom(Solver):
    """Newton's method with conjugate gradients, and the same preconditioner at all points.

    inverse : a function that returns the product of the inverse of the preconditioner and a vector.
    """

    inverse: Product

    def solve(self, start: Floats, progress: Progress) -> str:
        return descend(self, start, progress, curvature=True, wolfe=0.9)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction at the point `at`, and the number of passes over the data that this took."""
        return solve_cg(lambda v: objective.hessian_product(at, v), at.gradient, self.inverse, MOST_RTOL, CG_ITER)


def leave_one_out(
    objective: Objective, theta: Floats, *, refit: bool = True, tol: float = 0.01, most_exact: int = MOST_EXACT
) -> LeaveOneOut:
    """Return the log-probability of the labels of each sequence, under weights fitted to all other sequences.

    theta : the fitted weights, which are near the minimum of the objective.
    refit : whether to fit again without a sequence if the bound on the error of one Newton step is above `tol`.
    most_exact : the largest number of weights for which the inverse of the Hessian is computed.
    """
    if not objective.is_convex:
        raise ValueError(
            "y has missing labels: expected a label for every token, because the fit has no certificate otherwise. Fit "
            "to sequences whose labels are all known"
        )
    if not objective.layout.is_smooth:
        raise ValueError(
            "Newton's method needs a differentiable penalty, but the model has one that is not: fit the model "
            "with penalty=None, or use sklearn.model_selection.cross_val_score"
        )
    objective = _in_double(objective)
    at = objective.evaluate(theta, curvature=True)
    sequences = left_out(objective)
    rounding = gradient_rounding(objective, at, sequences)
    inverse = invert_hessian(objective, at) if objective.layout.size <= most_exact else None
    precondition = Preconditioning.of(objective).at(at).inverse if inverse is None else inverse.__matmul__
    solver, results = _NewtonFrom(precondition), list[tuple[float, float, bool]]()
    for one, step in zip(sequences, newton_steps(at, sequences, tol, inverse, precondition), strict=True):
        others = one.others
        here = others.evaluate(at.theta + step)
        log_prob, error, radius = one.bound(here.theta, here.gradient, rounding, tol)
        refitted = refit and error > tol
        for turn in range(REFITS):
            if not refit or error <= tol:
                break
            gap = 0.5 * (SHARE ** (turn + 1) * radius) ** 2
            here = minimise(others, solver, here.theta, tol=gap / abs(here.value), max_iter=REFIT_ITER).evaluation
            log_prob, error, radius = one.bound(here.theta, here.gradient, rounding, tol)
        results.append((log_prob, error, refitted))
    columns = np.array(results).reshape(-1, 3)
    return LeaveOneOut(columns[:, 0], columns[:, 1], columns[:, 2].astype(bool))


def newton_steps(
    at: Evaluation, sequences: Sequence[LeftOut], tol: float, inverse: Floats | None, precondition: Product
) -> Iterator[Floats]:
    """Yield the Newton step d_i of each sequence, from the fitted weights.

    at : the objective at the fitted weights, evaluated with curvature=True.
    tol : the allowed error of log-probabilities, which determines the accuracy of the steps.
    inverse : the matrix H^-1, or None to compute products with H from the data.
    precondition : a function that returns an approximation of H^-1 v for a vector v.
    """
    for low in range(0, len(sequences), BATCH):
        batch = sequences[low : low + BATCH]
        parts = [_system(at, one, tol) for one in batch]
        if inverse is not None:
            products, R, rtols = zip(*parts, strict=True)
            yield from solve_together(inverse, products, np.array(R), np.array(rtols))
            continue
        for one, part in zip(batch, parts, strict=True):
            yield _solve_alone(at, one, *part[:2], precondition)


def _system(at: Evaluation, one: LeftOut, tol: float) -> tuple[Product, Floats, float]:
    """Return the parts of the linear system for the Newton step d_i that leaves out the sequence `one`.

    The parts are the function v -> H_i v, the right side g_i - g, and the relative accuracy to which to solve it.
    """
    layout, alone = one.objective.layout, one.alone
    sums, state = alone.evaluate(layout, at.theta, 1, curvature=True)
    right = one.weight * sums.gradient - at.gradient
    size = max(dual_norm(layout, right), np.finfo(np.float64).tiny)
    rtol = np.clip(SHARE * one.radius(sums.gradient, tol) / size, LEAST_RTOL, MOST_RTOL)
    return lambda v: one.weight * alone.hessian_product(layout, state, v, 1), right, float(rtol)


def _solve_alone(at: Evaluation, one: LeftOut, product: Product, right: Floats, precondition: Product) -> Floats:
    def whole(v: Floats) -> Floats:
        return one.objective.hessian_product(at, v) - product(v)

    return solve_cg(whole, -right, precondition, MOST_RTOL, CG_ITER)[0]


def solve_together(inverse: Floats, products: Sequence[Product], R: Floats, rtols: Floats) -> Floats:
    """Solve (H - H_i) d_i = r_i for each row r_i of R, and return the solutions d_i as rows.

    inverse : the matrix H^-1.
    products : for each row, a function that returns H_i v for a vector v.
    rtols : for each row, the largest allowed residual, divided by |r_i|.
    """
    solutions, live = np.zeros_like(R), np.arange(len(R))
    limits = np.square(rtols) * _dots(R, R)
    P = HP = np.zeros_like(R)
    before = np.ones(len(R))
    for _ in range(CG_ITER):
        kept = _dots(R, R) > limits[live]
        live, R, P, HP, before = live[kept], R[kept], P[kept], HP[kept], before[kept]
        if not len(live):
            break
        Z = R @ inverse
        now = _dots(R, Z)
        beta = (now / before)[:, None]
        P, HP, before = Z + beta * P, R + beta * HP, now
        AP = HP - np.array([products[i](p) for i, p in zip(live.tolist(), P, strict=True)])
        alpha = (now / _dots(P, AP))[:, None]
        solutions[live] += alpha * P
        R = R - alpha * AP
    return solutions


def invert_hessian(objective: Objective, at: Evaluation) -> Floats:
    """Return the inverse of the Hessian of the objective at the point `at`, evaluated with curvature=True."""
    scale = prior_scale(objective.layout)
    A = hessian(objective, at)
    A *= scale
    A *= scale[:, None]
    return FactoredPosterior(at.theta, scale, lower_factor(A)).covariance(slice(None))


def _in_double(objective: Objective) -> Objective:
    """Return the objective with features in float64."""
    partitions = []
    for k in range(len(objective.partitions)):
        partition = partition_of(objective, k)
        features = {name: one.in_double() for name, one in partition.features.items()}
        partitions.append(replace(partition, features=features))
    return replace(objective, partitions=partitions)


def _dots(A: Floats, B: Floats) -> Floats:
    """Return the inner product of row i of A and row i of B, for each i."""
    return np.asarray(np.einsum("ij,ij->i", A, B))
