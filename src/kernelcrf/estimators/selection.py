"""Which sequences of a pool to label next: those of which the model knows least, and unlike each other.

    entropy       H(y | x), of whole labelings
    margin        p(second best labelling) / p(best labelling)
    information   sum_t of the epistemic part of `uncertainty`: what labels would tell about the weights

divided by the number of tokens where labels are paid by the token. With q_i the score of sequence i and phi_i the mean
of its tokens' features, scaled to length one, a batch is drawn by random pivots of the matrix q_i q_j <phi_i, phi_j>:
each next sequence with a probability in proportion to what the span of those drawn leaves of q_i^2. That is how
`basis.pivots` draws landmarks, and for the same reason: the greatest of all is taken by outliers, of which a pool of
real sequences has plenty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.kernels.inputs import is_sparse
from kernelcrf.validation import either, one_of

Floats = npt.NDArray[np.float64]

STRATEGY = either(one_of("entropy", "margin", "information"))
COST = either(one_of("token", "sequence"))
FLOOR = 1e-12


def draw_batch(scores: Floats, phi: Any, k: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """The places (k,) of the sequences drawn, in order; phi (m, n) is dense or CSR."""
    squares = np.asarray(phi.multiply(phi).sum(axis=1) if is_sparse(phi) else np.square(phi).sum(axis=1), np.float64)
    norms = np.sqrt(np.maximum(squares.ravel(), np.finfo(np.float64).tiny))
    q = np.maximum(scores, 0.0)
    least = FLOOR * float(np.square(q).max())
    left, free = np.square(q), np.ones(len(q), bool)
    columns, drawn = np.zeros((len(q), k)), np.empty(k, np.intp)
    for step in range(k):
        weights = np.where(free & (left > least), left, 0.0)
        if not weights.any():
            # Nothing is left in any direction, as among equal sequences: their scores alone count, or nothing at all.
            weights = np.where(free, np.square(q), 0.0) if q[free].any() else free.astype(np.float64)
        place = int(rng.choice(len(q), p=weights / weights.sum()))
        if left[place] > least:
            row = phi[[place]].toarray().ravel() if is_sparse(phi) else phi[place]
            column = q * q[place] * np.asarray(phi @ row, np.float64) / (norms * norms[place])
            column -= columns[:, :step] @ columns[place, :step]
            columns[:, step] = column / np.sqrt(left[place])
            left = np.maximum(left - np.square(columns[:, step]), 0.0)
        drawn[step], free[place], left[place] = place, False, 0.0
    return drawn
