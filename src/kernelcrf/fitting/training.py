"""Train a model with the options of an estimator.

The options can request a checkpoint, the choice of C and of the kernel, Laplace's approximation, or a structure search.
If an option is mathematically impossible, an error gives the reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from sklearn.exceptions import ConvergenceWarning

from kernelcrf.fitting.checkpoints import Checkpoint
from kernelcrf.fitting.corpus import Groups, Problem
from kernelcrf.fitting.evidence import choose_C, choose_kernel, variances
from kernelcrf.fitting.fit import Fit, Settings, Start, fit, with_gap_full
from kernelcrf.fitting.held_out import Comparison, HeldOutSearch, search_held_out
from kernelcrf.fitting.laplace import N_DRAWS, Laplace, laplace
from kernelcrf.fitting.structure_search import Search, SearchSettings, renewed, search
from kernelcrf.validation import stacklevel_of_user

# The value of the parameter `laplace` for a posterior of independent weights.
DIAGONAL = "diagonal"


@dataclass(frozen=True, eq=False)
class Plan:
    """Options of training besides the settings of a single fit.

    by_evidence : for each C that is chosen by the evidence, the names of the terms that share it.
    by_held_out : for each C that is chosen on held-out samples before the fit, the names of the terms that share it.
    comparison : the kernels and the metric that are compared on held-out samples, besides values of C.
    kernel_terms : names of the terms that share one kernel, if its hyperparameters are chosen by the evidence; else
        empty.
    n_restarts : the number of searches for hyperparameters in addition to the first search.
    laplace : whether the posterior of the weights is kept; "diagonal" for a posterior of independent weights.
    checkpoint : the file in which the fit is saved while it runs, or None.
    structure : settings of a structure search, or None for no search.
    """

    by_evidence: Groups = ()
    by_held_out: Groups = ()
    comparison: Comparison = field(default_factory=Comparison)
    kernel_terms: Collection[str] = ()
    n_restarts: int = 0
    laplace: bool | str = False
    checkpoint: Checkpoint | None = None
    structure: SearchSettings | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of training.

    laplace : the evidence and, if it was requested, the posterior of the weights; None if neither was computed.
    search : the structure search, or None.
    held_out : the search for C, and for the kernel, on held-out samples, or None.
    """

    fit: Fit
    laplace: Laplace | None
    search: Search | None
    held_out: HeldOutSearch | None = None


def train(problem: Problem, settings: Settings, plan: Plan, start: Start | None = None) -> Trained:
    """Fit a problem with the options of `plan`; if `start` is given, start from its feature maps and weights."""
    outcome: Search | None = None
    held_out: HeldOutSearch | None = None
    if plan.by_held_out:
        simple = problem if plan.structure is None else problem.only(plan.structure.present)
        held_out = search_held_out(simple, plan.by_held_out, settings, start, plan.comparison)
        if plan.comparison.choice is not None and held_out.kernel is not None:
            problem = plan.comparison.choice.problem(problem, held_out.kernel)
        problem = problem.with_variances(plan.by_held_out, held_out.Cs)
    if plan.structure is not None:
        fitted, outcome = search(problem, settings, plan.structure, start)
    elif plan.checkpoint is not None:
        fitted = plan.checkpoint.resume(problem, settings, start)
    else:
        fitted = fit(problem, settings, start)
    around = None
    if plan.by_evidence or plan.kernel_terms:
        fitted, around = _choose_by_evidence(fitted, settings, plan)
        if outcome is not None:
            outcome = renewed(outcome, fitted, _with_choices(problem, fitted, plan), settings)
    elif not plan.laplace:
        return Trained(fitted, None, outcome, held_out)
    if around is None or plan.laplace:
        n_draws = N_DRAWS if plan.laplace else N_DRAWS // 4
        diagonal = plan.laplace == DIAGONAL
        around = laplace(fitted.objective, fitted.solution.evaluation, n_draws=n_draws, diagonal=diagonal)
    return Trained(fitted, around if plan.laplace else replace(around, posterior=None), outcome, held_out)


def _with_choices(problem: Problem, fitted: Fit, plan: Plan) -> Problem:
    """Return `problem` with each C and the kernel that the evidence has chosen in `fitted`.

    Terms of `problem` that `fitted` leaves out get the same values as the terms with which they share C or the kernel.
    """
    chosen = {term.name: term for term in fitted.problem.terms}
    for names in plan.by_evidence:
        for name in chosen.keys() & set(names):
            problem = problem.changed(names, C=chosen[name].C)
    for name in chosen.keys() & set(plan.kernel_terms):
        problem = problem.changed(plan.kernel_terms, kernel=chosen[name].kernel)
    return problem


def _choose_by_evidence(fitted: Fit, settings: Settings, plan: Plan) -> tuple[Fit, Laplace | None]:
    """Refit with the C and the kernel that maximise the evidence; warn if the search does not converge.

    Return a pair: the new fit and its Laplace approximation. The approximation is None if it is not known yet.
    """
    present = {term.name for term in fitted.layout.terms}
    groups = [present & set(group) for group in plan.by_evidence if present & set(group)]
    names = present & set(plan.kernel_terms)
    around = None
    if names:
        fitted, converged = choose_kernel(fitted, names, groups, settings, plan.n_restarts)
    else:
        fitted, around = choose_C(fitted, groups, settings)
        converged = around is not None
    if not converged:
        ended = [f"C={C:.3g}" for C in variances(fitted, groups)]
        ended += [str(term.kernel) for term in fitted.layout.terms if term.name in names][:1]
        warnings.warn(
            f"maximising the evidence did not converge: it ended at {' and '.join(ended)}; widen the bounds of the "
            "kernel's hyperparameters, or pass C as a number",
            ConvergenceWarning,
            stacklevel=stacklevel_of_user(),
        )
    if settings.adds_landmarks:
        # How many landmarks `tol` needs depends on C and the kernel.
        return fit(fitted.problem, settings), None
    return with_gap_full(fitted) if settings.certify_full else fitted, around
