"""Maximise the dual objective D, one sequence at a time: exponentiated gradients (Collins et al., 2008).

The dual variables are a distribution alpha_i over the labelings of each sequence i. They determine the parameters
theta:

    D(alpha) = sum_i omega_i H(alpha_i) - sum_k lam_k/2 |theta_k|^2,
    theta_k  = sum_i omega_i [Phi_k(x_i, y_i) - E_{alpha_i} Phi_k] / lam_k.

Here omega_i is the weight of sequence i, and H is the entropy. Term k of the score has joint features Phi_k of inputs
and labels, parameters theta_k and regularisation lam_k. D is never larger than the minimum of the objective P, and both
are equal at the optimum, so that P(theta) - D(alpha) is a certified gap. Each alpha_i is stored as token scores a_i and
transition scores b_i. If s_i and w are the token scores and transition scores for theta, an ascent step makes

    alpha_i proportional to exp((1 - eta) (a_i, b_i) + eta (s_i, w)),

where the step size eta is halved until D increases. Few passes are enough, because theta changes after every sequence
and not only after every pass over the data. On the other hand, sequences are processed one after the other in a single
thread, and features must be sparse.

For this theta, the gap P(theta) - D(alpha) is a sum over the sequences of

    gap_i = omega_i KL(alpha_i || p(. | x_i; theta)).

An ascent step of size eta increases D by about eta gap_i, so that a pass over all sequences estimates their gaps. If C
is large, a few sequences soon have most of the gap. Each pass is therefore followed by further visits of the sequences
with the largest gaps, which measure the gap of each sequence before its step.

L-BFGS takes over at the current theta if D no longer increases, or if the gap shrinks so slowly that many more passes
would be needed. It is used from the beginning if the messages of inference would underflow.

At the start, every token has its observed label with probability 1 - delta, and all other labels have equal
probabilities; delta maximises D. If a starting point theta is given and D is larger there, its distribution is used.
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
LEAST_GAIN = 1e-13
# Sequences with this share of the gap are visited again, if they have at most MOST_TOKENS of all tokens, until these
# visits have cost as much as MOST_VISITS passes over all sequences, or the gap is ENOUGH times the tolerance.
SHARE, MOST_TOKENS, MOST_VISITS, ENOUGH = 0.9, 0.25, 4.0, 0.01
# L-BFGS takes over if more than this number of further passes is expected, judged by the last TRIAL passes.
TRIAL, MOST_EXPECTED = 8, 150
# P is evaluated after these passes to show progress, and as soon as P - D is expected to be small enough: it is smaller
# than the gaps were during the pass, by a factor that is measured at each evaluation.
REPORTS, FIRST_SHARE = (4, 16, 64), 0.5


@dataclass(frozen=True)
class Dual:
    """Solver for sparse features, which maximises the dual objective by exponentiated gradients.

    seed : the seed of the random order in which sequences are processed.

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
        """Return whether this solver can minimise the objective.

        It needs sequences in this process, observed labels, sparse features, label_kernel="delta", and transitions that
        do not depend on inputs.
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
        """Raise ValueError if this solver cannot minimise the objective."""
        if not self.suits(objective):
            raise ValueError(
                "solver='dual' cannot minimise this objective: expected kernel='linear' with sparse inputs or feature "
                "dicts, all labels observed, no edge_kernel and label_kernel='delta'. Otherwise use solver='lbfgs'"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Pass over the sequences until the gap between the objective and the dual objective is small enough.

        Return the status. The objective is evaluated only after some passes, whose numbers are in REPORTS, and when
        the gap is probably within the tolerance.
        """
        ascent = Ascent.of(progress.objective, start)
        if ascent is None or not np.isfinite(ascent.value):
            return LBFGS().solve(start, progress)
        rng, gaps, share = np.random.default_rng(self.seed), [], FIRST_SHARE
        try:
            for k in range(1, progress.max_iter + 1):
                before = ascent.value
                progress.passes += ascent.climb(rng, progress.tol)
                value, allowed = ascent.value, progress.tol * abs(ascent.value)
                gaps.append(ascent.gap)
                if share * ascent.gap <= allowed or k in REPORTS:
                    ascent.report(progress)
                    if progress.solved:
                        return OPTIMAL
                    share = progress.history[-1].gap / max(ascent.gap, np.finfo(np.float64).tiny)
                if value - before <= LEAST_GAIN * abs(value) or _expected_passes(gaps, allowed) > MOST_EXPECTED:
                    break
            else:
                ascent.report(progress)
                return OPTIMAL if progress.solved else OUT_OF_ITERATIONS
        except KeyboardInterrupt:
            ascent.report(progress)
            raise
        return LBFGS().solve(ascent.theta, progress)


def _expected_passes(gaps: list[float], allowed: float) -> float:
    """Estimate how many more passes are needed until the gap is at most `allowed`.

    gaps : the gap after each pass so far. It is assumed to shrink as fast as in the last TRIAL passes.
    """
    if len(gaps) <= TRIAL or gaps[-1] <= allowed:
        return 0.0
    shrinkage = np.log(gaps[-1 - TRIAL] / gaps[-1]) / TRIAL
    return float(np.log(gaps[-1] / allowed) / shrinkage) if shrinkage > 0 else np.inf


@dataclass(eq=False)
class Ascent:
    """The current point of the ascent: the dual variables alpha, and the parameters theta that they determine.

    alpha is a distribution over the labellings of each sequence.

    W, w : the parameters theta: the weights of features, and the transition scores.
    a, b : the scores that define alpha: token scores, one row per token, and one matrix of transition scores per
        sequence.
    p, q : the probabilities under alpha of labels, one row per token, and of transitions, summed over each sequence.
    entropies : the entropy of alpha for each sequence.
    etas : the step size of each sequence.
    gaps : the duality gap of each sequence before its last ascent step, measured or estimated.
    gap : the sum of `gaps` after the last pass over all sequences.

    If the model does not score transitions, w, b and q are empty.
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
    gaps: Floats
    gap: float = np.inf

    @classmethod
    def of(cls, objective: Objective, start: Floats) -> Ascent | None:
        """Return the first point of the ascent.

        Its distribution alpha is concentrated near the observed labels, or has the scores of the parameters `start` if
        the dual objective is larger there. Return None if the messages of inference would underflow.
        """
        partition, n_jobs = _chains(objective), objective.engine.n_jobs
        starts = [cls._at(objective, *_near_labels(objective))]
        if np.any(start):
            starts.append(cls._at(objective, *partition.scores(objective.layout, start, n_jobs)))
        return max((one for one in starts if one is not None), key=lambda one: one.value, default=None)

    @classmethod
    def _at(cls, objective: Objective, s: Array, w: Array) -> Ascent | None:
        """Return the point whose distribution alpha has the token scores s and the transition scores w.

        Return None if the messages of inference would underflow for these scores.
        """
        partition, layout = _chains(objective), objective.layout
        offsets, n_labels = partition.chains.offsets, partition.n_labels
        a, b = np.array(s, np.float64), np.repeat(np.asarray(w, np.float64)[None], len(offsets) - 1, axis=0)
        p, q, entropies = np.empty_like(a), np.zeros_like(b), np.zeros(len(b))
        width = padded_width(n_labels)
        if loops.moments(offsets, width, _legality(objective), a, b, p, q, entropies):
            return None
        r = -p
        r[np.arange(len(a)), partition.labels] += 1
        steps = _observed_steps(objective) - np.einsum("i,ijk->jk", _weights(partition), q)
        ascent = partition.pull_back(layout, partition.apply_weights(r), steps, objective.engine.n_jobs)
        node, *edges = (term.C * part for term, part in zip(layout.terms, layout.split(ascent).values(), strict=True))
        W = np.zeros((len(node), width))
        W[:, :n_labels] = node
        edge = edges[0].reshape(steps.shape) if edges else np.zeros_like(steps)
        return cls(objective, W, edge, a, b, p, q, entropies, np.full(len(b), FIRST_ETA), np.zeros(len(b)))

    @property
    def value(self) -> float:
        """Return the value of the dual objective at this point."""
        theta = zip((self.W, self.w), self.objective.layout.terms, strict=False)
        penalty = sum(float(np.vdot(part, part)) / term.C for part, term in theta)
        return float(np.dot(_weights(_chains(self.objective)), self.entropies)) - 0.5 * penalty

    @property
    def theta(self) -> Floats:
        """Return the parameters theta as one vector."""
        return np.concatenate((self.W[:, : self.p.shape[1]].ravel(), self.w.ravel()))

    def climb(self, rng: np.random.Generator, tol: float) -> float:
        """Take an ascent step for every sequence, then further steps for the sequences that have most of the gap.

        Return the cost as a number of passes over the data.
        """
        lengths = np.diff(_chains(self.objective).chains.offsets)
        n_tokens, visited = lengths.sum(), 0
        self.visit(rng.permutation(len(lengths)), measure=False)
        self.gap, enough = float(self.gaps.sum()), ENOUGH * tol * abs(self.value)
        while True:
            order = np.argsort(-self.gaps, kind="stable")
            sums = np.cumsum(self.gaps[order])
            largest = order[: np.searchsorted(sums, SHARE * sums[-1]) + 1]
            cost = lengths[largest].sum()
            if sums[-1] <= enough or cost > MOST_TOKENS * n_tokens or visited + cost > MOST_VISITS * n_tokens:
                return float(1 + visited / n_tokens)
            self.visit(rng.permutation(largest))
            visited += cost

    def visit(self, order: Array, measure: bool = True) -> None:
        """Take one ascent step for each sequence in `order`.

        measure : whether to measure the gap of each sequence before its step, or only to estimate it.
        """
        partition, terms = _chains(self.objective), self.objective.layout.terms
        features = partition.features[terms[0].name]
        rows = np.arange(partition.chains.n_nodes) if features.index is None else features.index
        sparse = features.F.indptr, features.F.indices, features.F.data
        lams = 1.0 / terms[0].C, 1.0 / terms[-1].C
        data = (partition.chains.offsets, rows, *sparse, _weights(partition), _legality(self.objective), *lams)
        state = (self.W, self.w, self.a, self.b, self.p, self.q, self.entropies, self.etas, self.gaps)
        loops.visit(order, measure, *data, *state)

    def report(self, progress: Progress) -> None:
        """Evaluate the objective for the current parameters, and report it to `progress`.

        The value of the dual objective is reported as a lower bound on the minimum.
        """
        at = self.objective.evaluate(self.theta)
        progress.passes += 1
        progress.observe(replace(at, lower_bound=max(at.lower_bound, self.value)), float(self.etas.mean()))


def _near_labels(objective: Objective) -> tuple[Array, Array]:
    """Return token scores and transition scores of a distribution near the observed labels.

    Every token has its observed label with probability 1 - delta, and delta maximises the dual objective.
    """
    partition = _chains(objective)
    n_labels, n_nodes = partition.n_labels, partition.chains.n_nodes
    observed = _observed_steps(objective)
    own, nothing = np.zeros((n_nodes, n_labels)), np.zeros_like(observed)
    own[np.arange(n_nodes), partition.labels] = 1
    if n_labels == 1:
        return own, nothing
    # For labels, and for both ends of transitions: 1 for the observed label, and -1 / (L - 1) for each other label.
    sums = observed.sum(axis=0, keepdims=True) + observed.sum(axis=1, keepdims=True)
    steps = (2 * n_labels * observed - sums) / (n_labels - 1)
    moved = partition.apply_weights((n_labels * own - 1) / (n_labels - 1))
    direction = partition.pull_back(objective.layout, moved, steps, objective.engine.n_jobs)
    curvature = sum(objective.layout.squared_dual_norms(direction).values())
    mass = float(partition.apply_weights(np.ones(n_nodes)).sum())

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
    """Return a matrix [from, to] that says how often one label follows another; sequences count with weights.

    It is empty if the model does not score transitions.
    """
    partition = _chains(objective)
    return partition.observed_steps if partition.has_edges(objective.layout) else np.zeros((0, 0))


def _legality(objective: Objective) -> tuple[Array, Array, Array]:
    """Return three boolean arrays that say which first labels, last labels and transitions are legal."""
    partition = _chains(objective)
    if partition.legal is not None:
        return partition.legal.first, partition.legal.last, partition.legal.steps
    every = np.ones(partition.n_labels, bool)
    n_steps = partition.n_labels if partition.has_edges(objective.layout) else 0
    return every, every, np.ones((n_steps, n_steps), bool)
