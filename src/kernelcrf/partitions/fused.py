"""A pass over dense features by blocks: F is read from memory once.

Of a block of whole sequences whose features a cache holds, scores are formed, inference is run and the residuals are
multiplied by the same features before the next block comes. The results are those of `Partition.scores`, inference and
`Partition.pull_back` one after the other, in the common case: one node template with dense features of its own for each
token, tied steps, all labels observed. Where a sequence needs log space, `evaluate` gives nothing and leaves the
partition to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Resident
from kernelcrf.inference.loops import fused as loops
from kernelcrf.inference.scaled import MESSAGE_RANGE, NODE_RANGE, Edges
from kernelcrf.parameters import Layout, TemplateBlock

if TYPE_CHECKING:
    from kernelcrf.partitions.chains import ChainPartition

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Messages(Resident):
    """What Hessian products need of a point: messages, node marginals p and summed edge marginals q."""

    edges: Edges
    alpha: Array
    v: Array
    p: Array
    q: Floats


@dataclass(frozen=True, eq=False)
class Pass:
    """A partition at a point: loss and its gradient, scores, residuals as `ChainResiduals` has them, messages."""

    loss: float
    gradient: Floats
    s: Array
    w: Array
    r: Array
    q: Floats
    messages: Messages


class Keep(Enum):
    """What a pass holds on to beside its sums: memory that is written costs time."""

    NOTHING = auto()
    RESIDUALS = auto()
    MESSAGES = auto()


@dataclass(frozen=True, eq=False)
class Templates:
    """The layout as these loops see it: one template with features, and constants of nodes and of steps."""

    layout: Layout
    block: TemplateBlock

    @classmethod
    def of(cls, layout: Layout, partition: ChainPartition) -> Templates | None:
        """None where the partition is not of the common case."""
        with_inputs = [block for block in layout.blocks if block.clique.name in partition.features]
        if partition.allowed is not None or len(with_inputs) != 1 or with_inputs[0].clique.nodes != 1:
            return None
        if not partition.has_edges(layout):
            return None
        features = partition.features[with_inputs[0].clique.name]
        if features.is_sparse or features.index is not None or not features.F.flags.c_contiguous:
            return None
        return cls(layout, with_inputs[0])

    def split(self, theta: Floats, n_labels: int, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """W (n, L), bias (L,) and steps (L, L), with label kernels multiplied out."""
        W: Array = np.empty((0, n_labels))
        bias, w = np.zeros(n_labels), np.zeros((n_labels, n_labels))
        for block, part in zip(self.layout.blocks, self.layout.split(theta).values(), strict=True):
            if block is self.block:
                W = block.clique.expand(part)
            elif block.clique.nodes == 1:
                bias = bias + block.clique.expand(part[0])
            else:
                w = w + block.clique.expand(part[0])
        return np.ascontiguousarray(W, dtype), bias.astype(dtype), w.astype(dtype)

    def join(self, G: Floats, nodes: Floats, steps: Floats) -> Floats:
        """The transpose of `split`."""

        def gradient(block: TemplateBlock) -> Array:
            if block is self.block:
                return block.clique.adjoint(G)
            return block.clique.adjoint((nodes if block.clique.nodes == 1 else steps)[None])

        return self.layout.join({block.clique.name: gradient(block) for block in self.layout.blocks})


def evaluate(layout: Layout, partition: ChainPartition, theta: Floats, *, keep: Keep) -> Pass | None:
    """The partition at theta; what is not kept is that of the last block."""
    templates = Templates.of(layout, partition)
    if templates is None or partition.chains.n_nodes == 0:
        return None
    F, chains, n_labels, dtype = _features(templates, partition), partition.chains, partition.n_labels, partition.dtype
    W, bias, w = templates.split(theta, n_labels, dtype)
    first = last = np.ones(n_labels, bool)
    if partition.legal is not None:
        first, last = partition.legal.first, partition.legal.last
        w = np.where(partition.legal.steps, w, dtype.type(-np.inf))
    edges, cuts = Edges.of(w), partition.block_cuts
    if edges.too_wide:
        return None
    width, longest = edges.e.shape[1], int(np.diff(chains.offsets[cuts]).max())
    rows = longest if keep is Keep.NOTHING else chains.n_nodes
    messages = chains.n_nodes if keep is Keep.MESSAGES else longest
    spread, least = (NODE_RANGE, float(np.exp(-MESSAGE_RANGE))) if edges.guarded else (np.inf, 0.0)
    s, p, r = (np.empty((rows, n_labels), dtype) for _ in range(3))
    alpha, v = (np.empty((messages, width), edges.e.dtype) for _ in range(2))
    G, outer, nodes = np.zeros((n_labels, F.shape[1])), np.zeros((width, width)), np.zeros(n_labels)
    log_partition, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, bool)
    weights = np.empty(0) if partition.weights is None else partition.weights
    target = loops.evaluate(
        F, W, bias, chains.offsets, cuts, partition.labels, weights, first, last, edges.e, edges.e_T, edges.shift,
        spread, least, s, p, r, alpha, v, log_partition, failed, G, outer, nodes,
    )  # fmt: skip
    if failed.any():
        return None
    marginals = (outer * edges.e[0])[:n_labels, :n_labels]
    taken = partition.observed_steps > 0
    target += float(np.dot(partition.observed_steps[taken], w[taken]))
    loss = float(log_partition.sum() if partition.weights is None else np.dot(weights, log_partition)) - target
    q = marginals - partition.observed_steps
    gradient = templates.join(G.T, nodes, q)
    return Pass(loss, gradient, s, w, r, q, Messages(edges, alpha, v, p, marginals))


def hessian_product(layout: Layout, partition: ChainPartition, at: Messages, direction: Floats) -> Floats:
    """The derivative of the gradient of a partition along a direction of theta; `at` was kept by `evaluate`."""
    templates = Templates.of(layout, partition)
    if templates is None:
        raise ValueError("the partition is not the one that was evaluated")
    F, chains, n_labels = _features(templates, partition), partition.chains, partition.n_labels
    W, bias, dw = templates.split(direction, n_labels, partition.dtype)
    # A constant added to all steps changes nothing, and small numbers cancel better.
    dw = dw - dw.dtype.type(np.average(dw, weights=at.q)) if at.q.any() else dw
    edw, edw_T = at.edges.weighted(dw, chains.first_nodes)
    G, outer, nodes = np.zeros((n_labels, F.shape[1])), np.zeros(edw.shape[1:]), np.zeros(n_labels)
    weights = np.empty(0) if partition.weights is None else partition.weights
    loops.hessian_product(
        F, W, bias, chains.offsets, partition.block_cuts, weights, at.edges.e, at.edges.e_T, edw, edw_T,
        at.p, at.alpha, at.v, G, outer, nodes,
    )  # fmt: skip
    steps = (outer * at.edges.e[0])[:n_labels, :n_labels] + at.q * dw
    return templates.join(G.T, nodes, steps)


def _features(templates: Templates, partition: ChainPartition) -> Array:
    return np.asarray(partition.features[templates.block.clique.name].F)
