"""Inputs, kernels and rules that the laws of a basis run over, and dense twins written from the formulas."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as gp

from kernelcrf.basis.centres import KMeans, Lloyd
from kernelcrf.basis.pivots import AllInputs, Gradient, Greedy, Random, Uniform
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel


def dense(X):
    return X.toarray() if sp.issparse(X) else X


def exponential(X, Y):
    return np.exp(-cdist(dense(X), dense(Y)))


KERNELS = {
    "linear": InputKernel("linear"),
    "poly": InputKernel(Polynomial(coef0=0.5), gamma=0.7),
    "rbf": InputKernel("rbf", gamma=0.4),
    "laplacian": InputKernel("laplacian", gamma=0.3),
    "cosine": InputKernel("cosine"),
    "chi2": InputKernel("chi2", gamma=0.8),
    "callable": InputKernel(exponential),
    "gaussian process": InputKernel(gp.ConstantKernel(2.0) * gp.RBF(1.5) + gp.Matern(1.2, nu=1.5)),
}
VECTORIAL = [name for name in KERNELS if name != "callable"]
SPARSE = ["linear", "poly", "rbf", "laplacian", "cosine", "callable"]


def inputs(rows, seed=0, d=5):
    rng = np.random.default_rng(seed)
    return rng.random((rows, d)) * (rng.random((rows, d)) < 0.7)


def rules(U):
    """Every rule; those that take inputs as atoms, and those that take means."""
    scores = np.random.default_rng(3).random(U)
    return {
        "exact": AllInputs(),
        "greedy": Greedy(),
        "greedy in blocks": Greedy(block=5),
        "random": Random(),
        "random in blocks": Random(block=5),
        "uniform": Uniform(),
        "gradient": Gradient(scores),
        "kmeans": KMeans(),
        "lloyd": Lloyd(),
    }


RULES = list(rules(1))
MEANS = ["kmeans", "lloyd"]


def greedy_pivots(K, n):
    """The largest diagonal of the residual matrix, one at a time, on the whole matrix."""
    S, pivots = K.copy(), []
    for _ in range(n):
        j = int(np.diagonal(S).argmax())
        pivots.append(j)
        S -= np.outer(S[:, j], S[j]) / S[j, j]
        S[j, j] = 0.0
    return pivots


def projected(K_xB, K_BB):
    """K_xB K_BB^+ K_Bx: what any features on the atoms B can give."""
    return K_xB @ np.linalg.pinv(K_BB, hermitian=True, rcond=1e-13) @ K_xB.T


@dataclass(frozen=True)
class Farthest:
    """The pivot rule of docs/extend/pivot_rule.md: the input farthest from those chosen, one at a time."""

    def grow(self, builder, rng):
        X = np.asarray(builder.inputs())
        pivot, distance = int(rng.integers(len(X))), np.full(len(X), np.inf)
        while distance.max() > 0:
            yield builder.append_inputs(np.array([pivot]))
            distance = np.minimum(distance, np.linalg.norm(X - X[pivot], axis=1))
            pivot = int(distance.argmax())
