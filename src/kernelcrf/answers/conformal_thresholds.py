"""Choose the threshold of conformal prediction from the scores of calibration data.

A score says how improbable a true value is under the model, such as 1 - p(y_t). A prediction set has all values whose
score is at most the threshold. The n units of the calibration data, such as sequences, must be exchangeable with the
units that are predicted later. There are two kinds of thresholds:

    quantile       the ceil((n + 1) level)-th smallest of n scores, one per unit; a new unit's score is then at most the
                   threshold with probability >= level
    risk control   the smallest threshold t >= 0 with n / (n + 1) R(t) + 1 / (n + 1) <= 1 - level, where R(t) is the
                   mean over units of the share of a unit's scores that are above t (Angelopoulos, Bates, Fisch, Lei
                   and Schuster, "Conformal risk control", 2022); the expected share of a new unit is then <= 1 - level

If n is too small for the level, the threshold is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints

# Levels such as 0.9 have rounding errors.
ROUNDING = 1e-9
# Probabilities differ by rounding errors between batches of samples, most in single precision. Sets that are larger by
# labels with nearly the least probability keep their guarantee.
SLACK = 1e-5


def quantile_threshold(scores: Floats, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores, or infinity if this rank is above n."""
    rank = max(math.ceil((len(scores) + 1) * level - ROUNDING), 1)
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf


def risk_threshold(scores: Floats, units: Ints, n: int, level: float) -> float:
    """Return a threshold above which the expected share of a new unit's scores is at most 1 - level.

    scores, units : scores >= 0, and the unit from 0 to n - 1 that each score belongs to. If a unit has no scores, its
        share is 0.
    """
    allowed = (1 - level) * (n + 1) - 1 + ROUNDING
    if allowed < 0:
        return math.inf
    order = np.argsort(scores)
    weights = 1 / np.bincount(units, minlength=n)[units[order]]
    # Entry k of `lost` is the sum of all shares after the k smallest scores are covered.
    lost = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    return float(np.append(0.0, scores[order])[np.argmax(lost <= allowed)])


def least_probability(threshold: float) -> float:
    """Return the smallest p with 1 - p <= threshold, minus a small margin for the rounding errors of p."""
    return max((1 - threshold) * (1 - SLACK) - 1e-15, 0.0)


class LabellingSet(list[tuple[Array, float]]):
    """A list of labellings of one sequence with their log-probabilities, best first.

    is_complete : whether the list has all labellings of the prediction set. It is False if the set was cut because it
        has more than `max_size` labellings; the true labelling may then be among those that are left out.
    """

    def __init__(self, labellings: Iterable[tuple[Array, float]], is_complete: bool) -> None:
        super().__init__(labellings)
        self.is_complete = is_complete
