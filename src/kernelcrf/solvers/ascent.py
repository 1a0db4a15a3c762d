"""The current point of the solver `Dual`, and its steps; the docstring of `solvers.dual` has the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike
from scipy.optimize import minimize_scalar

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.graphs.structure import EDGE
from kernelcrf.inference.scaled import padded_width
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.solvers import ascent_loops as loops
from kernelcrf.solvers.loop import Progress
from kernelcrf.solvers.pulled_weights import PulledWeights
from kernelcrf.solvers.weight_rows import WeightRows

FIRST_ETA = 0.5
# The factor rho of the proximal term, for smooth penalties and for L1 penalties.
PULL, PULL_OF_CORNERS = 3.0, 20.0
# With a tolerance of at least SINGLE_TOL, dual variables are stored in single precision.
SINGLE_TOL = 1e-5
# Sequences with this share of the gap are visited again, if they have at most MOST_TOKENS of all tokens, until these
# visits have cost as much as MOST_VISITS passes over all sequences, or the gap is ENOUGH times the tolerance.
SHARE, MOST_TOKENS, MOST_VISITS, ENOUGH = 0.9, 0.25, 4.0, 0.01


@dataclass(eq=False)
class Ascent:
    """The current point of the ascent: the dual variables alpha, and the parameters theta that they determine.

    alpha is a distribution over the labellings of each sequence.

    data : the tokens and their features, as `_data` returns them.
    rows, step_rows : how the weights of terms that score tokens, and of those that score transitions, are stored in
        flat arrays.
    features, steps : these weights in the proximal problem. Those of all terms that score tokens stand side by side,
        as do those that score transitions; a term without inputs is a column of ones.
    a, b : the scores that define alpha: token scores, one row per token, and matrices of transition scores. There is
        one matrix per token, for the step into the token, if transition scores depend on inputs; otherwise, there is
        one per sequence.
    r, q : the probabilities under alpha of labels and of transitions, in the order of a and b, minus those of the
        observed labels. If there is one matrix per sequence, the steps of the sequence are added up. Near the observed
        labels, these differences have more correct digits than the probabilities themselves would have.
    entropies : the entropy of alpha for each sequence.
    etas : the step size of each sequence.
    gaps : the duality gap of each sequence in the proximal problem before its last ascent step, measured or estimated.
    pull : the factor rho of the proximal term; 0 at the beginning.
    inner_gap : the sum of `gaps` after the last pass over all sequences.

    If the model does not score transitions, b and q are empty.
    """

    objective: Objective
    data: tuple[Any, ...]
    rows: WeightRows
    step_rows: WeightRows
    features: PulledWeights
    steps: PulledWeights
    a: Array
    b: Array
    r: Array
    q: Array
    entropies: Floats
    etas: Floats
    gaps: Floats
    pull: float = 0.0
    inner_gap: float = np.inf

    @classmethod
    def of(cls, objective: Objective, start: Floats, tol: float = 0.0) -> Ascent | None:
        """Return the first point of the ascent.

        Its distribution alpha is concentrated near the observed labels, or has the scores of the parameters `start` if
        the dual objective is larger there. Return None if the messages of inference would underflow.

        tol : the relative gap to reach, which determines the precision of alpha.
        """
        dtype = np.float32 if tol >= SINGLE_TOL else np.float64
        starts = [cls._at(objective, *_near_labels(objective, dtype))]
        if np.any(start):
            starts.append(cls._at(objective, *_scores(objective, start, dtype)))
        return max((one for one in starts if one is not None), key=lambda one: one.value, default=None)

    @classmethod
    def _at(cls, objective: Objective, a: Array, w: Array) -> Ascent | None:
        """Return the point whose distribution alpha has the token scores a and the transition scores w.

        Return None if the messages of inference would underflow for these scores.
        """
        partition, (states, transitions) = _chains(objective), _divide(objective)
        n_labels, n_samples, data = partition.n_labels, partition.chains.n_samples, _data(objective)
        rows = WeightRows.of(states, padded_width(n_labels))
        step_rows = WeightRows.of(transitions, padded_width(n_labels**2) if transitions else 0)
        b = w if w.ndim > 2 else np.repeat(w[None], n_samples, axis=0)
        r, q, entropies = np.empty_like(a), np.zeros_like(b), np.zeros(n_samples)
        G, g = np.zeros(len(rows.labels)), np.zeros(len(step_rows.labels))
        if loops.moments(*data, *_layout_of(rows), *_layout_of(step_rows), a, b, r, q, entropies, G, g):
            return None
        features = PulledWeights.of(states[0].C, _l1(states[0]), *_prior(objective, states, rows), G)
        last = (transitions or states)[0]
        l1 = _l1(last) if transitions else 0.0
        steps = PulledWeights.of(last.C, l1, *_prior(objective, transitions, step_rows), g)
        etas, gaps = np.full(n_samples, FIRST_ETA), np.zeros(n_samples)
        return cls(objective, data, rows, step_rows, features, steps, a, b, r, q, entropies, etas, gaps)

    @property
    def value(self) -> float:
        """Return the value of the dual objective at this point, up to the rounding errors of the ascent."""
        return self._entropy + self.features.measure(self.pull)[0] + self.steps.measure(self.pull)[0]

    @property
    def gap(self) -> float:
        """Return an estimate of the gap P(theta) - D(alpha): the gap of the proximal problem, and its excess."""
        return self.inner_gap + self.features.measure(self.pull)[1] + self.steps.measure(self.pull)[1]

    @property
    def _entropy(self) -> float:
        return float(np.dot(_weights(_chains(self.objective)), self.entropies))

    @property
    def theta(self) -> Floats:
        """Return the parameters theta as one vector."""
        return self._join(self.features.W, self.steps.W, 1)

    def _join(self, features: Floats, steps: Floats, power: int) -> Floats:
        """Return the weights of all terms as one vector, given the rows of features and of steps.

        power : the power of the factor of a term's columns by which its weights are multiplied.
        """
        by_name = {}
        for terms, rows, weights in zip(
            _divide(self.objective), (self.rows, self.step_rows), (features, steps), strict=True
        ):
            parts = np.split(rows.gather(weights), np.cumsum([term.size for term in terms])[:-1])
            for term, part in zip(terms, parts, strict=False):
                part *= _scale(term, terms) ** power
                by_name[term.name] = part
        return self.objective.layout.join(by_name)

    def climb(self, rng: np.random.Generator, tol: float) -> float:
        """Take an ascent step for every sequence, then further steps for the sequences that have most of the gap.

        Return the cost as a number of passes over the data.
        """
        lengths = np.diff(_chains(self.objective).chains.offsets)
        n_tokens, visited = lengths.sum(), 0
        self.visit(rng.permutation(len(lengths)), measure=False)
        self.inner_gap, enough = float(self.gaps.sum()), ENOUGH * tol * abs(self.value)
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
        one, two = self.features, self.steps
        penalties = (1 + self.pull) / one.C, (1 + self.pull) / two.C, one.l1, two.l1
        weights = *_layout_of(self.rows), *_layout_of(self.step_rows), *penalties, one.shares, two.shares
        state = one.V, one.W, two.V, two.W, self.a, self.b, self.r, self.q, self.entropies, self.etas, self.gaps
        loops.visit(order, measure, *self.data, *weights, *state)

    def move_centre(self) -> None:
        """Move the centre of the proximal term to theta, and beyond theta by Nesterov's extrapolation."""
        pull = PULL if self.objective.layout.is_smooth else PULL_OF_CORNERS
        for weights in (self.features, self.steps):
            weights.move_centre(self.pull, pull)
        self.pull = pull

    def refine(self) -> bool:
        """Store the dual variables in double precision from now on; return False if they are already."""
        if self.a.dtype == np.float64:
            return False
        self.a, self.b, self.r, self.q = (x.astype(np.float64) for x in (self.a, self.b, self.r, self.q))
        self.etas[:] = FIRST_ETA
        return True

    def report(self, progress: Progress) -> None:
        """Evaluate the objective for the current parameters, and report it to `progress`.

        The value of the dual objective is reported as a lower bound on the minimum. It is computed from the scores of
        alpha in double precision, because the differences that ascent steps add up have rounding errors.
        """
        layout = self.objective.layout
        G, g = np.zeros_like(self.features.W), np.zeros_like(self.steps.W)
        state = self.a, self.b, self.r, self.q, self.entropies
        n_failed = loops.moments(*self.data, *_layout_of(self.rows), *_layout_of(self.step_rows), *state, G, g)
        # Ascent steps only accept scores for which inference does not fail; otherwise, there would be no bound.
        conjugate = layout.conjugate(-self._join(G, g, -1))
        value = self._entropy - conjugate if n_failed == 0 else -np.inf
        self.features.renew(G, self.pull)
        self.steps.renew(g, self.pull)
        del G, g
        at = self.objective.measure(self.theta)
        progress.passes += 2
        progress.observe(replace(at, lower_bound=max(at.lower_bound, value)), float(self.etas.mean()))


def _scores(objective: Objective, theta: Floats, dtype: DTypeLike) -> tuple[Array, Array]:
    """Return token scores and transition scores for the parameters theta."""
    s, w = _chains(objective).scores(objective.layout, theta, objective.engine.n_jobs)
    return np.array(s, dtype), np.array(w, dtype)


def _near_labels(objective: Objective, dtype: DTypeLike) -> tuple[Array, Array]:
    """Return token scores and transition scores of a distribution near the observed labels.

    Every token has its observed label with probability 1 - delta, and delta maximises the dual objective.
    """
    partition = _chains(objective)
    n_labels, n_nodes = partition.n_labels, partition.chains.n_nodes
    observed = _observed_steps(objective)
    one_hot, nothing = np.zeros((n_nodes, n_labels), dtype), np.zeros(observed.shape, dtype)
    one_hot[np.arange(n_nodes), partition.labels] = 1
    if n_labels == 1:
        return one_hot, nothing
    # For labels, and for both ends of transitions: 1 for the observed label, and -1 / (L - 1) for each other label.
    sums = observed.sum(axis=-2, keepdims=True) + observed.sum(axis=-1, keepdims=True)
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
    one_hot *= np.log1p(-np.exp(log_delta)) - log_delta + np.log(n_labels - 1)
    return one_hot, nothing


def _layout_of(rows: WeightRows) -> tuple[Array, Array, int]:
    """Return what the compiled loops read of `rows`."""
    return rows.pointers, rows.labels, rows.width


def _prior(objective: Objective, terms: Sequence[Term], rows: WeightRows) -> tuple[Array, Floats | None]:
    """Return the arrays `shares` and `mean` of `PulledWeights` for the weights of `terms`."""
    if not terms:
        return np.zeros(0, np.uint8), None
    shares = rows.spread(np.concatenate([_shares(objective.layout, term) for term in terms]))
    if all(term.mean is None for term in terms):
        return shares, None
    means = [np.zeros(term.size) if term.mean is None else term.mean / _scale(term, terms) for term in terms]
    return shares, rows.spread(np.concatenate(means))


def _shares(layout: Layout, term: Term) -> Array:
    """Return 1 / (C lam) for each weight of a term, where lam is its prior precision; integers if all results are 1."""
    if any(other.precision is not None for other in layout.terms):
        return 1.0 / (term.C * term.lam)
    return np.ones(term.size, np.uint8)


def _divide(objective: Objective) -> tuple[list[Term], list[Term]]:
    """Return the terms that score tokens, those with dense features last, and the terms that score transitions."""
    partition, terms = _chains(objective), objective.layout.terms
    states = sorted((term for term in terms if not term.kind.is_step), key=partial(_is_dense, partition))
    return states, [term for term in terms if term.kind.is_step]


def _l1(term: Term) -> float:
    """Return the factor of the L1 penalty of a term, 0 if its penalty is smooth."""
    return term.penalty.absolute(term) or 0.0


def _scale(term: Term, terms: Sequence[Term]) -> float:
    """Return the factor of a term's columns that gives its weights the prior variance of the first of the terms."""
    return float(np.sqrt(term.C / terms[0].C))


def _data(objective: Objective) -> tuple[Any, ...]:
    """Return what the compiled loops read of the data.

    The offsets of sequences come first. Then follow the row of each token in a sparse matrix of features, and the
    arrays of this matrix; then dense features, the row of each token in them, and their factor. After these come the
    labels, the weights of sequences, and three arrays that say which labels are legal. The matrices of transition
    scores are last: whether there is only one per sequence, the offsets of sequences among them, and their features,
    as those of tokens.
    """
    partition, (states, transitions) = _chains(objective), _divide(objective)
    sparse = [term for term in states if not _is_dense(partition, term)]
    return (
        partition.chains.offsets, *_sparse_features(partition, states, sparse), *_dense_features(objective),
        partition.labels, _weights(partition), _legality(objective), *_step_features(partition, transitions),
    )  # fmt: skip


def _sparse_features(
    partition: ChainPartition, terms: Sequence[Term], sparse: Sequence[Term]
) -> tuple[Array, Array, Array, Array]:
    """Return the row of each token in a sparse matrix of the features of some terms, and the arrays of this matrix.

    The features of all terms in `sparse` stand side by side; a term without inputs is a column of ones.

    terms : all terms that score the same kind of cliques.
    """
    every = np.arange(partition.n_nodes)

    def columns(term: Term) -> Inputs:
        if term.name in partition.features:
            features = partition.features[term.name]
            return (features.F if features.index is None else features.F[features.index]) * _scale(term, terms)
        ones = np.zeros((partition.n_nodes, 1))
        ones[term.kind.rows(partition.chains)] = _scale(term, terms)
        return sp.csr_array(ones)

    if len(sparse) == 1 and terms[0].name in partition.features:
        first = partition.features[terms[0].name]
        F, rows = first.F, every if first.index is None else first.index
    else:
        F, rows = sp.hstack(list(map(columns, sparse)), "csr"), every
    return rows, F.indptr, F.indices, F.data


def _step_features(partition: ChainPartition, transitions: Sequence[Term]) -> tuple[Any, ...]:
    """Return whether all steps of a sequence have the same scores, and the features of steps, as `_data` returns them.

    Steps with the same scores have one feature, which is 1.
    """
    tied = not any(term.name in partition.features for term in transitions)
    if not tied:
        return False, partition.chains.offsets, *_sparse_features(partition, transitions, transitions)
    n = partition.chains.n_samples if transitions else 0
    one = sp.csr_array(np.ones((1, 1)))
    offsets = np.arange(partition.chains.n_samples + 1) if transitions else np.zeros_like(partition.chains.offsets)
    return True, offsets, np.zeros(n, np.int64), one.indptr, one.indices, one.data


def _dense_features(objective: Objective) -> tuple[Array, Array, float]:
    """Return an array of dense features, the row of each token in this array, and the factor of all features."""
    partition, (states, _) = _chains(objective), _divide(objective)
    every, dense = np.arange(partition.n_nodes), [term for term in states if _is_dense(partition, term)]
    if not dense:
        return np.zeros((1, 0)), np.zeros(partition.n_nodes, np.int64), 1.0
    features = [partition.features[term.name] for term in dense]
    if len(dense) == 1:
        index = features[0].index
        return np.ascontiguousarray(features[0].F), every if index is None else index, _scale(dense[0], states)
    expanded = [one.F if one.index is None else one.F[one.index] for one in features]
    scales = [_scale(term, states) for term in dense]
    return np.hstack([F * F.dtype.type(scale) for F, scale in zip(expanded, scales, strict=True)]), every, 1.0


def _is_dense(partition: ChainPartition, term: Term) -> bool:
    return term.name in partition.features and not partition.features[term.name].is_sparse


def _chains(objective: Objective) -> ChainPartition:
    return cast(ChainPartition, objective.partitions[0])


def _weights(partition: ChainPartition) -> Floats:
    return np.ones(partition.chains.n_samples) if partition.weights is None else partition.weights


def _observed_steps(objective: Objective) -> Array:
    """Return how often each transition [from, to] is observed, counted with the sequence weights.

    There is one matrix for each token, for the step into the token, if transition scores depend on inputs. Otherwise,
    there is one matrix, which is empty if the model does not score transitions.
    """
    partition, (_, transitions) = _chains(objective), _divide(objective)
    if not transitions:
        return np.zeros((0, 0))
    if not any(term.name in partition.features for term in transitions):
        return partition.observed_steps
    before, into = partition.chains.cliques(EDGE).T
    observed = np.zeros((partition.n_nodes, partition.n_labels, partition.n_labels), partition.dtype)
    observed[into, partition.labels[before], partition.labels[into]] = 1
    return partition.apply_weights(observed)


def _legality(objective: Objective) -> tuple[Array, Array, Array]:
    """Return three boolean arrays that say which first labels, last labels and transitions are legal."""
    partition = _chains(objective)
    if partition.legal is not None:
        return partition.legal.first, partition.legal.last, partition.legal.steps
    every = np.ones(partition.n_labels, bool)
    n_steps = partition.n_labels if _divide(objective)[1] else 0
    return every, every, np.ones((n_steps, n_steps), bool)
