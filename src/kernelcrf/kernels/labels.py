"""Kernels of labels. A kernel is a matrix k_y with one row and one column per label, or per joint label of a clique.

Each kernel matrix has a factor A with k_y = A A'. With features F of the inputs, one row per token, and weights W, the
scores of all labels are `F W A'`. The score is a function of input and label. It belongs to the function space of the
product of both kernels (equation 10 and Remark 7 of the paper), and its norm there is the Euclidean norm of W.

    delta     k_y = I            each label has its own weights, and A = I
    centred   k_y = I - 11'/L    the mean over labels, which does not change p(y|x), is removed, and A = k_y
    matrix    k_y by the user    similar labels have similar weights, and A comes from the eigenvectors of k_y
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array, Config
from ..validation import COUNT, Constraint, check_parameters, either, one_of

KINDS = ("delta", "centred", "matrix")


def _is_square(label_kernel: ArrayLike) -> bool:
    matrix = np.array(label_kernel)
    return matrix.dtype.kind in "iuf" and matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0


LABEL_KERNEL = either(
    one_of("delta", "centred"), Constraint("an (L, L) matrix of numbers, one row for each label", _is_square)
)
PARAMETERS = {"kind": either(one_of(*KINDS)), "L": COUNT}


class LabelMap(ABC):
    """Base class of kernels `k_y = A A'` of L labels, or of the L joint labels of a clique; A has `rank` columns.

    factors : if this kernel is a product, the kernels of single nodes that are multiplied; otherwise empty.
    """

    L: int
    factors: tuple[LabelMap, ...] = ()

    @property
    def views(self) -> int:
        """Return the number V of rows of features that a clique has.

        It is 1, unless a group moves inputs, or tokens have candidates with features. A has then V blocks of `rank`
        columns, one for each row of features of the clique.
        """
        return 1

    @property
    def moves_inputs(self) -> bool:
        """Return whether the rows of features of a clique are those of one input that a group moves."""
        return False

    @property
    @abstractmethod
    def rank(self) -> int:
        """Return the number of weights per feature, which is the number of columns of A."""

    @property
    def norm(self) -> float:
        """Return the largest eigenvalue of the kernel matrix, which is 1 if the columns of A are orthonormal."""
        return 1.0

    @property
    def is_identity(self) -> bool:
        """Return whether A is the identity, so that `expand` and `adjoint` change nothing."""
        return False

    @abstractmethod
    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z: multiply the last axis by the factor A."""

    @abstractmethod
    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R: multiply the last axis by the transpose of the factor A."""

    def project(self, Z: Array) -> Array:
        """Remove from each row z of Z the part that A maps to zero.

        If the columns of A are linearly independent, there is no such part, and Z is returned.
        """
        return Z

    @property
    def factor(self) -> Array:
        """Return the factor A of the kernel matrix A A', with one row per label."""
        return self.expand(np.eye(self.views * self.rank)).T

    @property
    def gram(self) -> Array:
        """Return the kernel matrix, with one row and one column per label."""
        return np.asarray(self.factor @ self.factor.T)

    @abstractmethod
    def to_config(self) -> Config:
        """Return the kernel as a dict for JSON, which `from_config` reads; the dict does not contain `factors`."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> LabelMap:
        """Return the kernel that `to_config` converted to the dict `config`; `factors` must be those of the kernel."""


@dataclass(frozen=True, eq=False)
class LabelKernel(LabelMap):
    """A kernel of L labels.

    kind : "delta", "centred", or "matrix" for the kernel matrix in `matrix`.
    known_factor : a factor A of the kernel matrix, or None to compute it. A model file stores the factor, since factors
        are not unique and fitted weights are valid only for one of them.
    """

    kind: str
    L: int
    matrix: Array | None = None
    known_factor: Array | None = None

    def __post_init__(self) -> None:
        check_parameters(vars(self), PARAMETERS)
        if (self.matrix is not None) != (self.kind == "matrix"):
            given = "no matrix" if self.matrix is None else "a matrix"
            raise ValueError(f"kind={self.kind!r} was passed with {given}: pass a matrix if and only if kind='matrix'")
        if self.matrix is not None:
            _check_label_matrix(self.matrix, self.L)
        if self.known_factor is not None:
            A, scale = self.known_factor, np.abs(self.gram).max()
            if A.ndim != 2 or len(A) != self.L or not np.allclose(A @ A.T, self.gram, rtol=0, atol=1e-10 * scale):
                raise ValueError(
                    "known_factor is not a factor of the label kernel: expected a matrix A such that A A' is the "
                    "kernel matrix. Pass None to compute a factor"
                )

    @classmethod
    def of(cls, label_kernel: str | ArrayLike, L: int) -> LabelKernel:
        """Return the kernel of L labels with the name "delta" or "centred", or with the given kernel matrix."""
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
        return self.kind == "delta"

    @property
    def gram(self) -> Array:
        if self.matrix is not None:
            return self.matrix
        return np.eye(self.L) - (1.0 / self.L if self.kind == "centred" else 0.0)

    @cached_property
    def factor(self) -> Array:
        if self.known_factor is not None:
            return self.known_factor
        if self.matrix is None:
            return self.gram
        values, vectors = np.linalg.eigh(self.matrix)
        kept = values > self.L * np.finfo(np.float64).eps * values[-1]
        A = vectors[:, kept] * np.sqrt(values[kept])
        peaks = A[np.abs(A).argmax(axis=0), np.arange(A.shape[1])]
        # A model file stores the factor in this order, and products with other orders may differ in the last bit.
        return np.ascontiguousarray(A * np.sign(peaks))

    @property
    def rank(self) -> int:
        return self.L if self.matrix is None else self.factor.shape[1]

    @cached_property
    def norm(self) -> float:
        if self.matrix is None:
            return 0.0 if self.kind == "centred" and self.L == 1 else 1.0
        return float(np.linalg.norm(self.matrix, 2))

    def expand(self, Z: Array) -> Array:
        return self._times(Z, transpose=False)

    def adjoint(self, R: Array) -> Array:
        return self._times(R, transpose=True)

    def project(self, Z: Array) -> Array:
        return self.adjoint(Z) if self.kind == "centred" else Z

    def _times(self, Z: Array, transpose: bool) -> Array:
        if self.is_identity:
            return Z
        if self.kind == "centred":
            return np.asarray(Z - Z.mean(axis=-1, keepdims=True))
        A = self.factor.T if transpose else self.factor
        return np.asarray(Z @ A.T.astype(Z.dtype, copy=False))

    def to_config(self) -> Config:
        return {
            "kind": self.kind,
            "L": self.L,
            "matrix": None if self.matrix is None else self.matrix.tolist(),
            "factor": None if self.matrix is None else self.factor.tolist(),
        }

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> LabelKernel:
        if config["kind"] != "matrix":
            return cls(config["kind"], config["L"])
        return cls("matrix", config["L"], np.array(config["matrix"]), np.array(config["factor"]))


def _check_label_matrix(matrix: Array, L: int) -> None:
    if matrix.shape != (L, L):
        raise ValueError(f"label_kernel has shape {matrix.shape}: expected ({L}, {L}), one row for each label")
    if not np.isfinite(matrix).all():
        raise ValueError("label_kernel contains NaN or infinity: expected a matrix of finite numbers")
    scale = np.abs(matrix).max()
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-10 * scale):
        gap = np.abs(matrix - matrix.T).max()
        raise ValueError(
            f"label_kernel is not symmetric, entries (i, j) and (j, i) differ by up to {gap:.3g}: expected a symmetric "
            "matrix, such as (M + M.T) / 2 for your matrix M"
        )
    least = np.linalg.eigvalsh(matrix)[0]
    if least < -1e-10 * scale:
        raise ValueError(
            f"label_kernel is not positive semi-definite, its smallest eigenvalue is {least:.6g}: expected no negative "
            f"eigenvalue. Add {-least:.6g} to the diagonal"
        )
    if scale == 0:
        raise ValueError("label_kernel is zero in all entries: expected a matrix with at least one positive eigenvalue")
