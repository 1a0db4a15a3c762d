"""Inference on chains with logarithms, one sequence at a time, for sequences that would underflow in `scaled`.

Let s_t(j) be the score of label j at token t, and w_t(i, j) the score of a step from i to j. The forward messages la_t,
the backward messages lb_t and their normalisers c_t are logarithms in float64. With -inf as the logarithm of zero,

    a_t(j) = log sum_i exp(la_{t-1}(i) + w_t(i, j)),
    la_t(j) = s_t(j) + a_t(j) - c_t,       c_t such that sum_j exp(la_t(j)) = 1,
    lb_{t-1}(i) = log sum_j exp(w_t(i, j) + s_t(j) + lb_t(j)) - c_t,       lb_T = 0.

The messages give the probability P_t of a label given the next label, and the probability Q_t of a label given the
previous label:

    P_t(i|j) = exp(la_{t-1}(i) + w_t(i, j) - a_t(j)),
    Q_t(j|i) = exp(w_t(i, j) + s_t(j) + lb_t(j) - c_t - lb_{t-1}(i)).

For L labels, each of these recursions takes L^2 exponentials per token. The module `scaled` takes L exponentials per
token for all recursions together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr, rel_entr

from kernelcrf.arrays import Array, Floats
from kernelcrf.inference.loops import logspace as loops


@dataclass(frozen=True)
class LogMessages:
    """Scores and log-space messages of one sequence with T tokens and L labels.

    s : (T, L), the scores.
    w : the transitions, (1, L, L) if all tokens share one matrix, otherwise (T, L, L).
    a, la, lb, c : the messages (T, L) and their normalisers (T,), which the module docstring defines.
    """

    s: Floats
    w: Floats
    a: Floats
    la: Floats
    lb: Floats
    c: Floats

    @classmethod
    def of(cls, scores: Floats, transitions: Floats) -> LogMessages:
        """Compute the messages of one sequence; `transitions` is one matrix for all tokens or one matrix per token."""
        w = transitions[None] if transitions.ndim == 2 else transitions
        a, la, lb = np.zeros_like(scores), np.empty_like(scores), np.empty_like(scores)
        c = np.empty(len(scores))
        loops.messages(scores, w, transitions.ndim == 2, a, la, lb, c)
        return cls(scores, w, a, la, lb, c)

    @property
    def tied(self) -> bool:
        """Return whether all tokens share one matrix of transitions."""
        return len(self.w) == 1

    @property
    def log_partition(self) -> float:
        """Return the log-partition, which is not finite if every labelling is forbidden or a score is NaN or +inf."""
        return float(self.c.sum())

    @property
    def nodes(self) -> Floats:
        """Return the node marginals p(y_t = j) as an array of shape (T, L), one row per token."""
        return _normalise(self.la + self.lb)

    @property
    def edges(self) -> Floats:
        """Return the edge marginals p(y_{t-1} = i, y_t = j), one matrix per token; the first matrix is zero."""
        q = np.zeros((*self.s.shape, self.s.shape[1]))
        into = (self.s + self.lb - self.c[:, None])[1:]
        w = self.w if self.tied else self.w[1:]
        q[1:] = _normalise(self.la[:-1, :, None] + w + into[:, None, :])
        return q

    @property
    def entropy(self) -> float:
        """Return the entropy of the labels: the sum over tokens of the entropy of a label given the previous label."""
        q = self.edges[1:]
        return float(entr(self.nodes[:1]).sum() - rel_entr(q, q.sum(axis=2, keepdims=True)).sum())

    def sample(self, uniform: Array, labels: Array) -> None:
        """Draw labels from the last token to the first, and write them into `labels`, one row per token.

        uniform : random numbers between 0 and 1, in the shape of `labels`.
        """
        loops.sample(self.w, self.tied, self.la, uniform, labels)

    def tangents(self, du: Floats, dw: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of node and edge marginals if scores change along du and transitions along dw."""
        dp, dq = np.empty_like(self.s), np.zeros((*self.s.shape, self.s.shape[1]))
        dw = dw[None] if dw.ndim == 2 else dw
        loops.tangents(self.s, self.w, self.tied, self.a, self.la, self.lb, self.c, self.nodes, du, dw, dp, dq)
        return dp, dq


def _normalise(logarithms: Floats) -> Floats:
    """Return exp(logarithms), divided by its sum for each token.

    Without the division, the sum would differ from 1 if scores are huge, because of rounding.
    """
    axes = tuple(range(1, logarithms.ndim))
    p = np.exp(logarithms - logarithms.max(axis=axes, keepdims=True, initial=-np.inf))
    return np.asarray(p / p.sum(axis=axes, keepdims=True))
