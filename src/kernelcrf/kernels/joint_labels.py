"""Kernels of joint labels: the labels of all nodes of a clique, taken together.

A kernel matrix of joint labels y and z has a factor A, k_y = A A'. Products with A are computed without storing A.

    Contrasts     k_y = I - 11'/L                           the columns of A are orthogonal to the vector of ones
    Reversible    [y = z] / 2 + [y = z reversed] / 2        A has one column for each labelling and its reverse
    Product       the Kronecker product of kernels          A is the Kronecker product of their factors

In the first two, the columns of A are orthonormal, so that the prior is the Euclidean norm of the weights, with one
weight per degree of freedom. For S joint labels, memory is proportional to S, and so is the time of a multiplication,
unless a `Product` has kernels with dense factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Places
from kernelcrf.kernels.labels import LabelMap


@dataclass(frozen=True, eq=False)
class Contrasts(LabelMap):
    """The kernel I - 11'/L of L labels, with a factor A of L - 1 columns: two labels need only one weight per feature.

    A is a reflection matrix without its first column; the reflection maps the first unit vector to the constant vector
    1 / sqrt(L). A single label has no weights.
    """

    L: int

    @property
    def rank(self) -> int:
        return self.L - 1

    @property
    def norm(self) -> float:
        return float(self.L > 1)

    @cached_property
    def _axis(self) -> Array:
        """Return the vector v of the reflection I - v v', whose columns (without the first) are the factor A."""
        v = np.full(self.L, -1 / math.sqrt(self.L))
        v[0] += 1.0
        return v if self.L == 1 else np.asarray(v * (math.sqrt(2.0) / np.linalg.norm(v)))

    def expand(self, Z: Array) -> Array:
        v = self._axis.astype(Z.dtype, copy=False)
        out = np.concatenate((np.zeros((*Z.shape[:-1], 1), Z.dtype), Z), axis=-1)
        out -= (Z @ v[1:])[..., None] * v
        return out

    def adjoint(self, R: Array) -> Array:
        v = self._axis.astype(R.dtype, copy=False)
        return np.asarray(R[..., 1:] - (R @ v)[..., None] * v[1:])


@dataclass(frozen=True, eq=False)
class Reversible(LabelMap):
    """A kernel of the joint labels of `nodes` nodes, for which labels in reverse order are the same.

    Scores with this kernel are equal for the labels (a, b) and (b, a), and for (a, m, b) and (b, m, a).
    """

    n_labels: int
    nodes: int
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", self.n_labels**self.nodes)

    @cached_property
    def _orbits(self) -> tuple[Places, Places, Places, Array]:
        """Return four arrays about the pairs of a labelling and its reverse, which are the columns of the factor A.

        They are the first and the second labelling of each pair, the pair of each labelling, and the entries of A.
        """
        places = np.arange(self.L).reshape((self.n_labels,) * self.nodes)
        reverse = places.transpose().ravel()
        first = np.flatnonzero(places.ravel() <= reverse)
        orbit = np.empty(self.L, np.intp)
        orbit[first] = orbit[reverse[first]] = np.arange(len(first))
        entries = np.where(first == reverse[first], 1.0, math.sqrt(0.5))
        return first, reverse[first], orbit, entries

    @property
    def rank(self) -> int:
        return len(self._orbits[0])

    def expand(self, Z: Array) -> Array:
        _, _, orbit, entries = self._orbits
        return np.asarray((Z * entries.astype(Z.dtype, copy=False))[..., orbit])

    def adjoint(self, R: Array) -> Array:
        first, reverse, _, entries = self._orbits
        total = np.where(first == reverse, R[..., first], R[..., first] + R[..., reverse])
        return np.asarray(total * entries.astype(R.dtype, copy=False))


@dataclass(frozen=True, eq=False)
class Product(LabelMap):
    """A kernel of joint labels that is a product of one kernel per node.

    Joint labels are ordered so that the label of the last node changes fastest.
    """

    factors: tuple[LabelMap, ...]
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", math.prod(one.L for one in self.factors))

    @property
    def rank(self) -> int:
        return math.prod(one.rank for one in self.factors)

    @property
    def norm(self) -> float:
        return math.prod(one.norm for one in self.factors)

    def expand(self, Z: Array) -> Array:
        table = Z.reshape(*Z.shape[:-1], *(one.rank for one in self.factors))
        for axis, one in enumerate(self.factors, -len(self.factors)):
            table = np.moveaxis(one.expand(np.moveaxis(table, axis, -1)), -1, axis)
        return table.reshape(*Z.shape[:-1], self.L)

    def adjoint(self, R: Array) -> Array:
        table = R.reshape(*R.shape[:-1], *(one.L for one in self.factors))
        for axis, one in enumerate(self.factors, -len(self.factors)):
            table = np.moveaxis(one.adjoint(np.moveaxis(table, axis, -1)), -1, axis)
        return table.reshape(*R.shape[:-1], self.rank)


def interactions(*cards: int) -> Product:
    """Return a kernel of joint labels for effects of all nodes together; effects of fewer nodes are excluded.

    cards : the number of labels of each node.
    """
    return Product(tuple(Contrasts(L) for L in cards))
