"""Kernels `k_y = A A'` of the joint labels of cliques; products with the factor A do not form A as a matrix.

    contrasts     k_y = I - 11'/L                           A: the columns of a reflection, orthogonal to 1
    reversible    [y = z] / 2 + [y = z reversed] / 2        A: one column for each labelling and its reverse
    product       k_1 (x) k_2 (x) ...                       A = A_1 (x) A_2 (x) ..., one axis after the other

In the first two, A has orthonormal columns, so that the prior is the plain norm of the weights, with one weight per
degree of freedom. S joint labels take O(S) memory and, except for a `product` of dense factors, O(S) operations.
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
    """The centred kernel of L labels with a factor of L - 1 columns: for two labels, one weight per feature.

    A is the reflection that maps the first axis to 1 / sqrt(L), without its first column. A single label has no
    contrast and no weight.
    """

    L: int

    @property
    def rank(self) -> int:
        """Return L - 1, the number of weights for each feature."""
        return self.L - 1

    @property
    def norm(self) -> float:
        """Return the largest eigenvalue of k_y: 1, since A has orthonormal columns, or 0 for a single label."""
        return float(self.L > 1)

    @cached_property
    def _axis(self) -> Array:
        """Return the vector v of the reflection I - v v'."""
        v = np.full(self.L, -1 / math.sqrt(self.L))
        v[0] += 1.0
        return v if self.L == 1 else np.asarray(v * (math.sqrt(2.0) / np.linalg.norm(v)))

    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z, (..., L - 1) -> (..., L)."""
        v = self._axis.astype(Z.dtype, copy=False)
        out = np.concatenate((np.zeros((*Z.shape[:-1], 1), Z.dtype), Z), axis=-1)
        out -= (Z @ v[1:])[..., None] * v
        return out

    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R, (..., L) -> (..., L - 1)."""
        v = self._axis.astype(R.dtype, copy=False)
        return np.asarray(R[..., 1:] - (R @ v)[..., None] * v[1:])


@dataclass(frozen=True, eq=False)
class Reversible(LabelMap):
    """The kernel of joint labels of `nodes` nodes that have no direction: reversed labels are treated as equal.

    A potential of this kernel has the same value at (a, b) and (b, a), and at (a, m, b) and (b, m, a).
    """

    n_labels: int
    nodes: int
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", self.n_labels**self.nodes)

    @cached_property
    def _orbits(self) -> tuple[Places, Places, Places, Array]:
        """Return each orbit's two labellings (reverses of each other), the orbit of each labelling, and A's entries."""
        places = np.arange(self.L).reshape((self.n_labels,) * self.nodes)
        reverse = places.transpose().ravel()
        first = np.flatnonzero(places.ravel() <= reverse)
        orbit = np.empty(self.L, np.intp)
        orbit[first] = orbit[reverse[first]] = np.arange(len(first))
        entries = np.where(first == reverse[first], 1.0, math.sqrt(0.5))
        return first, reverse[first], orbit, entries

    @property
    def rank(self) -> int:
        """Return the number of labellings, where a labelling and its reverse count as one."""
        return len(self._orbits[0])

    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z."""
        _, _, orbit, entries = self._orbits
        return np.asarray((Z * entries.astype(Z.dtype, copy=False))[..., orbit])

    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R."""
        first, reverse, _, entries = self._orbits
        total = np.where(first == reverse, R[..., first], R[..., first] + R[..., reverse])
        return np.asarray(total * entries.astype(R.dtype, copy=False))


@dataclass(frozen=True, eq=False)
class Product(LabelMap):
    """The kernel of joint labels that is a product of one kernel per node; the last node's label varies fastest."""

    factors: tuple[LabelMap, ...]
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", math.prod(one.L for one in self.factors))

    @property
    def rank(self) -> int:
        """Return the product of the ranks of all factors."""
        return math.prod(one.rank for one in self.factors)

    @property
    def norm(self) -> float:
        """Return the largest eigenvalue of k_y, the product of the norms of all factors."""
        return math.prod(one.norm for one in self.factors)

    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z."""
        table = Z.reshape(*Z.shape[:-1], *(one.rank for one in self.factors))
        for axis, one in enumerate(self.factors, -len(self.factors)):
            table = np.moveaxis(one.expand(np.moveaxis(table, axis, -1)), -1, axis)
        return table.reshape(*Z.shape[:-1], self.L)

    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R."""
        table = R.reshape(*R.shape[:-1], *(one.L for one in self.factors))
        for axis, one in enumerate(self.factors, -len(self.factors)):
            table = np.moveaxis(one.adjoint(np.moveaxis(table, axis, -1)), -1, axis)
        return table.reshape(*R.shape[:-1], self.rank)


def interactions(*cards: int) -> Product:
    """Return a kernel of joint labels that excludes all effects of fewer nodes; its rank is prod (L_v - 1)."""
    return Product(tuple(Contrasts(L) for L in cards))
