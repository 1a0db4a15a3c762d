"""Parameters as users pass them: what each may be, declared once, and one error for those that are something else.

A `Parameter` is a list of constraints, of which a value must satisfy one, in the manner of scikit-learn's
`_parameter_constraints`. Estimators declare theirs under that name and check all of them at the start of `fit`; objects
that users construct check theirs when they are made; `validated` declares those of functions and methods.
scikit-learn's own checker is private, takes True for a number, and prints values of any length: it is not used.

Every error has one line: the parameter, its value in at most `MOST_SHOWN` characters, what was expected, and advice.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

MOST_SHOWN = 80
LARGEST_SEED = 2**32 - 1


class ParameterError(ValueError, TypeError):
    """A parameter has a value or a type that it may not have."""


@dataclass(frozen=True)
class Constraint:
    """A set of values: whether a value is in it, and how an error describes it."""

    text: str | tuple[str, ...]
    test: Callable[[Any], Any]

    def accepts(self, value: Any) -> bool:
        """Return whether the value is in the set; a value that cannot even be compared is not."""
        try:
            return bool(self.test(value))
        except Exception:
            return False


@dataclass(frozen=True)
class Parameter:
    """The constraints of a parameter, of which one must hold, and advice for whoever breaks them."""

    constraints: tuple[Constraint, ...]
    advice: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raise a ParameterError unless the value satisfies one of the constraints."""
        if not any(constraint.accepts(value) for constraint in self.constraints):
            raise ParameterError(f"{name}={shown(value)}: expected {self}")

    def __str__(self) -> str:
        """Return what an error says was expected."""
        texts: list[str] = []
        for constraint in self.constraints:
            texts += (constraint.text,) if isinstance(constraint.text, str) else constraint.text
        expected = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
        return f"{expected}; {self.advice}" if self.advice else expected


def either(*constraints: Constraint, advice: str = "") -> Parameter:
    """Return the parameter that satisfies one of the constraints."""
    return Parameter(constraints, advice)


def check_parameters(values: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Raise a ParameterError for the first of the parameters whose value is wrong."""
    for name, parameter in parameters.items():
        if name in values:
            parameter.check(name, values[name])


def validated(**parameters: Parameter) -> Callable[[Function], Function]:
    """Return a decorator that checks these arguments of a function or method before each call."""

    def decorate(function: Function) -> Function:
        takes = signature(function)
        if unknown := set(parameters) - set(takes.parameters):
            raise TypeError(f"{function.__qualname__} has no parameters {sorted(unknown)}")

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            check_parameters(takes.bind(*args, **kwargs).arguments, parameters)
            return function(*args, **kwargs)

        return cast(Function, call)

    return decorate


def shown(value: Any, most: int = MOST_SHOWN) -> str:
    """Return the value as an error shows it: in one line, in at most `most` characters, whatever its `repr` does."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
        value = value.item()
    try:
        if isinstance(value, np.ndarray) or (hasattr(value, "shape") and not isinstance(value, np.generic | type)):
            text = f"<{type(value).__name__} of shape {value.shape}>"
        else:
            text = _SHORT.repr(value)
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    except Exception:
        line = f"<{type(value).__name__}>"
    return line if len(line) <= most else f"{line[: most - 3]}..."


def shown_list(values: Iterable[Any], most: int = 10) -> str:
    """Return the first values as an error shows them, joined by commas, with "..." if there are more."""
    first = list(islice(values, most + 1))
    line = ", ".join(shown(value, 30) for value in first[:most])
    return f"{line}, ..." if len(first) > most else line


def _short() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = MOST_SHOWN - 10
    short.maxlevel = 3
    return short


_SHORT = _short()


def is_real(value: Any) -> bool:
    """Return whether the value is a finite number of Python or NumPy; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and finite(value)


def is_whole(value: Any) -> bool:
    """Return whether the value is an integer of Python or NumPy; True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def finite(value: Any) -> bool:
    """Return whether a number is finite as a float64."""
    return math.isfinite(float(value))


def real(
    *, least: float | None = None, above: float | None = None, most: float | None = None, below: float | None = None
) -> Constraint:
    """Return the constraint of finite numbers within bounds; `above` and `below` are not in the set themselves."""
    bounds = [(">= {}", least), ("above {}", above), ("<= {}", most), ("below {}", below)]
    limits = " and ".join(text.format(f"{bound:g}") for text, bound in bounds if bound is not None)

    def test(value: Any) -> bool:
        if not is_real(value):
            return False
        number = float(value)
        return (
            (least is None or number >= least)
            and (above is None or number > above)
            and (most is None or number <= most)
            and (below is None or number < below)
        )

    return Constraint(f"a finite number {limits}".rstrip(), test)


def whole(*, least: int | None = None, most: int | None = None) -> Constraint:
    """Return the constraint of integers within bounds, which are in the set themselves."""
    limits = f"from {least} to {most}" if None not in (least, most) else f">= {least}" if least is not None else ""

    def test(value: Any) -> bool:
        return is_whole(value) and (least is None or value >= least) and (most is None or value <= most)

    return Constraint(f"an integer {limits}".rstrip(), test)


def one_of(*options: str) -> Constraint:
    """Return the constraint of some strings."""
    known = frozenset(options)
    return Constraint(tuple(map(repr, options)), lambda value: isinstance(value, str) and value in known)


def instance_of(*types: type, text: str) -> Constraint:
    """Return the constraint of objects of some types."""
    return Constraint(text, lambda value: isinstance(value, types))


def has_methods(*names: str, text: str) -> Constraint:
    """Return the constraint of objects, not classes, with some methods."""
    return Constraint(
        text,
        lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names),
    )


def is_path(value: Any) -> bool:
    """Return whether the value names a file: a string or path that is not empty and has no NUL."""
    if not isinstance(value, str | os.PathLike):
        return False
    text = os.fspath(value)
    return isinstance(text, str) and text != "" and "\0" not in text


nothing = Constraint("None", lambda value: value is None)
flag = Constraint("True or False", lambda value: isinstance(value, bool | np.bool_))
function = Constraint("a callable", lambda value: callable(value) and not isinstance(value, type))
path = Constraint("the path of a file", is_path)
positive = real(above=0)

FLAG = either(flag)
POSITIVE = either(positive)
COUNT = either(whole(least=1))
SHARE = either(real(above=0, below=1))
PATH = either(path)
SEED = either(
    whole(least=0, most=LARGEST_SEED),
    instance_of(np.random.RandomState, text="a numpy.random.RandomState"),
    nothing,
)
N_JOBS = either(
    whole(least=1),
    Constraint("-1", lambda value: is_whole(value) and value == -1),
    nothing,
    advice="-1 takes all cores, None is 1",
)
