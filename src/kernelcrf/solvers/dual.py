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
thread, and at least one term must have sparse features.

For this theta, the gap P(theta) - D(alpha) is a sum over the sequences of

    gap_i = omega_i KL(alpha_i || p(. | x_i; theta)).

An ascent step of size eta increases D by about eta gap_i, so that a pass over all sequences estimates their gaps. If C
is large, a few sequences soon have most of the gap. Each pass is therefore followed by further visits of the sequences
with the largest gaps, which measure the gap of each sequence before its step.

If lam is small, many passes are needed. The ascent therefore solves easier problems, with the objective
P(theta) + rho lam/2 |theta - z|^2: a round takes a few passes for such a problem, and then moves its centre z. The
module `pulled_weights` has the formulas. D and its bound on the minimum of P do not depend on rho and z.

With an L1 penalty l1 |theta|_1, theta_k = soft(v_k, l1) / lam_k, where v_k is the sum above without the division, and
soft(v, a) = sign(v) max(|v| - a, 0). D has the same formula.

If an earlier model determines the prior, theta_k has the prior mean mu_k as a further summand, each weight has its own
lam, and D has the further term sum_k lam_k/2 |mu_k|^2.

The scores and probabilities of alpha may be stored in single precision. The bound is computed from these scores in
double precision, so that it remains a bound. If C is large and some sequences need tiny steps, rounding can hide these
steps and their gaps. The gap is then much larger than its estimate, and the ascent goes on in double precision.

L-BFGS takes over at the current theta if the gap shrinks so slowly that many more rounds would be needed. It is used
from the beginning if the messages of inference would underflow.

At the start, every token has its observed label with probability 1 - delta, and all other labels have equal
probabilities; delta maximises D. If a starting point theta is given and D is larger there, its distribution is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.terms import Term
from kernelcrf.solvers.ascent import Ascent
from kernelcrf.solvers.lbfgs import LBFGS
from kernelcrf.solvers.loop import OPTIMAL, Progress
from kernelcrf.validation import either, whole

# A round of the proximal problem has at most VISITS passes, and ends as soon as its gap is at most NEARLY times the gap
# of P. Rounds begin as soon as a pass, but not one of the first, leaves more than the share FAST of the gap.
VISITS, NEARLY, FAST = 3, 0.1, 0.4
# L-BFGS takes over if more than this number of further rounds is expected after two rounds in a row, judged by the last
# TRIAL rounds.
TRIAL, MOST_EXPECTED = 8, 50
# To show progress, P is evaluated after FIRST_REPORT passes, and when the passes have become LATER times as many.
# It is also evaluated as soon as P - D is expected to be small enough: this gap is smaller than it was during the pass,
# by a factor that is measured at each evaluation.
FIRST_REPORT, LATER, FIRST_SHARE = 3, 6, 0.5
# Single precision is too coarse if a gap that should be within the tolerance is more than HIDDEN times its estimate.
HIDDEN = 3.0


@dataclass(frozen=True)
class Dual:
    """Solver for sparse features, which maximises the dual objective by exponentiated gradients.

    Terms with dense features may stand beside those with sparse features.

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

        It needs sequences in this process, one label per token, stored features, sparse ones of at least one term that
        scores tokens, and label_kernel="delta". Features of transitions must be sparse. With an L1 penalty, all terms
        that score tokens must have the same C, and so must all that score transitions. Weights must be independent
        under the prior.
        """
        if not objective.is_convex or len(objective.partitions) != 1 or objective.layout.joint is not None:
            return False
        partition, terms = objective.partitions[0], objective.layout.terms
        if not isinstance(partition, ChainPartition) or partition.base is not None or not partition.counts_each_label:
            return False
        has_edges, first = partition.has_edges(objective.layout), terms[0]
        states, transitions = ([term for term in terms if term.kind.is_step == is_step] for is_step in (False, True))
        if (len(transitions) > 0) != has_edges or not first.kind.is_token:
            return False
        if not has_edges and partition.chains.lengths.max(initial=0) > 1:
            return False
        if objective.layout.absolute is None or not all(_have_one_scale(alike) for alike in (states, transitions)):
            return False
        with_inputs = [term for term in terms if term.name in partition.features]
        if not all(partition.features[term.name].is_stored for term in with_inputs):
            return False
        sparse = {term.name for term in with_inputs if partition.features[term.name].is_sparse}
        if not all(term.kind.is_token or (term.kind.is_step and term.name in sparse) for term in with_inputs):
            return False
        # Without sparse features, L-BFGS is faster: its preconditioner is good, and its products are large.
        has_sparse = any(term.name in sparse for term in states)
        return has_sparse and all(term.k_y.is_identity for term in terms)

    def check(self, objective: Objective) -> None:
        """Raise ValueError if this solver cannot minimise the objective."""
        if not self.suits(objective):
            raise ValueError(
                "solver='dual' cannot minimise this objective: expected kernel='linear' with sparse inputs or feature "
                "dicts for at least one input of tokens and for all inputs of steps, stored features, one label per "
                "token, one weight per sequence, no base_scores and label_kernel='delta'. Otherwise use solver='lbfgs'"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Pass over the sequences until the gap between the objective and the dual objective is small enough.

        Return the status. The objective is evaluated only after a few passes, and when the gap is probably within the
        tolerance.
        """
        ascent = Ascent.of(progress.objective, start, progress.tol)
        if ascent is None or not np.isfinite(ascent.value):
            return LBFGS().solve(start, progress)
        rng, gaps, share = np.random.default_rng(self.seed), list[float](), FIRST_SHARE
        k, visits, next_report = 0, 0, FIRST_REPORT
        try:
            while not progress.stop.is_reached(k, progress.seconds):
                k, visits = k + 1, visits + 1
                progress.passes += ascent.climb(rng, progress.tol)
                gap = ascent.gap
                allowed = progress.tol * abs(ascent.value + gap)
                if (is_ready := share * gap <= allowed) or k >= next_report:
                    ascent.report(progress)
                    if progress.solved:
                        return OPTIMAL
                    share, next_report = progress.history[-1].gap / max(gap, np.finfo(np.float64).tiny), LATER * k
                    if is_ready and share > HIDDEN and ascent.refine():
                        share = FIRST_SHARE
                if ascent.pull == 0:
                    is_over = k >= VISITS and gap > FAST * gaps[-1]
                else:
                    is_over = visits == VISITS or ascent.inner_gap <= NEARLY * gap
                if is_over or ascent.pull == 0:
                    gaps.append(gap)
                if _is_slow(gaps, allowed):
                    break
                if is_over:
                    ascent.move_centre()
                    visits = 0
            else:
                ascent.report(progress)
                return OPTIMAL if progress.solved else progress.stop.name
        except KeyboardInterrupt:
            ascent.report(progress)
            raise
        return LBFGS().solve(ascent.theta, progress)


def _have_one_scale(terms: Sequence[Term]) -> bool:
    """Return whether the terms have no L1 penalty, or all have the same one and the same C."""
    l1 = {term.penalty.absolute(term) or 0.0 for term in terms}
    return len(l1) <= 1 and (l1 <= {0.0} or len({term.C for term in terms}) == 1)


def _is_slow(gaps: list[float], allowed: float) -> bool:
    """Return whether two estimates of the remaining rounds, after the last two rounds, are both too high.

    A single estimate can be wrong: additional steps for some sequences can increase the gaps of the
    others for one round, but not for every round.
    """
    return min(_expected_rounds(gaps, allowed), _expected_rounds(gaps[:-1], allowed)) > MOST_EXPECTED


def _expected_rounds(gaps: list[float], allowed: float) -> float:
    """Estimate how many more rounds are needed until the gap is at most `allowed`.

    gaps : the gap after each round so far. The estimate uses the mean rate at which the gap shrank since its largest
        value in the last TRIAL rounds. Earlier values are not used, because the gap can grow in the first rounds.
    """
    if len(gaps) <= TRIAL or gaps[-1] <= allowed:
        return 0.0
    latest = np.array(gaps[-1 - TRIAL :])
    largest = int(latest.argmax())
    if largest == TRIAL:
        return np.inf
    shrinkage = np.log(latest[largest] / latest[-1]) / (TRIAL - largest)
    return float(np.log(latest[-1] / allowed) / shrinkage)
