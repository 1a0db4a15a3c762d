"""A kernel of the durations of segments, for each label.

A joint label is a pair (d, a) of a duration d = 1, ..., D and a label a. The kernel is k(d, d') [a = a'], where

    smooth    k(d, d') = mean over r in SCALES of exp(-(log d - log d')^2 / (2 r^2))
    free      k(d, d') = [d = d']

A smooth kernel compares durations by their ratio. Long durations are rare in data; their scores become similar to the
scores of slightly shorter durations. The matrix of a smooth kernel has a low rank, and its factor A has few columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Config
from kernelcrf.kernels.labels import LabelMap

SCALES = (0.2, 1.0)
LEAST = 1e-10


@dataclass(frozen=True, eq=False)
class DurationKernel(LabelMap):
    """A kernel of pairs of a duration and a label; the pair (d, a) is the joint label (d - 1) n_labels + a.

    longest : the number D of durations.
    smooth : whether similar durations have similar scores.
    known_factor : a factor of the matrix k(d, d'), or None to compute it; a model file stores the factor, since a
        matrix has many factors and fitted weights are valid only for one.
    L : the number of joint labels.
    """

    longest: int
    n_labels: int
    smooth: bool
    known_factor: Array | None = None
    L: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", self.longest * self.n_labels)
        A = self.known_factor
        if A is not None and not (self.smooth and A.ndim == 2 and len(A) == self.longest and self._has_factor(A)):
            raise ValueError(
                "known_factor is not a factor of the kernel of durations: expected a matrix A such that A A' is the "
                "kernel matrix. Pass None to compute a factor"
            )

    def _matrix(self, rows: slice = slice(None)) -> Array:
        """Return some rows of the matrix k(d, d')."""
        logs = np.log(np.arange(1, self.longest + 1))
        squares = np.square(logs[rows, None] - logs)
        return np.asarray(np.mean([np.exp(-squares / (2 * r**2)) for r in SCALES], axis=0))

    def _has_factor(self, A: Array) -> bool:
        """Return whether A A' is the kernel matrix. Rows are compared one by one, because the matrix may be large."""
        return all(np.allclose(A[d : d + 1] @ A.T, self._matrix(slice(d, d + 1)), atol=1e-7) for d in range(len(A)))

    @cached_property
    def _factor(self) -> Array:
        if self.known_factor is not None:
            return self.known_factor
        values, vectors = np.linalg.eigh(self._matrix())
        kept = values > LEAST * values[-1]
        A = vectors[:, kept] * np.sqrt(values[kept])
        peaks = A[np.abs(A).argmax(axis=0), np.arange(A.shape[1])]
        return np.ascontiguousarray(A * np.sign(peaks))

    @property
    def rank(self) -> int:
        return (self._factor.shape[1] if self.smooth else self.longest) * self.n_labels

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self._factor, 2) ** 2) if self.smooth else 1.0

    @property
    def is_identity(self) -> bool:
        return not self.smooth

    def expand(self, Z: Array) -> Array:
        return self._times(Z, self._factor) if self.smooth else Z

    def adjoint(self, R: Array) -> Array:
        return self._times(R, self._factor.T) if self.smooth else R

    def _times(self, Z: Array, A: Array) -> Array:
        pairs = Z.reshape(*Z.shape[:-1], -1, self.n_labels)
        return np.asarray(A @ pairs).reshape(*Z.shape[:-1], -1)

    def to_config(self) -> Config:
        return {
            "kind": "durations",
            "L": self.n_labels,
            "longest": self.longest,
            "smooth": self.smooth,
            "factor": self._factor.tolist() if self.smooth else None,
        }

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> DurationKernel:
        factor = None if config["factor"] is None else np.array(config["factor"])
        if (factor is None) == config["smooth"]:
            raise ValueError(
                f"the kernel of durations has smooth={config['smooth']!r} and {'no' if factor is None else 'a'} "
                "factor: expected a factor if and only if smooth is true; the model file may be damaged: use another "
                "copy of it"
            )
        return cls(config["longest"], config["L"], config["smooth"], factor)
