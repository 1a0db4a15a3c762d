"""Functions that users may hand in as kernels, and that are none."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _distances(X: Array, Y: Array) -> Array:
    return np.sqrt(np.square(X[:, None] - Y[None]).sum(axis=-1))


def negative(X: Array, Y: Array) -> Array:
    """A negative diagonal."""
    return -X @ Y.T


def indefinite(X: Array, Y: Array) -> Array:
    """scikit-learn's sigmoid, by hand: the diagonal is positive, eigenvalues are not."""
    return 1.0 + np.tanh(5 * X @ Y.T - 3)


def distance(X: Array, Y: Array) -> Array:
    """A distance for a similarity."""
    return _distances(X, Y)


def negative_distance(X: Array, Y: Array) -> Array:
    """A distance, made positive by a constant that is too small."""
    return 0.5 - _distances(X, Y)


def asymmetric(X: Array, Y: Array) -> Array:
    """k(x, y) is not k(y, x)."""
    return np.exp(-(_distances(X, Y) ** 2)) * (1 + 0.3 * np.sign(X[:, :1] - Y[:, 0]))


def zero(X: Array, Y: Array) -> Array:
    """Nothing is like anything."""
    return np.zeros((len(X), len(Y)))


def not_a_number(X: Array, Y: Array) -> Array:
    """NaN."""
    return np.full((len(X), len(Y)), np.nan)


def infinite(X: Array, Y: Array) -> Array:
    """Infinity."""
    return np.full((len(X), len(Y)), np.inf)


def imaginary(X: Array, Y: Array) -> Array:
    """Complex numbers."""
    return (X @ Y.T).astype(complex)


def text(X: Array, Y: Array) -> Array:
    """No numbers."""
    return np.full((len(X), len(Y)), "a")


def subnormal(X: Array, Y: Array) -> Array:
    """A kernel whose values are below the least normal number."""
    return 1e-310 * np.exp(-(_distances(X, Y) ** 2))


def huge(X: Array, Y: Array) -> Array:
    """A kernel near the greatest number."""
    return 1e305 * np.exp(-(_distances(X, Y) ** 2))


INDEFINITE = (negative, indefinite, negative_distance, asymmetric)
WRONG = (zero, distance, not_a_number, infinite, imaginary, text, subnormal, huge)
