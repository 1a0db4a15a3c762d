"""The point at which a fit starts: zero if P is convex, a random point near zero if it is not.

P is convex if all labels are observed, and any start then leads to the same optimum. With missing or ambiguous labels
zero can be a saddle: labels that the data treat alike have equal gradients there, and no descent ever tells them apart.
A step along a random direction, drawn from the prior, makes them differ. The step is as long as P permits: P rises by
at most the share RISE.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from kernelcrf.arrays import Floats, Seed
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.objective import Objective

RISE = 0.1
MOST_HALVINGS = 60


def first_point(objective: Objective, random_state: Seed = None) -> Floats:
    """Return the theta at which a fit starts that does not continue an earlier one."""
    zero = np.zeros(objective.layout.size)
    if objective.is_convex:
        return zero
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    drawn = {}
    for term in objective.layout.terms:
        # A' A z, for a label kernel A A', leaves out what changes no score and would only be penalised.
        scores = term.k_y.expand(rng.standard_normal(term.shape))
        drawn[term.name] = np.sqrt(term.C) * term.k_y.adjoint(scores)
    direction, step = objective.layout.join(drawn), 1.0
    with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        at = objective.evaluate(zero)
        ray = objective.ray(at, direction)
        for _ in range(MOST_HALVINGS):
            if ray.along(step)[0] <= (1 + RISE) * at.value:
                return np.asarray(step * direction)
            step /= 2
    return zero
