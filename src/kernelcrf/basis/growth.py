"""The protocol of a growing basis, as pivot rules see it, and the protocol of the rules.

`LocalGrowth` has the inputs in this process, `DistributedGrowth` of `kernelcrf.distributed` has them on workers of a
cluster. A rule that uses only these names works on both. On a cluster, `inputs`, `residuals` and `residual_gram` fetch
the rows that they are asked for, so a rule should ask for few of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places
from kernelcrf.basis.factor import Basis
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


class Growth(Protocol):
    """A basis of n atoms for U distinct inputs, with the residuals `d_x = k(x, x) - |F_x|^2`, while it grows.

    kernel : k_x.
    engine : the threads of this process, for the work of the rule itself.
    capacity, n : how many atoms there may be, and how many there are.
    least : a residual that is at most this counts as zero.
    """

    kernel: InputKernel
    engine: LocalEngine
    capacity: int
    n: int
    least: float

    @property
    def n_inputs(self) -> int:
        """Return U, the number of distinct inputs."""
        ...

    @property
    def is_sparse(self) -> bool:
        """Return whether the inputs are CSR."""
        ...

    @property
    def remaining(self) -> float:
        """Return tr(K - F F'), the sum of all residuals."""
        ...

    @property
    def finished(self) -> bool:
        """Return whether there are enough atoms, or the trace is explained to the tolerance."""
        ...

    @property
    def landmarks(self) -> Inputs:
        """Return the atoms so far, (n, d)."""
        ...

    def inputs(self, indices: Places | None = None) -> Inputs:
        """Return some of the distinct inputs, or all of them."""
        ...

    def residuals(self, indices: Places | None = None) -> Floats:
        """Return the residuals of some inputs, or of all of them."""
        ...

    def residual_gram(self, indices: Places) -> Array:
        """Return K_AA - F_A F_A' for some inputs A."""
        ...

    def unchosen(self) -> Places:
        """Return the inputs that are not atoms."""
        ...

    def draw(self, shares: Floats) -> Places:
        """Return the inputs at which the running sum of residuals passes shares, 0 <= share < 1, of its total."""
        ...

    def largest(self, count: int) -> tuple[Places, float]:
        """Return the `count` inputs of the largest residuals, and the largest residual of all other inputs."""
        ...

    def exhaust(self, indices: Places) -> None:
        """Set the residuals of inputs that depend on the atoms to zero."""
        ...

    def append_inputs(self, indices: Places) -> int:
        """Take inputs as atoms; return how many were independent of the basis and of each other."""
        ...

    def append_points(self, points: Array) -> int:
        """Take any points of input space as atoms; return how many were independent."""
        ...

    def basis_for(self, indices: Places) -> Basis:
        """Return the basis so far with the features and residuals of some inputs."""
        ...


class Rule(Protocol):
    """A way to choose atoms."""

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append atoms to `growth`, batch by batch; yield how many atoms of each batch were independent."""
        ...
