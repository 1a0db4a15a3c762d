"""The choice of a few cases of a test for every run; `pytest -m slow` runs the others."""

import itertools
from collections import Counter


def choose_cases(cases, count=None):
    """Return the places of `count` cases that have all values, and pairs of values, about equally often.

    cases : a dict for each case, from the names of its parameters to hashable values.
    count : by default as many as the parameter with the most values has.
    """
    if count is None:
        count = max(len({case[name] for case in cases}) for name in cases[0])
    uses, chosen, left = Counter(), [], dict(enumerate(cases))
    while left and len(chosen) < count:
        place = min(left, key=lambda k: (_repeats(uses, left[k], 1), _repeats(uses, left[k], 2), k))
        for size in (1, 2):
            uses.update(itertools.combinations(left[place].items(), size))
        chosen.append(place)
        del left[place]
    return sorted(chosen)


def _repeats(uses, case, size):
    """Return how often the values of a case (size 1) or its pairs of values (size 2) were chosen before."""
    return sum(uses[group] for group in itertools.combinations(case.items(), size))
