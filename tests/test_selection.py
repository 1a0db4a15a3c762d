"""The cases that every run takes have each value, and the pairs of values are spread evenly."""

import itertools
from collections import Counter

from selection import choose_cases

CASES = [{"a": a, "b": b, "c": c} for a, b, c in itertools.product(range(5), range(3), range(5))]


def test_chosen_cases_have_all_values_and_pairs_equally_often():
    chosen = [CASES[place] for place in choose_cases(CASES, 15)]
    assert len({(case["a"], case["b"]) for case in chosen}) == 15
    for name, times in (("a", 3), ("b", 5), ("c", 3)):
        assert set(Counter(case[name] for case in chosen).values()) == {times}


def test_by_default_each_value_is_chosen():
    chosen = [CASES[place] for place in choose_cases(CASES)]
    assert len(chosen) == 5
    for name, number in (("a", 5), ("b", 3), ("c", 5)):
        assert len({case[name] for case in chosen}) == number


def test_the_first_seeds_are_chosen_and_never_more_than_there_are():
    seeds = [{"seed": seed} for seed in range(6)]
    assert choose_cases(seeds, 2) == [0, 1]
    assert choose_cases(seeds, 9) == list(range(6))
