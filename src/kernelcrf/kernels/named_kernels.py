"""The kernels that users choose by name: `NAMED` maps each name to its Gram matrix, diagonal and properties.

    linear      x.x'
    poly        (gamma x.x' + coef0)^degree             also named `polynomial`
    rbf         exp(-gamma |x - x'|^2)
    laplacian   exp(-gamma |x - x'|_1)
    cosine      x.x' / (|x| |x'|)
    chi2        exp(-gamma sum_j (x_j - x'_j)^2 / (x_j + x'_j))     for x >= 0

Names and parameters are those of `sklearn.metrics.pairwise`; degree is 3 and coef0 is 1. If gamma is None, it is 1/d
for inputs of d columns, and 1 for chi2. `sigmoid` and `additive_chi2` are missing because their Gram matrices have
negative eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Inputs, is_sparse
from kernelcrf.kernels.elementwise import largest, normalise, raise_to_power
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.kernels.rbf import fill_inner, fill_rbf, squared_norms

NOT_KERNELS = ("sigmoid", "additive_chi2")


@dataclass(frozen=True)
class NamedKernel:
    """The functions and properties of a kernel that users choose by name.

    fill : a function (X, Y, gamma, out) that writes the Gram matrix into `out`, in float32 or float64.
    diagonal : a function (X, gamma) that returns k(x, x) for each row x of X.
    reads_gamma : whether the kernel depends on gamma.
    default_gamma : the value if the user passes gamma=None; None stands for 1/d, with inputs of d columns.
    is_smooth : whether the kernel is smooth at x = x', so that means of inputs can be landmarks.
    takes_sparse : whether `fill` and `diagonal` accept CSR matrices.
    """

    fill: Callable[[Inputs, Inputs, float, Array], None]
    diagonal: Callable[[Inputs, float], Array]
    reads_gamma: bool = False
    default_gamma: float | None = None
    is_smooth: bool = False
    takes_sparse: bool = True


def _ones(X: Inputs, gamma: float) -> Array:
    return np.ones(X.shape[0], X.dtype)


def of_polynomial(form: Polynomial) -> NamedKernel:
    """Return the functions and properties of a polynomial kernel."""

    def fill(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
        fill_inner(X, Y, out)
        raise_to_power(out, gamma, form)

    def diagonal(X: Inputs, gamma: float) -> Array:
        squares = squared_norms(X)
        raise_to_power(squares, gamma, form)
        return squares

    return NamedKernel(fill, diagonal, reads_gamma=True, is_smooth=True)


def _fill_laplacian(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    from sklearn.metrics.pairwise import laplacian_kernel

    out[...] = laplacian_kernel(_with_short_indices(X), _with_short_indices(Y), gamma=gamma)


def _with_short_indices(X: Inputs) -> Inputs:
    """Return X; if X is sparse, convert its indices to 32 bits, as scikit-learn's Manhattan distances require."""
    if not is_sparse(X) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    return sp.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)


def _fill_chi2(X: Inputs, Y: Inputs, gamma: float, out: Array) -> None:
    X, Y = as_dense(X, "chi2"), as_dense(Y, "chi2")
    least = min(X.min(initial=0), Y.min(initial=0))
    if least < 0:
        raise ValueError(
            f"X has the value {least:g}, but the kernel chi2 is defined only for values >= 0, such as counts: scale X "
            "to positive values, for example with sklearn.preprocessing.MinMaxScaler(clip=True), or choose another "
            "kernel, such as rbf or laplacian"
        )
    from sklearn.metrics.pairwise import chi2_kernel

    out[...] = chi2_kernel(X, Y, gamma=gamma)


def as_dense(X: Inputs, who: str) -> Array:
    """Return X, or raise TypeError if X is sparse; the error message shows `who`, the name of the kernel."""
    if is_sparse(X):
        others = ", ".join(name for name, kernel in NAMED.items() if kernel.takes_sparse)
        raise TypeError(
            f"X is sparse, but {who} needs dense inputs: pass X.toarray(), or choose a kernel from {others}"
        )
    return np.asarray(X)


POLY = of_polynomial(Polynomial())
NAMED = {
    "linear": NamedKernel(lambda X, Y, _, out: fill_inner(X, Y, out), lambda X, _: squared_norms(X)),
    "poly": POLY,
    "polynomial": POLY,
    "rbf": NamedKernel(lambda X, Y, gamma, out: fill_rbf(X, Y, gamma, out), _ones, reads_gamma=True, is_smooth=True),
    "laplacian": NamedKernel(_fill_laplacian, _ones, reads_gamma=True),
    "cosine": NamedKernel(
        lambda X, Y, _, out: fill_inner(normalise(X), normalise(Y), out),
        lambda X, _: (largest(X) > 0).astype(X.dtype),
        is_smooth=True,
    ),
    "chi2": NamedKernel(_fill_chi2, _ones, reads_gamma=True, default_gamma=1.0, takes_sparse=False),
}
