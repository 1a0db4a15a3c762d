"""The clique kernel `k_C((x, y), (x', y')) = k_x(x, x') k_y(y, y')`, the summand of (10); see Remark 7.

`k_y` is an (L, L) matrix with a factor, `k_y = A A'`, A of shape (L, r). With features F of `k_x` (F F' =
K_x), a weight matrix W of shape (n, r) and the plain norm |theta| = |W|, the scores of a clique are

    node  (one label)      s = F W A'                       (rows, L)
    edge  (two labels)     w = A Z A',  Z = F W             (rows, L, L); over pairs, k_y (x) k_y

    delta     k_y = I, A = I            each label has weights of its own
    centred   k_y = I - 11'/|Y|         Lemma 13: Phi(x, y) - mean_y Phi(x, y) leaves p(y|x) as is; A = k_y, a
                                        projection, over all |Y| = L or L^2 labelings of the clique
    matrix    k_y given                 similar labels share strength; A from its eigenvectors, r its rank

A clique without labels has no part in p(y|x) (Lemma 12): `relevant` drops it. An edge clique has `k_x = 1`,
the transitions (25), or an input kernel of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelcrf.kernels.inputs import Array, InputKernel, Inputs
from kernelcrf.validation import COUNT, Constraint, check_parameters, either, one_of

KINDS = ("delta", "centred", "matrix")


def _is_square(label_kernel: Any) -> bool:
    matrix = np.array(label_kernel)
    return matrix.dtype.kind in "iuf" and matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0


LABEL_KERNEL = either(
    one_of("delta", "centred"), Constraint("an (L, L) matrix of numbers, one row for each label", _is_square)
)
PARAMETERS = {"kind": either(one_of(*KINDS)), "L": COUNT}


class LabelMap(ABC):
    """A kernel `k_y = A A'` on L labels, or on the L joint labels of a clique, known by products with A (L, rank)."""

    L: int

    @property
    @abstractmethod
    def rank(self) -> int:
        """Return the number of columns of A: of weights for each feature."""

    @property
    @abstractmethod
    def norm(self) -> float:
        """Return the largest eigenvalue of k_y."""

    @property
    def is_identity(self) -> bool:
        """Return whether A = I, so that `expand` and `adjoint` return what they get."""
        return False

    @abstractmethod
    def expand(self, Z: Array) -> Array:
        """Return A z for each row z of Z, (..., rank) -> (..., L)."""

    @abstractmethod
    def adjoint(self, R: Array) -> Array:
        """Return A' r for each row r of R, (..., L) -> (..., rank)."""

    @property
    def factor(self) -> Array:
        """Return A as a matrix."""
        return self.expand(np.eye(self.rank)).T

    @property
    def gram(self) -> Array:
        """Return k_y as a matrix."""
        return np.asarray(self.factor @ self.factor.T)


@dataclass(frozen=True, eq=False)
class LabelKernel(LabelMap):
    """`k_y` over L labels; `matrix` goes with kind="matrix" and with no other.

    known_factor : A, where it is given with the matrix. Eigenvectors of equal eigenvalues are anyone's choice, so that
        weights that were found with one factor must be read with the same.
    """

    kind: str
    L: int
    matrix: Array | None = None
    known_factor: Array | None = None

    def __post_init__(self) -> None:
        check_parameters(vars(self), PARAMETERS)
        if (self.matrix is not None) != (self.kind == "matrix"):
            given = "no matrix" if self.matrix is None else "a matrix"
            raise ValueError(f"kind={self.kind!r} with {given}: a matrix goes with 'matrix', and with no other kind")
        if self.matrix is not None:
            _check_label_matrix(self.matrix, self.L)
        if self.known_factor is not None:
            A, scale = self.known_factor, np.abs(self.gram).max()
            if A.ndim != 2 or len(A) != self.L or not np.allclose(A @ A.T, self.gram, rtol=0, atol=1e-10 * scale):
                raise ValueError("known_factor is no factor A of the label kernel: expected A A' = k_y")

    @classmethod
    def of(cls, label_kernel: str | ArrayLike, L: int) -> LabelKernel:
        """What a user hands in: 'delta', 'centred', or an (L, L) positive semi-definite matrix."""
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
        """Whether A = I, so that `expand` and `adjoint` return what they get."""
        return self.kind == "delta"

    @property
    def gram(self) -> Array:
        """`k_y`, (L, L)."""
        if self.matrix is not None:
            return self.matrix
        return np.eye(self.L) - (1.0 / self.L if self.kind == "centred" else 0.0)

    @cached_property
    def factor(self) -> Array:
        """A, (L, r), with A A' = k_y."""
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
        """r, the columns of A."""
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

    def to_config(self) -> dict[str, Any]:
        """The label kernel as JSON-able values; `from_config` reads it."""
        return {
            "kind": self.kind,
            "L": self.L,
            "matrix": None if self.matrix is None else self.matrix.tolist(),
            "factor": None if self.matrix is None else self.factor.tolist(),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LabelKernel:
        """The label kernel that `to_config` described."""
        if config["kind"] == "matrix":
            # Files of 0.1.0.dev0 may come without the factor.
            factor = config.get("factor")
            matrix = np.array(config["matrix"])
            return cls("matrix", config["L"], matrix, None if factor is None else np.array(factor))
        return cls(config["kind"], config["L"])


@dataclass(frozen=True, eq=False)
class CliqueKernel:
    """`k_C` of a template of cliques with `nodes` labels (0, 1 or 2); `k_x=None` is the constant 1."""

    name: str
    nodes: int
    k_y: LabelMap
    k_x: InputKernel | None

    def __post_init__(self) -> None:
        if self.nodes not in (0, 1, 2):
            raise ValueError(f"clique {self.name!r} has nodes={self.nodes!r}: expected 0, 1 (node) or 2 (edge) labels")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row of W: (r,) for a node, (r, r) for an edge."""
        return (self.k_y.rank,) * self.nodes

    def expand(self, Z: Array) -> Array:
        """Scores from Z = F W: (..., r) -> (..., L) on nodes, (..., r, r) -> (..., L, L) on edges."""
        return self._apply(Z, transpose=False)

    def adjoint(self, R: Array) -> Array:
        """The transpose of `expand`: residuals of scores to residuals of Z."""
        return self._apply(R, transpose=True)

    def gram(self, X: Inputs, y: ArrayLike, X_: Inputs, y_: ArrayLike) -> Array:
        """`k_C` between two lists of clique instances: inputs (U, d) and labels (U,) or, on edges, (U, 2)."""
        y, y_ = self._labels(y), self._labels(y_)
        K = np.ones((len(y), len(y_))) if self.k_x is None else self.k_x.gram(X, X_)
        if self._is_centred:
            same = np.all(y[:, None] == y_[None, :], axis=2)
            return np.asarray(K * (same - 1.0 / self.k_y.L**self.nodes))
        for node in range(self.nodes):
            K = K * self.k_y.gram[np.ix_(y[:, node], y_[:, node])]
        return K

    def _labels(self, y: ArrayLike) -> NDArray[np.intp]:
        labels = np.asarray(y, np.intp)
        return labels.reshape(len(labels), self.nodes)

    @property
    def _is_centred(self) -> bool:
        """Return whether the mean over all labellings of the clique is taken out, not that over each label."""
        return isinstance(self.k_y, LabelKernel) and self.k_y.kind == "centred"

    def _apply(self, Z: Array, transpose: bool) -> Array:
        if self.k_y.is_identity or self.nodes == 0:
            return Z
        if self.nodes == 1:
            return self.k_y.adjoint(Z) if transpose else self.k_y.expand(Z)
        if self._is_centred:
            return np.asarray(Z - Z.mean(axis=(-2, -1), keepdims=True))
        A = self.k_y.factor.T if transpose else self.k_y.factor
        A = A.astype(Z.dtype, copy=False)
        return A @ Z @ A.T


def relevant(cliques: Iterable[CliqueKernel]) -> list[CliqueKernel]:
    """The cliques that p(y|x) depends on: those with a label (Lemma 12)."""
    return [clique for clique in cliques if clique.nodes > 0]


def _check_label_matrix(matrix: Array, L: int) -> None:
    if matrix.shape != (L, L):
        raise ValueError(f"label_kernel has shape {matrix.shape}: expected ({L}, {L}), one row for each label")
    if not np.isfinite(matrix).all():
        raise ValueError("label_kernel contains NaN or infinity: expected finite numbers")
    scale = np.abs(matrix).max()
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-10 * scale):
        gap = np.abs(matrix - matrix.T).max()
        raise ValueError(f"label_kernel is not symmetric (largest difference {gap:.3g}): use (M + M.T) / 2")
    least = np.linalg.eigvalsh(matrix)[0]
    if least < -1e-10 * scale:
        raise ValueError(
            f"label_kernel is not positive semi-definite, its least eigenvalue is {least:.6g}: "
            f"adding {-least:.6g} to the diagonal makes it so"
        )
    if scale == 0:
        raise ValueError("label_kernel is zero: expected a matrix with at least one positive eigenvalue")
