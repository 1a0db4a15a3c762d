"""Rules that choose inputs as the atoms B of `F = K_xB R^-T` (section 5.3).

    exact      every distinct input
    greedy     the rule of the paper: the input with the largest residual d_x = k(x, x) - |F_x|^2, one at a time
    random     inputs drawn with probability d_x / sum d (randomly pivoted Cholesky), in blocks
    uniform    inputs drawn with equal probability
    gradient   the inputs with the largest scores; callers pass the bounds of Corollary 10 as scores

A rule is a generator that appends atoms to a growing basis in batches. The basis drops atoms that depend on others, and
`drive` stops the rule when there are enough.

`greedy` works in blocks and chooses the same pivots as one at a time. Residuals never grow, so once the chosen
candidates are eliminated, the largest residual of a block is the largest of all if no input outside exceeds it.

`random` works in blocks and draws from the same distribution as one at a time. Proposals j are drawn in proportion to
their residuals u_j. Then each in turn is accepted with probability `h_jj / u_j`, where h is the residual Gram matrix
of the proposals after the accepted ones are eliminated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernelcrf.arrays import Array, Places
from kernelcrf.basis.growth import Growth, Rule
from kernelcrf.validation import COUNT, Constraint, either

EMPTY_ROUNDS = 20

SCORES = either(
    Constraint("finite numbers, one for each input", lambda scores: np.isfinite(np.asarray(scores, np.float64)).all())
)


class Elimination:
    """Cholesky elimination of a small Gram matrix H, one input at a time; `left` is the diagonal that remains."""

    def __init__(self, H: Array) -> None:
        self._H = H.astype(np.float64)
        self._columns = np.empty((len(H), len(H)), order="F")
        self._taken = 0
        self.left = np.diagonal(self._H).copy()

    def take(self, j: int) -> None:
        """Eliminate input j: subtract the part of H that it explains."""
        k = self._taken
        column = self._H[:, j] - self._columns[:, :k] @ self._columns[j, :k]
        column /= np.sqrt(self.left[j])
        self._columns[:, k] = column
        self._taken = k + 1
        self.left -= column * column
        self.left[j] = 0.0


def drive(rule: Rule, growth: Growth, rng: np.random.Generator) -> None:
    """Run a rule until there are enough atoms, the rule ends, or `EMPTY_ROUNDS` batches in a row add no atom."""
    batches, empty = rule.grow(growth, rng), 0
    while not growth.finished and empty < EMPTY_ROUNDS:
        appended = next(batches, None)
        if appended is None:
            return
        empty = 0 if appended else empty + 1


@dataclass(frozen=True)
class AllInputs:
    """Rule that takes every distinct input as an atom: F F' = K, and F has U columns."""

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append all inputs that are not atoms yet, in one batch."""
        yield growth.append_inputs(growth.unchosen())


@dataclass(frozen=True)
class Greedy:
    """Rule that takes the largest residual first (Fine and Scheinberg 2001), from `block` candidates per round."""

    block: int = 256

    def __post_init__(self) -> None:
        COUNT.check("block", self.block)

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append in each round the pivots that are certain to be the largest, until all residuals are zero."""
        while True:
            candidates, others = growth.largest(self.block)
            if growth.residuals(candidates).max(initial=0.0) <= growth.least:
                return
            elimination = Elimination(growth.residual_gram(candidates))
            growth.exhaust(candidates[elimination.left <= growth.least])
            elimination.left[:] = growth.residuals(candidates)
            pivots: list[int] = []
            while len(pivots) < growth.capacity - growth.n:
                j = int(elimination.left.argmax())
                if elimination.left[j] <= growth.least or (pivots and elimination.left[j] < others):
                    break
                pivots.append(j)
                elimination.take(j)
            yield growth.append_inputs(candidates[pivots])


@dataclass(frozen=True)
class Random:
    """Rule that draws inputs with probability d_x / sum d (randomly pivoted Cholesky), `block` proposals per round."""

    block: int = 256

    def __post_init__(self) -> None:
        COUNT.check("block", self.block)

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append the accepted proposals of each round."""
        while growth.remaining > 0:
            proposals = growth.draw(rng.random(min(self.block, 2 * (growth.capacity - growth.n))))
            accepted = self._accept(growth, proposals, rng)
            yield growth.append_inputs(proposals[accepted])

    def _accept(self, growth: Growth, proposals: Places, rng: np.random.Generator) -> list[int]:
        u = growth.residuals(proposals)
        elimination = Elimination(growth.residual_gram(proposals))
        accepted: list[int] = []
        dependent: list[int] = []
        for j, coin in enumerate(rng.random(len(proposals))):
            if len(accepted) == growth.capacity - growth.n:
                break
            if elimination.left[j] <= growth.least:
                dependent.append(j)
            elif coin * u[j] < elimination.left[j]:
                accepted.append(j)
                elimination.take(j)
        growth.exhaust(proposals[dependent])
        return accepted


@dataclass(frozen=True)
class Uniform:
    """Rule that draws inputs with equal probability, without replacement."""

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append inputs in random order."""
        yield from _append_in_order(growth, rng.permutation(growth.unchosen()))


@dataclass(frozen=True, eq=False)
class Gradient:
    """Rule that takes the inputs with the largest `scores`, (U,), first; equal scores in the order of the inputs."""

    scores: ArrayLike

    def __post_init__(self) -> None:
        SCORES.check("scores", self.scores)

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append the inputs in the order of decreasing scores."""
        scores = np.asarray(self.scores)
        if scores.shape != (growth.n_inputs,):
            raise ValueError(f"scores has shape {scores.shape}: expected ({growth.n_inputs},), one score per input")
        unchosen = growth.unchosen()
        yield from _append_in_order(growth, unchosen[np.argsort(-scores[unchosen], kind="stable")])


def _append_in_order(growth: Growth, candidates: Places) -> Iterator[int]:
    """Append candidates until the basis is full; candidates that depend on the basis are replaced by the next ones."""
    position = 0
    while position < len(candidates):
        missing = growth.capacity - growth.n
        yield growth.append_inputs(candidates[position : position + missing])
        position += missing
