"""Kernels of labels, or of the joint labels of a clique: `k_y = A A'` with a factor A of shape (L, rank).

With features F of an input kernel `k_x` (F F' = K_x), a weight matrix W of shape (n, rank) and the plain norm
|theta| = |W|, the scores of cliques are `F W A'`: functions in the RKHS of `k_x k_y`, the summand of (10), Remark 7.

    delta     k_y = I, A = I            each label has its own weights
    centred   k_y = I - 11'/L           Lemma 13: Phi(x, y) - mean_y Phi(x, y) does not change p(y|x); A = k_y
    matrix    k_y given by the user     similar labels have similar weights; A from the eigenvectors of k_y
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from kernelcrf.arrays import Array, Config
from kernelcrf.validation import COUNT, Constraint, check_parameters, either, one_of

KINDS = ("delta", "centred", "matrix")


def _is_square(label_kernel: ArrayLike) -> bool:
    matrix = np.array(label_kernel)
    return matrix.dtype.kind in "iuf" and matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0


LABEL_KERNEL = either(
    one_of("delta", "centred"), Constraint("an (L, L) matrix of numbers, one row for each label", _is_square)
)
PARAMETERS = {"kind": either(one_of(*KINDS)), "L": COUNT}


class LabelMap(ABC):
    """A kernel `k_y = A A'` of L labels, or of a clique's L joint labels, used through products with A (L, rank)."""

    L: int

    @property
    @abstractmethod
    def rank(self) -> int:
        """Return the number of columns of A, which is the number of weights for each feature."""

    @property
    def norm(self) -> float:
        """Return the largest eigenvalue of k_y: 1 if A has orthonormal columns."""
        return 1.0

    @property
    def is_identity(self) -> bool:
        """Return whether A = I, so that `expand` and `adjoint` change nothing."""
        return False

    @abstractmethod
    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z, (..., rank) -> (..., L)."""

    @abstractmethod
    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R, (..., L) -> (..., rank)."""

    @property
    def factor(self) -> Array:
        """Return the factor A as a matrix."""
        return self.expand(np.eye(self.rank)).T

    @property
    def gram(self) -> Array:
        """Return the kernel k_y as a matrix, (L, L)."""
        return np.asarray(self.factor @ self.factor.T)


@dataclass(frozen=True, eq=False)
class LabelKernel(LabelMap):
    """The kernel `k_y` of L labels; `matrix` is given if and only if kind="matrix".

    known_factor : a factor A of the matrix, or None to compute one. Factors are not unique (equal eigenvalues), so
        that weights must be used with the factor with which they were fitted.
    """

    kind: str
    L: int
    matrix: Array | None = None
    known_factor: Array | None = None

    def __post_init__(self) -> None:
        check_parameters(vars(self), PARAMETERS)
        if (self.matrix is not None) != (self.kind == "matrix"):
            given = "no matrix" if self.matrix is None else "a matrix"
            raise ValueError(f"kind={self.kind!r} with {given}: pass a matrix with kind='matrix' only")
        if self.matrix is not None:
            _check_label_matrix(self.matrix, self.L)
        if self.known_factor is not None:
            A, scale = self.known_factor, np.abs(self.gram).max()
            if A.ndim != 2 or len(A) != self.L or not np.allclose(A @ A.T, self.gram, rtol=0, atol=1e-10 * scale):
                raise ValueError("known_factor is not a factor A of the label kernel: expected A A' = k_y")

    @classmethod
    def of(cls, label_kernel: str | ArrayLike, L: int) -> LabelKernel:
        """Return the kernel named 'delta' or 'centred', or the kernel of an (L, L) positive semi-definite matrix."""
        LABEL_KERNEL.check("label_kernel", label_kernel)
        if isinstance(label_kernel, str):
            return cls(label_kernel, L)
        matrix = np.array(label_kernel, np.float64)
        if np.array_equal(matrix, np.eye(L)):
            return cls("delta", L)
        matrix.setflags(write=False)
        return cls("matrix", L, matrix)

    @property
    def is_identity(self) -> bool:
        """Return whether A = I, so that `expand` and `adjoint` change nothing."""
        return self.kind == "delta"

    @property
    def gram(self) -> Array:
        """Return the kernel k_y as a matrix, (L, L)."""
        if self.matrix is not None:
            return self.matrix
        return np.eye(self.L) - (1.0 / self.L if self.kind == "centred" else 0.0)

    @cached_property
    def factor(self) -> Array:
        """Return the factor A, (L, rank), with A A' = k_y."""
        if self.known_factor is not None:
            return self.known_factor
        if self.matrix is None:
            return self.gram
        values, vectors = np.linalg.eigh(self.matrix)
        kept = values > self.L * np.finfo(np.float64).eps * values[-1]
        A = vectors[:, kept] * np.sqrt(values[kept])
        peaks = A[np.abs(A).argmax(axis=0), np.arange(A.shape[1])]
        return np.asarray(A * np.sign(peaks))

    @property
    def rank(self) -> int:
        """Return the number of columns of A."""
        return self.L if self.matrix is None else self.factor.shape[1]

    @cached_property
    def norm(self) -> float:
        """Return the largest eigenvalue of k_y."""
        if self.matrix is None:
            return 0.0 if self.kind == "centred" and self.L == 1 else 1.0
        return float(np.linalg.norm(self.matrix, 2))

    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z."""
        return self._times(Z, transpose=False)

    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R."""
        return self._times(R, transpose=True)

    def _times(self, Z: Array, transpose: bool) -> Array:
        if self.is_identity:
            return Z
        if self.kind == "centred":
            return np.asarray(Z - Z.mean(axis=-1, keepdims=True))
        A = self.factor.T if transpose else self.factor
        return np.asarray(Z @ A.T.astype(Z.dtype, copy=False))

    def to_config(self) -> Config:
        """Return the label kernel as values that JSON can hold; `from_config` reads them."""
        return {
            "kind": self.kind,
            "L": self.L,
            "matrix": None if self.matrix is None else self.matrix.tolist(),
            "factor": None if self.matrix is None else self.factor.tolist(),
        }

    @classmethod
    def from_config(cls, config: Config) -> LabelKernel:
        """Return the label kernel that `to_config` wrote."""
        if config["kind"] == "matrix":
            # Files written by version 0.1.0.dev0 may have no factor.
            factor = config.get("factor")
            matrix = np.array(config["matrix"])
            return cls("matrix", config["L"], matrix, None if factor is None else np.array(factor))
        return cls(config["kind"], config["L"])


def _check_label_matrix(matrix: Array, L: int) -> None:
    if matrix.shape != (L, L):
        raise ValueError(f"label_kernel has shape {matrix.shape}: expected ({L}, {L}), one row for each label")
    if not np.isfinite(matrix).all():
        raise ValueError("label_kernel contains NaN or infinity: expected finite numbers")
    scale = np.abs(matrix).max()
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-10 * scale):
        gap = np.abs(matrix - matrix.T).max()
        raise ValueError(f"label_kernel M is not symmetric (largest difference {gap:.3g}): use (M + M.T) / 2")
    least = np.linalg.eigvalsh(matrix)[0]
    if least < -1e-10 * scale:
        raise ValueError(
            f"label_kernel is not positive semi-definite, its least eigenvalue is {least:.6g}: "
            f"add {-least:.6g} to the diagonal"
        )
    if scale == 0:
        raise ValueError("label_kernel is zero: expected a matrix with at least one positive eigenvalue")
