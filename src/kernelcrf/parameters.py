"""The parameters theta: one block a clique template, each with a prior variance of its own (14), (26).

A template's block W has shape (n, r) on nodes and (n, r, r) on edges: n features of its input kernel (1 where that is
the constant), r the rank of the label kernel. Features are whitened and label kernels factored, so that the norm of
theta is the plain one, and the prior is sum_k |theta_k|^2 / (2 C_k). Solvers see theta as one vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.validation import either, real

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


# Below, 1 / C is near the largest number there is.
LEAST_C = 1e-300
PRIOR_VARIANCE = either(
    real(least=LEAST_C),
    advice="every template is penalised, or there is no certificate",
)

# Between these, entries whose squares underflow are negligible beside the others.
SMALL_SQUARE, LARGE_SQUARE = 1e-200, 1e200


@dataclass(frozen=True)
class TemplateBlock:
    """The weights of one template: a clique kernel, the number n of its features, and its prior variance C."""

    clique: CliqueKernel
    n: int
    C: float

    def __post_init__(self) -> None:
        PRIOR_VARIANCE.check("C", self.C)
        object.__setattr__(self, "C", float(self.C))
        if self.clique.nodes not in (1, 2):
            raise ValueError(
                f"template {self.clique.name!r} has {self.clique.nodes} labels: expected 1 or 2; "
                "cliques without labels drop out (Lemma 12)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of W."""
        return (self.n, *self.clique.shape)


@dataclass(frozen=True)
class Layout:
    """How blocks lie in theta, one after the other."""

    blocks: tuple[TemplateBlock, ...]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each template's weights are, by name."""
        ends = np.cumsum([int(np.prod(block.shape)) for block in self.blocks])
        names = [block.clique.name for block in self.blocks]
        if len(set(names)) != len(names):
            raise ValueError(f"templates are named {names}: expected names that differ")
        return {
            name: slice(int(end - np.prod(block.shape)), int(end))
            for name, end, block in zip(names, ends, self.blocks, strict=True)
        }

    @property
    def size(self) -> int:
        """The length of theta."""
        return sum(int(np.prod(block.shape)) for block in self.blocks)

    def times_lam(self, v: Floats) -> Floats:
        """lam_k v_k of each template, lam = 1 / C: the gradient of the penalty at theta = v."""
        return np.concatenate([v[part] * (1.0 / block.C) for block, part in self._parts])

    def squared_norm(self, theta: Floats) -> float:
        """sum_k lam_k |theta_k|^2: twice the penalty."""
        return float(sum(times_square(1.0 / block.C, theta[part]) for block, part in self._parts))

    @property
    def _parts(self) -> list[tuple[TemplateBlock, slice]]:
        return [(block, self.slices[block.clique.name]) for block in self.blocks]

    def split(self, theta: Floats) -> dict[str, Floats]:
        """theta as arrays of the shapes of the blocks, views of it."""
        return {block.clique.name: theta[self.slices[block.clique.name]].reshape(block.shape) for block in self.blocks}

    def join(self, weights: Mapping[str, Array]) -> Floats:
        """One vector from one array a block."""
        return np.concatenate([np.asarray(weights[block.clique.name], np.float64).ravel() for block in self.blocks])

    def squared_dual_norms(self, g: Floats) -> dict[str, float]:
        """|g_k|^2 / lam_k of each template: twice the bound of Lemma 9 that it contributes."""
        return {block.clique.name: times_square(block.C, g[part]) for block, part in self._parts}

    def to_config(self) -> list[dict[str, Any]]:
        """The blocks as JSON-able values; `from_config` reads them."""
        return [
            {
                "name": block.clique.name,
                "nodes": block.clique.nodes,
                "label_kernel": _label_kernel(block).to_config(),
                "kernel": None if block.clique.k_x is None else block.clique.k_x.to_config(),
                "n": block.n,
                "C": float(block.C),
            }
            for block in self.blocks
        ]

    @classmethod
    def from_config(cls, config: Iterable[Mapping[str, Any]]) -> Layout:
        """The layout that `to_config` described."""
        blocks = []
        for one in config:
            k_x = None if one["kernel"] is None else InputKernel.from_config(one["kernel"])
            clique = CliqueKernel(one["name"], one["nodes"], LabelKernel.from_config(one["label_kernel"]), k_x)
            blocks.append(TemplateBlock(clique, int(one["n"]), float(one["C"])))
        return cls(tuple(blocks))


def times_square(factor: float, v: Array) -> float:
    """Return factor |v|^2, also where |v|^2 itself would underflow or overflow."""
    square = float(np.dot(v, v))
    if SMALL_SQUARE < square < LARGE_SQUARE:
        return factor * square
    largest = float(np.abs(v).max(initial=0.0))
    if not 0 < largest < np.inf:
        return factor * square
    unit = v / largest
    return float((largest * np.sqrt(factor)) ** 2 * np.dot(unit, unit))


def _label_kernel(block: TemplateBlock) -> LabelKernel:
    if not isinstance(block.clique.k_y, LabelKernel):
        raise TypeError(
            f"template {block.clique.name!r} has label kernel {type(block.clique.k_y).__name__}: layouts are stored "
            "with LabelKernel alone; store the potentials of networks"
        )
    return block.clique.k_y
