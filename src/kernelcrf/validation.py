"""Declare constraints on the parameters that users pass, and raise the same kind of error for every wrong value.

A `Parameter` is a list of constraints; a value must satisfy one of them, as in scikit-learn's
`_parameter_constraints`. Estimators declare constraints next to the defaults, and check all of them at the start of
`fit`. Other classes check their parameters in their constructor. Functions and methods use the decorator `validated`.
scikit-learn's checker is not used: it is private, accepts True as a number, and prints values of any length.

Every error is one line: the parameter, its value in at most `MOST_SHOWN` characters, what was expected, and advice.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter as Argument
from inspect import currentframe, signature
from itertools import islice
from operator import ge, gt, le, lt
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from .arrays import UserData

Function = TypeVar("Function", bound=Callable[..., UserData])

MOST_SHOWN = 80
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxlong = SHORT.maxother = MOST_SHOWN - 10
SHORT.maxlevel = 3
# Packages between a user's call and the code that warns: decorators, searches and pipelines.
NOT_THE_USERS = ("kernelcrf", "sklearn", "joblib", "contextlib", "functools")
LARGEST_SEED = 2**32 - 1
# The longest path and the longest file name, in bytes, that common file systems accept.
LONGEST_PATH, LONGEST_NAME = 4095, 255


class ParameterError(ValueError, TypeError):
    """Raised if a parameter has a value or a type that is not allowed."""


@dataclass(frozen=True)
class Constraint:
    """A set of allowed values of a parameter.

    text : the description of these values in error messages.
    test : a function that returns whether a value is in the set.
    convert : a function that converts an allowed value, for example to a Python float; None leaves values unchanged.
    """

    text: str | tuple[str, ...]
    test: Callable[[UserData], UserData]
    convert: Callable[[UserData], UserData] | None = None

    def accepts(self, value: UserData) -> bool:
        """Return whether the value is in the set; an exception in `test` means that the value is not in the set."""
        try:
            return bool(self.test(value))
        except Exception:
            return False


@dataclass(frozen=True)
class Parameter:
    """The constraints of a parameter; a value must satisfy at least one of them.

    advice : a sentence at the end of the error message.
    """

    constraints: tuple[Constraint, ...]
    advice: str = ""

    def check(self, name: str, value: UserData) -> UserData:
        """Return the value, converted by the first constraint that accepts it; raise a ParameterError if none does."""
        for constraint in self.constraints:
            if constraint.accepts(value):
                return value if constraint.convert is None else constraint.convert(value)
        raise ParameterError(f"{name}={shown(value)}: expected {self}")

    def accepts(self, value: UserData) -> bool:
        """Return whether the value satisfies at least one of the constraints."""
        return any(constraint.accepts(value) for constraint in self.constraints)

    def __str__(self) -> str:
        """Return the description of the allowed values, which follows "expected" in error messages."""
        texts: list[str] = []
        for constraint in self.constraints:
            texts += (constraint.text,) if isinstance(constraint.text, str) else constraint.text
        expected = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
        return f"{expected}; {self.advice}" if self.advice else expected


def either(*constraints: Constraint, advice: str = "") -> Parameter:
    """Return a parameter whose value must satisfy one of the constraints."""
    return Parameter(constraints, advice)


def check_parameters(values: Mapping[str, UserData], parameters: Mapping[str, Parameter]) -> dict[str, UserData]:
    """Check each value and return the converted values; raise a ParameterError for the first wrong value."""
    return {name: parameter.check(name, values[name]) for name, parameter in parameters.items() if name in values}


def validated(**parameters: Parameter) -> Callable[[Function], Function]:
    """Return a decorator that checks and converts the named arguments of a function or method before each call."""

    def decorate(function: Function) -> Function:
        takes = signature(function).parameters
        if unknown := set(parameters) - set(takes):
            raise TypeError(
                f"@validated got the names {sorted(unknown)}, which are no parameters of {function.__qualname__}: "
                "pass only the names of its parameters"
            )
        places = {name: place for place, name in enumerate(takes) if takes[name].kind is Argument.POSITIONAL_OR_KEYWORD}

        @wraps(function)
        def call(*args: UserData, **kwargs: UserData) -> UserData:
            for name, parameter in parameters.items():
                place = places.get(name, len(args))
                if name in kwargs:
                    kwargs[name] = parameter.check(name, kwargs[name])
                elif place < len(args):
                    args = (*args[:place], parameter.check(name, args[place]), *args[place + 1 :])
            return function(*args, **kwargs)

        return cast(Function, call)

    return decorate


def shown(value: UserData, most: int = MOST_SHOWN) -> str:
    """Return the value as text for an error message: one line of at most `most` characters, even if `repr` fails."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
        value = value.item()
    try:
        if isinstance(value, np.ndarray) or (hasattr(value, "shape") and not isinstance(value, np.generic | type)):
            return one_line(f"<{type(value).__name__} of shape {value.shape}>", most)
        return one_line(SHORT.repr(value), most)
    except Exception:
        return one_line(f"<{type(value).__name__}>", most)


def one_line(message: object, most: int = 200) -> str:
    """Return a text, or the message of an error, as one line of at most `most` printable characters."""
    text = " ".join(str(message).split()) or type(message).__name__
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def shown_list(values: Iterable[UserData]) -> str:
    """Return the first ten values as text for an error message, joined by commas, with "..." if there are more."""
    first = [shown(value, 30) for value in islice(values, 11)]
    return ", ".join(first if len(first) <= 10 else [*first[:10], "..."])


def stacklevel_of_user() -> int:
    """Return the `stacklevel` for `warnings.warn` with which a warning points to the line of the user's call.

    The line of the user is the innermost one outside the packages NOT_THE_USERS. Call this function among the arguments
    of `warnings.warn`.
    """
    frame, level = currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in NOT_THE_USERS:
        frame, level = frame.f_back, level + 1
    return max(level, 1)


def is_real(value: UserData) -> bool:
    """Return whether the value is a finite number of Python or NumPy; True and False do not count as numbers."""
    number = is_whole(value) or isinstance(value, float | np.floating)
    return number and math.isfinite(float(value))


def is_whole(value: UserData) -> bool:
    """Return whether the value is an integer of Python or NumPy; True and False do not count as integers."""
    # NumPy's time differences are a subclass of its integers.
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def real(
    *, least: float | None = None, above: float | None = None, most: float | None = None, below: float | None = None
) -> Constraint:
    """Return a constraint for finite numbers x with least <= x <= most and above < x < below; None means no bound."""
    every = [(">=", least, ge), ("above", above, gt), ("<=", most, le), ("below", below, lt)]
    bounds = [(text, bound, holds) for text, bound, holds in every if bound is not None]
    limits = " and ".join(f"{text} {bound:g}" for text, bound, _ in bounds)

    def test(value: UserData) -> bool:
        return is_real(value) and all(holds(float(value), bound) for _, bound, holds in bounds)

    return Constraint(f"a finite number {limits}".rstrip(), test, float)


def whole(*, least: int, most: int | None = None) -> Constraint:
    """Return a constraint for integers from `least` to `most`, both included; most=None means no upper bound."""

    def test(value: UserData) -> bool:
        return is_whole(value) and value >= least and (most is None or value <= most)

    return Constraint(f"an integer >= {least}" if most is None else f"an integer from {least} to {most}", test, int)


def one_of(*options: str) -> Constraint:
    """Return a constraint that allows only the given strings."""
    known = frozenset(options)
    return Constraint(tuple(map(repr, options)), lambda value: isinstance(value, str) and value in known)


def instance_of(*types: type, text: str) -> Constraint:
    """Return a constraint for instances of the given types; `text` describes these instances in errors."""
    return Constraint(text, lambda value: isinstance(value, types))


def has_methods(*names: str, text: str) -> Constraint:
    """Return a constraint for objects (not classes) with all named methods; `text` describes the objects in errors."""
    return Constraint(
        text, lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)
    )


def is_listed(values: UserData) -> bool:
    """Return whether `values` is a list, a set, an array or another collection, except strings and mappings."""
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return isinstance(values, Collection) and not isinstance(values, str | bytes | Mapping | type)


def is_path(value: UserData) -> bool:
    """Return whether the value can name a file: a non-empty string or path without NUL that is not too long."""
    if not isinstance(value, str | os.PathLike):
        return False
    text = os.fspath(value)
    if not isinstance(text, str) or text == "" or "\0" in text or len(os.fsencode(text)) > LONGEST_PATH:
        return False
    return "://" in text or all(len(os.fsencode(name)) <= LONGEST_NAME for name in Path(text).parts)


nothing = Constraint("None", lambda value: value is None)
flag = Constraint("True or False", lambda value: isinstance(value, bool | np.bool_), bool)
function = Constraint("a callable", lambda value: callable(value) and not isinstance(value, type))
path = Constraint("the path of a file", is_path)
positive = real(above=0)

FLAG = either(flag)
POSITIVE = either(positive)
SIZE = whole(least=1, most=2**31 - 1)
COUNT = either(whole(least=1))
LAG = either(whole(least=0, most=10**6))
SHARE = either(real(above=0, below=1))
PATH = either(path)
SEED = either(
    whole(least=0, most=LARGEST_SEED),
    # NumPy imports its random numbers when they are first used.
    Constraint("a numpy.random.RandomState", lambda value: isinstance(value, np.random.RandomState)),
    nothing,
)
N_JOBS = either(
    whole(least=1),
    Constraint("-1", lambda value: is_whole(value) and value == -1, int),
    nothing,
    advice="-1 uses all cores, None means 1",
)
