"""Kernels on inputs and labels together, for a group that acts on both.

A group of G elements g moves inputs x and labels y. The kernel of pairs of an input and a label is

    k((x, y), (x', y')) = sum over g with g y' = y of k_x(x, g x').

If k_x(g x, g x') = k_x(x, x'), a function f with this kernel has the same value for (x, y) and (g x, g y). Fitting it
is the same as fitting separate functions of all labels to G copies of the data, one for each element, with 1 / G of
each loss. Take one label r of each orbit, and let s be the number of elements that leave r where it is. Then

    f(x, y) = sum over g with g r = y of f_r(g^-1 x) / sqrt(s),

where f_r is a function of inputs alone, with the kernel k_x. A token therefore has G rows of features, one for each
moved input g^-1 x, and each orbit of labels has one column of weights. Joint labels of a step have orbits, too. If f
does not depend on inputs, all labels of an orbit have the score sqrt(s) f_r.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Config, Floats, Inputs, Places, UserData, is_sparse
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.validation import either, shown, whole

NODES = either(whole(least=1, most=2))
ROWS = 4096


@dataclass(frozen=True, eq=False)
class Views:
    """Several orders of the columns of an input, so that each input has several rows, one after the other.

    columns : (G, d), row g has the column of the input that becomes column j of row g.
    """

    columns: Places

    def rows(self, X: Inputs) -> Inputs:
        """Return G rows for each row of X."""
        if is_sparse(X) or X.shape[1] != self.columns.shape[1]:
            kind = "is sparse" if is_sparse(X) else f"has {X.shape[1]} columns"
            raise ValueError(
                f"the input {kind}: expected an array of {self.columns.shape[1]} columns, the number that `columns` of "
                "Symmetry moves; pass such arrays, or other `columns`"
            )
        return X[:, self.columns.ravel()].reshape(-1, X.shape[1])

    def blocks(self, X: Inputs) -> Iterable[Inputs]:
        """Yield the result of `rows` in blocks that take little memory."""
        for low in range(0, max(X.shape[0], 1), ROWS):
            yield self.rows(X[low : low + ROWS])

    def to_config(self) -> list[list[int]]:
        """Return the columns as a value for JSON; `from_config` reads it."""
        columns: list[list[int]] = self.columns.tolist()
        return columns

    @classmethod
    def from_config(cls, config: Any) -> Views:
        """Return the object that `to_config` converted to `config`; raise if the columns are not permutations."""
        return cls(read_permutations(config, "columns"))


@dataclass(frozen=True, eq=False)
class Orbits(LabelMap):
    """The kernel of labels that a group moves, or of joint labels of `nodes` tokens that it moves together.

    images : (G, n_labels), entry [g, y] is the label that the element g makes of the label y.
    sees_inputs : whether the score depends on inputs, which the group moves, too. There are then G rows of features.
    """

    images: Places
    nodes: int = 1
    sees_inputs: bool = False

    @property
    def L(self) -> int:  # type: ignore[override]
        """Return the number of joint labels."""
        return int(self.images.shape[1] ** self.nodes)

    @property
    def views(self) -> int:
        return len(self.images) if self.sees_inputs else 1

    @property
    def moves_inputs(self) -> bool:
        return self.sees_inputs

    @property
    def norm(self) -> float:
        return 1.0 if self.sees_inputs else float(len(self.images))

    def _image(self, g: int) -> Places:
        """Return the joint label that element g makes of each joint label."""
        image: Places = self.images[g]
        for _ in range(self.nodes - 1):
            image = (image[:, None] * self.images.shape[1] + self.images[g]).ravel()
        return image

    @cached_property
    def _orbits(self) -> tuple[Places, Places, Floats]:
        """Return the first joint label of each orbit, the orbit of each joint label, and sqrt(s) of each orbit."""
        least = self._image(0).copy()
        for g in range(1, len(self.images)):
            np.minimum(least, self._image(g), out=least)
        first, orbit = np.unique(least, return_inverse=True)
        return first, orbit.ravel(), np.sqrt(len(self.images) / np.bincount(orbit.ravel()))

    @property
    def rank(self) -> int:
        return len(self._orbits[0])

    @cached_property
    def _factor(self) -> Any:
        """Return the factor A as a CSR matrix; its columns are the orbits, for one row of features after the other."""
        first, orbit, roots = self._orbits
        labels = np.arange(self.L)
        if not self.sees_inputs:
            return sp.csr_array((roots[orbit], (labels, orbit)), shape=(self.L, len(first)))
        moved = np.concatenate([self._image(g)[first] for g in range(len(self.images))])
        entries = np.tile(1 / roots, len(self.images)), (moved, np.arange(len(moved)))
        return sp.csr_array(entries, shape=(self.L, len(moved)))

    def expand(self, Z: Array) -> Array:
        return self._product(self._factor, Z)

    def adjoint(self, R: Array) -> Array:
        return self._product(self._factor.T, R)

    @staticmethod
    def _product(A: Any, Z: Array) -> Array:
        rows = np.asarray((A.astype(Z.dtype) @ Z.reshape(-1, Z.shape[-1]).T).T)
        return rows.reshape(*Z.shape[:-1], A.shape[0])

    def to_config(self) -> Config:
        return {
            "kind": "orbits",
            "images": self.images.tolist(),
            "nodes": self.nodes,
            "sees_inputs": self.sees_inputs,
        }

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Orbits:
        images = read_permutations(config["images"], "images")
        return cls(images, int(NODES.check("nodes", config["nodes"])), config["sees_inputs"] is True)


def read_permutations(rows: UserData, name: str) -> Places:
    """Return rows of indices as an array (G, d); raise unless each row is a permutation, and the first the identity."""
    try:
        array = np.array(rows)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise ValueError(f"{name}={shown(rows)}: expected rows of column indices, one row for each element of a group")
    order = np.arange(array.shape[1])
    if not (np.sort(array, axis=1) == order).all() or not (array[0] == order).all():
        raise ValueError(
            f"{name} has a row that is no permutation of 0 to {array.shape[1] - 1}, or moves something in its first "
            "row: expected one permutation for each element of a group, and the identity first"
        )
    return array.astype(np.intp)
