"""Values that no parameter expects: numbers at the edge of their range, and objects that refuse to be handled."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp


class Stubborn:
    """Cannot be compared, shown, hashed, counted or listed."""

    __hash__ = None

    def _refuse(self, *args):
        raise RuntimeError("this object refuses everything")

    __repr__ = __str__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = __array__ = __call__ = _refuse


class Broadcasting:
    """Answers comparisons with arrays."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return np.array([True, False])

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__

    def __repr__(self):
        return "many\nlines\n" * 100


class Colour(enum.Enum):
    RED = 1
    RBF = "rbf"


class Text(str):
    """A string that is equal to nothing."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("no comparison")


def odd_values():
    """Return new odd values; iterators among them can be used once."""
    numbers = [0, -0.0, 1, -1, -2, 2, 3, 7, 0.5, 2.5, -1e-9, 1e-8, 1e-300, 5e-324, 1e8, 1e16, 1e300, 1.7e308]
    numbers += [
        np.nan,
        np.inf,
        -np.inf,
        10**12,
        2**31,
        2**63,
        -(2**63),
        10**30,
        10**400,
        1j,
        Fraction(1, 3),
        Decimal(1),
    ]
    scalars = [np.float16(0.5), np.float32(1), np.float64(2), np.longdouble(1), np.int8(1), np.int64(5), np.uint64(3)]
    scalars += [np.int64(-1), np.float32(np.nan), np.float64(np.inf), np.bool_(True), np.bool_(False), np.str_("rbf")]
    scalars += [np.complex128(1), np.datetime64("2020-01-01"), np.timedelta64(1, "s"), np.bytes_(b"a"), np.void(b"a")]
    text = [
        "",
        "rbf",
        "linear",
        "auto",
        "none",
        "AUTO",
        " rbf",
        "a\nb\x1b[31m",
        "x" * 5000,
        "\0",
        "é" * 50,
        Text("rbf"),
    ]
    text += [Text("rbf"), b"", b"rbf", bytearray(b"rbf"), Path("nowhere") / "else", Path()]
    plain = [None, True, False, Ellipsis, NotImplemented, pd.NA, pd.NaT, datetime.date(2020, 1, 1), slice(3)]
    arrays = [np.array(1), np.array(1.0), np.array([1.0]), np.zeros(3), np.zeros((2, 2)), np.eye(3), np.eye(2)]
    arrays += [np.ones((3, 3)), np.full((3, 3), np.nan), np.array(["a"]), np.array([None, 1], object), np.ma.masked]
    arrays += [np.zeros((0, 3)), -np.eye(3), np.arange(9.0).reshape(3, 3), sp.eye_array(3).tocsr(), pd.Series([1.0])]
    arrays += [pd.DataFrame({"a": [1]}), np.eye(3).tolist(), [[1, 2], [3]], np.eye(3) * 1e-320, np.eye(3) * 1e300]
    containers = [[], (), {}, set(), [1], [1, 2, 3], (0, 1), [(0, 1)], [(0, 0)], [(0, 99)], [("a", "b")], {"a": 1.0}]
    containers += [{0: -1.0}, {0: 1.0, 1: 2.0}, {0: np.nan}, {0: "x"}, {0, 1, 2}, frozenset({1}), [None], [[]]]
    containers += [[Stubborn()], {1: {2: {3: 4}}}, [2, 1, 0, 2], range(3), iter([1]), (i for i in range(3))]
    containers += [["edges"], ("skips", "edges"), ["edges", "edges"], [0.0, np.nan], [(0.5, 1.5)], [(True, False)]]
    containers += [[("0", "1")], [(0, 1, 2)], [Broadcasting()], [Colour.RED, Colour.RBF]]
    objects = [object(), Stubborn(), Broadcasting(), Colour.RED, Colour.RBF, Colour, int, float, str, list, Stubborn]
    objects += [len, print, max, np.sum, np.mean, lambda X, Y: X @ Y.T, lambda: 0, lambda *given: None, open, globals]
    objects += [np.random.RandomState(0), np.random.default_rng(0), np.random, np.float64, np.dtype("f8"), super]
    objects += [type("Rule", (), {"grow": 3})(), Warning("x")]
    return numbers + scalars + text + plain + arrays + containers + objects
