"""Learning the structure of a network: which cliques matter (Remark 11).

At a solution for the templates present, an absent template C has weights 0 and a gradient g_C, and

    P(present) - min P(present and C, or any set of absent templates) <= gap + sum_C |g_C|^2 / (2 lam_C)

exactly, by strong convexity (Lemma 9). A search starts from few templates, lets the best of the absent ones join,
solves again from where it was, and ends with what is left out bounded by a number: no absent clique matters more than
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Fit, Settings, Start, choose_features, objective_of, solve, theta_of
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.solvers.preconditioners import Preconditioning

SEARCH_ENTRIES = 2**10
"""Labelings of a sample's tree up to which candidates are looked at together."""
ADD_SHARE = 0.5
"""Candidates may join together whose expected gain is at least this share of the best one's."""


@dataclass(frozen=True)
class Candidate:
    """An absent template at a solution: its bound |g|^2 / (2 lam) on what it could gain, and what it likely gains.

    The latter is g' M^-1 g / 2 with M the preconditioner's estimate of its curvature, as in Rao's score test. If labels
    are missing, P is not convex and the bound is infinite.
    """

    template: str
    bound: float
    expected_gain: float


@dataclass(frozen=True)
class Round:
    """One step of a search: P with its certified gap, the templates that then joined, and the bound on those left out.

    left_out bounds P minus the optimum with *all* candidates, less `gap`: it is the sum of the absent ones' bounds.
    """

    objective: float
    gap: float
    left_out: float
    joined: tuple[Candidate, ...]


@dataclass(frozen=True)
class Search:
    """How a network grew, and what stayed out.

    lower_bound : P with all candidates is nowhere below this.
    absent : the candidates that stayed out, with their bounds.
    """

    rounds: tuple[Round, ...]
    absent: tuple[Candidate, ...]
    lower_bound: float

    @property
    def left_out(self) -> float:
        """No set of absent templates gains more than this, and the solver's gap, over the fit."""
        return sum(candidate.bound for candidate in self.absent)


@dataclass(frozen=True)
class SearchSettings:
    """Where a search for the templates that matter begins, and when it ends.

    present : the templates to begin with.
    tol : relative bound on all that is left out, at which nothing more is added.
    min_gain : a template joins if it is expected to gain this much of P; None takes half a logarithm of the number of
        samples for each of its weights, as the Bayesian information criterion does.
    """

    present: Sequence[str]
    tol: float = 1e-3
    min_gain: float | None = None


def search(
    problem: Problem, settings: Settings, rule: SearchSettings, start: Start | None = None
) -> tuple[Fit, Search]:
    """Add templates of a problem on graphs to those present, the best first, until no absent one matters."""
    data = _graphs(problem)
    if isinstance(settings.n_components, str):
        raise ValueError("a structure search needs the same basis in each round: give n_components as a number")
    inside, outside = list(rule.present), [name for name in data.cliques if name not in rule.present]
    features = choose_features(problem, settings, start)
    rounds: list[Round] = []
    while True:
        fitted = solve(problem.only(inside), features, settings, start)
        at = fitted.solution.evaluation
        absent = bounds(fitted, problem, features, outside)
        left_out = sum(candidate.bound for candidate in absent)
        joined: list[Candidate] = []
        if left_out > rule.tol * abs(at.value):
            joined = _best(problem, features, absent, rule)
        rounds.append(Round(at.value, fitted.certificate.gap_in_span, left_out, tuple(joined)))
        if not joined:
            # A loss is -log p, and a penalty a square: P is never below zero.
            return fitted, Search(tuple(rounds), tuple(absent), max(at.lower_bound - left_out, 0.0))
        names = {candidate.template for candidate in joined}
        inside += [name for name in outside if name in names]
        outside = [name for name in outside if name not in names]
        start = fitted.end


def bounds(fitted: Fit, problem: Problem, features: Mapping[str, Features], absent: Sequence[str]) -> list[Candidate]:
    """Return what absent templates could gain: an evaluation with their tables at zero, group by group."""
    found: list[Candidate] = []
    present = fitted.layout.cliques
    for group in _groups(_graphs(problem), present, absent):
        objective = objective_of(problem.only([*present, *group]), features, fitted.objective.engine)
        layout, at = objective.layout, objective.evaluate(theta_of(objective.layout, fitted.weights))
        norms = layout.squared_dual_norms(at.gradient)
        scaled = Preconditioning.of(objective).at(at).forward(at.gradient)
        for template in group:
            own = [term.name for term in layout.terms if term.cliques == template]
            gains = [float(np.dot(scaled[layout.slices[name]], scaled[layout.slices[name]])) for name in own]
            bound = 0.5 * sum(norms[name] for name in own) if objective.is_convex else np.inf
            found.append(Candidate(template, bound, 0.5 * sum(gains)))
    return found


def _best(
    problem: Problem, features: Mapping[str, Features], absent: Sequence[Candidate], rule: SearchSettings
) -> list[Candidate]:
    """Return the best candidate, and others near it that share no node with a better one."""
    data = _graphs(problem)
    sizes = dict.fromkeys(data.cliques, 0)
    for term in problem.terms:
        sizes[term.cliques] += term.k_y.rank * (features[term.name].map.n if term.name in features else 1)
    by_weight = 0.5 * float(np.log(max(data.mass, 2.0)))
    least = {name: size * by_weight if rule.min_gain is None else rule.min_gain for name, size in sizes.items()}
    worth = [one for one in absent if one.expected_gain > least[one.template]]
    worth.sort(key=lambda candidate: -candidate.expected_gain)
    joined: list[Candidate] = []
    taken: set[int] = set()
    for candidate in worth:
        nodes = set(np.asarray(data.cliques[candidate.template]).ravel().tolist())
        if candidate.expected_gain >= ADD_SHARE * worth[0].expected_gain and not nodes & taken:
            joined.append(candidate)
            taken |= nodes
    return joined


def _graphs(problem: Problem) -> LabelledGraphs:
    if not isinstance(problem.corpus, LabelledGraphs):
        raise TypeError(f"the data are of type {type(problem.corpus).__name__}: expected LabelledGraphs")
    return problem.corpus


def _groups(data: LabelledGraphs, present: Sequence[str], absent: Sequence[str]) -> Iterator[list[str]]:
    """Yield the absent templates in as few groups as exact inference on the present ones and a group can bear."""
    most = max(SEARCH_ENTRIES, 4 * data.entries(present)) if absent else 0
    group: list[str] = []
    for name in absent:
        if group and data.entries([*present, *group, name]) > most:
            yield group
            group = []
        group.append(name)
    if group:
        yield group
