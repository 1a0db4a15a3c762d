"""What the objective may ask of a part of the data, whatever its graphs are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Resident
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.features import TokenFeatures

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Total = TypeVar("Total")


@dataclass(frozen=True, eq=False)
class LinearBound(Resident):
    """A loss is at least `constant` + <slope, theta>, at all theta."""

    constant: float
    slope: Floats

    def __add__(self, other: LinearBound) -> LinearBound:
        return LinearBound(self.constant + other.constant, self.slope + other.slope)


@dataclass(frozen=True, eq=False)
class Sums(Resident):
    """A loss and a gradient of it.

    bound : by which the loss is bounded from below; None if that is its tangent, as for a convex loss.
    """

    loss: float
    gradient: Floats
    bound: LinearBound | None = None

    def __add__(self, other: Sums) -> Sums:
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        return Sums(self.loss + other.loss, self.gradient + other.gradient, bound)


class Scores(Protocol):
    """The scores of a partition's cliques."""

    def moved(self, direction: Any, step: float) -> Any:
        """These plus step times those of a direction."""
        ...


@dataclass(frozen=True, eq=False)
class Local(Resident):
    """A partition at a point: its scores there, and what inference gave; the partition alone reads the latter."""

    scores: Any
    residuals: Any


class Partition(Protocol):
    """Some samples with their features and labels: loss, gradient and curvature in theta."""

    @property
    def features(self) -> Mapping[str, TokenFeatures]:
        """Of each template that has inputs, by its name."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of scores."""
        ...

    @property
    def n_nodes(self) -> int:
        """Label nodes: what a pass costs."""
        ...

    @property
    def is_convex(self) -> bool:
        """Whether all labels are observed."""
        ...

    def with_features(self, features: Mapping[str, TokenFeatures]) -> Partition:
        """The same samples with other features."""
        ...

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """Loss and gradient at theta."""
        ...

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """The same alone, where nothing else will be asked of the point."""
        ...

    def evaluate_at(self, layout: Layout, scores: Any, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """The same where scores are known already."""
        ...

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Any:
        """Scores along a direction of theta."""
        ...

    def along(self, scores: Any, direction: Any, n_jobs: int) -> tuple[float, float]:
        """Loss at some scores, and its derivative along a direction of them."""
        ...

    def hessian_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The derivative of the gradient along v; `at` was evaluated with curvature."""
        ...

    def block_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The paper's blocks (30) times v."""
        ...

    def entropy(self, at: Local, n_jobs: int) -> float:
        """sum_i omega_i H(p_i)."""
        ...

    def residual(self, block: TemplateBlock, at: Local) -> Array:
        """(rows, ...): what the scores of each clique of a template contribute to the gradient, before F'."""
        ...

    def knows_spread(self, block: TemplateBlock) -> bool:
        """Whether the marginals of a template's cliques are at hand."""
        ...

    def spread(self, block: TemplateBlock, at: Local) -> Array:
        """(rows, r): omega p (1 - p) of the labelings of a template's cliques, where they are at hand."""
        ...

    def mass(self, block: TemplateBlock) -> float:
        """What the cliques of a template weigh together."""
        ...

    def total(self, term: Callable[[Any, Any], Total], at: Local | None) -> Total:
        """The sum, over the parts that this partition may have, of term(part, what the part keeps of a point)."""
        ...

    def clique_weights(self, block: TemplateBlock) -> Floats:
        """(rows,): omega of each clique of a template."""
        ...
