"""Inference on chains in log space, one sequence at a time, for sequences whose numbers would underflow in `scaled`.

The messages are the logarithms of the messages of `scaled`, in float64; -inf is an exact zero:

    a_t(j) = log sum_i exp(la_{t-1}(i) + w_t(i, j)),
    la_t(j) = s_t(j) + a_t(j) - c_t,       c_t so that sum_j exp(la_t(j)) = 1,
    lb_{t-1}(i) = log sum_j exp(w_t(i, j) + s_t(j) + lb_t(j)) - c_t,       lb_T = 0,
    P_t(i|j) = exp(la_{t-1}(i) + w_t(i, j) - a_t(j)),
    Q_t(j|i) = exp(w_t(i, j) + s_t(j) + lb_t(j) - c_t - lb_{t-1}(i)).

Each recursion takes L^2 exponentials per token; all recursions in scaled space together take L.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr, rel_entr

from kernelcrf.arrays import Array, Floats
from kernelcrf.inference.loops import logspace as loops


@dataclass(frozen=True)
class LogMessages:
    """Scores s (T, L) and w (1 or T, L, L) of one sequence, and its messages: a, la, lb (T, L), c (T,)."""

    s: Floats
    w: Floats
    a: Floats
    la: Floats
    lb: Floats
    c: Floats

    @classmethod
    def of(cls, scores: Floats, transitions: Floats) -> LogMessages:
        """Return messages of one sequence whose transitions are tied (L, L) or one per token (T, L, L)."""
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
        """Return log Z; it is not finite if every labelling is forbidden, or if a score is NaN or +inf."""
        return float(self.c.sum())

    @property
    def nodes(self) -> Floats:
        """Return the node marginals p (T, L)."""
        return _normalise(self.la + self.lb)

    @property
    def edges(self) -> Floats:
        """Return the edge marginals q (T, L, L); zero at the first token."""
        q = np.zeros((*self.s.shape, self.s.shape[1]))
        into = (self.s + self.lb - self.c[:, None])[1:]
        w = self.w if self.tied else self.w[1:]
        q[1:] = _normalise(self.la[:-1, :, None] + w + into[:, None, :])
        return q

    @property
    def entropy(self) -> float:
        """Return the entropy of the labelling, sum_t H(y_t | y_{t-1})."""
        q = self.edges[1:]
        return float(entr(self.nodes[:1]).sum() - rel_entr(q, q.sum(axis=2, keepdims=True)).sum())

    def sample(self, uniform: Array, labels: Array) -> None:
        """Draw y_T ~ p_T, then y_{t-1} ~ P_t(.|y_t), and write the draws into labels (T, n_samples)."""
        loops.sample(self.w, self.tied, self.la, uniform, labels)

    def tangents(self, du: Floats, dw: Floats) -> tuple[Floats, Floats]:
        """Return derivatives dp (T, L) and dq (T, L, L) of the marginals along du (T, L) and dw (L, L) or (T, L, L)."""
        dp, dq = np.empty_like(self.s), np.zeros((*self.s.shape, self.s.shape[1]))
        dw = dw[None] if dw.ndim == 2 else dw
        loops.tangents(self.s, self.w, self.tied, self.a, self.la, self.lb, self.c, self.nodes, du, dw, dp, dq)
        return dp, dq


def _normalise(logarithms: Floats) -> Floats:
    """Return exp(logarithms), normalised per token, because rounding of scores such as 1e30 changes the sum from 1."""
    axes = tuple(range(1, logarithms.ndim))
    p = np.exp(logarithms - logarithms.max(axis=axes, keepdims=True, initial=-np.inf))
    return np.asarray(p / p.sum(axis=axes, keepdims=True))
