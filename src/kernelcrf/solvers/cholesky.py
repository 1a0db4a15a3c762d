"""Cholesky factors of matrices that are positive definite but for rounding.

    E E' = M + tau I,      tau the least of 0, eps tr M, 100 eps tr M, ... for which the factor exists

Features with a large common offset give blocks whose small eigenvalues are lost in the rounding of the large ones. For
a direction or a preconditioner, any positive definite matrix near M is good enough.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from kernelcrf.arrays import Floats

GROWTH, MOST_TRIALS = 100.0, 8


def lower_factor(M: Floats) -> Floats:
    """Return E of the module's docstring for a symmetric M."""
    tau = 0.0
    for _ in range(MOST_TRIALS if np.isfinite(M).all() else 0):
        try:
            return np.asarray(cholesky(M + tau * np.eye(len(M)) if tau else M, lower=True))
        except LinAlgError:
            tau = max(GROWTH * tau, float(np.finfo(np.float64).eps * np.trace(M)))
    raise ValueError(
        f"a block of the Hessian has entries up to {np.abs(M).max():.3g} and is far from positive definite: scale the "
        "inputs, as sklearn.preprocessing.StandardScaler does"
    )
