"""The starting point of a fit.

If labels are missing, the objective P is not convex. Zero is then a bad starting point, because it can be a saddle
point: labels that occur in the data in the same way have equal gradients there, and descent never separates them. The
run therefore starts at a random point. This point is drawn from the prior, and moved towards zero until P is at most
10 % larger than at zero. Additional runs start at points that are drawn from the prior and hardly moved towards zero;
these runs find other stationary points.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from kernelcrf.arrays import Floats, Seed
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.objective import Objective

NEAR, FAR = 0.1, 1e6
MOST_HALVINGS = 60


def first_point(objective: Objective, random_state: Seed = None, rise: float = NEAR) -> Floats:
    """Return the first point of a new fit: the prior mean, or a random point.

    The point is random if the prior mean is 0 and the objective is not convex.

    rise : how much larger the objective may be at a random point than at 0, as a fraction of the objective at 0.
    """
    zero, mean = np.zeros(objective.layout.size), objective.layout.mean
    if objective.is_convex or mean is not None:
        return zero if mean is None else mean
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    drawn = {}
    for term in objective.layout.terms:
        # For a label kernel A A', A' A z has no part that is penalised without changing a score.
        z = rng.standard_normal(term.shape)
        drawn[term.name] = np.sqrt(term.C) * (z if term.k_y.views > 1 else term.k_y.adjoint(term.k_y.expand(z)))
    direction, step = objective.layout.join(drawn), 1.0
    with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        at = objective.evaluate(zero)
        ray = objective.ray(at, direction)
        for _ in range(MOST_HALVINGS):
            if ray.along(step)[0] <= (1 + rise) * at.value:
                return np.asarray(step * direction)
            step /= 2
    return zero
