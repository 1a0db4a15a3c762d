"""Which sequences of a pool to label next: those of which the model knows least, and unlike each other.

    entropy       H(y | x), of whole labelings
    margin        p(second best labelling) / p(best labelling)
    information   sum_t of the epistemic part of `uncertainty`: what labels would tell about the weights

Divided by the number of tokens where labels are paid by the token. With q_i the score of sequence i and phi_i the mean
of its tokens' features, scaled to length one, a batch is chosen greedily to make det [q_i q_j <phi_i, phi_j>] great:
each next sequence has the most of q_i^2 that the span of those chosen leaves (the greedy mode of a determinantal
process).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.kernels.inputs import is_sparse

Floats = npt.NDArray[np.float64]

STRATEGIES = ("entropy", "margin", "information")
COSTS = ("token", "sequence")


def diverse(scores: Floats, phi: Any, k: int) -> npt.NDArray[np.intp]:
    """The places (k,) of the sequences chosen, in order; phi (m, n) is dense or CSR."""
    squares = np.asarray(phi.multiply(phi).sum(axis=1) if is_sparse(phi) else np.square(phi).sum(axis=1), np.float64)
    norms = np.sqrt(np.maximum(squares.ravel(), np.finfo(np.float64).tiny))
    q = np.maximum(scores, 0.0)
    left = np.square(q)
    columns, chosen = np.empty((len(q), k)), np.empty(k, np.intp)
    taken = np.zeros(len(q), bool)
    for step in range(k):
        # Where nothing is left in any direction, as among equal sequences, scores alone decide.
        criterion = left if left[~taken].max() > 1e-12 * np.square(q).max() else q
        best = int(np.where(taken, -np.inf, criterion).argmax())
        chosen[step], taken[best] = best, True
        row = phi[[best]].toarray().ravel() if is_sparse(phi) else phi[best]
        column = q * q[best] * np.asarray(phi @ row, np.float64) / (norms * norms[best])
        column -= columns[:, :step] @ columns[best, :step]
        pivot = left[best]
        columns[:, step] = column / np.sqrt(pivot) if pivot > 1e-12 * np.square(q).max() else 0.0
        left = np.maximum(left - np.square(columns[:, step]), 0.0)
        left[best] = 0.0
    return chosen
