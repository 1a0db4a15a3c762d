"""Weights of a proximal problem, which pulls them towards a centre z.

The objective P has the penalty lam/2 |theta - mu|^2 + l1 |theta|_1. The proximal problem has the objective
P(theta) + rho lam/2 |theta - z|^2. Let G be the sum of the observed features minus the expected features under the dual
variables. Then G determines two vectors of weights: those of P and those of the proximal problem,

    S     = soft(v, l1/lam),                             v = mu + G / lam,
    theta = soft((v + rho z) / (1 + rho), l1/(lam (1 + rho))),

and the dual objective D of P contains the term -lam/2 (|S|^2 - |mu|^2), which depends neither on rho nor on z. The gap
P(theta) - D exceeds the gap of the proximal problem by

    lam [|theta - S|^2 / 2 + l1/lam |theta|_1 - <v - S, theta>],

which is not negative, because |v - S| is at most l1/lam.

If the distance from the optimum shrinks by the factor 1/2 in each pass for the proximal problem, it shrinks much more
slowly for P itself if lam is small. Moving the centre to theta again and again leads to the optimum of P. With
Nesterov's extrapolation, which moves the centre beyond theta, the number of moves grows with the square root of 1 + rho
(Lin, Mairal and Harchaoui, 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats
from kernelcrf.penalties import soft


@dataclass(eq=False)
class PulledWeights:
    """Weights of terms with the same prior variance and L1 penalty, as an array of any shape.

    C, l1 : the prior variance 1 / lam, and the factor of the L1 penalty.
    shares : 1 for entries that are weights, and 0 for all others. If weights have their own prior precisions lam_k, the
        entry of a weight is 1 / (C lam_k), and the formulas hold for each weight with its lam_k.
    mean : the prior means mu.
    W : the weights theta of the proximal problem.
    V : theta before an L1 penalty shrinks it towards zero; without this penalty, V and W are one array.
    Z : the centre z.
    last : theta when the centre was last moved.
    """

    C: float
    l1: float
    shares: Array
    mean: Floats | None
    W: Floats
    V: Floats
    Z: Floats
    last: Floats

    @classmethod
    def of(cls, C: float, l1: float, shares: Array, mean: Floats | None, G: Floats) -> PulledWeights:
        """Return weights that G determines, with no pull."""
        V = cls._before_pull(C, shares, mean, G)
        W = soft(V, l1 * C) if l1 else V
        return cls(C, l1, shares, mean, W, V, W.copy(), W.copy())

    @staticmethod
    def _before_pull(C: float, shares: Array, mean: Floats | None, G: Floats) -> Floats:
        v = G * shares
        v *= C
        return v if mean is None else v + mean

    def renew(self, G: Floats, pull: float) -> None:
        """Compute the weights from G again, which removes the rounding errors of many small changes."""
        v = self._before_pull(self.C, self.shares, self.mean, G)
        self._set(v, pull)

    def move_centre(self, pull: float, next_pull: float) -> None:
        """Move the centre to theta and beyond, and change the factor rho from `pull` to `next_pull`."""
        root = (1 + pull) ** -0.5
        v = self._unpulled(pull)
        np.subtract(self.W, self.last, out=self.last)
        np.multiply(self.last, (1 - root) / (1 + root), out=self.Z)
        self.Z += self.W
        self.last[...] = self.W
        self._set(v, next_pull)

    def _set(self, v: Floats, pull: float) -> None:
        """Set the weights of the proximal problem, given the weights v of P before an L1 penalty shrinks them."""
        if pull:
            v += pull * self.Z
            v /= 1 + pull
        self.V[...] = v
        if self.l1:
            self.W[...] = soft(v, self.l1 * self.C / (1 + pull))

    def _unpulled(self, pull: float) -> Floats:
        """Return the weights v of P, before an L1 penalty shrinks them."""
        v = self.V * (1 + pull)
        if pull:
            v -= pull * self.Z
        return v

    def measure(self, pull: float) -> tuple[float, float]:
        """Return the share of these weights in the dual objective D, and the excess of the gap of P."""
        v = self._unpulled(pull)
        S = soft(v, self.l1 * self.C) if self.l1 else v
        value = 0.0 if self.mean is None else self._squared_norm(self.mean)
        value -= self._squared_norm(S)
        if not pull:
            return value / 2, 0.0
        excess = self._squared_norm(self.W - S) / 2
        if self.l1:
            rest = self.l1 * self.C * float(np.abs(self.W).sum()) - float(np.vdot(v - S, self.W))
            excess += max(rest, 0.0) / self.C
        return value / 2, excess

    def _squared_norm(self, X: Floats) -> float:
        """Return the sum of lam x^2 over all entries x."""
        if self.shares.dtype == np.float64:
            weights = self.shares > 0
            return float((np.square(X[weights]) / self.shares[weights]).sum()) / self.C
        return float(np.vdot(X, X)) / self.C
