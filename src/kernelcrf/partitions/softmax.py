"""Inference for tokens whose labels do not depend on each other: one softmax per token.

Let s_t be the scores of the labels at token t. The log-partition log Z, the probabilities p_t, and their derivatives
dp_t along a direction ds of the scores are

    log Z = sum_t log sum_j exp s_t(j),    p_t = softmax(s_t),    dp_t = p_t * (ds_t - <p_t, ds_t>),

where * is the elementwise product. The tokens of a sequence are independent if no term scores transitions between
neighbouring tokens; the transition scores are then an empty array. A classifier treats its rows in this way. Time and
memory grow with the number of labels, not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr

from kernelcrf.arrays import Array, Floats
from kernelcrf.inference.tangents import Tangents


@dataclass(frozen=True, eq=False)
class Softmax:
    """Probabilities of the labels of independent tokens.

    p : the probabilities, one row per token and one column per label.
    log_partition : for each token, the logarithm of the sum of exp(score) over all labels.
    """

    p: Array
    log_partition: Floats

    @classmethod
    def of(cls, s: Array) -> Softmax:
        """Return the label probabilities for scores with one row per token."""
        top = s.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():
            raise ValueError(
                f"the scores of row {int(np.argmin(np.isfinite(top)))} overflow {s.dtype}: expected finite scores; "
                "scale the inputs to smaller values, or lower C"
            )
        p = np.exp(s - top)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        return cls(p, top[:, 0].astype(np.float64) + np.log(total[:, 0], dtype=np.float64))

    def tangents(self, ds: Array, dw: Array) -> Tangents:
        """Return the derivatives of the probabilities along a direction `ds` of the token scores.

        dw : an empty array, since there are no transition scores; it becomes part of the result.
        """
        mean = np.einsum("tj,tj->t", self.p, ds)[:, None]
        return Tangents(self.p * (ds - mean), dw)

    @property
    def entropy(self) -> Floats:
        """Return the entropy -sum_j p_t(j) log p_t(j) of each token."""
        return np.asarray(entr(self.p.astype(np.float64, copy=False)).sum(axis=1))
