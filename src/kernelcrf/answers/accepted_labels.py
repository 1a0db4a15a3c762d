"""Find the likeliest labellings of a sequence among those that a function, passed by the user, accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelcrf.arrays import Array, Labels
from kernelcrf.models.chain_field import ChainField
from kernelcrf.models.segments import SegmentField
from kernelcrf.validation import Constraint, either, nothing

PREDICATE = either(nothing, Constraint("a function of the labels of one sequence", callable))


def accepted(
    field: ChainField | SegmentField, classes: Array, n_best: int, where: Callable[[Array], object], max_tried: int
) -> Iterator[list[tuple[Labels, float]]]:
    """Yield, for each sequence, the `n_best` likeliest labellings that `where` accepts, with their log-probabilities.

    First compute a few of the likeliest labellings of a sequence, then four times as many, and so on. Stop if `n_best`
    of them are accepted, or if `max_tried` labellings were tried.
    """
    for i in range(field.chains.n_samples):
        one, kept, tried, k = field.part(i, i + 1), list[tuple[Labels, float]](), 0, max(n_best, 8)
        while len(kept) < n_best and tried < max_tried:
            (ranked,) = one.k_best(min(k, max_tried))
            kept += [(y, log_p) for y, log_p in ranked[tried:] if where(classes[y])]
            if len(ranked) < k:
                break
            tried, k = len(ranked), 4 * k
        yield kept[:n_best]
