"""Ascent on the dual, one sequence at a time: exponentiated gradients (Collins et al., 2008), for sparse features.

    D(alpha) = sum_i omega_i H(alpha_i) - sum_k lam_k/2 |theta_k|^2,
    theta_k  = sum_i omega_i [Phi_k(x_i, y_i) - E_{alpha_i} Phi_k] / lam_k,

with a distribution alpha_i over the labelings of each sequence. D(alpha) <= min P, with equality at its maximum, so
that P(theta) - D(alpha) certifies theta. alpha_i is kept as scores a_i of tokens and b_i of steps, and a step moves
them towards those of theta,

    alpha_i proportional to exp((1 - eta) (a_i, b_i) + eta (s_i, w)),

with eta halved until D rises. theta changes with every sequence and not only with every pass over the data, so that few
passes are enough; but sequences are processed one after the other, in one thread. L-BFGS takes over if messages cannot
be scaled, or if gains hardly fall from pass to pass, for example with noisy labels and tokens that are much alike: from
the beginning after a trial of a few passes, later from the point reached.

At the start every token has its own label with probability 1 - delta and all others evenly, with the delta that
maximises D, or the distribution of a given theta if D is greater there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.optimize import minimize_scalar

from kernelcrf.arrays import Array, Floats
from kernelcrf.inference.scaled import padded_width
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.solvers import ascent as loops
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import OPTIMAL, OUT_OF_ITERATIONS, Progress
from kernelcrf.terms import STEPS, TOKENS
from kernelcrf.validation import either, whole

FIRST_ETA = 0.5
# P - D is about three times what D can still gain; a greater value is taken as it is.
GAP_OVER_REST = 3.0
LEAST_GAIN = 1e-13
TRIAL_PASSES, TRIAL_RATIO = 8, 0.85
SLOW_PASSES, SLOW_RATIO = 8, 0.93


@dataclass(frozen=True)
class Dual:
    """Exponentiated gradients on the dual, with sequences in random orders drawn from `seed`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import Dual
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> ChainCRF("linear", solver=Dual()).fit(X, [["DET", "NOUN"], ["DET", "NOUN"]]).certificate_.status
    'optimal'
    """

    seed: int = 0

    def __post_init__(self) -> None:
        either(whole(least=0)).check("seed", self.seed)

    @staticmethod
    def suits(objective: Objective) -> bool:
        """Return whether all labels are observed, features sparse, steps without inputs, and label kernels plain.

        Samples of one node need no terms of steps.
        """
        if not objective.is_convex or len(objective.partitions) != 1:
            return False
        partition, terms = objective.partitions[0], objective.layout.terms
        if not isinstance(partition, ChainPartition):
            return False
        has_edges = partition.has_edges(objective.layout)
        if [term.cliques for term in terms] != ([TOKENS, STEPS] if has_edges else [TOKENS]):
            return False
        if not has_edges and partition.chains.lengths.max(initial=0) > 1:
            return False
        tokens = partition.features.get(terms[0].name)
        plain = all(term.k_y.is_identity for term in terms) and all(term.kernel is None for term in terms[1:])
        return tokens is not None and tokens.is_sparse and plain

    def check(self, objective: Objective) -> None:
        """Refuse what the loops do not know."""
        if not self.suits(objective):
            raise ValueError(
                "solver='dual' goes with the linear kernel on sparse inputs or feature dicts, all labels observed, no "
                "edge_kernel and label_kernel='delta': expected such a problem; solver='lbfgs' takes any"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run passes over the sequences until P - D is small enough; P is evaluated only when that is likely."""
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
    """Return how much D would still gain if its gains keep falling by the factor of the last two."""
    before, last = gains[-2:]
    return last * (last / (before - last)) if np.isfinite(before) and before > last else np.inf


def _ratio(gains: list[float], n: int) -> float:
    """Return the factor by which gains fell from pass to pass, over the last n."""
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
        """Return the better of a start near the labels and one at theta = `start`; None if neither can be scaled."""
        partition, n_jobs = _chains(objective), objective.engine.n_jobs
        starts = [cls._at(objective, *_near_labels(objective))]
        if np.any(start):
            starts.append(cls._at(objective, *partition.scores(objective.layout, start, n_jobs)))
        return max((one for one in starts if one is not None), key=lambda one: one.value, default=None)

    @classmethod
    def _at(cls, objective: Objective, s: Array, w: Array) -> Ascent | None:
        """Return alpha with the scores s and w, or None if its messages cannot be scaled."""
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
        node, *edges = (term.C * part for term, part in zip(layout.terms, layout.split(ascent).values(), strict=True))
        W = np.zeros((len(node), width))
        W[:, :n_labels] = node
        edge = edges[0].reshape(steps.shape) if edges else np.zeros_like(steps)
        return cls(objective, W, edge, a, b, p, q, entropies, np.full(len(b), FIRST_ETA))

    @property
    def value(self) -> float:
        """Return D(alpha)."""
        theta = zip((self.W, self.w), self.objective.layout.terms, strict=False)
        penalty = sum(float(np.vdot(part, part)) / term.C for part, term in theta)
        return float(np.dot(_weights(_chains(self.objective)), self.entropies)) - 0.5 * penalty

    @property
    def theta(self) -> Floats:
        """Return the parameters as one vector."""
        return np.concatenate((self.W[:, : self.p.shape[1]].ravel(), self.w.ravel()))

    def epoch(self, rng: np.random.Generator) -> None:
        """Take one step for every sequence, in random order."""
        partition, terms = _chains(self.objective), self.objective.layout.terms
        features = partition.features[terms[0].name]
        rows = np.arange(partition.chains.n_nodes) if features.index is None else features.index
        sparse = features.F.indptr, features.F.indices, features.F.data
        lams = 1.0 / terms[0].C, 1.0 / terms[-1].C
        data = (partition.chains.offsets, rows, *sparse, _weights(partition), *_legality(self.objective), *lams)
        state = (self.W, self.w, self.a, self.b, self.p, self.q, self.entropies, self.etas)
        loops.epoch(rng.permutation(len(self.b)), *data, *state)

    def report(self, progress: Progress) -> None:
        """Evaluate P at theta, with D for a lower bound."""
        at = self.objective.evaluate(self.theta)
        progress.passes += 1
        progress.observe(replace(at, lower_bound=max(at.lower_bound, self.value)), float(self.etas.mean()))


def _near_labels(objective: Objective) -> tuple[Array, Array]:
    """Return scores that give tokens their labels with probability 1 - delta, for the delta that maximises D."""
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
    return cast(ChainPartition, objective.partitions[0])


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
