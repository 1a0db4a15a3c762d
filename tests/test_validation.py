"""What a parameter may be, and what an error says of a value that it may not be."""

import enum
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from kernelcrf.validation import (
    COUNT,
    FLAG,
    MOST_SHOWN,
    N_JOBS,
    PATH,
    POSITIVE,
    SEED,
    ParameterError,
    either,
    nothing,
    one_of,
    real,
    shown,
    validated,
    whole,
)


class Stubborn:
    """Refuses to be compared or shown."""

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    def __bool__(self):
        raise RuntimeError("no")


class Winding:
    """Is shown in many lines, with a terminal's control sequence."""

    def __repr__(self):
        return "one\ntwo\x1b[31m " * 1000


class Colour(enum.Enum):
    RED = 1


ODD = [
    Stubborn(),
    [Stubborn()],
    Winding(),
    10**400,
    10**5000,
    "a\nb" * 1000,
    b"\xff" * 1000,
    list(range(10**5)),
    dict.fromkeys(range(1000), "x" * 1000),
    np.zeros((1000, 1000)),
    [[[[[[1]]]]]],
    object(),
    int,
    len,
    Colour.RED,
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_a_value_is_shown_in_one_short_line(value):
    text = shown(value)
    assert 0 < len(text) <= MOST_SHOWN
    assert text.isprintable()


@pytest.mark.parametrize(
    ("parameter", "right", "wrong"),
    [
        (
            POSITIVE,
            [1, 0.5, np.float32(1), np.int64(5), 5e-324, 2**70, np.float16(0.5)],
            [0, -0.0, -1, np.nan, np.inf, 10**400, True, np.bool_(True), "1", Fraction(1), Decimal(1), 1 + 0j],
        ),
        (COUNT, [1, np.int64(5), np.uint8(1), 10**30], [0, 1.0, 2.5, np.float64(2), True, None, "1", np.array(1)]),
        (FLAG, [True, False, np.bool_(True)], [0, 1, None, "yes", np.array(True)]),
        (SEED, [None, 0, np.int64(3), np.random.RandomState(0)], [-1, 2**32, 0.0, np.random.default_rng(0), "0"]),
        (N_JOBS, [1, -1, None, np.int64(-1), 10**6], [0, -2, 1.0, True, "1", np.inf]),
        (PATH, ["a", Path("a")], ["", "a\0b", b"a", 3, None, Path]),
        (either(one_of("a", "b"), nothing), ["a", "b", None], ["c", b"a", ["a"], np.array(["a", "b"]), {"a"}]),
        (either(real(least=0, below=1)), [0, -0.0, 0.5], [1, -1e-9, np.nan]),
        (either(whole(least=2, most=4)), [2, 4], [1, 5]),
    ],
    ids=["positive", "count", "flag", "seed", "n_jobs", "path", "one of some", "real", "whole"],
)
def test_numbers_of_numpy_count_and_truth_values_do_not(parameter, right, wrong):
    for value in right:
        parameter.check("p", value)
    for value in [*wrong, *ODD[:3], [], {}, set(), object(), int, Colour.RED, np.zeros(3)]:
        with pytest.raises(ParameterError, match=r"^p=.*: expected ") as raised:
            parameter.check("p", value)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 300


def test_an_error_lists_what_was_expected():
    parameter = either(one_of("scale", "auto"), real(above=0), advice="see the docs")
    with pytest.raises(ParameterError) as raised:
        parameter.check("gamma", "small")
    assert str(raised.value) == "gamma='small': expected 'scale', 'auto' or a finite number above 0; see the docs"
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, TypeError)


def test_arguments_of_functions_are_checked_by_name_however_they_are_passed():
    @validated(k=COUNT)
    def first(items, k=1):
        """Return the first items."""
        return items[:k]

    assert first.__doc__ == "Return the first items."
    assert first([1, 2], 1) == first([1, 2]) == first(items=[1, 2], k=np.int64(1)) == [1]
    for call in (lambda: first([1], 0), lambda: first([1], k=0)):
        with pytest.raises(ParameterError, match="k=0: expected an integer >= 1"):
            call()
    with pytest.raises(TypeError, match="which are no parameters of"):
        validated(n=COUNT)(len)
