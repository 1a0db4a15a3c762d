"""The current point of the solver `Dual`, and its steps; the docstring of `solvers.dual` has the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.inference.scaled import padded_width
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.penalties import soft
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.solvers import ascent_loops as loops
from kernelcrf.solvers.loop import Progress

FIRST_ETA = 0.5
# Sequences with this share of the gap are visited again, if they have at most MOST_TOKENS of all tokens, until these
# visits have cost as much as MOST_VISITS passes over all sequences, or the gap is ENOUGH times the tolerance.
SHARE, MOST_TOKENS, MOST_VISITS, ENOUGH = 0.9, 0.25, 4.0, 0.01


@dataclass(eq=False)
class Ascent:
    """The current point of the ascent: the dual variables alpha, and the parameters theta that they determine.

    alpha is a distribution over the labellings of each sequence.

    rows, sparse : the row of each token in a sparse matrix of features, and the arrays of this matrix. The features of
        all terms that score tokens stand side by side; a term without inputs is a column of ones. The columns of each
        term have a factor such that all weights have the same prior variance.
    W, w : the parameters theta: the weights of features, and the transition scores; 0 for pairs without a weight.
    V, v : the parameters before an L1 penalty shrinks them towards zero; without this penalty, V and W are one array.
    kept : two arrays that are 1 for the entries of W and of w that are weights, and 0 for all others. If weights have
        their own prior precisions lam, the entry of a weight is 1 / (C lam) instead of 1.
    a, b : the scores that define alpha: token scores, one row per token, and one matrix of transition scores per
        sequence.
    p, q : the probabilities under alpha of labels, one row per token, and of transitions, summed over each sequence.
    entropies : the entropy of alpha for each sequence.
    etas : the step size of each sequence.
    gaps : the duality gap of each sequence before its last ascent step, measured or estimated.
    gap : the sum of `gaps` after the last pass over all sequences.
    known_value : the value of the dual objective, or None if it was not computed since the last step.

    If the model does not score transitions, w, b and q are empty.
    """

    objective: Objective
    rows: Array
    sparse: tuple[Array, Array, Array]
    V: Floats
    W: Floats
    v: Floats
    w: Floats
    kept: tuple[Array, Array]
    a: Floats
    b: Floats
    p: Floats
    q: Floats
    entropies: Floats
    etas: Floats
    gaps: Floats
    gap: float = np.inf
    known_value: float | None = None

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
        parts, (states, transitions) = layout.split(_residual(objective, p, q)), _divide(layout)
        steps = b.shape[1:]
        V = np.zeros((sum(term.n for term in states), width))
        V[:, :n_labels] = np.vstack(
            [term.unpack(_primal(term, parts[term.name])) / _scale(term, states) for term in states]
        )
        C, l1 = states[0].C, _l1(states[0])
        W, v, w = soft(V, l1 * C) if l1 else V, np.zeros(steps), np.zeros(steps)
        for term in transitions:
            v = term.unpack(_primal(term, parts[term.name])).reshape(steps)
            w = soft(v, _l1(term) * term.C)
        kept, etas, gaps = _kept(layout, width, steps), np.full(len(b), FIRST_ETA), np.zeros(len(b))
        return cls(objective, *_features(objective), V, W, v, w, kept, a, b, p, q, entropies, etas, gaps)

    @property
    def value(self) -> float:
        """Return the value of the dual objective at this point."""
        if self.known_value is None:
            self.known_value = self._compute_value()
        return self.known_value

    def _compute_value(self) -> float:
        layout = self.objective.layout
        states, transitions = _divide(layout)
        if layout.mean is not None:
            penalty = layout.squared_norm(self.theta) - layout.squared_norm(layout.mean)
        else:
            penalty = float(np.vdot(self.W, self.W)) / states[0].C
            penalty += sum(float(np.vdot(self.w, self.w)) / term.C for term in transitions)
        return self._entropy - 0.5 * penalty

    @property
    def _entropy(self) -> float:
        return float(np.dot(_weights(_chains(self.objective)), self.entropies))

    @property
    def theta(self) -> Floats:
        """Return the parameters theta as one vector."""
        layout = self.objective.layout
        states, transitions = _divide(layout)
        ends = np.cumsum([term.n for term in states])[:-1]
        parts = zip(states, np.split(self.W[:, : self.p.shape[1]], ends), strict=True)
        weights = {term.name: term.pack(part) * _scale(term, states) for term, part in parts}
        return layout.join(weights | {term.name: term.pack(self.w) for term in transitions})

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
        partition, (states, transitions) = _chains(self.objective), _divide(self.objective.layout)
        first, last = states[0], (transitions or states)[0]
        penalties = 1.0 / first.C, 1.0 / last.C, _l1(first), _l1(last)
        weights, legal = _weights(partition), _legality(self.objective)
        precise = self.kept[0].dtype == np.float64
        data = (partition.chains.offsets, self.rows, *self.sparse, weights, legal, *penalties, *self.kept, precise)
        state = (self.V, self.W, self.v, self.w, self.a, self.b, self.p, self.q, self.entropies, self.etas, self.gaps)
        self.known_value = None
        loops.visit(order, measure, *data, *state)

    def report(self, progress: Progress) -> None:
        """Evaluate the objective for the current parameters, and report it to `progress`.

        The value of the dual objective is reported as a lower bound on the minimum. If there are prior means, this
        value is computed from the probabilities again: if prior precisions are large, weights nearly equal their means,
        and the differences between weights and means would have few correct digits.
        """
        at, value = self.objective.evaluate(self.theta), self.value
        progress.passes += 1
        if self.objective.layout.mean is not None:
            value = self._entropy - self.objective.layout.conjugate(-_residual(self.objective, self.p, self.q))
            progress.passes += 0.5
        progress.observe(replace(at, lower_bound=max(at.lower_bound, value)), float(self.etas.mean()))


def _near_labels(objective: Objective) -> tuple[Array, Array]:
    """Return token scores and transition scores of a distribution near the observed labels.

    Every token has its observed label with probability 1 - delta, and delta maximises the dual objective.
    """
    partition = _chains(objective)
    n_labels, n_nodes = partition.n_labels, partition.chains.n_nodes
    observed = _observed_steps(objective)
    one_hot, nothing = np.zeros((n_nodes, n_labels)), np.zeros_like(observed)
    one_hot[np.arange(n_nodes), partition.labels] = 1
    if n_labels == 1:
        return one_hot, nothing
    # For labels, and for both ends of transitions: 1 for the observed label, and -1 / (L - 1) for each other label.
    sums = observed.sum(axis=0, keepdims=True) + observed.sum(axis=1, keepdims=True)
    steps = (2 * n_labels * observed - sums) / (n_labels - 1)
    moved = partition.apply_weights((n_labels * one_hot - 1) / (n_labels - 1))
    direction = partition.pull_back(objective.layout, moved, steps, objective.engine.n_jobs)
    curvature = sum(objective.layout.squared_dual_norms(direction).values())
    pull = 0.0 if objective.layout.mean is None else float(np.dot(direction, objective.layout.mean))
    mass = float(partition.apply_weights(np.ones(n_nodes)).sum())

    def loss(log_delta: float) -> float:
        delta = np.exp(log_delta)
        entropy = -(1 - delta) * np.log1p(-delta) - delta * (log_delta - np.log(n_labels - 1))
        return float(0.5 * curvature * delta**2 + pull * delta - mass * entropy)

    minimum = minimize_scalar(loss, bounds=(-30.0, np.log(1 - 1 / n_labels)), method="bounded")
    log_delta = float(minimum.x)
    return (np.log1p(-np.exp(log_delta)) - log_delta + np.log(n_labels - 1)) * one_hot, nothing


def _residual(objective: Objective, p: Floats, q: Floats) -> Floats:
    """Return the observed features minus their expectations, summed over sequences with weights, as one vector.

    p, q : the probabilities of labels and of transitions.
    """
    partition, r = _chains(objective), -p
    r[np.arange(len(p)), partition.labels] += 1
    steps = _observed_steps(objective) - np.einsum("i,ijk->jk", _weights(partition), q)
    return partition.pull_back(objective.layout, partition.apply_weights(r), steps, objective.engine.n_jobs)


def _kept(layout: Layout, width: int, steps: tuple[int, ...]) -> tuple[Array, Array]:
    """Return two arrays, for features and for transitions: 1 for entries that are weights, and 0 for others.

    The first one has `width` columns, and a single row if all pairs of a feature and a label have a weight. The second
    one has the shape `steps`. If weights have their own prior precisions lam, the entry of a weight is 1 / (C lam).
    """
    states, transitions = _divide(layout)
    if any(term.precision is not None for term in layout.terms):
        shares = {term.name: term.unpack(_shares(term)) for term in layout.terms}
        kept = np.zeros((sum(term.n for term in states), width))
        kept[:, : states[0].k_y.L] = np.vstack([shares[term.name] for term in states])
        return kept, np.ones(steps) if not transitions else shares[transitions[0].name].reshape(steps)
    kept, kept_edge = np.ones((1, width), np.uint8), np.ones(steps, np.uint8)
    if any(term.pairs is not None for term in states):
        kept = np.ones((sum(term.n for term in states), width), np.uint8)
        for term, low in zip(states, np.cumsum([0, *(term.n for term in states)]).tolist(), strict=False):
            if term.pairs is not None:
                kept[low : low + term.n, : term.pairs.n_labels] = term.pairs.flags
    if transitions and transitions[0].pairs is not None:
        kept_edge = transitions[0].pairs.flags.reshape(steps).astype(np.uint8)
    return kept, kept_edge


def _divide(layout: Layout) -> tuple[list[Term], list[Term]]:
    """Return the terms that score tokens (the first of them has inputs), and the terms that score transitions."""
    steps = [term for term in layout.terms if term.kind.is_step]
    return [term for term in layout.terms if term not in steps], steps


def _shares(term: Term) -> Floats:
    """Return 1 / (C lam) for each weight of a term, where lam is the prior precision of the weight."""
    return 1.0 / (term.C * term.lam).reshape(term.shape)


def _primal(term: Term, v: Floats) -> Floats:
    """Return the weights mu + v / lam of a term, before an L1 penalty shrinks them."""
    weights = term.C * v if term.precision is None else v / term.precision.reshape(term.shape)
    return weights if term.mean is None else weights + term.mean.reshape(term.shape)


def _l1(term: Term) -> float:
    """Return the factor of the L1 penalty of a term, 0 if its penalty is smooth."""
    return term.penalty.absolute(term) or 0.0


def _scale(term: Term, states: Sequence[Term]) -> float:
    """Return the factor of a term's columns that gives its weights the prior variance of the first term."""
    return float(np.sqrt(term.C / states[0].C))


def _features(objective: Objective) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the row of each token in a sparse matrix of features, and the arrays of this matrix.

    The features of all terms that score tokens stand side by side; a term without inputs is a column of ones.
    """
    partition, (states, _) = _chains(objective), _divide(objective.layout)

    def columns(term: Term) -> Inputs:
        if term.name in partition.features:
            features = partition.features[term.name]
            return (features.F if features.index is None else features.F[features.index]) * _scale(term, states)
        ones = np.zeros((partition.n_nodes, 1))
        ones[term.kind.rows(partition.chains)] = _scale(term, states)
        return sp.csr_array(ones)

    first = partition.features[states[0].name]
    F, rows = first.F, np.arange(partition.n_nodes) if first.index is None else first.index
    if len(states) > 1:
        F, rows = sp.hstack(list(map(columns, states)), "csr", F.dtype), np.arange(partition.n_nodes)
    return rows, (F.indptr, F.indices, F.data)


def _chains(objective: Objective) -> ChainPartition:
    return cast(ChainPartition, objective.partitions[0])


def _weights(partition: ChainPartition) -> Floats:
    return np.ones(partition.chains.n_samples) if partition.weights is None else partition.weights


def _observed_steps(objective: Objective) -> Floats:
    """Return a matrix [from, to] of how often each transition is observed, counted with the sequence weights.

    The matrix is empty if the model does not score transitions.
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
