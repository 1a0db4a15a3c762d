"""Kernels of joint labels. A joint label is a combination of labels, one for each node of a clique.

A kernel is a matrix k_y with one row and one column per joint label. It has a factor A with k_y = A A', and scores are
computed by products with A. These products are computed without storing A.

    Contrasts     k_y = I - 11'/L                           the columns of A are orthogonal to the vector of ones
    Reversible    [y = z] / 2 + [y = z reversed] / 2        A has one column for each joint label and its reverse
    Product       the Kronecker product of kernels          A is the Kronecker product of their factors

The second line is the entry of k_y for the joint labels y and z. For `Contrasts` and `Reversible`, the columns of A are
orthonormal. No weight is then redundant, and the norm of a function is the Euclidean norm of its weights. For S joint
labels, the memory and the time of a product are proportional to S, unless a `Product` has kernels with dense factors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Config, Places
from kernelcrf.kernels.candidates import Candidates
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.labels import KINDS, LabelKernel, LabelMap
from kernelcrf.kernels.orbits import Orbits
from kernelcrf.validation import COUNT, either, shown, whole

# Files cannot name cliques of more nodes: the number of joint labels would be too long to compute.
MOST_NODES = 32
NODES = either(whole(least=1, most=MOST_NODES))


@dataclass(frozen=True, eq=False)
class Contrasts(LabelMap):
    """The kernel I - 11'/L of L labels, with a factor A of L - 1 columns, so that L - 1 weights per feature suffice.

    A is a reflection matrix without its first column. The reflection maps the first unit vector to the vector whose
    entries are all 1 / sqrt(L).
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

    def to_config(self) -> Config:
        return {"kind": "contrasts", "L": self.L}

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Contrasts:
        return cls(COUNT.check("L", config["L"]))


@dataclass(frozen=True, eq=False)
class Reversible(LabelMap):
    """A kernel of joint labels that gives the same score to a joint label and to the same labels in reverse order.

    For example, the joint labels (a, b) and (b, a) have equal scores, and so have (a, m, b) and (b, m, a).

    n_labels, nodes : the number of labels per node, and the number of nodes of a clique.
    L : the number of joint labels.
    """

    n_labels: int
    nodes: int
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", self.n_labels**self.nodes)

    @cached_property
    def _orbits(self) -> tuple[Places, Places, Places, Array]:
        """Pair each joint label with its reverse, and return four arrays that describe the pairs.

        The first two arrays have the first and the second joint label of each pair, and the third has the index of the
        pair of each joint label. The fourth has the value of the nonzero entries in the column of A for each pair.
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

    def to_config(self) -> Config:
        return {"kind": "reversible", "n_labels": self.n_labels, "nodes": self.nodes}

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Reversible:
        return cls(COUNT.check("n_labels", config["n_labels"]), NODES.check("nodes", config["nodes"]))


@dataclass(frozen=True, eq=False)
class Product(LabelMap):
    """A kernel of joint labels: the product of one kernel per node.

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

    def to_config(self) -> Config:
        return {"kind": "product"}

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Product:
        NODES.check("the number of factors", len(factors))
        if any(one.factors for one in factors):
            raise ValueError(
                "a product of label kernels has a product as a factor: expected kernels of single "
                "nodes; pass the factors of that product one by one"
            )
        return cls(factors)


def interactions(*cards: int) -> Product:
    """Return a kernel of joint labels for pure interactions, as in an analysis of variance.

    With this kernel, the sum of the scores over the labels of any single node is zero. Scores therefore contain no
    effect that depends on only some of the nodes.

    cards : the number of labels of each node.
    """
    return Product(tuple(Contrasts(L) for L in cards))


LABEL_KERNELS: dict[str, type[LabelMap]] = {
    **dict.fromkeys(KINDS, LabelKernel),
    "contrasts": Contrasts,
    "reversible": Reversible,
    "product": Product,
    "durations": DurationKernel,
    "orbits": Orbits,
    "candidates": Candidates,
}
"""The classes of label kernels by the kinds that model files name."""


def label_kernels_to_config(kernels: Iterable[LabelMap]) -> tuple[list[Config], list[int]]:
    """Return a pair: the distinct label kernels as dicts for JSON, and for each kernel the index of its dict.

    Each kernel is stored once, because many terms may have the same kernel or products of the same factors, and a
    kernel may be a large matrix. A product is stored as the indices of its factors, which come before it in the list.
    """
    configs: list[Config] = []
    known: dict[str, int] = {}
    places: dict[int, int] = {}

    def place(kernel: LabelMap) -> int:
        if id(kernel) not in places:
            factors = [place(one) for one in kernel.factors]
            config = kernel.to_config() | ({"factors": factors} if factors else {})
            text = json.dumps(config)
            if text not in known:
                known[text] = len(configs)
                configs.append(config)
            places[id(kernel)] = known[text]
        return places[id(kernel)]

    kernels = list(kernels)
    return configs, [place(kernel) for kernel in kernels]


def label_kernels_from_config(configs: Iterable[Config]) -> list[LabelMap]:
    """Return the label kernels that `label_kernels_to_config` converted to a list of dicts.

    The result takes no more memory than `configs`, whatever numbers `configs` contains.
    """
    kernels: list[LabelMap] = []
    for config in configs:
        if config["kind"] not in LABEL_KERNELS:
            expected = ", ".join(LABEL_KERNELS)
            raise ValueError(
                f"the label kernel has kind={shown(config['kind'])}: expected one of {expected}; the model file may be "
                "damaged: use another copy of it"
            )
        indices = config.get("factors", [])
        if not all(type(i) is int and 0 <= i < len(kernels) for i in indices):
            raise ValueError(
                f"a product of label kernels has the factors {shown(indices)}: expected indices of "
                "kernels that come earlier in the list; the model file may be damaged: use another copy of it"
            )
        kernels.append(LABEL_KERNELS[config["kind"]].from_config(config, tuple(kernels[i] for i in indices)))
    return kernels


def same_label_kernel(first: LabelMap, second: LabelMap) -> bool:
    """Return whether two label kernels have the same factor A, so that weights for one are valid for the other."""
    return label_kernels_to_config([first])[0] == label_kernels_to_config([second])[0]
