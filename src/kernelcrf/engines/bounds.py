"""Check in one pass over an array whether all its numbers are within bounds."""

from __future__ import annotations

from kernelcrf.arrays import Array
from kernelcrf.engines.compiled import compiled


def all_within(values: Array, least: float, most: float) -> bool:
    """Return whether `least <= value <= most` for all values of a float array; NaN is not within any bounds."""
    return bool(_all_within(values.reshape(-1), least, most))


@compiled
def _all_within(values: Array, least: float, most: float) -> bool:
    within = True
    for value in values:
        within &= (value >= least) & (value <= most)
    return within
