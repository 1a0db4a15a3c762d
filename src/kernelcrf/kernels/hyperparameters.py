"""The hyperparameters of an input kernel as one vector, in logarithms, with their bounds.

Of a kernel of `sklearn.gaussian_process`, its own `theta` and `bounds`; of a kernel by name that reads gamma, its
logarithm, within a factor of `GAMMA_RANGE` of the given one. Other kernels have none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from sklearn.gaussian_process import kernels as gp

from kernelcrf.kernels.inputs import InputKernel

Floats = npt.NDArray[np.float64]

READ_GAMMA = ("rbf", "poly", "laplacian", "chi2")
GAMMA_RANGE = 1e3


def hyperparameters(kernel: InputKernel) -> tuple[Floats, Floats]:
    """Theta (k,) and its bounds (k, 2); gamma must be a number."""
    if isinstance(kernel.kernel, gp.Kernel):
        theta = np.asarray(kernel.kernel.theta, np.float64)
        return theta, np.asarray(kernel.kernel.bounds, np.float64).reshape(len(theta), 2)
    if kernel.name not in READ_GAMMA or kernel.gamma is None:
        return np.empty(0), np.empty((0, 2))
    theta = np.log([float(kernel.gamma)])
    return theta, theta[:, None] + np.log([1 / GAMMA_RANGE, GAMMA_RANGE])


def with_hyperparameters(kernel: InputKernel, theta: Floats) -> InputKernel:
    """The kernel of the same form at another theta."""
    if isinstance(kernel.kernel, gp.Kernel):
        return replace(kernel, kernel=kernel.kernel.clone_with_theta(theta))
    return replace(kernel, gamma=float(np.exp(theta[0]))) if len(theta) else kernel
