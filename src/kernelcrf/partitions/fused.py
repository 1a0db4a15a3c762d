"""A pass over dense features in blocks, which reads them from memory only once.

A block consists of whole sequences whose features fit into the cache. For each block, scores are computed, inference is
run, and the gradient with respect to the scores is multiplied by the same features before the next block starts.
`ChainPartition.scores`, inference and `ChainPartition.pull_back` would give the same result one after the other.

This covers the common case: a single term has inputs, it scores tokens and has a dense row of features per token,
transitions do not depend on inputs, and all labels are observed. If a sequence needs log space, `evaluate` returns
None, and the caller uses the three methods instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Ints, Labels
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.loops import fused as loops
from kernelcrf.inference.scaled import MESSAGE_RANGE, NODE_RANGE, Edges
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.partitions.independent import Softmax
from kernelcrf.partitions.partition import PartitionState, Sums
from kernelcrf.terms import TOKENS, Layout, Term

# What a pass stores besides its sums: only what is needed, because writing to memory takes time.
Keep = Literal["nothing", "residuals", "messages"]


@dataclass(frozen=True, eq=False)
class ChainScores:
    """The scores of a partition of sequences.

    s : (N, L), the scores of labels, one row per token.
    w : the scores of steps, (L, L) for all tokens or (N, L, L); (0, 0) if tokens are independent.
    """

    s: Array
    w: Array

    def move(self, direction: ChainScores, step: float) -> ChainScores:
        """Return these scores plus `step` times the scores `direction`."""
        dtype = self.s.dtype.type
        return ChainScores(self.s + dtype(step) * direction.s, self.w + dtype(step) * direction.w)


@dataclass(frozen=True, eq=False)
class FusedMessages:
    """Messages and marginals at one point, kept for products with the Hessian.

    edges, alpha, v : edge potentials and messages, which `inference.scaled` explains.
    p : the node marginals, one row per token.
    q : the weighted sum of the edge marginals.
    """

    edges: Edges
    alpha: Array
    v: Array
    p: Array
    q: Floats


@dataclass(frozen=True, eq=False)
class ChainResiduals:
    """The loss at given scores and its gradient with respect to the scores.

    r : the gradient with respect to the scores of labels.
    q : the gradient with respect to the scores of steps.
    nodes : the node marginals, one row per token.
    curvature : what Hessian products need; None unless it was requested.
    """

    loss: float
    r: Array
    q: Array
    nodes: Array
    curvature: Linearisation | FusedMessages | Softmax | None


@dataclass(frozen=True, eq=False)
class FusedChains:
    """Some sequences in the form that `loops.fused` reads.

    term : the only term with inputs; it scores tokens.
    F : its features, one row per token.
    observed_steps : how often each label follows each label, as a matrix [from, to] of sums of sequence weights.
    cuts : the index of the first sequence of each block, then the number of sequences.
    """

    layout: Layout
    term: Term
    F: Array
    chains: Chains
    labels: Labels
    weights: Floats | None
    legal: Legal | None
    observed_steps: Floats
    cuts: Ints
    dtype: DType

    def evaluate(self, theta: Floats, keep: Keep) -> tuple[Sums, PartitionState] | None:
        """Return loss and gradient at theta and the state there, or None if a sequence needs log space.

        keep : what the state contains; arrays that are not kept only have the values of the last block.
        """
        chains, n_labels, dtype = self.chains, self.term.k_y.L, self.dtype
        W, bias, w = self._split(theta)
        first = last = np.ones(n_labels, bool)
        if self.legal is not None:
            first, last = self.legal.first, self.legal.last
            w = np.where(self.legal.steps, w, dtype.type(-np.inf))
        edges = Edges.of(w)
        if edges.too_wide:
            return None
        width, longest = edges.e.shape[1], int(np.diff(chains.offsets[self.cuts]).max())
        rows = longest if keep == "nothing" else chains.n_nodes
        messages = chains.n_nodes if keep == "messages" else longest
        spread, least = (NODE_RANGE, float(np.exp(-MESSAGE_RANGE))) if edges.guarded else (np.inf, 0.0)
        s, p, r = (np.empty((rows, n_labels), dtype) for _ in range(3))
        alpha, v = (np.empty((messages, width), edges.e.dtype) for _ in range(2))
        G, outer, nodes = np.zeros((n_labels, self.F.shape[1])), np.zeros((width, width)), np.zeros(n_labels)
        log_partition, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, bool)
        weights = np.empty(0) if self.weights is None else self.weights
        target = loops.evaluate(
            self.F, W, bias, chains.offsets, self.cuts, self.labels, weights, first, last, edges.e, edges.e_T,
            edges.shift, spread, least, s, p, r, alpha, v, log_partition, failed, G, outer, nodes,
        )  # fmt: skip
        if failed.any():
            return None
        marginals = (outer * edges.e[0])[:n_labels, :n_labels]
        taken = self.observed_steps > 0
        target += float(np.dot(self.observed_steps[taken], w[taken]))
        loss = float(log_partition.sum() if self.weights is None else np.dot(weights, log_partition)) - target
        q = marginals - self.observed_steps
        curvature = FusedMessages(edges, alpha, v, p, marginals) if keep == "messages" else None
        state = PartitionState(ChainScores(s, w), ChainResiduals(loss, r, q, p, curvature))
        return Sums(loss, self._join(G.T, nodes, q)), state

    def hessian_product(self, at: FusedMessages, direction: Floats) -> Floats:
        """Return the derivative of the gradient along a direction of theta, from messages that `evaluate` kept."""
        n_labels = self.term.k_y.L
        W, bias, dw = self._split(direction)
        # A constant added to all steps changes nothing, and smaller numbers lose fewer digits.
        dw = dw - dw.dtype.type(np.average(dw, weights=at.q)) if at.q.any() else dw
        edw, edw_T = at.edges.multiply(dw, self.chains.first_nodes)
        G, outer, nodes = np.zeros((n_labels, self.F.shape[1])), np.zeros(edw.shape[1:]), np.zeros(n_labels)
        weights = np.empty(0) if self.weights is None else self.weights
        loops.hessian_product(
            self.F, W, bias, self.chains.offsets, self.cuts, weights, at.edges.e, at.edges.e_T, edw, edw_T,
            at.p, at.alpha, at.v, G, outer, nodes,
        )  # fmt: skip
        steps = (outer * at.edges.e[0])[:n_labels, :n_labels] + at.q * dw
        return self._join(G.T, nodes, steps)

    def _split(self, theta: Floats) -> tuple[Array, Array, Array]:
        """Split theta into the weights of features, the biases of labels and the scores of transitions."""
        n_labels, dtype = self.term.k_y.L, self.dtype
        W: Array = np.empty((0, n_labels))
        bias, w = np.zeros(n_labels), np.zeros((n_labels, n_labels))
        for term, part in zip(self.layout.terms, self.layout.split(theta).values(), strict=True):
            if term is self.term:
                W = term.k_y.expand(part)
            elif term.cliques == TOKENS:
                bias = bias + term.k_y.expand(part[0])
            else:
                w = w + term.k_y.expand(part[0]).reshape(w.shape)
        return np.ascontiguousarray(W, dtype), bias.astype(dtype), w.astype(dtype)

    def _join(self, G: Floats, nodes: Floats, steps: Floats) -> Floats:
        """Return the gradient with respect to theta, given the gradients with respect to the results of `_split`."""

        def gradient(term: Term) -> Array:
            if term is self.term:
                return term.k_y.adjoint(G)
            return term.k_y.adjoint((nodes if term.cliques == TOKENS else steps).reshape(1, -1))

        return self.layout.join({term.name: gradient(term) for term in self.layout.terms})
