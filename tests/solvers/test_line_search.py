"""Line searches on functions of one variable that are known, in place of an objective along a ray."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernelcrf.solvers.line_search import DECREASE, MOST_TRIALS, search


class Line:
    """phi, its slope, and how often each was asked for."""

    def __init__(self, phi, slope):
        self.phi, self.slope, self.direction = phi, slope, np.ones(1)
        self.start = self._at(0.0)
        self.points, self.trials = [], []

    def _at(self, step):
        value, slope = float(self.phi(step)), float(self.slope(step))
        # A bound as of a strongly convex function: closer where the slope is less.
        return SimpleNamespace(value=value, gradient=np.array([slope]), lower_bound=value - slope**2, step=step)

    def point(self, step, *, curvature):
        assert curvature
        self.points.append(step)
        return self._at(step)

    def along(self, step):
        self.trials.append(step)
        return float(self.phi(step)), float(self.slope(step))


def parabola(bottom, height=0.0):
    return Line(lambda t: (t - bottom) ** 2 + height, lambda t: 2 * (t - bottom))


@pytest.mark.parametrize("bottom", [1.0, 0.95, 1.1])
def test_a_step_of_one_is_taken_where_it_serves(bottom):
    line = parabola(bottom)
    found = search(line, curvature=True, wolfe=0.2)
    assert (found.step, found.evaluations, found.at.step) == (1.0, 1, 1.0)
    assert (line.points, line.trials) == ([1.0], [])


@pytest.mark.parametrize("bottom", [1e-6, 0.01, 0.3, 0.49, 2.5, 7.0, 300.0])
@pytest.mark.parametrize("wolfe", [0.9, 0.1, 1e-3])
def test_elsewhere_the_step_meets_both_conditions(bottom, wolfe):
    line = parabola(bottom, height=1.0)
    found = search(line, curvature=True, wolfe=wolfe)
    start = line.start
    assert found.at.value <= start.value + DECREASE * found.step * start.gradient[0] + 1e-14
    assert abs(found.at.gradient[0]) <= wolfe * abs(start.gradient[0])
    assert found.at.step == found.step
    assert found.evaluations == len(line.points) <= 2
    # A secant finds the bottom of a parabola at once where it may go there; else trials cut off a tenth, or double.
    assert len(line.trials) <= 20


def test_a_bottom_between_the_margins_is_found_by_one_secant():
    line = parabola(0.4)
    found = search(line, curvature=True, wolfe=1e-9)
    assert line.trials == pytest.approx([0.4], abs=1e-12)
    assert found.step == pytest.approx(0.4, abs=1e-12)


def test_beyond_the_step_of_one_trials_double():
    line = Line(lambda t: -t if t < 40 else (t - 40) ** 2 - t, lambda t: -1.0 if t < 40 else 2 * (t - 40) - 1.0)
    found = search(line, curvature=True, wolfe=0.5)
    assert line.trials[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    assert 40 < found.step < 41


def test_a_secant_is_kept_a_tenth_away_from_the_ends():
    line = Line(lambda t: np.exp(30 * t) / 30 - 2 * t, lambda t: np.exp(30 * t) - 2)
    search(line, curvature=True, wolfe=0.5)
    assert line.trials[0] == pytest.approx(0.1)
    assert line.trials[1] == pytest.approx(0.01)


def test_where_the_value_is_infinite_the_step_is_cut():
    line = Line(lambda t: (t - 0.2) ** 2 if t < 0.5 else np.inf, lambda t: 2 * (t - 0.2) if t < 0.5 else np.nan)
    found = search(line, curvature=True, wolfe=0.9)
    assert 0 < found.step < 0.5
    assert found.at.value < line.start.value


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_no_step_is_taken_uphill(slope):
    line = Line(lambda t: slope * t, lambda t: slope)
    found = search(line, curvature=True, wolfe=0.9)
    assert (found.at, found.step, found.evaluations) == (None, 0.0, 0)
    assert line.points == []


def test_a_decrease_that_rounding_may_feign_is_none():
    flat = Line(lambda t: 1e16 - 1e-3 * t, lambda t: -1e-3 * (1 - t))
    flat.start.lower_bound = np.inf
    found = search(flat, curvature=True, wolfe=0.9)
    assert (found.at, found.step, found.evaluations) == (None, 0.0, 1)


def test_at_equal_value_a_better_bound_is_an_improvement():
    flat = Line(lambda t: 1e16, lambda t: -1e-3 * (1 - t))
    assert search(flat, curvature=True, wolfe=0.9).at is None
    flat.start.lower_bound = 0.0
    assert search(flat, curvature=True, wolfe=0.9).at.step == 1.0


def test_trials_come_to_an_end():
    line = Line(lambda t: abs(t - 0.3), lambda t: -1.0 if t < 0.3 else 1.0)
    found = search(line, curvature=True, wolfe=1e-3)
    assert len(line.trials) <= MOST_TRIALS
    assert found.step == pytest.approx(0.3, abs=1e-3)
