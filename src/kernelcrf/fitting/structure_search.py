"""Learn the structure of a network: which cliques have weights (Remark 11 of the paper).

A template is a set of cliques that is added as a whole, such as the interaction of two labels. The search starts with
few templates, adds the best of the absent templates, fits the weights again, and repeats this. At the minimum of the
objective P with the present templates, an absent template c has weights 0 and a gradient g_c. By strong convexity
(Lemma 9 of the paper), adding any set of absent templates lowers the minimum by at most

    gap + sum over absent templates c of |g_c|^2 / (2 lam_c),

where gap is the gap of the weights of the present templates, and 1 / lam_c the prior variance of template c. The
result of the search has this bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Fit, Settings, Start, choose_features, objective_of, solve, theta_of
from kernelcrf.fitting.graphs import Networks
from kernelcrf.solvers.preconditioners import Preconditioning

SEARCH_ENTRIES = 2**10
"""Candidates are evaluated together if the clique tree of a sample then has at most this many labellings."""
ADD_SHARE = 0.5
"""Candidates may join in the same round if their expected gain is at least this share of the largest one."""


@dataclass(frozen=True)
class Candidate:
    """An absent template, and how much the objective would decrease if the template were added.

    bound : the largest possible decrease; infinite if labels are missing, because the objective is not convex then.
    expected_gain : an estimate of the decrease, as in Rao's score test; it uses the gradient and an approximation of
        the curvature.
    """

    template: str
    bound: float
    expected_gain: float


@dataclass(frozen=True)
class Round:
    """One round of a search: the objective, its gap, and the templates that were added afterwards.

    gap : the objective at the last point of the fit, minus the lower bound that this point gives; if labels are
        missing, the measure that `Objective.gap` returns.
    left_out : a bound on how much the absent templates could lower the objective. The minimum with all templates is at
        least objective - gap - left_out.
    joined : the templates that were added after this round.
    """

    objective: float
    gap: float
    left_out: float
    joined: tuple[Candidate, ...]


@dataclass(frozen=True)
class Search:
    """The rounds of a structure search, and the templates that were not added.

    absent : the templates that were not added, each with a bound on how much it could lower the objective.
    lower_bound : a lower bound on the minimum of the objective with all templates.
    """

    rounds: tuple[Round, ...]
    absent: tuple[Candidate, ...]
    lower_bound: float

    @property
    def left_out(self) -> float:
        """Return the sum of the bounds of the absent templates; the gap of the last round is not part of this sum."""
        return sum(candidate.bound for candidate in self.absent)


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a structure search.

    present : the templates to start with.
    tol : the search ends if all absent templates together could lower the objective P by at most tol |P|.
    min_gain : a template is added only if it is expected to lower P by more than `min_gain`. None means
        log(n_samples) / 2 per weight of the template, as in the Bayesian information criterion.
    """

    present: Sequence[str]
    tol: float = 1e-3
    min_gain: float | None = None


def search(
    problem: Problem, settings: Settings, rule: SearchSettings, start: Start | None = None
) -> tuple[Fit, Search]:
    """Fit with the templates `rule.present`, then add the best absent templates and fit again, in rounds.

    The search ends when no absent template can lower the objective enough. Return the last fit and the rounds.
    """
    data = _graphs(problem)
    inside, outside = list(rule.present), [name for name in data.templates if name not in rule.present]
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
        # The bounds of absent templates are those of this point, so the best lower bound of the run does not add up.
        gap = at.value - at.lower_bound if fitted.objective.is_convex else fitted.certificate.gap_in_span
        rounds.append(Round(at.value, gap, left_out, tuple(joined)))
        if not joined:
            return fitted, Search(tuple(rounds), tuple(absent), _lower_bound(fitted, absent))
        names = {candidate.template for candidate in joined}
        inside += [name for name in outside if name in names]
        outside = [name for name in outside if name not in names]
        start = fitted.end


def renewed(outcome: Search, fitted: Fit, problem: Problem, settings: Settings) -> Search:
    """Return a search whose bounds are those of a later fit with the same templates, but with another C or kernel.

    problem : the problem with all templates, with the C and the kernel of the later fit.
    """
    features = choose_features(problem, settings, fitted.end)
    absent = bounds(fitted, problem, features, [candidate.template for candidate in outcome.absent])
    return replace(outcome, absent=tuple(absent), lower_bound=_lower_bound(fitted, absent))


def _lower_bound(fitted: Fit, absent: Sequence[Candidate]) -> float:
    """Return a lower bound on the minimum of the objective with all templates."""
    # The loss -log p and the squared penalty are never negative, so P >= 0.
    return max(fitted.solution.evaluation.lower_bound - sum(candidate.bound for candidate in absent), 0.0)


def bounds(fitted: Fit, problem: Problem, features: Mapping[str, Features], absent: Sequence[str]) -> list[Candidate]:
    """Return one Candidate per absent template, which says how much the template could lower the objective of a fit."""
    candidates: list[Candidate] = []
    present = fitted.layout.cliques
    for group in _groups(_graphs(problem), present, absent):
        objective = objective_of(problem.only([*present, *group]), features, fitted.objective.engine)
        layout, at = objective.layout, objective.evaluate(theta_of(objective.layout, fitted.weights))
        norms = layout.squared_dual_norms(at.gradient)
        scaled = Preconditioning.of(objective).at(at).forward(at.gradient)
        for template in group:
            names = [term.name for term in layout.terms if term.cliques == template]
            gains = [float(np.dot(scaled[layout.slices[name]], scaled[layout.slices[name]])) for name in names]
            bound = 0.5 * sum(norms[name] for name in names) if objective.is_convex else np.inf
            candidates.append(Candidate(template, bound, 0.5 * sum(gains)))
    return candidates


def _best(
    problem: Problem, features: Mapping[str, Features], absent: Sequence[Candidate], rule: SearchSettings
) -> list[Candidate]:
    """Return the candidate with the largest expected gain, and other candidates with similar gains.

    No two of them share a node. Return an empty list if no candidate has a large enough gain.
    """
    data = _graphs(problem)
    sizes = dict.fromkeys(data.templates, 0)
    for term in problem.terms:
        sizes[term.cliques] += term.k_y.rank * (features[term.name].map.n if term.name in features else 1)
    by_weight = 0.5 * float(np.log(max(data.mass, 2.0)))
    least = {name: size * by_weight if rule.min_gain is None else rule.min_gain for name, size in sizes.items()}
    worth = [one for one in absent if one.expected_gain > least[one.template]]
    worth.sort(key=lambda candidate: -candidate.expected_gain)
    joined: list[Candidate] = []
    for candidate in worth:
        if candidate.expected_gain < ADD_SHARE * worth[0].expected_gain:
            break
        if not any(data.share_nodes(candidate.template, other.template) for other in joined):
            joined.append(candidate)
    return joined


def _graphs(problem: Problem) -> Networks:
    assert isinstance(problem.corpus, Networks)
    return problem.corpus


def _groups(data: Networks, present: Sequence[str], absent: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of absent templates, so that exact inference with a group and all present templates is cheap."""
    most = max(SEARCH_ENTRIES, 4 * data.entries(present)) if absent else 0
    group: list[str] = []
    for name in absent:
        if group and data.entries([*present, *group, name]) > most:
            yield group
            group = []
        group.append(name)
    if group:
        yield group
