"""The label kernel of candidates: each candidate of a token, or pair of candidates, has a row of features of its own.

The score of candidate c of token t is <w, phi(x_tc)>: all candidates share one column of weights. With V candidates per
token, or pairs of candidates per step, a clique has V rows of features, and the factor A is the identity of size V.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelcrf.arrays import Array, Config
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.validation import COUNT


@dataclass(frozen=True, eq=False)
class Candidates(LabelMap):
    """The kernel of L candidates that share their weights, and have separate rows of features."""

    L: int

    @property
    def views(self) -> int:
        return self.L

    @property
    def rank(self) -> int:
        return 1

    def expand(self, Z: Array) -> Array:
        return Z

    def adjoint(self, R: Array) -> Array:
        return R

    def to_config(self) -> Config:
        return {"kind": "candidates", "L": self.L}

    @classmethod
    def from_config(cls, config: Config, factors: tuple[LabelMap, ...] = ()) -> Candidates:
        return cls(COUNT.check("L", config["L"]))
