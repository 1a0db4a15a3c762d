"""Define functions that users may pass as kernels but that are not kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _distances(X: Array, Y: Array) -> Array:
    return np.sqrt(np.square(X[:, None] - Y[None]).sum(axis=-1))


def negative(X: Array, Y: Array) -> Array:
    """Return a Gram matrix with a negative diagonal."""
    return -X @ Y.T


def indefinite(X: Array, Y: Array) -> Array:
    """Return a sigmoid kernel, whose diagonal is positive but whose eigenvalues are not."""
    return 1.0 + np.tanh(5 * X @ Y.T - 3)


def distance(X: Array, Y: Array) -> Array:
    """Return a distance instead of a similarity."""
    return _distances(X, Y)


def negative_distance(X: Array, Y: Array) -> Array:
    """Return a constant less a distance that exceeds it."""
    return 0.5 - _distances(X, Y)


def asymmetric(X: Array, Y: Array) -> Array:
    """Return values for which k(x, y) differs from k(y, x)."""
    return np.exp(-(_distances(X, Y) ** 2)) * (1 + 0.3 * np.sign(X[:, :1] - Y[:, 0]))


def zero(X: Array, Y: Array) -> Array:
    """Return zero for every pair of inputs."""
    return np.zeros((len(X), len(Y)))


def not_a_number(X: Array, Y: Array) -> Array:
    """Return NaN for every pair of inputs."""
    return np.full((len(X), len(Y)), np.nan)


def infinite(X: Array, Y: Array) -> Array:
    """Return infinity for every pair of inputs."""
    return np.full((len(X), len(Y)), np.inf)


def imaginary(X: Array, Y: Array) -> Array:
    """Return complex numbers instead of real ones."""
    return (X @ Y.T).astype(complex)


def text(X: Array, Y: Array) -> Array:
    """Return text instead of numbers."""
    return np.full((len(X), len(Y)), "a")


def subnormal(X: Array, Y: Array) -> Array:
    """Return a valid kernel whose values are below the least normal number."""
    return 1e-310 * np.exp(-(_distances(X, Y) ** 2))


def huge(X: Array, Y: Array) -> Array:
    """Return a valid kernel near the greatest number."""
    return 1e305 * np.exp(-(_distances(X, Y) ** 2))


INDEFINITE = (negative, indefinite, negative_distance, asymmetric)
WRONG = (zero, distance, not_a_number, infinite, imaginary, text, subnormal, huge)
