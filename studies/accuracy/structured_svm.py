"""Fit a structured support vector machine to sequences, by block-coordinate Frank-Wolfe (Lacoste-Julien et al. 2013).

The features Phi(x, y) of a labelling are those of a ChainCRF: F(x_t) for each label y_t, and one for each step from
y_{t-1} to y_t. With the loss Delta, the number of wrong labels, margins are rescaled:

    P(theta) = |theta|^2 / (2 C) + sum_i max_y [Delta(y_i, y) + <theta, Phi(x_i, y) - Phi(x_i, y_i)>].

This is the objective of a ChainCRF with another loss, so that C has the same place in both. The dual variables are a
distribution alpha_i over the labellings of each sequence, of which the marginals M of tokens and the expected counts Q
of steps are enough (Taskar et al. 2003):

    theta = C sum_i (Phi(x_i, y_i) - E_alpha_i Phi(x_i, y)),    D = sum_i E_alpha_i Delta(y_i, y) - |theta|^2 / (2 C).

One step moves alpha_i towards the labelling with the largest loss and score, as far as D increases. P - D, at the mean
of the points after each pass, with later ones counted more, is a bound on the distance to the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats
from kernelcrf.engines.compiled import compiled
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.loops.decoding import viterbi

PASSES_PER_CHECK = 5


@compiled
def ascend(F, offsets, y, order, C, W, T, M, Q):
    """Take one step for each sequence, in the given order; W, T, M and Q are changed."""
    n_labels = W.shape[1]
    best = np.empty(1)
    for i in order:
        first, last = offsets[i], offsets[i + 1]
        n = last - first
        rows = F[first:last]
        scores = np.dot(rows, W)
        for t in range(n):
            scores[t] += 1.0
            scores[t, y[first + t]] -= 1.0
        labels, back = np.empty(n, np.int32), np.empty((n, n_labels), np.uint8)
        viterbi(scores, T.reshape(1, n_labels, n_labels), True, np.array([0, n]), back, labels, best)
        tokens, steps = -M[first:last], -Q[i]
        for t in range(n):
            tokens[t, labels[t]] += 1.0
            if t > 0:
                steps[labels[t - 1], labels[t]] += 1.0
        direction = np.dot(rows.T, tokens)
        square = C * (np.sum(direction * direction) + np.sum(steps * steps))
        gap = max(0.0, np.sum(scores * tokens) + np.sum(T * steps))
        length = 1.0 if gap >= square else gap / square
        W -= length * C * direction
        T -= length * C * steps
        M[first:last] += length * tokens
        Q[i] += length * steps


@dataclass(frozen=True)
class Bounds:
    """Hold the objective of weights and a lower bound on its minimum."""

    objective: float
    lower_bound: float

    @property
    def relative_gap(self) -> float:
        """Return the certified distance to the minimum, as a share of the objective."""
        return (self.objective - self.lower_bound) / max(self.objective, np.finfo(float).tiny)


@dataclass
class StructuredSVM:
    """Fit the weights W (n, L) of features and T (L, L) of steps; labels are numbers from 0 to L - 1.

    tol : the fit ends when the certified gap is at most this share of the objective, or after `max_passes` passes.
    """

    n_labels: int
    C: float = 1.0
    tol: float = 1e-2
    max_passes: int = 500
    random_state: int = 0

    def fit(self, F: Floats, y: Array, lengths: Array) -> StructuredSVM:
        """Fit the weights to features (N, n) and labels (N,) of sequences that are stored one after the other."""
        F, chains = np.ascontiguousarray(F, np.float64), Chains.from_lengths(lengths)
        rng, L = np.random.default_rng(self.random_state), self.n_labels
        W, T, M = np.zeros((F.shape[1], L)), np.zeros((L, L)), np.eye(L)[y]
        Q = np.zeros((chains.n_samples, L, L))
        sample = np.repeat(np.arange(chains.n_samples), lengths)
        same = np.flatnonzero(sample[1:] == sample[:-1])
        np.add.at(Q, (sample[same], y[same], y[same + 1]), 1.0)
        self.W, self.T, mean_loss = W.copy(), T.copy(), 0.0
        for n_passes in range(1, self.max_passes + 1):
            ascend(F, chains.offsets, y, rng.permutation(chains.n_samples), self.C, W, T, M, Q)
            share = 2 / (n_passes + 1)
            self.W += share * (W - self.W)
            self.T += share * (T - self.T)
            mean_loss += share * ((1 - M[np.arange(len(y)), y]).sum() - mean_loss)
            if n_passes % PASSES_PER_CHECK == 0 or n_passes == self.max_passes:
                self.bounds = self._bounds(F, y, chains, mean_loss)
                if self.bounds.relative_gap <= self.tol:
                    break
        return self

    def _bounds(self, F: Floats, y: Array, chains: Chains, mean_loss: float) -> Bounds:
        """Return P and D, where `mean_loss` is the expected loss of the dual variables of the weights."""
        scores = F @ self.W
        norm = (np.sum(self.W**2) + np.sum(self.T**2)) / (2 * self.C)
        right = chain.labelling_scores(scores, self.T, chains, y).sum()
        scores += 1.0
        scores[np.arange(len(y)), y] -= 1.0
        return Bounds(float(norm + decoding.viterbi(scores, self.T, chains)[1].sum() - right), float(mean_loss - norm))
