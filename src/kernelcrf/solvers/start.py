"""The point at which a fit starts: zero if P is convex, a random point near zero if it is not.

P is convex if all labels are observed, and any start then leads to the same optimum. With missing or ambiguous labels
zero can be a saddle: labels that the data treat alike have equal gradients there, and no descent ever tells them apart.
A step along a random direction, drawn from the prior, makes them differ. The step is as long as P permits: P rises by
at most the share RISE.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.objective import Objective

Floats = npt.NDArray[np.float64]

RISE = 0.1
MOST_HALVINGS = 60


def first_point(objective: Objective, random_state: Any = None) -> Floats:
    """Return the theta at which a fit without an earlier one starts.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> from kernelcrf.solvers import first_point
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> objective = fit(sequences, Settings(InputKernel("linear")), LocalEngine()).objective
    >>> bool(first_point(objective).any())  # all labels are observed
    False
    """
    zero = np.zeros(objective.layout.size)
    if objective.is_convex:
        return zero
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    drawn = {}
    for block in objective.layout.blocks:
        # A' A z, for a label kernel A A', leaves out what changes no score and would only be penalised.
        scores = block.clique.expand(rng.standard_normal(block.shape))
        drawn[block.clique.name] = np.sqrt(block.C) * block.clique.adjoint(scores)
    direction, step = objective.layout.join(drawn), 1.0
    with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        at = objective.evaluate(zero)
        ray = objective.ray(at, direction)
        for _ in range(MOST_HALVINGS):
            if ray.along(step)[0] <= (1 + RISE) * at.value:
                return np.asarray(step * direction)
            step /= 2
    return zero
