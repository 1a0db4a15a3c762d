"""Choose landmarks, find the weights, and certify the result.

Terms with the same inputs and the same kernel share their landmarks. With n_components="auto", the fit starts with few
landmarks. It then computes `gap_full`, a bound on how far the objective P is from its minimum over all functions of the
kernels, and the gradient outside the span of the landmarks (the module `corpus` has the formulas). The inputs with the
largest gradients become landmarks (Corollary 10 of the paper), and the weights are improved from their last values.
This is repeated until gap_full <= tol |P|. If all inputs become landmarks and the gap is still larger, the fit ends
with a status that is not "optimal".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.basis.features import FeatureMap, Features
from kernelcrf.basis.landmarks import AUTO, STORED, Landmarks
from kernelcrf.basis.pivots import Gradient
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem, WholeGap, input_of, sharing_inputs
from kernelcrf.objective import Objective
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term, input_name
from kernelcrf.solvers import Record, Restarts, Solution, Solver, find_solver
from kernelcrf.solvers.loop import INTERRUPTED, OPTIMAL, STALLED, STATIONARY, minimise
from kernelcrf.solvers.restarts import of_a_run
from kernelcrf.solvers.starting_points import FAR, first_point
from kernelcrf.solvers.stopping import StoppingRule

Callback = Callable[[Sequence[Record]], None] | None
Keep = Callable[["Start"], None] | None

FIRST_ATOMS = 64
IN_SPAN_SHARE = 0.25


@dataclass(frozen=True)
class Settings:
    """Settings of the choice of landmarks and of the solver.

    landmarks : the number of landmarks of each kernel, the rule that chooses them, and whether features are stored. The
        number None uses every distinct input; "auto" adds landmarks until the gap is at most `tol`.
    of_inputs : for inputs that have a name, a dict from the name to the same options.
    tol : relative certified gap to reach. It is the gap to the optimum in the span of the landmarks or, for
        n_components="auto", to the optimum among all functions of the kernels.
    certify_full : whether to compute gap_full, which needs the whole kernel matrix. n_components="auto" always
        computes it.
    random_state : seed of the choice of landmarks, and of the first weights if labels are missing.
    solver : the solver, by name or as an object. `Restarts` is an object that requests additional runs if labels are
        missing.
    engine : the threads of this process.
    callback : a function that is called at every iteration with the history so far, or None.
    """

    landmarks: Landmarks = Landmarks(None)  # noqa: RUF009  -- a frozen value
    of_inputs: Mapping[str, Landmarks] = field(default_factory=dict)
    solver: str | Solver | Restarts = "auto"
    tol: float = 1e-4
    max_iter: int | StoppingRule = 1000
    certify_full: bool = False
    random_state: Any = None
    engine: LocalEngine = field(default_factory=LocalEngine)
    callback: Callback = None

    def landmarks_of(self, term: Term) -> Landmarks:
        """Return the number of landmarks of a term, the rule that chooses them, and whether features are stored."""
        return self.of_inputs.get(input_name(term.name) or "", self.landmarks)

    def with_numbers(self, change: Callable[[int | str | None], int | str | None]) -> Settings:
        """Return settings in which each number of landmarks is replaced by the result of `change`."""
        of_inputs = {name: replace(one, n=change(one.n)) for name, one in self.of_inputs.items()}
        return replace(self, landmarks=replace(self.landmarks, n=change(self.landmarks.n)), of_inputs=of_inputs)

    @property
    def adds_landmarks(self) -> bool:
        """Return whether landmarks are added until the gap is at most `tol`."""
        return "auto" in (self.landmarks.n, *(one.n for one in self.of_inputs.values()))


@dataclass(frozen=True, eq=False)
class Start:
    """The starting point of a fit: the feature maps and weights of an earlier fit, in dicts with one entry per term.

    Landmarks are chosen for terms without an earlier map. Terms without earlier weights start at zero.

    history : the records of all iterations of the earlier fit, if the new fit continues that fit; else empty.
    extend : whether landmarks are added to those of the earlier maps, up to the number that the settings contain.
    """

    maps: Mapping[str, FeatureMap] = field(default_factory=dict)
    weights: Mapping[str, Floats] = field(default_factory=dict)
    history: tuple[Record, ...] = ()
    extend: bool = False


@dataclass(frozen=True, eq=False)
class Fit:
    """A problem with its solution and certificate.

    features : a dict from names of terms to their features, for terms with inputs. Terms that share landmarks share one
        object.
    objective : the function that was minimised, which contains the data.
    """

    problem: Problem
    features: Mapping[str, Features]
    objective: Objective
    solution: Solution
    certificate: Certificate

    @property
    def layout(self) -> Layout:
        """Return the layout of the vector `theta`: the terms, and the slice of each term."""
        return self.objective.layout

    @property
    def theta(self) -> Floats:
        """Return all weights as one vector."""
        return self.solution.theta

    @property
    def weights(self) -> dict[str, Floats]:
        """Return a dict from names of terms to their weights, as arrays with one row per feature."""
        return self.layout.split(self.theta)

    @property
    def maps(self) -> dict[str, FeatureMap]:
        """Return a dict from names of terms to their feature maps, for terms that have inputs."""
        return {name: of_term.map for name, of_term in self.features.items()}

    @property
    def end(self) -> Start:
        """Return the feature maps and weights of this fit, from which a later fit can start."""
        return Start(self.maps, self.weights)


def fit(problem: Problem, settings: Settings, start: Start | None = None, keep: Keep = None) -> Fit:
    """Choose landmarks and find the weights of all terms of a problem.

    start : feature maps and weights of an earlier fit to start from, or None.
    keep : a function that is called at every iteration with the current feature maps, weights and history.
    """
    if settings.adds_landmarks:
        return _grow(problem, settings, start)
    return solve(problem, choose_features(problem, settings, start), settings, start, keep)


def choose_features(problem: Problem, settings: Settings, start: Start | None = None) -> dict[str, Features]:
    """Return the features of the terms that have inputs; choose landmarks for terms that have no map in `start`."""
    features: dict[str, Features] = {}
    corpus, maps = problem.corpus, {} if start is None else start.maps
    stored = _stored(problem, settings, {name: one.n for name, one in maps.items()})
    for terms in sharing_inputs(problem.terms):
        landmarks, is_stored = settings.landmarks_of(terms[0]), stored[terms[0].name]
        n, rule = landmarks.n, landmarks.pivots
        earlier = next((maps[term.name] for term in terms if term.name in maps), None)
        if earlier is None:
            if isinstance(n, str):
                raise ValueError(
                    f"n_components={n!r}: expected the number of landmarks, None for all inputs, or 'auto'"
                )
            of_group = corpus.features(
                terms[0], n, rule, settings.random_state, settings.engine, None, stored=is_stored
            )
        else:
            of_group = corpus.apply_map(terms[0], earlier, settings.engine, stored=is_stored)
            if start is not None and start.extend and of_group.basis is not None:
                most = of_group.map.n + corpus.n_inputs(terms[0])
                wanted = most if n is None else of_group.map.n if isinstance(n, str) else n
                if wanted > of_group.map.n:
                    chosen, basis = "random" if n is None else rule, of_group.basis
                    of_group = corpus.features(
                        terms[0], wanted, chosen, settings.random_state, settings.engine, basis, stored=is_stored
                    )
        features |= {term.name: of_group for term in terms}
    return features


def _stored(problem: Problem, settings: Settings, known: Mapping[str, int]) -> dict[str, bool]:
    """Return a dict from the first term of each group with the same inputs to a flag: whether its features are stored.

    Unless the settings decide, the features of all groups are stored if there is room for all of them.

    known : a dict from names of terms to their numbers of landmarks, if these are known already.
    """
    corpus, total, asked = problem.corpus, 0, dict[str, str]()
    for terms in sharing_inputs(problem.terms):
        name, landmarks = terms[0].name, settings.landmarks_of(terms[0])
        asked[name] = STORED if input_of(terms[0])[1].is_linear else landmarks.features
        if asked[name] == AUTO:
            n_inputs = corpus.n_inputs(terms[0])
            n = max((known[term.name] for term in terms if term.name in known), default=0)
            total += n_inputs * (n or (landmarks.n if isinstance(landmarks.n, int) else n_inputs))
    has_room = AUTO not in asked.values() or corpus.has_room(total)
    return {name: value == STORED or (value == AUTO and has_room) for name, value in asked.items()}


def solve(
    problem: Problem,
    features: Mapping[str, Features],
    settings: Settings,
    start: Start | None = None,
    keep: Keep = None,
    known: Objective | None = None,
) -> Fit:
    """Find the weights of a problem with given features, starting from the weights in `start` or from zero.

    known : the objective of the same problem with other prior variances, which saves preparing the data again.
    """
    features = {term.name: features[term.name] for term in problem.terms if term.input is not None}
    objective = objective_of(problem, features, settings.engine, known)
    layout, maps = objective.layout, {name: of_term.map for name, of_term in features.items()}
    theta = first_point(objective, settings.random_state) if start is None else theta_of(layout, start.weights)

    solver, n_restarts = of_a_run(settings.solver)

    def keep_point(theta: Floats, history: Sequence[Record]) -> None:
        assert keep is not None
        keep(Start(maps, layout.split(theta), tuple(history)))

    def run(theta: Floats) -> Solution:
        return minimise(
            objective,
            find_solver(solver, objective),
            theta,
            tol=settings.tol,
            max_iter=settings.max_iter,
            callback=settings.callback,
            keep=None if keep is None else keep_point,
            earlier=() if start is None else start.history,
        )

    solution = run(theta)
    # A convex objective has one optimum, and a given start is kept.
    for number in range(n_restarts if start is None and not objective.is_convex else 0):
        if solution.status == INTERRUPTED:
            break
        seed = np.random.default_rng([settings.random_state or 0, number]).integers(np.iinfo(np.int32).max)
        theta = first_point(objective, int(seed), FAR)
        solution = min(solution, run(theta), key=lambda one: one.evaluation.value)
    fitted = Fit(problem, features, objective, solution, solution.certificate)
    return with_gap_full(fitted) if settings.certify_full else fitted


def with_gap_full(fitted: Fit) -> Fit:
    """Return the fit with `gap_full` in its certificate; if the objective is not convex, return the fit unchanged."""
    if not fitted.objective.is_convex:
        return fitted
    at = fitted.objective.complete(fitted.solution.evaluation)
    gap = fitted.problem.corpus.gap_full(fitted.objective, at, fitted.features)
    return replace(fitted, certificate=replace(fitted.certificate, gap_full=gap.value))


def objective_of(
    problem: Problem, features: Mapping[str, Features], engine: LocalEngine, known: Objective | None = None
) -> Objective:
    """Return the objective function of a problem with given features.

    known : the objective of the same problem with other prior variances, or None.
    """
    layout = Layout.of(problem.terms, {name: of_term.map.n for name, of_term in features.items()})
    if known is not None:
        return replace(known, layout=layout)
    return Objective(layout, problem.corpus.partitions(layout.terms, features), engine)


def theta_of(layout: Layout, weights: Mapping[str, Floats]) -> Floats:
    """Return the weights of all terms as one vector; terms that are not in `weights` get zeros, or their prior mean."""
    for term in layout.terms:
        if term.name in weights and weights[term.name].size != term.size:
            raise ValueError(
                f"the earlier fit has {weights[term.name].size} weights of term {term.name!r}, but this fit needs "
                f"{term.size}: start from a fit with the same labels and landmarks"
            )
    first = {term.name: np.zeros(term.size) if term.mean is None else term.mean for term in layout.terms}
    return layout.join(first | {term.name: weights[term.name] for term in layout.terms if term.name in weights})


def _grow(problem: Problem, settings: Settings, start: Start | None) -> Fit:
    kernels = [
        terms
        for terms in sharing_inputs(problem.terms)
        if settings.landmarks_of(terms[0]).n == "auto" and not input_of(terms[0])[1].is_linear
    ]
    groups, corpus = {terms[0].name: terms for terms in kernels}, problem.corpus
    earlier = {} if start is None or not start.extend else {name: one.n for name, one in start.maps.items()}
    most = {name: corpus.n_inputs(terms[0]) + earlier.get(name, 0) for name, terms in groups.items()}
    features = choose_features(problem, settings.with_numbers(lambda n: FIRST_ATOMS if n == "auto" else n), start)
    inner = replace(settings, tol=IN_SPAN_SHARE * settings.tol, certify_full=False)
    while True:
        fitted = solve(problem, features, inner, start)
        at = fitted.objective.complete(fitted.solution.evaluation)
        gap = corpus.gap_full(fitted.objective, at, features)
        if not gap.shares and fitted.objective.is_convex:
            # The span is the whole space, so that lower bounds found at earlier points are valid too.
            gap = replace(gap, value=fitted.certificate.gap_in_span)
        reached = max(gap.value, 0.0) + fitted.objective.noise(at) <= settings.tol * abs(at.value)
        sizes = {name: features[name].map.n for name in groups}
        growing = [name for name in groups if sizes[name] < most[name] and _matters(gap, name)]
        if reached or not growing or fitted.solution.status == INTERRUPTED:
            return replace(fitted, certificate=_in_whole_space(fitted, gap.value, reached))
        for name in growing:
            basis, rule = features[name].basis, Gradient(gap.scores[name])
            n = min(2 * sizes[name], most[name])
            stored = _stored(problem, settings, {name: n})[name]
            of_group = corpus.features(
                groups[name][0], n, rule, settings.random_state, settings.engine, basis, stored=stored
            )
            features |= {other.name: of_group for other in groups[name]}
        if all(features[name].map.n == sizes[name] for name in growing):
            return replace(fitted, certificate=_in_whole_space(fitted, gap.value, reached))
        # The weights of new features start at zero.
        grown = {term.name: features[term.name].map.n for name in growing for term in groups[name]}
        start = Start(weights={n: _add_rows(W, grown.get(n)) for n, W in fitted.weights.items()})


def _add_rows(W: Floats, n: int | None) -> Floats:
    """Return the weights W with rows of zeros at the end, so that they have n rows; if n is None, return W itself."""
    return W if n is None else np.pad(W, ((0, n - len(W)), (0, 0)))


def _matters(gap: WholeGap, name: str) -> bool:
    """Return whether the group of terms called `name` should get more landmarks.

    This is the case if the share of the group in the gap is at least half of the mean share of all groups.
    """
    if name not in gap.scores or not gap.scores[name].any():
        return False
    return 2 * len(gap.shares) * gap.shares[name] >= sum(gap.shares.values())


def _in_whole_space(fitted: Fit, gap: float, reached: bool) -> Certificate:
    """Return the certificate of a fit with n_components="auto".

    gap : the gap of the fit to the optimum among all functions of the kernels.
    reached : whether this gap is at most `tol` times the objective.
    """
    certificate, is_convex = fitted.certificate, fitted.objective.is_convex
    status = certificate.status
    if reached and status != INTERRUPTED:
        status = OPTIMAL if is_convex else STATIONARY
    elif status in (OPTIMAL, STATIONARY):
        status = STALLED
    return replace(certificate, status=status, gap_full=gap if is_convex else None)
