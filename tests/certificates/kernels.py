"""Gram matrices in double precision, by scikit-learn's own functions."""

import numpy as np
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern
from sklearn.metrics import pairwise


def tent(X, Y):
    """Return the product of triangle functions of the columns, a kernel that has no name in the library."""
    X, Y = (Z.toarray() if sp.issparse(Z) else np.asarray(Z, np.float64) for Z in (X, Y))
    return np.maximum(1 - np.abs(X[:, None] - Y[None]) / 4, 0).prod(axis=2)


PROCESSES = {
    "matern": lambda: 2.0 * Matern(length_scale=1.5, nu=1.5),
    "rbf + dot": lambda: RBF(0.7) + 0.1 * DotProduct(1.0),
}
NAMES = ("linear", "rbf", "poly", "laplacian", "cosine", "chi2", "tent", *PROCESSES)


def argument(name):
    """Return what a user passes as `kernel`."""
    if name == "tent":
        return tent
    return PROCESSES[name]() if name in PROCESSES else name


def gram(name, X, Y, gamma, degree=3, coef0=1.0):
    """Return k(x, y) for all pairs of rows."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if not X.size or not Y.size:
        return np.zeros((len(X), len(Y)))
    if name == "tent":
        return tent(X, Y)
    if name in PROCESSES:
        return PROCESSES[name]()(X, Y)
    if name == "linear":
        return pairwise.linear_kernel(X, Y)
    if name == "cosine":
        return pairwise.cosine_similarity(X, Y)
    if name == "poly":
        return pairwise.polynomial_kernel(X, Y, degree=degree, gamma=gamma, coef0=coef0)
    if name == "rbf":
        # Differences one by one: an expanded square would lose what is checked here.
        return np.exp(-gamma * ((X[:, None] - Y[None]) ** 2).sum(axis=2))
    return {"laplacian": pairwise.laplacian_kernel, "chi2": pairwise.chi2_kernel}[name](X, Y, gamma=gamma)


def gamma_by_scale(X):
    """Return 1 / (d variance), and 1 if there is no variance."""
    variance = np.asarray(X, np.float64).var()
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
