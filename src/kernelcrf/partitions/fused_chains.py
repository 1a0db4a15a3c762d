"""The loss of chains and its gradient, computed block by block, so that dense features are read from memory only once.

A block consists of whole sequences whose features fit into the cache. For each block, scores are computed, inference is
run, and the gradient with respect to the scores is multiplied by the same features before the next block starts. The
result is the same as that of three separate steps for all sequences: the map of `score.Score`, inference, and the
transpose of this map.

This covers the common case: all terms that have inputs score tokens and have a dense row of features per token,
transitions do not depend on inputs, and all labels are observed. Inference does not use logarithms here. If numbers
overflow or underflow for a sequence, `evaluate` returns None, and the caller has to use the three steps instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Ints, Labels
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.loops import fused as loops
from kernelcrf.inference.scaled import MESSAGE_RANGE, NODE_RANGE, Edges
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.partitions.partition import PartitionState, Sums
from kernelcrf.partitions.softmax import Softmax
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.layout import Layout
from kernelcrf.score.score import add_terms
from kernelcrf.score.tables import ChainScores
from kernelcrf.score.terms import Term

# What a pass stores besides its sums: only what is needed, because writing to memory takes time.
Keep = Literal["nothing", "residuals", "messages"]
# The largest number of inputs of the compiled loops.
MOST_INPUTS = 8


@dataclass(frozen=True, eq=False)
class FusedMessages:
    """Results of inference for one vector of parameters, kept for products with the Hessian.

    edges, alpha, v : the edge potentials and the messages that `inference.scaled` defines.
    p : the label probabilities, one row per token.
    q : the probabilities of transitions [from label, to label], summed over tokens with the sequence weights.
    """

    edges: Edges
    alpha: Array
    v: Array
    p: Array
    q: Floats


@dataclass(frozen=True, eq=False)
class ChainResiduals:
    """The loss at given scores and its gradient with respect to the scores.

    r : the gradient with respect to the token scores.
    q : the gradient with respect to the transition scores.
    nodes : the label probabilities, one row per token.
    curvature : the results of inference that products with the Hessian need; None if they were not requested.
    """

    loss: float
    r: Array
    q: Array
    nodes: Array
    curvature: Linearisation | FusedMessages | Softmax | None


class Slots(NamedTuple):
    """A stand-in for sequences, with three rows: one for all tokens, one for first tokens, and one for last tokens.

    The compiled loops add the scores of these rows to tokens, so that terms without inputs need three rows only.
    """

    all_nodes: slice = slice(0, 1)
    first_nodes: slice = slice(1, 2)
    last_nodes: slice = slice(2, 3)


SLOTS = Slots()


@dataclass(frozen=True, eq=False)
class FusedChains:
    """Sequences with dense features, in the form that the compiled loops in `loops.fused` read.

    terms : the terms that have inputs, at most `MOST_INPUTS`; they score tokens.
    Fs : the features of each of these terms, one row per token.
    observed_steps : a matrix [from, to] that says how often one label follows another; sequences count with weights.
    cuts : the index of the first sequence of each block, and at the end the number of sequences.
    """

    layout: Layout
    terms: tuple[Term, ...]
    Fs: tuple[Array, ...]
    chains: Chains
    labels: Labels
    weights: Floats | None
    legal: Legal | None
    observed_steps: Floats
    cuts: Ints
    dtype: DType

    def evaluate(self, theta: Floats, keep: Keep) -> tuple[Sums, PartitionState] | None:
        """Return the loss and its gradient for the parameters theta, and a state with the results of inference.

        Return None if inference without logarithms would overflow or underflow for a sequence.

        keep : what the state stores for all sequences: "nothing", "residuals" (scores, probabilities and the gradient
            with respect to scores), or "messages" (all of these, and the messages for products with the Hessian). Other
            arrays of the state are invalid.
        """
        chains, n_labels, dtype = self.chains, self.terms[0].k_y.L, self.dtype
        W, biases, w = self._split(theta)
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
        outer, nodes, gradient = np.zeros((width, width)), np.zeros_like(biases, np.float64), np.zeros(W.size)
        log_partition, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, bool)
        weights = np.empty(0) if self.weights is None else self.weights
        target = loops.evaluate(
            self._loop_features, W, biases, chains.offsets, self.cuts, self.labels, weights, first, last, edges.e,
            edges.e_T, edges.shift, spread, least, s, p, r, alpha, v, log_partition, failed, gradient, outer, nodes,
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
        return Sums(loss, self._join(gradient, nodes, q)), state

    def hessian_product(self, at: FusedMessages, direction: Floats) -> Floats:
        """Return the product of the Hessian and a direction of theta.

        at : the messages that `evaluate` kept for keep="messages".
        """
        n_labels = self.terms[0].k_y.L
        W, biases, dw = self._split(direction)
        # A constant added to all transitions changes nothing, and smaller numbers lose fewer digits.
        dw = dw - dw.dtype.type(np.average(dw, weights=at.q)) if at.q.any() else dw
        edw, edw_T = at.edges.multiply(dw, self.chains.first_nodes)
        outer, nodes, gradient = np.zeros(edw.shape[1:]), np.zeros_like(biases, np.float64), np.zeros(W.size)
        weights = np.empty(0) if self.weights is None else self.weights
        loops.hessian_product(
            self._loop_features, W, biases, self.chains.offsets, self.cuts, weights, at.edges.e, at.edges.e_T, edw,
            edw_T, at.p, at.alpha, at.v, gradient, outer, nodes,
        )  # fmt: skip
        steps = (outer * at.edges.e[0])[:n_labels, :n_labels] + at.q * dw
        return self._join(gradient, nodes, steps)

    @property
    def _loop_features(self) -> tuple[Array, ...]:
        """Return the features as a tuple that always has the same type, so that Numba compiles each loop only once.

        The tuple is filled up to a fixed length, and all its arrays are read-only.
        """
        views = [F.view() for F in self.Fs]
        for view in views:
            view.flags.writeable = False
        return (*views, *[views[0][:0, :0]] * (MOST_INPUTS - len(views)))

    def _split(self, theta: Floats) -> tuple[Array, Array, Array]:
        """Split the parameters theta into the weights of features, the biases of labels and the transition scores.

        The biases have three rows: the first is for all tokens, the second is added at the first token of a sequence,
        and the third at its last token. If no term is a bias, there are no rows.
        """
        n_labels, dtype, weights = self.terms[0].k_y.L, self.dtype, self.layout.split(theta)
        rows = [term.k_y.expand(weights[term.name]) for term in self.terms]
        has_biases = not all(term.kind.is_step for term in self._constants)
        biases, w = np.zeros((3 * has_biases, n_labels)), np.zeros((n_labels, n_labels))
        constants = [(term, term.expand(weights[term.name])) for term in self._constants]
        add_terms({TOKENS: biases, STEPS: w.reshape(1, -1)}, constants, SLOTS)
        return np.ascontiguousarray(np.concatenate(rows), dtype), biases.astype(dtype), w.astype(dtype)

    @property
    def _constants(self) -> list[Term]:
        """Return the terms that have no inputs."""
        return [term for term in self.layout.terms if term not in self.terms]

    def _join(self, gradient: Floats, nodes: Floats, steps: Floats) -> Floats:
        """Join gradients to one gradient with respect to the parameters theta.

        gradient : the gradients with respect to the weights of features, transposed, one term after the other.
        nodes, steps : the gradients with respect to the biases of labels and the transition scores.
        """
        n_labels, top, parts = self.terms[0].k_y.L, 0, dict[str, Array]()
        for term, F in zip(self.terms, self.Fs, strict=True):
            low, top = top, top + n_labels * F.shape[1]
            parts[term.name] = term.k_y.adjoint(gradient[low:top].reshape(n_labels, -1).T)
        sums = {TOKENS: nodes, STEPS: steps.reshape(1, -1)}
        parts |= {term.name: term.adjoint(term.kind.take(sums, SLOTS)) for term in self._constants}
        return self.layout.join(parts)
