"""Choose the prior variance C on held-out samples, for C="auto".

A fifth of the samples is held out. Of many sequences, about 10,000 tokens are drawn first. For several values of C,
weights theta_C are fitted to the other samples. The chosen C maximises the log-likelihood of the held-out labels,

    l(C) = sum over held-out samples i of omega_i log p(y_i | x_i; theta_C),

where omega_i is the weight of sample i. If there are fewer than 50 samples, each of them is held out once, in five
folds, and l is the sum over all folds. If there are fewer than five samples, C is 1.

The values of C are powers of 10. The search starts at C = 1, and goes to larger or smaller powers while l increases.
Finer steps would gain little, because l is flat near its maximum.

C is the variance of the prior of the weights, and does not depend on how many samples there are. A few thousand tokens
are therefore enough, and the cost of the search is bounded. The same samples are drawn every time, so that a fit can be
repeated and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache

from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, Start, choose_features, objective_of, solve

FIRST_C = 1.0
MOST_TOKENS, MOST_LANDMARKS = 10_000, 500
LEAST_POWER, MOST_POWER = -3, 4
SEARCH_TOL, SEARCH_ITERATIONS = 1e-2, 200
LEAST_GAIN = 1e-6


def choose_held_out_C(problem: Problem, free: Collection[str], settings: Settings, start: Start | None) -> float:
    """Return the C with which held-out samples are likeliest, or 1 if there are fewer than five samples.

    free : names of the terms that share this C; all other terms keep their C.
    start : an earlier fit, whose feature maps are used, or None.
    """
    parts = problem.corpus.hold_out(MOST_TOKENS)
    if not parts:
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
    folds = list[_Fold]()
    for fold in parts:
        training = problem.on(fold[0])
        held_out = replace(training, corpus=fold[1])
        features = choose_features(training, settings, start)
        start = Start({name: one.map for name, one in features.items()})
        folds.append(_Fold(training, held_out, features, choose_features(held_out, settings, start)))

    @cache
    def likelihood(power: int) -> float:
        return sum(fold.likelihood(free, 10.0**power, settings) for fold in folds)

    return float(10.0 ** highest(likelihood))


@dataclass(eq=False)
class _Fold:
    """Samples for training and held-out samples, with their features, and the weights of the last fit.

    features : the features of the samples for training.
    own : the features of the held-out samples.
    latest : the weights of the last fit, or None before the first fit.
    """

    training: Problem
    held_out: Problem
    features: dict[str, Features]
    own: dict[str, Features]
    latest: Start | None = None

    def likelihood(self, free: Collection[str], C: float, settings: Settings) -> float:
        """Fit with the prior variance C, starting from the last fit; return the held-out log-likelihood."""
        fitted = solve(self.training.changed(free, C=C), self.features, settings, self.latest)
        self.latest = Start(weights=fitted.weights)
        objective = objective_of(self.held_out.changed(free, C=C), self.own, settings.engine)
        return objective.layout.penalty(fitted.theta) - objective.evaluate(fitted.theta).value


def highest(likelihood: Callable[[int], float]) -> int:
    """Return the integer exponent that maximises the log-likelihood, which is a function of the exponent.

    The search starts at 0 and goes up while the log-likelihood increases. If the first step up does not increase it,
    the search goes down instead.
    """
    power = 0
    for step in (1, -1):
        while LEAST_POWER <= power + step <= MOST_POWER:
            there, here = likelihood(power + step), likelihood(power)
            if there <= here + LEAST_GAIN * abs(here):
                break
            power += step
        if power:
            break
    return power
