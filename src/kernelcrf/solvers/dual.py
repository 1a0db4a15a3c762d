"""Ascent on the dual, one sequence at a time: exponentiated gradients (Collins et al., 2008), for sparse features.

    D(alpha) = sum_i omega_i H(alpha_i) - sum_k lam_k/2 |theta_k|^2,
    theta_k  = sum_i omega_i [Phi_k(x_i, y_i) - E_{alpha_i} Phi_k] / lam_k,

with a distribution alpha_i over the labelings of each sequence. D(alpha) <= min P, with equality at its maximum, so
that P(theta) - D(alpha) certifies theta. alpha_i is kept as scores a_i of tokens and b_i of steps, and a step moves
them towards those of theta,

    alpha_i proportional to exp((1 - eta) (a_i, b_i) + eta (s_i, w)),

with eta halved until D rises. theta changes with every sequence rather than with every pass over the data, which is why
few passes do; but one sequence follows upon another, and there is nothing to share between threads. Where gains hardly
fall from pass to pass, as with noisy labels and tokens much like each other, or where messages cannot be scaled, L-BFGS
takes over: from the beginning after a trial of a few passes, later from the point reached.

At the start every token has its own label with probability 1 - delta and the others evenly, with the delta that makes
D greatest, or the distribution of a given theta if D is greater there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from kernelcrf.inference.scaled import padded_width
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.solvers import ascent as loops
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import OPTIMAL, OUT_OF_ITERATIONS, Progress
from kernelcrf.validation import either, whole

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

FIRST_ETA = 0.5
# P - D is about three times what D has still to gain; a report that shows more than that is believed.
GAP_OVER_REST = 3.0
LEAST_GAIN = 1e-13
TRIAL_PASSES, TRIAL_RATIO = 8, 0.85
SLOW_PASSES, SLOW_RATIO = 8, 0.93


@dataclass(frozen=True)
class Dual:
    """Passes over the sequences in random orders drawn from `seed`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import SOLVERS, Dual
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> crf = ChainCRF("linear", solver="dual").fit(X, [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> SOLVERS["dual"] is Dual, crf.certificate_.status
    (True, 'optimal')
    """

    seed: int = 0

    def __post_init__(self) -> None:
        either(whole(least=0)).check("seed", self.seed)

    @staticmethod
    def suits(objective: Objective) -> bool:
        """Whether labels are all observed, node features sparse, edges without inputs, and no label kernel given.

        Samples of one node may do without edges.
        """
        if not objective.is_convex or len(objective.partitions) != 1:
            return False
        if not isinstance(objective.partitions[0], ChainPartition):
            return False
        partition, blocks = objective.partitions[0], objective.layout.blocks
        expected = (1, 2) if partition.has_edges(objective.layout) else (1,)
        if tuple(block.clique.nodes for block in blocks) != expected:
            return False
        if len(expected) == 1 and partition.chains.lengths.max(initial=0) > 1:
            return False
        name = blocks[0].clique.name
        sparse = name in partition.features and partition.features[name].is_sparse
        plain = all(block.clique.k_y.is_identity for block in blocks)
        return sparse and plain and all(block.clique.k_x is None for block in blocks[1:])

    def check(self, objective: Objective) -> None:
        """Refuse what the loops do not know."""
        if not self.suits(objective):
            raise ValueError(
                "solver='dual' goes with the linear kernel on sparse inputs or feature dicts, all labels observed, no "
                "edge_kernel and label_kernel='delta': expected such a problem; solver='lbfgs' takes any"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Pass over the sequences until P - D is small enough; P is evaluated where that is likely."""
        ascent = Ascent.of(progress.objective, start)
        if ascent is None or not np.isfinite(ascent.value):
            return LBFGS().solve(start, progress)
        rng, gains, over = np.random.default_rng(self.seed), [np.inf], GAP_OVER_REST
        value = ascent.value
        try:
            for k in range(1, progress.max_iter + 1):
                ascent.epoch(rng)
                progress.passes += 1
                before, value = value, ascent.value
                gains.append(value - before)
                if k == TRIAL_PASSES and _ratio(gains, TRIAL_PASSES // 2) > TRIAL_RATIO:
                    taken_over = start
                    break
                if gains[-1] <= LEAST_GAIN * abs(value) or _ratio(gains, SLOW_PASSES) > SLOW_RATIO:
                    taken_over = ascent.theta
                    break
                rest = _rest(gains)
                if over * rest <= progress.tol * abs(value) or k in (4, 16):
                    ascent.report(progress)
                    if progress.solved:
                        return OPTIMAL
                    over = max(over, progress.history[-1].gap / rest)
            else:
                ascent.report(progress)
                return OPTIMAL if progress.solved else OUT_OF_ITERATIONS
        except KeyboardInterrupt:
            ascent.report(progress)
            raise
        return LBFGS().solve(taken_over, progress)


def _rest(gains: list[float]) -> float:
    """What D has still to gain if its gains go on to fall by the factor of the last two."""
    before, last = gains[-2:]
    return last * (last / (before - last)) if np.isfinite(before) and before > last else np.inf


def _ratio(gains: list[float], n: int) -> float:
    """By what factor gains fell from pass to pass, over the last n."""
    return float((gains[-1] / gains[-1 - n]) ** (1 / n)) if len(gains) > n + 1 else 0.0


@dataclass(eq=False)
class Ascent:
    """alpha, theta and D as they go.

    W (d, width) and w (L, L) are theta; a (N, L), b (m, L, L) the scores of alpha; p (N, L), q (m, L, L) its marginals,
    q summed over the steps of a sequence; etas (m,) the last steps taken. Without edges w, b and q are empty.
    """

    objective: Objective
    W: Floats
    w: Floats
    a: Floats
    b: Floats
    p: Floats
    q: Floats
    entropies: Floats
    etas: Floats

    @classmethod
    def of(cls, objective: Objective, start: Floats) -> Ascent | None:
        """The better of a start near the labels and of one at theta = `start`; None where neither can be scaled."""
        partition, n_jobs = _chains(objective), objective.engine.n_jobs
        starts = [cls._at(objective, *_near_labels(objective))]
        if np.any(start):
            starts.append(cls._at(objective, *partition.scores(objective.layout, start, n_jobs)))
        return max((one for one in starts if one is not None), key=lambda one: one.value, default=None)

    @classmethod
    def _at(cls, objective: Objective, s: Array, w: Array) -> Ascent | None:
        """alpha with the scores s and w, or None where its messages cannot be scaled."""
        partition, layout = _chains(objective), objective.layout
        offsets, n_labels = partition.chains.offsets, partition.n_labels
        a, b = np.array(s, np.float64), np.repeat(np.asarray(w, np.float64)[None], len(offsets) - 1, axis=0)
        p, q, entropies = np.empty_like(a), np.zeros_like(b), np.zeros(len(b))
        width = padded_width(n_labels)
        if loops.moments(offsets, width, *_legality(objective), a, b, p, q, entropies):
            return None
        r = -p
        r[np.arange(len(a)), partition.labels] += 1
        steps = _observed_steps(objective) - np.einsum("i,ijk->jk", _weights(partition), q)
        ascent = partition.pull_back(layout, partition.weighted(r), steps, objective.engine.n_jobs)
        node, *edges = (
            block.C * part for block, part in zip(layout.blocks, layout.split(ascent).values(), strict=True)
        )
        W = np.zeros((len(node), width))
        W[:, :n_labels] = node
        edge = edges[0][0] if edges else np.zeros_like(steps)
        return cls(objective, W, edge, a, b, p, q, entropies, np.full(len(b), FIRST_ETA))

    @property
    def value(self) -> float:
        """D(alpha)."""
        penalty = sum(
            float(np.vdot(part, part)) / block.C
            for part, block in zip((self.W, self.w), self.objective.layout.blocks, strict=False)
        )
        return float(np.dot(_weights(_chains(self.objective)), self.entropies)) - 0.5 * penalty

    @property
    def theta(self) -> Floats:
        """The parameters as one vector."""
        return np.concatenate((self.W[:, : self.p.shape[1]].ravel(), self.w.ravel()))

    def epoch(self, rng: np.random.Generator) -> None:
        """One step for every sequence, in random order."""
        partition, blocks = _chains(self.objective), self.objective.layout.blocks
        features = partition.features[blocks[0].clique.name]
        rows = np.arange(partition.chains.n_nodes) if features.index is None else features.index
        sparse = features.F.indptr, features.F.indices, features.F.data
        lams = 1.0 / blocks[0].C, 1.0 / blocks[-1].C
        data = (partition.chains.offsets, rows, *sparse, _weights(partition), *_legality(self.objective), *lams)
        state = (self.W, self.w, self.a, self.b, self.p, self.q, self.entropies, self.etas)
        loops.epoch(rng.permutation(len(self.b)), *data, *state)

    def report(self, progress: Progress) -> None:
        """Evaluate P at theta, with D for a lower bound."""
        at = self.objective.evaluate(self.theta)
        progress.passes += 1
        progress.observe(replace(at, lower_bound=max(at.lower_bound, self.value)), float(self.etas.mean()))


def _near_labels(objective: Objective) -> tuple[Array, Array]:
    """Scores under which tokens have their labels with probability 1 - delta, for the delta that makes D greatest."""
    partition = _chains(objective)
    n_labels, n_nodes = partition.n_labels, partition.chains.n_nodes
    observed = _observed_steps(objective)
    own, nothing = np.zeros((n_nodes, n_labels)), np.zeros_like(observed)
    own[np.arange(n_nodes), partition.labels] = 1
    if n_labels == 1:
        return own, nothing
    # Of labels, and of both ends of steps: 1 for the observed one, and -1 / (L - 1) for each other.
    sums = observed.sum(axis=0, keepdims=True) + observed.sum(axis=1, keepdims=True)
    steps = (2 * n_labels * observed - sums) / (n_labels - 1)
    moved = partition.weighted((n_labels * own - 1) / (n_labels - 1))
    direction = partition.pull_back(objective.layout, moved, steps, objective.engine.n_jobs)
    curvature = sum(objective.layout.squared_dual_norms(direction).values())
    mass = float(partition.weighted(np.ones(n_nodes)).sum())

    def loss(log_delta: float) -> float:
        delta = np.exp(log_delta)
        entropy = -(1 - delta) * np.log1p(-delta) - delta * (log_delta - np.log(n_labels - 1))
        return float(0.5 * curvature * delta**2 - mass * entropy)

    found = minimize_scalar(loss, bounds=(-30.0, np.log(1 - 1 / n_labels)), method="bounded")
    log_delta = float(found.x)
    return (np.log1p(-np.exp(log_delta)) - log_delta + np.log(n_labels - 1)) * own, nothing


def _chains(objective: Objective) -> ChainPartition:
    partition = objective.partitions[0]
    if not isinstance(partition, ChainPartition):
        raise TypeError(f"partition is of type {type(partition).__name__}: expected chains")
    return partition


def _weights(partition: ChainPartition) -> Floats:
    return np.ones(partition.chains.n_samples) if partition.weights is None else partition.weights


def _observed_steps(objective: Objective) -> Floats:
    """Return how often the labels step from one to another, (L, L), or (0, 0) without edges."""
    partition = _chains(objective)
    return partition.observed_steps if partition.has_edges(objective.layout) else np.zeros((0, 0))


def _legality(objective: Objective) -> tuple[Array, Array, Array]:
    """Return the first labels, last labels and steps that are legal."""
    partition = _chains(objective)
    if partition.legal is not None:
        return partition.legal.first, partition.legal.last, partition.legal.steps
    every = np.ones(partition.n_labels, bool)
    n_steps = partition.n_labels if partition.has_edges(objective.layout) else 0
    return every, every, np.ones((n_steps, n_steps), bool)
