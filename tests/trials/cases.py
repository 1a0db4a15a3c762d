"""Data that break careless code: extreme scales, constant and equal columns, one of everything, none of something.

A case is sequences X, a list of (T_i, d) arrays, with labels y. `rows`, `labelled_sets`, `graphs` and `table` make of
it what the other estimators take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[list[np.ndarray], list[np.ndarray]]
EXPONENTS = (-300, -200, -150, -30, 30, 100, 150, 200, 300)
TINY = np.finfo(np.float64).tiny


def plain(seed: int = 0, m: int = 8, longest: int = 6, d: int = 3, n_labels: int = 3) -> Case:
    """Labels that inputs tell, and that depend on each other."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(n_labels, size=int(rng.integers(1, longest + 1))) for _ in range(m)]
    y[0][:] = 0
    y[1] = np.arange(n_labels)
    centres = rng.normal(size=(n_labels, d))
    return [centres[own] + 0.5 * rng.normal(size=(len(own), d)) for own in y], y


def scaled(factor: float) -> Case:
    """All features times a factor."""
    X, y = plain()
    with np.errstate(under="ignore"):
        return [x * factor for x in X], y


def mixed_scales() -> Case:
    """Columns of 1e-300, 1 and 1e150."""
    X, y = plain()
    return [x * np.array([1e-300, 1.0, 1e150]) for x in X], y


def one_huge(value: float) -> Case:
    """One entry among ordinary ones."""
    X, y = plain()
    X[0] = X[0].copy()
    X[0][0, 0] = value
    return X, y


def far_away(offset: float) -> Case:
    """Differences that are small beside a common offset."""
    X, y = plain()
    return [x + offset for x in X], y


def constant_columns() -> Case:
    """Two columns of three are constant."""
    X, y = plain()
    return [np.column_stack((x[:, 0], np.full((len(x), 2), 7.0))) for x in X], y


def equal_tokens() -> Case:
    """All tokens are the same."""
    X, y = plain()
    return [np.ones_like(x) for x in X], y


def zeros() -> Case:
    """All features are zero."""
    X, y = plain()
    return [np.zeros_like(x) for x in X], y


def nearly_equal() -> Case:
    """Tokens that differ in the last bit."""
    X, y = plain()
    rng = np.random.default_rng(1)
    return [1.0 + np.finfo(float).eps * rng.integers(0, 2, size=x.shape) for x in X], y


def duplicate_columns() -> Case:
    """Columns twice."""
    X, y = plain()
    return [np.hstack((x, x, -x)) for x in X], y


def one_token() -> Case:
    """A single token."""
    return [np.array([[1.0, 2.0]])], [np.array([1])]


def two_tokens() -> Case:
    """Two sequences of one token."""
    return [np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]])], [np.array([0]), np.array([1])]


def one_sequence() -> Case:
    """One sequence of a few tokens."""
    X, y = plain()
    return X[1:2], y[1:2]


def one_class() -> Case:
    """One label for all tokens."""
    X, y = plain()
    return X, [np.zeros_like(own) for own in y]


def never_together() -> Case:
    """Labels that never stand next to each other."""
    X, y = plain()
    return X, [np.full_like(own, i % 3) for i, own in enumerate(y)]


def with_empty() -> Case:
    """Empty sequences first, last and between."""
    X, y = plain()
    nothing, none = np.empty((0, 3)), np.empty(0, int)
    return [nothing, *X[:3], nothing, *X[3:], nothing], [none, *y[:3], none, *y[3:], none]


def many_labels() -> Case:
    """500 labels."""
    rng = np.random.default_rng(0)
    y = [rng.permutation(500)[:250], np.arange(250), np.arange(250, 500)]
    return [rng.normal(size=(len(own), 3)) for own in y], y


def wide() -> Case:
    """More columns than tokens."""
    X, y = plain()
    rng = np.random.default_rng(0)
    return [rng.normal(size=(len(x), 300)) for x in X], y


def separable() -> Case:
    """Labels that inputs tell without error, far apart."""
    _, y = plain()
    return [1e3 * np.eye(3)[own] for own in y], y


def single_precision(factor: float) -> Case:
    """float32 times a factor."""
    X, y = plain()
    with np.errstate(under="ignore", over="ignore"):
        return [(x * factor).astype(np.float32) for x in X], y


CASES: dict[str, Callable[[], Case]] = {
    **{f"features of 1e{e}": (lambda e=e: scaled(10.0**e)) for e in EXPONENTS},
    "denormal features": lambda: scaled(TINY / 16),
    "the largest floats": lambda: scaled(5e307),
    "columns of 1e-300, 1 and 1e150": mixed_scales,
    "one entry of 1e20": lambda: one_huge(1e20),
    "one entry of 1e155": lambda: one_huge(1e155),
    "one entry of 1e300": lambda: one_huge(1e300),
    "an offset of 1e8": lambda: far_away(1e8),
    "an offset of 1e15": lambda: far_away(1e15),
    "constant columns": constant_columns,
    "equal tokens": equal_tokens,
    "features of zero": zeros,
    "tokens that differ in the last bit": nearly_equal,
    "duplicate columns": duplicate_columns,
    "one token": one_token,
    "two tokens": two_tokens,
    "one sequence": one_sequence,
    "one class": one_class,
    "labels never seen together": never_together,
    "empty sequences among full ones": with_empty,
    "more columns than tokens": wide,
    "separable labels": separable,
    "float32 of 1e-30": lambda: single_precision(1e-30),
    "float32 of 1e-44": lambda: single_precision(1e-44),
    "float32 of 1e15": lambda: single_precision(1e15),
    "float32 of 1e37": lambda: single_precision(1e37),
}


SCALES = ("features of", "floats", "columns of 1e", "entry of", "offset", "float32", "denormal")


def rows(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Tokens as samples of their own."""
    X, y = case
    return np.concatenate(X), np.concatenate(y)


def labelled_sets(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Tokens with three binary labels each."""
    X, y = rows(case)
    return X, np.column_stack((y % 2, y > 0, (y + np.arange(len(y))) % 2)).astype(int)


def graphs(case: Case) -> tuple[list[Any], list[np.ndarray]]:
    """Sequences as graphs: a path, and an edge from its first to its last node."""
    found = []
    for x in case[0]:
        path = np.column_stack((np.arange(max(len(x) - 1, 0)), np.arange(1, max(len(x), 1))))
        close = np.array([[0, len(x) - 1]]) if len(x) > 2 else np.empty((0, 2), int)
        found.append((x, np.concatenate((path, close)).astype(int)))
    return found, case[1]


def table(case: Case) -> np.ndarray:
    """Discrete variables: the label, and each column by the value of its quartile."""
    X, y = rows(case)
    columns = [np.asarray(y, float)]
    for column in X.T[:3].astype(float):
        order = np.sort(column)
        quartile = np.searchsorted(order, column, side="left") * 4 // len(column)
        columns.append(order[np.minimum(quartile * len(column) // 4, len(column) - 1)])
    return np.column_stack(columns)
