"""Line search along a descent direction: find a step that satisfies Armijo's condition, with a small slope at its end.

The step length 1 is tried first and evaluated with its gradient, because it is nearly always good for Newton
directions. Otherwise the search brackets a step length at which the slope is zero, and approaches it by the secant
method; trials stay away from the ends of the bracket. This works because the slope of a convex objective never
decreases along a line. Scores are cached, so that each trial only needs inference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.objective import Evaluation, Ray

DECREASE = 1e-4
MOST_TRIALS = 40
ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of a line search.

    at : the point that was found, or None if no better point was found.
    step : the step length.
    evaluations : the number of evaluations with gradient; each costs half a pass over the data.
    """

    at: Evaluation | None
    step: float
    evaluations: int


def search(ray: Ray, *, curvature: bool, wolfe: float) -> SearchResult:
    """Find a point on the ray at which the objective is sufficiently smaller than at the start, and the slope is small.

    The slope is the derivative of the objective along the ray.

    wolfe : the largest allowed |slope| at the new point, as a fraction of |slope| at the start.
    curvature : whether the new point must support products with the Hessian.
    """
    value, slope = ray.start.value, float(np.dot(ray.start.gradient, ray.direction))
    noise = ROUNDING * abs(value)
    if slope >= 0:
        return SearchResult(None, 0.0, 0)
    at = ray.point(1.0, curvature=curvature)
    end = float(np.dot(at.gradient, ray.direction))
    if at.value <= value + DECREASE * slope + noise and abs(end) <= wolfe * abs(slope):
        return SearchResult(at, 1.0, 1) if _is_better(at, ray.start, noise) else SearchResult(None, 0.0, 1)
    step = _bracket(ray, value, slope, noise, end, wolfe)
    if step == 0.0:
        return SearchResult(None, 0.0, 1)
    at = ray.point(step, curvature=curvature)
    return SearchResult(at if _is_better(at, ray.start, noise) else None, step, 2)


def _is_better(at: Evaluation, start: Evaluation, noise: float) -> bool:
    """Return whether `at` is better than `start`.

    It is better if its objective is smaller by more than `noise`. It is also better if its objective is larger by at
    most `noise`, and its lower bound on the minimum is larger.
    """
    return at.value < start.value - noise or (at.value <= start.value + noise and at.lower_bound > start.lower_bound)


def _bracket(ray: Ray, value: float, slope: float, noise: float, end: float, wolfe: float) -> float:
    low, slope_low, high, slope_high = 0.0, slope, 1.0, end if np.isfinite(end) else np.inf
    for _ in range(MOST_TRIALS):
        if slope_high < 0:
            low, slope_low = high, slope_high
            step = 2.0 * high
        else:
            secant = low - slope_low * (high - low) / (slope_high - slope_low)
            margin = 0.1 * (high - low)
            step = float(np.clip(secant, low + margin, high - margin))
        trial, slope_trial = ray.along(step)
        if abs(slope_trial) <= wolfe * abs(slope) and trial <= value + DECREASE * step * slope + noise:
            return step
        if slope_high < 0 or slope_trial > 0 or not np.isfinite(trial):
            high, slope_high = step, slope_trial if np.isfinite(slope_trial) else np.inf
        else:
            low, slope_low = step, slope_trial
        if high - low <= ROUNDING * max(1.0, high):
            break
    return low
