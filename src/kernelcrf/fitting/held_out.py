"""Choose the prior variance C on held-out samples, for C="auto".

A fifth of the samples is held out. For several values of C, weights theta_C are fitted to the other samples. The chosen
C maximises the log-likelihood of the held-out labels at the best temperature T,

    l(C) = max over T of sum over held-out samples i of omega_i log p(y_i | x_i; theta_C / T),

where omega_i is the weight of sample i, and T is one of five values from 3/4 to 4/3. Dividing the weights by T > 1
makes a model less sure, and T < 1 makes it surer; the likeliest labelling stays the same. With the best T, l depends
more on which labels a model predicts, and less on how sure it is. At T = 1 alone, l would prefer cautious models, even
if they miss most of the rare labels. The bounds of T keep a model that is far too sure from being chosen. The final fit
has no temperature.

C is a power of 10 from 0.001 to 10,000. The search starts at C = 1, and goes up while l increases. If the first step up
does not increase l, the search goes down instead. Finer steps would gain little, because l is flat near its maximum. If
the terms of the score are in several groups, all groups have the same C at first. Then the C of one group after the
other is changed, while l increases.

The samples are sequences, graphs or rows. Long sequences are cut into pieces, and about 20,000 tokens are drawn. All
pieces of a sequence are held out together, unless there are fewer than five sequences: then each piece is a sample. If
there are fewer than 50 samples, each of them is held out once, in five folds with about 4,000 tokens; l then has the
sum over all folds. If there are fewer than five samples, C is 1. The best C depends little on the amount of data,
because C describes the size of the weights, so that the cost of the search can be bounded in this way. The same samples
are drawn every time, so that a fit can be repeated and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Groups, Problem
from kernelcrf.fitting.fit import Settings, Start, choose_features, objective_of, solve

FIRST_C = 1.0
MOST_TOKENS, MOST_LANDMARKS = 20_000, 500
LEAST_POWER, MOST_POWER = -3, 4
SEARCH_TOL, SEARCH_ITERATIONS = 1e-2, 200
LEAST_GAIN = 1e-6
TEMPERATURES = np.geomspace(3 / 4, 4 / 3, 5)


def choose_held_out_C(problem: Problem, groups: Groups, settings: Settings, start: Start | None) -> list[float]:
    """Return the C of each group that maximises l(C), or 1 if there are fewer than five samples.

    groups : names of the terms that share one C, for each C; all other terms keep their C.
    start : an earlier fit, whose feature maps are used, or None.
    """
    parts = problem.corpus.hold_out(MOST_TOKENS)
    if not parts:
        return [FIRST_C] * len(groups)
    settings = replace(
        settings.with_numbers(lambda n: n if isinstance(n, int) else MOST_LANDMARKS),
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
    def likelihood(powers: tuple[int, ...]) -> float:
        Cs = [10.0**power for power in powers]
        return float(np.max(np.sum([fold.likelihoods(groups, Cs, settings) for fold in folds], axis=0)))

    return [10.0**power for power in highest(likelihood, len(groups))]


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

    def likelihoods(self, groups: Groups, Cs: Sequence[float], settings: Settings) -> list[float]:
        """Fit with the prior variances Cs, starting from the last fit; return log-likelihoods, one per temperature."""
        fitted = solve(self.training.with_variances(groups, Cs), self.features, settings, self.latest)
        self.latest = Start(weights=fitted.weights)
        objective = objective_of(self.held_out.with_variances(groups, Cs), self.own, settings.engine)
        tempered = [fitted.theta / temperature for temperature in TEMPERATURES]
        return [objective.layout.penalty(theta) - objective.evaluate(theta).value for theta in tempered]


def highest(likelihood: Callable[[tuple[int, ...]], float], n_groups: int = 1) -> tuple[int, ...]:
    """Return the integer exponents that maximise the log-likelihood, which is a function of one exponent per group.

    The search starts at 0 and goes up while the log-likelihood increases. If the first step up does not increase it,
    the search goes down instead. All exponents change together first, and then one after the other.
    """
    powers = _climb(likelihood, (0,) * n_groups, range(n_groups))
    before = None
    while n_groups > 1 and powers != before:
        before = powers
        for group in range(n_groups):
            powers = _climb(likelihood, powers, [group])
    return powers


def _climb(
    likelihood: Callable[[tuple[int, ...]], float], powers: tuple[int, ...], changed: Collection[int]
) -> tuple[int, ...]:
    """Change the exponents of the groups in `changed` by the same steps, while the log-likelihood increases."""
    start = powers
    for step in (1, -1):
        while True:
            moved = tuple(power + step * (group in changed) for group, power in enumerate(powers))
            if not all(LEAST_POWER <= power <= MOST_POWER for power in moved):
                break
            there, here = likelihood(moved), likelihood(powers)
            if there <= here + LEAST_GAIN * abs(here):
                break
            powers = moved
        if powers != start:
            break
    return powers
