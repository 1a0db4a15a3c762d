"""Rules that choose some of the inputs as landmarks (section 5.3 of the paper).

The residual of an input x is `k(x, x) - |F_x|^2`, where F_x are the features of x for the landmarks chosen so far.

    exact      every distinct input
    greedy     always the input with the largest residual, as in the paper
    random     inputs drawn with probabilities proportional to their residuals (randomly pivoted Cholesky)
    uniform    inputs drawn with equal probability
    gradient   the inputs with the largest scores; the caller passes one score per input

Each rule appends landmarks to a basis in batches. The basis leaves out landmarks that depend linearly on others. The
function `drive` stops a rule when there are enough landmarks.

`greedy` looks at a block of candidates at a time, and chooses the same landmarks as if it looked at all inputs each
time. The block has the inputs with the largest residuals. Let u be the largest residual of all other inputs when the
block is formed. Residuals never increase, so the largest residual in the block is the largest of all while it is at
least u.

`random` draws a block of candidates at a time, and has the same distribution as if it drew one input at a time.
Candidate j is drawn with a probability proportional to its residual u_j, and accepted with probability `h_j / u_j`.
Here h_j is the residual of candidate j when the candidates that were accepted before j are landmarks as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernelcrf.arrays import Array, Places
from kernelcrf.basis.builder import BasisBuilder, Rule
from kernelcrf.validation import COUNT, Constraint, either

EMPTY_ROUNDS = 20

SCORES = either(
    Constraint("finite numbers, one for each input", lambda scores: np.isfinite(np.asarray(scores, np.float64)).all())
)


class Elimination:
    """Cholesky factorisation of a small Gram matrix H, one input at a time; `left` has the residual of each input."""

    def __init__(self, H: Array) -> None:
        self._H = H.astype(np.float64)
        self._columns = np.empty((len(H), len(H)), order="F")
        self._taken = 0
        self.left = np.diagonal(self._H).copy()

    def take(self, j: int) -> None:
        """Make input j the next pivot of the factorisation, and update the residuals of all inputs."""
        k = self._taken
        column = self._H[:, j] - self._columns[:, :k] @ self._columns[j, :k]
        column /= np.sqrt(self.left[j])
        self._columns[:, k] = column
        self._taken = k + 1
        self.left -= column * column
        self.left[j] = 0.0


def drive(rule: Rule, builder: BasisBuilder, rng: np.random.Generator) -> None:
    """Run a rule until the basis is finished, the rule ends, or `EMPTY_ROUNDS` batches in a row add no landmark."""
    batches, empty = rule.grow(builder, rng), 0
    while not builder.finished and empty < EMPTY_ROUNDS:
        appended = next(batches, None)
        if appended is None:
            return
        empty = 0 if appended else empty + 1


@dataclass(frozen=True)
class AllInputs(Rule):
    """A rule that takes every distinct input as a landmark, so that the features represent the kernel exactly."""

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        yield builder.append_inputs(builder.unchosen())


@dataclass(frozen=True)
class Greedy(Rule):
    """A rule that always takes the input with the largest residual (Fine and Scheinberg 2001).

    The residual of an input x is k(x, x) - |F_x|^2, where F_x are the features of x for the landmarks chosen so far.

    block : the number of candidates per round.
    """

    block: int = 256

    def __post_init__(self) -> None:
        COUNT.check("block", self.block)

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        while True:
            candidates, others = builder.largest(self.block)
            if builder.residuals(candidates).max(initial=0.0) <= builder.least:
                return
            elimination = Elimination(builder.residual_gram(candidates))
            builder.exhaust(candidates[elimination.left <= builder.least])
            elimination.left[:] = builder.residuals(candidates)
            pivots: list[int] = []
            while len(pivots) < builder.capacity - builder.n:
                j = int(elimination.left.argmax())
                if elimination.left[j] <= builder.least or (pivots and elimination.left[j] < others):
                    break
                pivots.append(j)
                elimination.take(j)
            yield builder.append_inputs(candidates[pivots])


@dataclass(frozen=True)
class Random(Rule):
    """A rule that draws inputs with probabilities proportional to their residuals (randomly pivoted Cholesky).

    The residual of an input x is k(x, x) - |F_x|^2, where F_x are the features of x for the landmarks chosen so far.

    block : the largest number of candidates per round.
    """

    block: int = 256

    def __post_init__(self) -> None:
        COUNT.check("block", self.block)

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        while builder.remaining > 0:
            proposals = builder.draw(rng.random(min(self.block, 2 * (builder.capacity - builder.n))))
            accepted = self._accept(builder, proposals, rng)
            yield builder.append_inputs(proposals[accepted])

    def _accept(self, builder: BasisBuilder, proposals: Places, rng: np.random.Generator) -> list[int]:
        u = builder.residuals(proposals)
        elimination = Elimination(builder.residual_gram(proposals))
        accepted: list[int] = []
        dependent: list[int] = []
        for j, coin in enumerate(rng.random(len(proposals))):
            if len(accepted) == builder.capacity - builder.n:
                break
            if elimination.left[j] <= builder.least:
                dependent.append(j)
            elif coin * u[j] < elimination.left[j]:
                accepted.append(j)
                elimination.take(j)
        builder.exhaust(proposals[dependent])
        return accepted


@dataclass(frozen=True)
class Uniform(Rule):
    """A rule that draws inputs with equal probability, without replacement."""

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        yield from _append_in_order(builder, rng.permutation(builder.unchosen()))


@dataclass(frozen=True, eq=False)
class Gradient(Rule):
    """A rule that chooses the inputs with the largest scores as landmarks, in their order if scores are equal.

    If the scores are norms of gradients, the chosen landmarks lower the objective fastest (Corollary 10 of the paper).

    scores : one number per distinct input.
    """

    scores: ArrayLike

    def __post_init__(self) -> None:
        SCORES.check("scores", self.scores)

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        scores = np.asarray(self.scores)
        if scores.shape != (builder.n_inputs,):
            raise ValueError(
                f"scores has shape {scores.shape}: expected ({builder.n_inputs},), one score per distinct input"
            )
        unchosen = builder.unchosen()
        yield from _append_in_order(builder, unchosen[np.argsort(-scores[unchosen], kind="stable")])


def _append_in_order(builder: BasisBuilder, candidates: Places) -> Iterator[int]:
    """Append candidates in their order; candidates that depend linearly on earlier landmarks are left out."""
    position = 0
    while position < len(candidates):
        missing = builder.capacity - builder.n
        yield builder.append_inputs(candidates[position : position + missing])
        position += missing
