"""Inference on chains in scaled space: messages sum to one at each token, with one exponential per score.

With u_t = exp(s_t - max s_t) and e_t = exp(w_t - max w_t),

    alpha_1 = u_1 / c_1,    alpha_t(j) = u_t(j) / c_t * sum_i alpha_{t-1}(i) e_t(i, j),
    beta_T  = 1,            beta_{t-1}(i) = sum_j e_t(i, j) v_t(j),    v_t = u_t o beta_t / c_t,
    log Z   = sum_t log c_t + max s_t + max w_t,
    p_t     = alpha_t o beta_t,      q_t(i, j) = alpha_{t-1}(i) e_t(i, j) v_t(j).

Underflow: let D = max w - min w. Without forbidden transitions, alpha_t(j) / u_t(j) and beta_t(i) vary by at most
exp(D) over labels. A label that underflows then has a probability below L exp(2 D) times the smallest number of the
dtype, which is negligible for D up to `FREE_RANGE` and any node scores. With forbidden transitions, or a larger D, a
label of negligible weight may later be the only possible one. Such edges are `guarded`: messages are float64, and the
logarithms of the factors must stay within `EDGE_RANGE`, `NODE_RANGE` and `MESSAGE_RANGE`. These sum to 700, and float64
underflows at 708. A sequence that exceeds a limit is marked as failed and its messages are set to zero; the caller
computes it in log space. A label that no path reaches has u = 0, because nothing bounds its backward messages.

c_t is at least exp(-D), or exp(-700) with guarded edges. The c_t of many tokens are multiplied before the logarithm is
taken. A factor below 1e-100 is left out of that product, which then stays above 1e-200, so that no product is a
subnormal number with a large relative error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.loops import scaled as loops

# The recursions are exact if logarithms vary by less than these ranges.
FREE_RANGE = {np.dtype(np.float32): 30.0, np.dtype(np.float64): 300.0}
EDGE_RANGE, NODE_RANGE, MESSAGE_RANGE = 200.0, 250.0, 250.0


def padded_width(n_labels: int) -> int:
    """Return the row length of messages: from 16 labels on, a multiple of 8, because whole SIMD vectors are faster."""
    return n_labels if n_labels < 16 else -(-n_labels // 8) * 8


@dataclass(frozen=True)
class Edges:
    """Edge potentials e = exp(w - shift) of a block, padded with zeros to (K, W, W), and their transposes.

    K = 1 if all tokens share the transitions; else there is one matrix per token, and first tokens do not use theirs.
    Messages have the same dtype.
    """

    e: Array
    e_T: Array
    shift: Floats
    tied: bool
    guarded: bool
    too_wide: bool

    @classmethod
    def of(cls, transitions: Array, first: Array | None = None) -> Edges:
        """Return potentials of shared transitions (L, L), or of (K, L, L), in which the rows `first` are not used."""
        tied = transitions.ndim == 2
        w = np.array(transitions[None] if tied else transitions)
        if first is not None:
            w[first] = 0
        shift = w.max(axis=(1, 2), initial=-np.inf)
        shift[shift == -np.inf] = 0
        w -= shift[:, None, None]
        least = float(np.min(w, where=w > -np.inf, initial=0))
        guarded = least < -FREE_RANGE[w.dtype] or not np.all(w > -np.inf)
        n_labels, width = w.shape[1], padded_width(w.shape[1])
        e = np.zeros((len(w), width, width), np.float64 if guarded else w.dtype)
        if e.dtype != w.dtype:
            # Differences of float32 numbers of this size need float64 too.
            np.subtract(transitions, shift[:, None, None], out=e[:, :n_labels, :n_labels], dtype=e.dtype)
            e[[] if first is None else first, :n_labels, :n_labels] = 0
            np.exp(e[:, :n_labels, :n_labels], out=e[:, :n_labels, :n_labels])
        else:
            np.exp(w, out=e[:, :n_labels, :n_labels])
        e_T = np.ascontiguousarray(e.transpose(0, 2, 1))
        return cls(e, e_T, shift.astype(np.float64), tied, guarded, too_wide=guarded and least < -EDGE_RANGE)

    def weighted(self, direction: Array, first: Array) -> tuple[Array, Array]:
        """Return e o direction, padded, and its transpose; it is zero where e is zero, and at first tokens."""
        n_labels = direction.shape[-1]
        inner = self.e[:, :n_labels, :n_labels]
        product = np.zeros_like(self.e)
        np.multiply(inner, direction, out=product[:, :n_labels, :n_labels], where=inner > 0)
        if not self.tied:
            product[first] = 0
        return product, np.ascontiguousarray(product.transpose(0, 2, 1))


@dataclass(frozen=True)
class Block:
    """Some whole sequences of a batch: their ranges of samples and nodes, and their offsets, scores and transitions."""

    samples: slice
    nodes: slice
    offsets: Ints
    scores: Array
    transitions: Array
    tied_edges: Edges | None = None
    weights: Floats | None = None

    @property
    def first_nodes(self) -> Ints:
        """Return the row within the block of each sequence's first token; empty sequences have none."""
        return Chains(self.offsets).first_nodes


@dataclass(frozen=True)
class ScaledMessages:
    """Messages alpha and v (n, W) of a block. v is zero at first tokens; before `backward`, it holds u / c.

    failed : the sequences whose numbers would underflow in scaled space; their messages are zero.
    """

    block: Block
    edges: Edges
    alpha: Array
    v: Array
    failed: Flags

    @classmethod
    def of(cls, block: Block, log_partition: Floats, failed: Flags) -> ScaledMessages:
        """Compute forward messages, and fill the block's part of `log_partition` and `failed`, both (m,)."""
        edges, scores = block.tied_edges or Edges.of(block.transitions, block.first_nodes), block.scores
        shape, dtype = (len(scores), edges.e.shape[1]), edges.e.dtype
        alpha, u, highest = np.empty(shape, dtype), np.empty(shape, dtype), np.empty(len(scores), dtype)
        log_partition, failed = log_partition[block.samples], failed[block.samples]
        failed[:] = edges.too_wide
        loops.shift(scores, block.offsets, NODE_RANGE if edges.guarded else np.inf, u, highest, failed)
        np.exp(u, out=u)
        least = np.exp(-MESSAGE_RANGE) if edges.guarded else 0.0
        loops.forward(
            block.offsets, scores.shape[1], edges.e, edges.tied, edges.shift, highest, least, u, alpha, log_partition,
            failed,
        )  # fmt: skip
        return cls(block, edges, alpha, u, failed)

    def backward(self, nodes: Array) -> None:
        """Compute v from u / c in place, and fill the block's part of the node marginals p (N, L)."""
        edges, own = self.edges, nodes[self.block.nodes]
        loops.backward(self.block.offsets, edges.e_T, edges.tied, self.failed, self.alpha, self.v, own)

    def summed_edges(self, left: Array, right: Array) -> Floats:
        """Return sum_t omega left_{t-1} right_t' o e over the edges of a block with shared transitions, (L, L).

        `right` is zero at first tokens. With left = alpha and right = v, this is the sum of the edge marginals.
        """
        block, n_labels = self.block, self.block.scores.shape[1]
        if block.weights is not None:
            weights = np.repeat(block.weights, np.diff(block.offsets))[:, None]
            right = np.asarray(right * weights, right.dtype)
        return np.asarray((left[:-1].T @ right[1:]) * self.edges.e[0], np.float64)[:n_labels, :n_labels]
