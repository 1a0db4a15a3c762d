"""What a fit may ask of its data, be they in this process or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.factor import Basis
from kernelcrf.basis.features import FeatureMap, Features
from kernelcrf.basis.pivots import Rule
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.partition import Partition

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


class Corpus(Protocol):
    """Labelled sequences with their U distinct inputs."""

    @property
    def n_labels(self) -> int:
        """L."""
        ...

    @property
    def n_inputs(self) -> int:
        """U."""
        ...

    def features(
        self,
        kernel: InputKernel,
        n_components: int | None,
        rule: str | Rule,
        random_state: Any,
        engine: LocalEngine,
        start: Basis | None = None,
    ) -> Features:
        """Features of the distinct inputs by `n_components` atoms; by all of them where there are no more inputs.

        start : a basis to go on from.
        """
        ...

    def carried_over(self, earlier: FeatureMap, kernel: InputKernel, engine: LocalEngine) -> Features:
        """The features of these inputs under an earlier map."""
        ...

    def partitions(self, by_template: Mapping[str, Features]) -> Sequence[Partition]:
        """Partitions with the features of templates that have inputs."""
        ...

    def gap_full(
        self, objective: Objective, at: Evaluation, by_template: Mapping[str, Features]
    ) -> tuple[float, Floats]:
        """Return P minus a lower bound over the kernels' whole spaces, and the score of each input as an atom of nodes.

        If P is not convex, the first number bounds nothing: it measures how stationary the point is in those spaces.
        """
        ...

    def positions(self, features: Features, kernel: InputKernel, engine: LocalEngine) -> Places | None:
        """(n, 2), sequence and token of each landmark, or of the input nearest to one; None without landmarks."""
        ...


class Data(Protocol):
    """Labelled sequences before their inputs are compared."""

    @property
    def is_sparse(self) -> bool:
        """Whether inputs are CSR."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Sequences and tokens."""
        ...

    @property
    def n_labels(self) -> int:
        """L."""
        ...

    @property
    def n_features(self) -> int:
        """The columns of the inputs."""
        ...

    def digest(self) -> dict[str, str]:
        """Return digests of the inputs, the labels, the weights and the three together (`corpora.digest`)."""
        ...

    def where(self) -> str:
        """A few words on where they are, for a line of progress."""
        ...

    def corpus(self, *, matched: bool) -> Corpus:
        """The corpus; where inputs are not `matched`, each token's counts for one of its own."""
        ...
