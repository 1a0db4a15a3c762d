"""Inference on chains in scaled space: messages sum to one at each token, with one exponential per score.

With the scores s_t of labels, the scores w_t of steps, u_t = exp(s_t - max s_t) and e_t = exp(w_t - max w_t), the
forward messages alpha_t, the backward messages beta_t, the node marginals p_t and the edge marginals q_t are

    alpha_1 = u_1 / c_1,    alpha_t(j) = u_t(j) / c_t * sum_i alpha_{t-1}(i) e_t(i, j),
    beta_T  = 1,            beta_{t-1}(i) = sum_j e_t(i, j) v_t(j),    v_t = u_t o beta_t / c_t,
    log Z   = sum_t [log c_t + max s_t + max w_t],
    p_t     = alpha_t o beta_t,      q_t(i, j) = alpha_{t-1}(i) e_t(i, j) v_t(j).

Here c_t normalises alpha_t, and o is the elementwise product.

Underflow: let D = max w - min w. If no transition is forbidden, alpha_t(j) / u_t(j) and beta_t(i) vary by at most a
factor of exp(D) over labels. Therefore, a label that underflows has a probability below L exp(2 D) times the smallest
number of the dtype. This is negligible if D is at most `FREE_RANGE`, for any node scores. If transitions are forbidden
or D is larger, a label of negligible weight may later be the only possible one. In this case, the edges are `guarded`:
messages are float64, and a message is the product of a factor of the edge, a factor of the node, and an earlier
message. Their logarithms must stay within `EDGE_RANGE`, `NODE_RANGE` and `MESSAGE_RANGE`, in this order. These limits
sum to 700, and float64 underflows at 708. A sequence that exceeds a limit is marked as failed, its messages are set to
zero, and the caller computes it in log space. For a label that no allowed path reaches, u is set to 0, because its
backward messages could overflow.

To save logarithms, log Z uses the logarithms of products of many c_t. Each c_t is at least exp(-D), or exp(-700) with
guarded edges. A factor below 1e-100 is kept out of the product, so that the product never falls below 1e-200, where it
could become a subnormal number with a large relative error.
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
    """Return the row length of messages: n_labels, rounded up to a multiple of 8 for SIMD if it is at least 16."""
    return n_labels if n_labels < 16 else -(-n_labels // 8) * 8


@dataclass(frozen=True)
class Edges:
    """The edge potentials e = exp(transitions - shift) of a block of sequences.

    e, e_T : the potentials and their transposes, padded with zeros; one matrix for all tokens or one per token.
        Messages have the same dtype.
    shift : the maximum of each matrix of transitions.
    tied : whether all tokens share one matrix.
    guarded : whether messages must be checked for underflow.
    too_wide : whether the transitions differ too much for scaled space.
    """

    e: Array
    e_T: Array
    shift: Floats
    tied: bool
    guarded: bool
    too_wide: bool

    @classmethod
    def of(cls, transitions: Array, first: Array | None = None) -> Edges:
        """Return the edge potentials of transitions (L, L), shared by all tokens, or (n, L, L), one matrix per token.

        first : the indices of first tokens, whose matrices are not used.
        """
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

    def multiply(self, direction: Array, first: Array) -> tuple[Array, Array]:
        """Return the elementwise product of the potentials and `direction`, and its transpose, both padded with zeros.

        first : the indices of first tokens, whose products are set to zero if each token has its own matrix.
        """
        n_labels = direction.shape[-1]
        inner = self.e[:, :n_labels, :n_labels]
        product = np.zeros_like(self.e)
        np.multiply(inner, direction, out=product[:, :n_labels, :n_labels], where=inner > 0)
        if not self.tied:
            product[first] = 0
        return product, np.ascontiguousarray(product.transpose(0, 2, 1))


@dataclass(frozen=True)
class Block:
    """A group of consecutive sequences of a batch.

    samples : the range of these sequences in the batch.
    nodes : the range of their tokens in the batch.
    offsets : the first token of each sequence, counted within the block, followed by the number of tokens.
    tied_edges : the edge potentials, if all tokens of the batch share the transitions.
    weights : the weight of each sequence; None gives every sequence the weight 1.
    """

    samples: slice
    nodes: slice
    offsets: Ints
    scores: Array
    transitions: Array
    tied_edges: Edges | None = None
    weights: Floats | None = None

    @property
    def first_nodes(self) -> Ints:
        """Return the row of the first token of each non-empty sequence, counted within the block."""
        return Chains(self.offsets).first_nodes


@dataclass(frozen=True)
class ScaledMessages:
    """The messages of a block of sequences in scaled space, one row per token.

    alpha : the forward messages, which sum to one.
    v : u / c until `backward` is called; afterwards u / c times the backward messages, and zero at first tokens. The
        module docstring defines u and c.
    failed : whether the numbers of each sequence would underflow; the messages of such sequences are zero.
    """

    block: Block
    edges: Edges
    alpha: Array
    v: Array
    failed: Flags

    @classmethod
    def of(cls, block: Block, log_partition: Floats, failed: Flags) -> ScaledMessages:
        """Compute the forward messages of a block.

        log_partition, failed : outputs with one entry per sequence of the whole batch; only the entries of the block's
            sequences are written.
        """
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
        """Compute the backward messages in place, and the node marginals.

        nodes : output, the node marginals of the whole batch; only the rows of the block are written.
        """
        edges, marginals = self.edges, nodes[self.block.nodes]
        loops.backward(self.block.offsets, edges.e_T, edges.tied, self.failed, self.alpha, self.v, marginals)

    def sum_edges(self, left: Array, right: Array) -> Floats:
        """Return the weighted sum over tokens t of the outer products of left[t - 1] and right[t], times e.

        The sum is multiplied elementwise by the edge potentials e, which all tokens share. A token has the weight of
        its sequence, and `right` is zero at first tokens. If `left` is alpha and `right` is v, the result is the sum of
        the edge marginals.
        """
        block, n_labels = self.block, self.block.scores.shape[1]
        if block.weights is not None:
            weights = np.repeat(block.weights, np.diff(block.offsets))[:, None]
            right = np.asarray(right * weights, right.dtype)
        return np.asarray((left[:-1].T @ right[1:]) * self.edges.e[0], np.float64)[:n_labels, :n_labels]
