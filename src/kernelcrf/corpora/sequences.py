"""Labelled sequences in this process.

The place of a landmark that is an input is that of its first token. A centre has that of the input nearest to it in the
kernel's own metric,

    |k_b - k_x|^2 = k(b, b) - 2 k(b, x) + k(x, x),

which for rbf and other kernels with k(x, x) = 1 is the input of the largest k(b, x).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.basis.definiteness import INDEFINITE, not_a_kernel
from kernelcrf.basis.distinct import Distinct, distinct, each
from kernelcrf.basis.factor import EXCESS, Basis, row_blocks
from kernelcrf.basis.features import FeatureMap, Features, WhitenedMap, features_of, make_features
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.pivots import Rule
from kernelcrf.certificate import residual_products
from kernelcrf.corpora.digest import Words, digest_texts, digest_words
from kernelcrf.engines.cluster import Resident
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.inputs import InputKernel, Inputs
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LabelledSequences(Resident):
    """Labelled sequences: inputs X (N, d) of all tokens, labels (N,) below n_labels.

    allowed : (N, L), the labels that each token may have, or None where all labels are observed.
    weights : (m,), what each sequence counts for, or None.
    legal : what labelings may be, or None for any.
    """

    X: Any
    chains: Chains
    labels: npt.NDArray[np.int32]
    n_labels: int
    allowed: npt.NDArray[np.bool_] | None = None
    weights: Floats | None = None
    legal: Legal | None = None

    def only(self, kept: npt.NDArray[np.bool_]) -> LabelledSequences:
        """Return the sequences that are kept (m,); they have the numbers that they had."""
        if kept.all():
            return self
        nodes = np.repeat(kept, self.chains.lengths)
        return replace(
            self,
            X=self.X[nodes],
            chains=self.chains.only(kept),
            labels=self.labels[nodes],
            allowed=None if self.allowed is None else self.allowed[nodes],
            weights=None if self.weights is None else self.weights[kept],
        )

    @property
    def is_sparse(self) -> bool:
        """Whether inputs are CSR."""
        return bool(sp.issparse(self.X))

    @property
    def size(self) -> tuple[int, int]:
        """Sequences and tokens."""
        return self.chains.n_samples, self.chains.n_nodes

    @property
    def n_features(self) -> int:
        """The columns of the inputs."""
        return int(self.X.shape[1])

    def digest(self) -> dict[str, str]:
        """Return digests of the inputs, the labels, the weights and the three together."""
        return digest_texts(self.digest_words())

    def digest_words(self) -> Words:
        """Return the same as words, which those of other parts are added to."""
        return digest_words(self.X, self.chains.offsets, self.labels, self.allowed, self.weights)

    def where(self) -> str:
        """Here, which goes without saying."""
        return ""

    def found(self, *, matched: bool) -> Distinct:
        """The distinct inputs; every token's own where they are not matched."""
        return distinct(self.X) if matched else each(self.X)

    def corpus(self, *, matched: bool) -> LocalCorpus:
        """With the distinct inputs."""
        return LocalCorpus(self, self.found(matched=matched))

    def partition(self, tokens: Mapping[str, TokenFeatures]) -> ChainPartition:
        """With features of the templates that have inputs."""
        return ChainPartition(self.chains, self.n_labels, self.labels, tokens, self.allowed, self.weights, self.legal)

    def places(self, nodes: Places) -> Places:
        """(n, 2): sequence, counted over all of the data, and token of each of these tokens."""
        sequences = np.searchsorted(self.chains.offsets, nodes, side="right") - 1
        own = sequences if self.chains.numbers is None else self.chains.numbers[sequences]
        places = np.column_stack((own, nodes - self.chains.offsets[sequences]))
        return np.asarray(places, np.intp)


@dataclass(frozen=True, eq=False)
class LocalCorpus:
    """Sequences and their distinct inputs."""

    data: LabelledSequences
    found: Distinct

    @property
    def n_labels(self) -> int:
        """L."""
        return self.data.n_labels

    @property
    def n_inputs(self) -> int:
        """U."""
        return self.found.U

    def features(
        self,
        kernel: InputKernel,
        n_components: int | None,
        rule: str | Rule,
        random_state: Any,
        engine: LocalEngine,
        start: Basis | None = None,
    ) -> Features:
        """Features of the distinct inputs."""
        X = self.found.inputs
        if start is None:
            return features_of(kernel, X, n_components, rule, random_state, engine)
        return make_features(kernel, X, n_components, rule, random_state=random_state, engine=engine, start=start)

    def carried_over(self, earlier: FeatureMap, kernel: InputKernel, engine: LocalEngine) -> Features:
        """The features of these inputs under an earlier map."""
        F = earlier.transform(self.found.inputs, engine)
        if not isinstance(earlier, WhitenedMap):
            return Features(earlier, F, None)
        residual, trace = residual_of(kernel, self.found.inputs, F)
        return Features(earlier, F, Basis(earlier.landmarks, earlier.R, F, residual, None, trace))

    def partitions(self, by_template: Mapping[str, Features]) -> Sequence[ChainPartition]:
        """As many as threads may share."""
        tokens = {name: TokenFeatures.of(self.found, features.F) for name, features in by_template.items()}
        return self.data.partition(tokens).cut()

    def gap_full(
        self, objective: Objective, at: Evaluation, by_template: Mapping[str, Features]
    ) -> tuple[float, Floats]:
        """Residuals, summed onto distinct inputs, against blocks of K - F F'."""
        gap, scores = objective.gap(at), np.zeros(self.found.U)
        for block in objective.layout.blocks:
            features = by_template.get(block.clique.name)
            if features is None or features.basis is None or block.clique.k_x is None:
                continue
            pairs = zip(objective.partitions, at.parts, strict=True)
            tokens = np.concatenate([partition.residual(block, local) for partition, local in pairs])
            R = self.found.sum(np.ascontiguousarray(tokens).reshape(len(tokens), -1))
            scale = size_of(float(np.abs(R).max(initial=0.0)))
            R = R / scale
            ER = residual_products(block.clique.k_x, self.found.inputs, features.F, R, objective.engine)
            absolute = np.abs(R).sum(axis=0)
            square = out_of_span(block.clique.k_x, features.basis, float(np.vdot(R, ER)), absolute, len(R))
            gap += 0.5 * (block.C * scale) * scale * square
            if block.clique.nodes == 1:
                scores = atom_scores(ER, features.basis.residual)
        return gap, scores

    def positions(self, features: Features, kernel: InputKernel, engine: LocalEngine) -> Places | None:
        """The first tokens of landmarks, or of the inputs nearest to them."""
        basis = features.basis
        if basis is None:
            return None
        indices = basis.indices
        if indices is None:
            indices = nearest(kernel, basis.landmarks, self.found.inputs, engine)[0]
        return self.data.places(self.found.first[indices])


def size_of(largest: float) -> float:
    """Return the power of two next below a number, 1 for zero: squares of what is divided by it do not underflow."""
    return float(2.0 ** (np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def residual_of(kernel: InputKernel, X: Inputs, F: Inputs) -> tuple[Floats, float]:
    """Return the diagonal d of K - F F' for features F that an earlier map gave the inputs X, and the trace of K.

    Raise if rounding brought d below zero: norms by F would then be smaller than the kernel's own.
    """
    diagonal = np.concatenate([np.empty(0), *(kernel.diagonal(in_double(X[rows])) for rows in row_blocks(X.shape[0]))])
    residual = diagonal - np.einsum("un,un->u", F, F, dtype=np.float64)
    excess = EXCESS[F.dtype] * float(diagonal.max(initial=0.0))
    if residual.min(initial=0.0) < -excess:
        row = int(residual.argmin())
        raise ValueError(
            f"the features of distinct input {row} have the squared norm {diagonal[row] - residual[row]:.6g}, above "
            f"k(x, x) = {diagonal[row]:.6g}: expected landmarks that were factored in float64. Fit anew instead of "
            "going on from this model or checkpoint"
        )
    return np.maximum(residual, 0.0), float(diagonal.sum())


def out_of_span(kernel: InputKernel, basis: Basis, square: float, absolute: Floats, n_rows: int) -> float:
    """Return |<R, E R>|, where E = K - F F' has no negative eigenvalue but by rounding: |E| <= INDEFINITE max k(x, x).

    A negative square says that F F' exceeds K along R, so that P by F may lie below the kernel's own: it counts too.

    absolute : |R| summed over its n_rows rows.
    """
    rounding = INDEFINITE[basis.landmarks.dtype] * basis.trace / max(n_rows, 1) * float(np.square(absolute).sum())
    if square < -rounding:
        raise not_a_kernel(kernel, f"the squared norm of a function in its space came out as {square:.3g}")
    return abs(square)


def atom_scores(ER: Floats, residual: Floats) -> Floats:
    """|(E R)_u|^2 / E_uu, the squared gradient along the direction that input u would open; 0 where it opens none."""
    squares = np.einsum("ul,ul->u", ER, ER)
    return np.asarray(np.divide(squares, residual, out=np.zeros(len(ER)), where=residual > 0))


def nearest(
    kernel: InputKernel, landmarks: Inputs, X: Inputs, engine: LocalEngine
) -> tuple[Places, npt.NDArray[np.floating]]:
    """(n,) the row of X nearest to each landmark, the first of several; and |k_b - k_x|^2 - k(b, b) there."""

    def nearest_of(rows: slice) -> tuple[Places, npt.NDArray[np.floating]]:
        D = kernel.gram(X[rows], landmarks)
        D *= -2
        D += kernel.diagonal(X[rows])[:, None]
        own = D.argmin(axis=0)
        return rows.start + own, D[own, np.arange(D.shape[1])]

    found = engine.map(nearest_of, row_blocks(X.shape[0]))
    rows, distances = (np.stack(parts) for parts in zip(*found, strict=True))
    block, every = distances.argmin(axis=0), np.arange(distances.shape[1])
    return rows[block, every], distances[block, every]
