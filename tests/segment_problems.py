"""Small problems with segments, and their oracle: the objective by enumeration of all segmentations."""

import itertools

import numpy as np

from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.segments import candidate_rows
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.segments import SegmentPartition, SegmentRules
from kernelcrf.readers.segments import SegmentLabels
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import BIAS_TERM, END_TERM, START_TERM, chain_terms, segment_terms

CLASSES = np.array(["B-x", "I-x", "B-y", "I-y", "O"])


def all_labelings(spec, T):
    """All labellings of T tokens, as indices of classes, and their segments (label, start, end)."""
    L = len(spec.types)
    for cuts in itertools.product([False, True], repeat=T - 1):
        bounds = [0, *(t + 1 for t, cut in enumerate(cuts) if cut), T]
        for labels in itertools.product(range(L), repeat=len(bounds) - 1):
            same = [a for a, b in itertools.pairwise(labels) if a == b]
            if all(spec.repeats[a] for a in same):
                segments = [(a, b, e) for a, (b, e) in zip(labels, itertools.pairwise(bounds), strict=True)]
                types = np.repeat(labels, np.diff(bounds))
                first = np.isin(np.arange(T), bounds[:-1])
                yield spec.class_of(types, first), segments


def random_objective(
    seed, *, lengths=(4, 3, 1), tags=False, D=2, tail=True, durations="smooth", ends=True, segments=True, weighted=True,
    missing=0.0, legal=False, n_jobs=1,
):  # fmt: skip
    """An objective on random features, with labels drawn from the possible labellings."""
    rng = np.random.default_rng(seed)
    spec = SegmentLabels.of(CLASSES if tags else np.arange(2))
    L, chains = len(spec.types), Chains.from_lengths(lengths)
    rules = SegmentRules(D, tail, spec.repeats, _legal(L) if legal else None)
    every = {T: [y for y, own in all_labelings(spec, T) if is_possible(rules, own)] for T in {*lengths}}
    labels = [every[T][rng.integers(len(every[T]))] for T in lengths]
    labels, allowed = np.concatenate(labels), None
    if missing:
        allowed = np.eye(len(spec.classes), dtype=bool)[labels] | (rng.random((len(labels), 1)) < missing)
    kernel = InputKernel("linear")
    terms = chain_terms(L, kernel, C=2.0, C_edge=0.5, C_bias=1.0, C_ends=3.0)
    k_y = None if durations is None else DurationKernel(D, L, durations == "smooth")
    terms += segment_terms(
        L, 1.5, durations=k_y, tail=tail, ends=kernel if ends else None, segment_kernel=kernel if segments else None
    )
    n = 3
    tokens, whole = rng.normal(size=(chains.n_nodes, n)), rng.normal(size=(candidate_rows(chains, D)[-1], n))
    features = {
        term.name: TokenFeatures(whole if term.name == "segment" else tokens)
        for term in terms
        if term.kernel is not None
    }
    layout = Layout.of(terms, dict.fromkeys(features, n))
    known = spec.known(labels, allowed, chains)
    weights = rng.uniform(0.5, 2.0, len(lengths)) if weighted else None
    partition = SegmentPartition(chains, L, rules, *known, features, weights)
    objective = Objective(layout, [partition], LocalEngine(n_jobs))
    return objective, spec, (labels if allowed is None else None), allowed


def _legal(L):
    steps = np.ones((L, L), bool)
    steps[1, 0] = False
    first, last = np.ones(L, bool), np.ones(L, bool)
    first[1] = False
    if L > 2:
        last[0] = steps[0, 0] = False
    return Legal(steps, first, last)


def is_possible(rules, segments):
    """Whether the rules allow a segmentation."""
    legal = rules.legal
    if not rules.tail and any(e - b > rules.longest for _, b, e in segments):
        return False
    if legal is None:
        return True
    steps = all(legal.steps[a, b] for (a, *_), (b, *_) in itertools.pairwise(segments))
    return steps and legal.first[segments[0][0]] and legal.last[segments[-1][0]]


def plain_score(objective, theta, i, segments):
    """The score of a segmentation of sequence i, term by term."""
    layout, partition = objective.layout, objective.partitions[0]
    low, high = partition.chains.offsets[[i, i + 1]]
    D, L, total = partition.rules.longest, partition.n_labels, 0.0
    rows = candidate_rows(partition.chains, D)
    for term in layout.terms:
        W = term.k_y.factor @ layout.split(theta)[term.name].T
        F = partition.features[term.name].F if term.name in partition.features else None
        for k, (a, b, e) in enumerate(segments):
            d = min(e - b, D)
            if term.name == "node":
                total += sum(W[a] @ F[low + t] for t in range(b, e))
            elif term.name == BIAS_TERM:
                total += (e - b) * W[a, 0]
            elif term.name == START_TERM:
                total += W[a, 0] if b == 0 else 0.0
            elif term.name == END_TERM:
                total += W[a, 0] if low + e == high else 0.0
            elif term.name == "edge":
                total += W[segments[k - 1][0] * L + a, 0] if k else 0.0
            elif term.name == "first":
                total += W[a] @ F[low + b]
            elif term.name == "last":
                total += W[a] @ F[low + e - 1]
            elif term.name == "duration":
                total += W[(d - 1) * L + a, 0]
            elif term.name == "tail":
                total += W[a, 0] * (e - b - d)
            elif term.name == "segment":
                total += W[a] @ F[rows[low + b] + d - 1]
            else:
                raise AssertionError(term.name)
    return total


def enumerated_value(problem, theta):
    """The objective by enumeration: weighted log Z - log Z(allowed), plus the penalty."""
    objective, spec, labels, allowed = problem
    partition, value = objective.partitions[0], objective.layout.penalty(theta)
    for i, (low, high) in enumerate(itertools.pairwise(partition.chains.offsets.tolist())):
        scores, agree = [], []
        for y, segments in all_labelings(spec, high - low):
            if is_possible(partition.rules, segments):
                scores.append(plain_score(objective, theta, i, segments))
                same = (y == labels[low:high]) if allowed is None else allowed[np.arange(low, high), y]
                agree.append(bool(np.all(same)))
        scores, agree = np.array(scores), np.array(agree)
        weight = 1.0 if partition.weights is None else partition.weights[i]
        value += weight * (np.logaddexp.reduce(scores) - np.logaddexp.reduce(scores[agree]))
    return value
