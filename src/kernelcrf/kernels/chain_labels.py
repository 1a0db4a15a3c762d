"""The label kernels of all terms of a chain: those of labels, of steps between labels, and of scores of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelcrf.arrays import Config, Places, UserData
from kernelcrf.kernels.joint_labels import Product
from kernelcrf.kernels.labels import LabelKernel, LabelMap
from kernelcrf.kernels.orbits import Orbits, Views


class ChainLabels(ABC):
    """Base class of objects that have the label kernels of all terms of a chain."""

    @abstractmethod
    def of_labels(self, nodes: int) -> LabelMap:
        """Return the kernel of the joint labels of `nodes` neighbouring tokens, for scores that see no inputs."""

    def of_input(self, nodes: int, name: str | None) -> tuple[LabelMap, Views | None]:
        """Return the kernel for scores that see the input called `name`, and how a group moves the input, if it does.

        nodes : 1 for labels of tokens, 2 for steps.
        """
        return self.of_labels(nodes), None

    @property
    def of_bias(self) -> LabelMap:
        """Return the kernel of the biases of labels."""
        return self.of_labels(1)


@dataclass(frozen=True, eq=False)
class TokenLabels(ChainLabels):
    """The label kernels of a chain in which only labels of tokens share weights; steps have weights of their own."""

    k_y: LabelKernel

    def of_labels(self, nodes: int) -> LabelMap:
        return LabelKernel("delta", self.k_y.L**nodes)

    def of_input(self, nodes: int, name: str | None) -> tuple[LabelMap, Views | None]:
        return (self.k_y if nodes == 1 else self.of_labels(nodes)), None

    @property
    def of_bias(self) -> LabelMap:
        return self.k_y


@dataclass(frozen=True, eq=False)
class SharedLabels(ChainLabels):
    """The label kernels of a chain in which similar labels share weights, also those of steps and of both ends."""

    k_y: LabelKernel

    def of_labels(self, nodes: int) -> LabelMap:
        return self.k_y if nodes == 1 else Product((self.k_y,) * nodes)


@dataclass(frozen=True, eq=False)
class MovedLabels(ChainLabels):
    """The label kernels of a chain whose labels a group moves.

    images : the labels that the elements of the group make of each label, as in `Orbits`.
    views : a dict from names of inputs to objects that move these inputs; an input without a name has the key None.
    """

    images: Places
    views: Mapping[str | None, Views]

    def of_labels(self, nodes: int) -> LabelMap:
        return Orbits(self.images, nodes)

    def of_input(self, nodes: int, name: str | None) -> tuple[LabelMap, Views | None]:
        views = self.views.get(name)
        return Orbits(self.images, nodes, sees_inputs=views is not None), views


class LabelStructure(ABC):
    """Base class of objects that say what labels have in common, for the parameter `label_kernel` of ChainCRF."""

    @abstractmethod
    def closure(self, labels: Sequence[UserData]) -> list[UserData]:
        """Return all labels that a model can predict if `labels` occur; raise if one of them is not known."""

    @abstractmethod
    def label_maps(self, classes: Sequence[UserData]) -> ChainLabels:
        """Return the label kernels of all terms of a chain with these classes."""

    @abstractmethod
    def to_config(self) -> Config:
        """Return the object as a dict for JSON, except that labels stay as they are."""
