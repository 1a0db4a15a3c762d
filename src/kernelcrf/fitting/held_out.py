"""Choose the prior variance C on held-out samples, for C="auto", and with it the kernel, for kernel="auto".

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

Kernels are compared in the same way, simplest first: linear, rbf with gamma="scale", and rbf with a quarter and with
four times this gamma. A chain has constant scores of labels only beside the linear kernel. For the first two kernels,
the search for C starts at 1. For the other kernels, it starts at the best C of rbf, and stops there if the kernel is
clearly worse than rbf. Let l_b be the part of l that is due to block b of the held-out samples. The standard error of
the difference between two models with B blocks is the standard deviation of the B differences of l_b, times the square
root of B. The chosen kernel is the simplest one whose l is at most one standard error below the largest l. In
the number of rightly predicted labels, it must also be at most one standard error below the kernel with the largest l.
Where labels last long, l depends mostly on the few tokens at which they change, so that the number of right labels can
show a difference that l does not. (Models of segments are compared by l alone.) If there are fewer than 20 samples, C
is chosen in this way too: the smallest C whose l is at most one standard error below that of the best C.

If a metric of labels is given, such as the F1 score of spans, it takes the place of l. The metric compares the
likeliest labels of all held-out samples with the true ones. Instead of the likeliest labels, it can compare those that
a stream gives at a lag. All powers of 10 from 0.01 to 1,000 are then tried as C, and the first of the best models is
chosen.

The samples are sequences, graphs or rows. Long sequences are cut into pieces, and about 20,000 tokens are drawn, or
12,000 if kernels are compared. All pieces of a sequence are held out together, and so are all sequences of a group that
the user defines. If there are fewer than five sequences without groups, a fifth of each sequence is held out at a time.
It consists of neighbouring tokens, because a token between training tokens would be too easy to predict. If there are
fewer than 50 samples or groups, each of them is held out once, in five folds with about 4,000 tokens, or 8,000 if
kernels are compared; l is then a sum over all folds. If there are too few samples for folds, C is 1, and the kernel is
rbf. Drawing only some of the data is enough, because C describes the size of the weights, so that the best C depends
little on the amount of data. The same samples are drawn every time, so that a fit can be repeated and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints, Labels, Places
from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import Corpus, Groups, Problem
from kernelcrf.fitting.fit import Settings, Start, choose_features, objective_of, solve
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.partition import RowPartition

FIRST_C = 1.0
MOST_TOKENS, MOST_LANDMARKS, FEW_TOKENS = 20_000, 500, 4_000
COMPARED_TOKENS, COMPARED_LANDMARKS, FEW_COMPARED_TOKENS = 12_000, 150, 8_000
FEW_SAMPLES = 20
LEAST_POWER, MOST_POWER = -3, 4
SCORED_POWERS = range(-2, 4)
SEARCH_TOL, SEARCH_ITERATIONS = 1e-2, 200
LEAST_GAIN = 1e-6
TEMPERATURES = np.geomspace(3 / 4, 4 / 3, 5)

Powers = tuple[int, ...]
# metric(y_true, y_pred) of label indices, one array per sequence.
Metric = Callable[[Sequence[Labels], Sequence[Labels]], float]
Decode = Callable[[Array, Array, Chains], Labels]


@dataclass(frozen=True, eq=False)
class KernelChoice:
    """Kernels to compare.

    terms : the names of the terms that share the kernel.
    kernels : the kernels, simplest first: linear, then the usual kernel, then variants of the usual kernel. The search
        for the C of a variant starts at the best C of the usual kernel.
    linear_only : the names of terms that only a model with the linear kernel has.
    """

    terms: Collection[str]
    kernels: Sequence[InputKernel]
    linear_only: Collection[str] = ()

    def problem(self, problem: Problem, kernel: InputKernel) -> Problem:
        """Return the problem with the given kernel; drop the terms `linear_only` if the kernel is not linear."""
        changed = problem.changed(self.terms, kernel=kernel)
        return changed if kernel.is_linear else changed.without(self.linear_only)

    @property
    def usual(self) -> InputKernel:
        """Return the usual kernel, which is chosen if there are too few samples to compare kernels."""
        return self.kernels[1]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Options of a search for C on held-out samples: kernels to compare as well, and a metric.

    choice : the kernels to compare, or None if the kernel is given.
    metric : the metric of labels that takes the place of the log-likelihood, or None.
    counts : whether to count the labels that the chosen model predicts for held-out sequences.
    by_token : whether to predict the likeliest label of each token, and not the likeliest labelling.
    decode : a function of the scores of labels, the scores of steps and the sequences, which returns the index of the
        predicted label of each token; None predicts likeliest labels.
    """

    choice: KernelChoice | None = None
    metric: Metric | None = None
    counts: bool = False
    by_token: bool = False
    decode: Decode | None = None


@dataclass(frozen=True)
class Trial:
    """One model that was compared on held-out samples.

    kernel : the name of the kernel; None if kernels were not compared.
    gamma : the coefficient of the kernel; None if it has none, or if kernels were not compared.
    C : the prior variance of each group of terms.
    score : the mean log-likelihood per held-out token, or the metric.
    error : the standard error of the difference between this score and that of the best trial; None for a metric.
    accuracy : the fraction of held-out labels that are predicted rightly; None if labels were not predicted.
    chosen : whether the fit has this kernel and this C.
    """

    kernel: str | None
    gamma: float | None
    C: tuple[float, ...]
    score: float
    error: float | None
    accuracy: float | None
    chosen: bool


@dataclass(frozen=True, eq=False)
class HeldOutSearch:
    """The result of a search on held-out samples.

    Cs : the chosen C of each group of terms.
    kernel : the chosen kernel, or None if kernels were not compared.
    trials : all models that were compared, sorted by kernel and by C.
    n_true, n_predicted : how many held-out tokens have each label, and for how many of them the chosen model predicts
        it; None if this was not counted.
    """

    Cs: list[float]
    kernel: InputKernel | None = None
    trials: tuple[Trial, ...] = ()
    n_true: Ints | None = None
    n_predicted: Ints | None = None


def choose_held_out_C(problem: Problem, groups: Groups, settings: Settings, start: Start | None) -> list[float]:
    """Return the C of each group that is best on held-out samples, or 1 if there are too few samples."""
    return search_held_out(problem, groups, settings, start, Comparison()).Cs


def search_held_out(
    problem: Problem,
    groups: Groups,
    settings: Settings,
    start: Start | None,
    comparison: Comparison,
) -> HeldOutSearch:
    """Return the C of each group, and the kernel, that are best on held-out samples.

    groups : for each C to choose, the names of the terms that share it; all other terms keep their C.
    start : an earlier fit, whose feature maps are used, or None.
    """
    choice, metric = comparison.choice, comparison.metric
    n_tokens, n_few, most = MOST_TOKENS, FEW_TOKENS, MOST_LANDMARKS
    if choice is not None:
        n_tokens, n_few, most = COMPARED_TOKENS, FEW_COMPARED_TOKENS, COMPARED_LANDMARKS
    parts = problem.corpus.hold_out(n_tokens, n_few)
    if not parts:
        return HeldOutSearch([FIRST_C] * len(groups), None if choice is None else choice.usual)
    settings = replace(
        settings.with_numbers(lambda n: most if not isinstance(n, int) else n if choice is None else min(n, most)),
        tol=max(settings.tol, SEARCH_TOL),
        max_iter=SEARCH_ITERATIONS,
        certify_full=False,
        random_state=0,
        callback=None,
    )

    def candidate(kernel: InputKernel | None) -> _Candidate:
        changed = problem if choice is None or kernel is None else choice.problem(problem, kernel)
        return _Candidate(kernel, changed, parts, groups, settings, start, comparison)

    candidates = [candidate(kernel) for kernel in ([None] if choice is None else choice.kernels)]
    for one in candidates[:2]:
        one.search()
    for one in candidates[2:]:
        one.follow(candidates[1])
    top = max(candidates, key=lambda one: one.value(one.best))
    chosen = next(one for one in candidates if one.is_as_good_as(top))
    powers = chosen.best
    if metric is None and len(parts) > 1 and sum(held_out.n_groups for _, held_out in parts) < FEW_SAMPLES:
        powers = chosen.smallest()
    trials = [trial for one in candidates for trial in one.trials(top, powers if one is chosen else None)]
    counts = chosen.label_counts(powers) if comparison.counts else (None, None)
    return HeldOutSearch([10.0**power for power in powers], chosen.kernel, tuple(trials), *counts)


class _Candidate:
    """A kernel that is compared, with its folds and with the results of the models fitted so far.

    best : the powers of 10 of the best C so far, one exponent per group of terms.
    """

    best: Powers = ()

    def __init__(
        self,
        kernel: InputKernel | None,
        problem: Problem,
        parts: Sequence[tuple[Corpus, Corpus]],
        groups: Groups,
        settings: Settings,
        start: Start | None,
        comparison: Comparison,
    ) -> None:
        self.kernel, self._groups, self._settings, self._metric = kernel, groups, settings, comparison.metric
        self._answers: dict[Powers, _Answers] = {}
        self._folds = list[_Fold]()
        self.n_tokens = sum(held_out.n_tokens for _, held_out in parts)
        for training, held_out in parts:
            fold = _Fold.of(problem.on(training), held_out, settings, start, comparison)
            start = Start({name: one.map for name, one in fold.features.items()})
            self._folds.append(fold)
        has_labels = all(isinstance(part, ChainPartition) for part in self._folds[0].held_out.partitions)
        self._decode = comparison.counts or self._metric is not None or (kernel is not None and has_labels)

    def search(self) -> None:
        """Search for the best C of each group of terms, starting from C = 1 for all groups."""
        n_groups = len(self._groups)
        if self._metric is None:
            self.best = highest(self.value, n_groups)
        else:
            self.best = max(((power,) * n_groups for power in SCORED_POWERS), key=self.value)

    def follow(self, other: _Candidate) -> None:
        """Search for the best C, from the best C of `other`; stop there if this candidate is clearly worse."""
        self.best = other.best
        self.value(self.best)
        if self._metric is None and self.is_as_good_as(other):
            self.best = _climb(self.value, self.best, range(len(self.best)))

    def value(self, powers: Powers) -> float:
        """Return the held-out log-likelihood at the best temperature, or the metric, for C = 10**powers."""
        if powers not in self._answers:
            Cs = [10.0**power for power in powers]
            folds = [fold.evaluate(self._groups, Cs, self._settings, decode=self._decode) for fold in self._folds]
            self._answers[powers] = _Answers.joined(folds)
        answers = self._answers[powers]
        if self._metric is None:
            return float(answers.likelihoods.sum())
        return self._metric(answers.true, answers.predicted)

    def is_as_good_as(self, other: _Candidate) -> bool:
        """Return whether the best value is at most one standard error below that of another candidate."""
        if self._metric is not None:
            return self.value(self.best) >= other.value(other.best)
        here, there = self._answers[self.best], other._answers[other.best]
        differences = [there.likelihoods - here.likelihoods, there.right - here.right]
        return all(difference.sum() <= _standard_error(difference) for difference in differences)

    def error(self, powers: Powers, other: _Candidate, of_other: Powers) -> float:
        """Return the standard error of the difference between the log-likelihoods of two models.

        powers : the exponents of C of this candidate's model.
        other, of_other : the candidate that has the second model, and the exponents of C of this model.
        """
        return _standard_error(self._answers[powers].likelihoods - other._answers[of_other].likelihoods)

    def smallest(self) -> Powers:
        """Return the exponents of the smallest C whose log-likelihood is at most a standard error below the best."""
        powers = self.best
        while min(powers) > LEAST_POWER:
            lower = tuple(power - 1 for power in powers)
            if self.value(self.best) - self.value(lower) > self.error(lower, self, self.best):
                break
            powers = lower
        return powers

    def trials(self, top: _Candidate, chosen: Powers | None) -> Iterator[Trial]:
        """Yield the models that were compared, by increasing C; `chosen` has the exponents of the chosen model."""
        gamma = None if self.kernel is None or not self.kernel.reads_gamma else self.kernel.gamma
        for powers in sorted(self._answers):
            value, error = self.value(powers), None
            if self._metric is None:
                value, error = value / self.n_tokens, self.error(powers, top, top.best) / self.n_tokens
            name = None if self.kernel is None else str(self.kernel.kernel)
            Cs = tuple(10.0**power for power in powers)
            accuracy = float(self._answers[powers].right.sum()) / self.n_tokens if self._decode else None
            yield Trial(name, gamma, Cs, value, error, accuracy, powers == chosen)

    def label_counts(self, powers: Powers) -> tuple[Ints, Ints]:
        """Return two counts of each label in held-out data, for C = 10**powers: true labels and predicted labels."""
        answers, n_labels = self._answers[powers], self._folds[0].training.terms[0].k_y.L
        true, predicted = (np.concatenate(labels) for labels in (answers.true, answers.predicted))
        return np.bincount(true, minlength=n_labels), np.bincount(predicted, minlength=n_labels)


@dataclass(frozen=True, eq=False)
class _Answers:
    """Likelihoods and predictions of one model for held-out samples.

    tempered : one row per block of samples and one column per temperature, the log-likelihood of the block's labels.
    right : the number of tokens in each block whose likeliest label is the true one; 0 if labels were not predicted.
    true, predicted : for each sequence, the indices of the true and of the likeliest labels of its labelled tokens;
        empty if they were not requested.
    """

    tempered: Floats
    right: Floats
    true: Sequence[Labels]
    predicted: Sequence[Labels]

    @classmethod
    def joined(cls, folds: Sequence[_Answers]) -> _Answers:
        """Return the answers of all folds together."""
        true, predicted = ([labels for one in folds for labels in getattr(one, name)] for name in ("true", "predicted"))
        tempered, right = (np.concatenate([getattr(one, name) for one in folds]) for name in ("tempered", "right"))
        return cls(tempered, right, true, predicted)

    @property
    def likelihoods(self) -> Floats:
        """Return the log-likelihood of each block at the temperature that is best for all blocks together."""
        return np.asarray(self.tempered[:, self.tempered.sum(axis=0).argmax()])


@dataclass(eq=False)
class _Fold:
    """Samples for training and held-out samples, with their features, and the weights of the last fit.

    training : the samples for training, and the terms.
    features : the features of the samples for training.
    objective : the objective of the samples for training.
    held_out : the objective of the held-out samples.
    blocks : the number of the block of each held-out sample, or None if all samples are one block.
    comparison : what the search compares.
    latest : the weights of the last fit, or None before the first fit.
    """

    training: Problem
    features: dict[str, Features]
    objective: Objective
    held_out: Objective
    blocks: Places | None
    comparison: Comparison
    latest: Start | None = None

    @classmethod
    def of(
        cls, training: Problem, held_out: Corpus, settings: Settings, start: Start | None, comparison: Comparison
    ) -> _Fold:
        """Return a fold; if `start` has feature maps, the fold uses them."""
        features = choose_features(training, settings, start)
        maps = Start({name: one.map for name, one in features.items()})
        rest = replace(training, corpus=held_out)
        return cls(
            training,
            features,
            objective_of(training, features, settings.engine),
            objective_of(rest, choose_features(rest, settings, maps), settings.engine),
            held_out.blocks(),
            comparison,
        )

    @cached_property
    def _base(self) -> Evaluation:
        """Return the held-out objective at weights of zero, where scores are only base scores and constraints."""
        return self.held_out.evaluate(np.zeros(self.held_out.layout.size))

    def evaluate(self, groups: Groups, Cs: Sequence[float], settings: Settings, *, decode: bool) -> _Answers:
        """Fit with the prior variances Cs, starting from the last fit; return the results on held-out samples."""
        problem = self.training.with_variances(groups, Cs)
        fitted = solve(problem, self.features, settings, self.latest, known=self.objective)
        self.latest = Start(weights=fitted.weights)
        n_jobs, true, predicted = settings.engine.n_jobs, list[Labels](), list[Labels]()
        rule = self.comparison.decode
        by_token = decode and self.comparison.by_token and rule is None
        marginals = self.held_out.evaluate(fitted.theta).parts if by_token else None
        for k, partition in enumerate(self.held_out.partitions if decode else ()):
            assert isinstance(partition, ChainPartition)
            if marginals is None:
                likeliest = partition.likeliest(self.held_out.layout, fitted.theta, n_jobs, rule)
            else:
                likeliest = np.asarray(marginals[k].residuals.nodes.argmax(axis=1), np.int32)
            for low, high in pairwise(partition.chains.offsets.tolist()):
                known = partition.scored[low:high]
                true.append(partition.labels[low:high][known])
                predicted.append(likeliest[low:high][known])
        tempered = self._tempered(fitted.theta, n_jobs)
        right = np.zeros(len(tempered))
        if decode:
            counts = [float((t == p).sum()) for t, p in zip(true, predicted, strict=True)]
            right = self._sum_blocks(np.array(counts))
        return _Answers(tempered, right, true, predicted)

    def _tempered(self, theta: Floats, n_jobs: int) -> Floats:
        """Return the log-likelihoods of the blocks of held-out samples, one column per temperature."""
        ray = self.held_out.ray(self._base, theta)
        partitions = cast(Sequence[RowPartition], self.held_out.partitions)
        columns = []
        for T in TEMPERATURES:
            scores = (at.scores.move(change, 1 / T) for at, change in zip(self._base.parts, ray.scores, strict=True))
            losses = np.concatenate(
                [part.losses(moved, n_jobs) for part, moved in zip(partitions, scores, strict=True)]
            )
            columns.append(-self._sum_blocks(losses))
        return np.column_stack(columns)

    def _sum_blocks(self, numbers: Floats) -> Floats:
        """Return the sum of the numbers of the samples in each block."""
        blocks = np.zeros(len(numbers), int) if self.blocks is None else self.blocks
        return np.asarray(np.bincount(blocks, weights=numbers), dtype=float)


def _standard_error(differences: Floats) -> float:
    """Return the standard error of the sum of the differences between two models, one difference per block."""
    n = len(differences)
    return float(np.sqrt(n) * differences.std(ddof=1)) if n > 1 else 0.0


def highest(likelihood: Callable[[Powers], float], n_groups: int = 1) -> Powers:
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


def _climb(likelihood: Callable[[Powers], float], powers: Powers, changed: Collection[int]) -> Powers:
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
