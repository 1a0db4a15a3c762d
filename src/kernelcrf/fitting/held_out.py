"""Choose C on held-out samples, without the user's help: C="auto".

Some of the samples are drawn, and a fifth of them is held out. For each C of a ladder, weights theta_C are fitted to
the others. The chosen C maximises the log-likelihood of the held-out labels,

    l(C) = sum over held-out samples i of omega_i log p(y_i | x_i; theta_C).

The ladder has the powers of 10. It starts at C = 1, and climbs or descends while l increases. Finer steps would gain
little, because l is flat near its maximum.

C is the variance of the prior of the weights, and does not depend on how many samples there are. A few thousand tokens
are therefore enough, and their number bounds the cost of the search. The draw is always the same, so that a fit can be
repeated and resumed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Problem, sharing_inputs
from kernelcrf.fitting.fit import Settings, Start, choose_features, objective_of, solve

FIRST_C = 1.0
MOST_TOKENS, MOST_LANDMARKS = 10_000, 500
LEAST_POWER, MOST_POWER = -3, 4
SEARCH_TOL, SEARCH_ITERATIONS = 1e-2, 200
LEAST_GAIN = 1e-6


def choose_held_out_C(problem: Problem, free: Collection[str], settings: Settings, start: Start | None) -> float:
    """Return the C of the terms named in `free` with which held-out samples are likeliest, or 1 if there are too few.

    start : an earlier fit, whose feature maps are used, or None.
    """
    parts = problem.corpus.hold_out(MOST_TOKENS)
    if parts is None:
        return FIRST_C
    n = settings.n_components
    settings = replace(
        settings,
        n_components=n if isinstance(n, int) else MOST_LANDMARKS,
        tol=max(settings.tol, SEARCH_TOL),
        max_iter=SEARCH_ITERATIONS,
        certify_full=False,
        random_state=0,
        callback=None,
    )
    training, held_out = (replace(problem, corpus=part) for part in parts)
    features = choose_features(training, settings, start)
    ladder = _Ladder(training, held_out, free, settings, features, _transfer(held_out, features, settings))
    return float(10.0 ** ladder.highest())


def _transfer(held_out: Problem, features: dict[str, Features], settings: Settings) -> dict[str, Features]:
    """Return the features of held-out samples by the feature maps of the training samples."""
    found: dict[str, Features] = {}
    for terms in sharing_inputs(held_out.terms):
        own = held_out.corpus.apply_map(terms[0], features[terms[0].name].map, settings.engine)
        found |= {term.name: own for term in terms}
    return found


@dataclass(eq=False)
class _Ladder:
    """The log-likelihood of held-out samples at powers of 10 of C.

    features, own : the features of the training samples and of the held-out samples, by the names of terms.
    found : the log-likelihoods that are known, by powers.
    start : the weights of the last fit, from which the next fit starts.
    """

    training: Problem
    held_out: Problem
    free: Collection[str]
    settings: Settings
    features: dict[str, Features]
    own: dict[str, Features]
    found: dict[int, float] = field(default_factory=dict)
    start: Start | None = None

    def value(self, power: int) -> float:
        """Return the log-likelihood of the held-out samples with C = 10 ** power."""
        if power not in self.found:
            C = 10.0**power
            fitted = solve(self.training.changed(self.free, C=C), self.features, self.settings, self.start)
            self.start = Start(weights=fitted.weights)
            objective = objective_of(self.held_out.changed(self.free, C=C), self.own, self.settings.engine)
            penalty = 0.5 * objective.layout.squared_norm(fitted.theta)
            self.found[power] = penalty - objective.evaluate(fitted.theta).value
        return self.found[power]

    def highest(self) -> int:
        """Return the power with the largest log-likelihood."""
        power = 0
        for step in (1, -1):
            while LEAST_POWER <= power + step <= MOST_POWER and self._improves(power, power + step):
                power += step
            if power:
                break
        return power

    def _improves(self, here: int, there: int) -> bool:
        return self.value(there) > self.value(here) + LEAST_GAIN * abs(self.value(here))
