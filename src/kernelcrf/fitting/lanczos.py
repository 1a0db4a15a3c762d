"""Compute functions f(S) of a symmetric positive definite matrix S with the Lanczos algorithm.

The algorithm starts from a vector z. After k products with S, it has a matrix V of k orthonormal rows, the first of
which is z / |z|, and a tridiagonal matrix T = V S V'. With the first unit vector e_1, it approximates

    z' f(S) z  ~  |z|^2 e_1' f(T) e_1           by Gauss quadrature, exact for polynomials of degree up to 2 k - 1
    f(S) z     ~  |z| V' f(T) e_1

Because of rounding errors, each new row is made orthogonal to all earlier rows twice. The algorithm ends if one more
step changes T^-1/2 e_1 by a relative amount of at most rtol, or if S maps the span of V to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from kernelcrf.arrays import Floats

STEPS, ROWS_BYTES, LEAST_STEPS = 200, 2**30, 10
RTOL = 1e-3


@dataclass(frozen=True, eq=False)
class Krylov:
    """The result of the Lanczos algorithm from a vector z, for a matrix S.

    norm : the norm of z.
    V : orthonormal rows, one per step.
    values, Q : the eigenvalues of the tridiagonal matrix T = V S V', and its eigenvectors, one per column.
    """

    norm: float
    V: Floats
    values: Floats
    Q: Floats

    def quadrature(self, f: Callable[[Floats], Floats]) -> float:
        """Return e_1' f(T) e_1, an approximation of z' f(S) z / |z|^2; e_1 is the first unit vector."""
        return float(np.dot(np.square(self.Q[0]), f(self.values)))

    def apply(self, f: Callable[[Floats], Floats]) -> Floats:
        """Return |z| V' f(T) e_1, an approximation of f(S) z; e_1 is the first unit vector."""
        return np.asarray(self.norm * (self.V.T @ (self.Q @ (f(self.values) * self.Q[0]))))


def krylov(product: Callable[[Floats], Floats], z: Floats, rtol: float = RTOL) -> Krylov:
    """Run the Lanczos algorithm from the vector z; `product` is a function that returns S v for a vector v."""
    size = len(z)
    steps = min(size, STEPS, max(ROWS_BYTES // (8 * size), LEAST_STEPS))
    V, alpha, beta = np.empty((steps, size)), np.empty(steps), np.empty(steps)
    norm = float(np.linalg.norm(z))
    V[0], before = z / norm, np.zeros(0)
    for k in range(steps):
        v = product(V[k])
        alpha[k] = np.dot(V[k], v)
        for _ in range(2):
            v = v - (V[: k + 1] @ v) @ V[: k + 1]
        beta[k] = np.linalg.norm(v)
        values, Q = (np.asarray(part, np.float64) for part in eigh_tridiagonal(alpha[: k + 1], beta[:k]))
        now = Q @ (Q[0] / np.sqrt(np.maximum(values, np.finfo(np.float64).tiny)))
        change = np.linalg.norm(now - np.append(before, 0.0))
        if change <= rtol * np.linalg.norm(now) or beta[k] <= 1e-12 * abs(alpha[: k + 1]).max() or k + 1 == steps:
            return Krylov(norm, V[: k + 1].copy(), values, Q)
        V[k + 1], before = v / beta[k], now
    raise AssertionError("the Lanczos algorithm did not end after its last step; please report this error")
