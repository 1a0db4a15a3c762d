"""Inference on segmentations: a labelling is a sequence of segments, each with a label, a start and an end.

A sequence of T tokens is divided into segments (a, b, e) with label a, from token b to token e - 1. The score of a
segmentation is a sum over its segments, and over the steps w(a, a') from one segment to the next (a semi-Markov model).
The score of a segment is

    first_b(a) + sum_{b <= t < e} s_t(a) + last_{e-1}(a) + duration(e - b, a).

Segments of up to D tokens have free scores of durations. If there is a tail, longer segments have the score
duration(d, a) = duration(D, a) + (d - D) tail(a); otherwise they are forbidden. With S_e the sum of the scores s of all
tokens before position e, the logarithms of the sums over segmentations are

    B_0 = 0,   B_b(a) = log sum_a' exp(A_b(a') + w(a', a)),   H_b = B_b + first_b - S_b          (a segment starts at b)
    G_e(a) = log [exp(H_{e-D}(a) + duration(D, a) + S_e(a)) + exp(G_{e-1}(a) + s_{e-1}(a) + tail(a))] (D tokens or more)
    A_e(a) = log [sum_{d < D} exp(H_{e-d}(a) + duration(d, a) + S_e(a)) + exp G_e(a)] + last_{e-1}(a) (it ends at e)

and log Z = log sum_a exp A_T(a). The backward recursions of Y_b (a segment starts at b), C_e (a segment has ended at e)
and R_e (a segment of D tokens or more is open at e) mirror them. They give all marginals, for instance

    p(segment starts at b with label a) = exp(B_b(a) + Y_b(a) - log Z),
    p(y_t = a) = sum_{b <= t} p(starts at b with a) - sum_{e <= t} p(ends at e with a).

One pass takes O(T L (D + L)) operations and O(T L) memory. All numbers are float64. Sums over durations are sums of
products, with a few exponentials and logarithms per position (`loops.windows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.loops import segment_decoding as decoding_loops
from kernelcrf.inference.loops import segment_tangents as tangent_loops
from kernelcrf.inference.loops import segments as loops
from kernelcrf.inference.loops.windows import push_all

Segments: TypeAlias = list[tuple[int, int, int]]
"""A segmentation: the label, the first token and the token after the last one of each segment, from left to right."""


@dataclass(frozen=True, eq=False)
class SegmentScores:
    """The scores of the segmentations of one sequence of T tokens, with L labels.

    tokens : (T, L), the score s of each label at each token.
    steps : (L, L), the score w of a step from one segment to the next, [from, to].
    durations : (D, L), the score of segments of 1 to D tokens.
    first, last : (T, L), the scores of labels at the first and the last token of a segment, or None for zeros.
    tail : (L,), the score of each token beyond D, or None if no segment is longer than D.
    """

    tokens: Floats
    steps: Floats
    durations: Floats
    first: Floats | None = None
    last: Floats | None = None
    tail: Floats | None = None

    @cached_property
    def arrays(self) -> tuple[Floats, ...]:
        """Return s, S, w, first, last, durations and tail as float64 arrays, with zeros or -inf for what is None."""
        s = np.ascontiguousarray(self.tokens, np.float64)
        total = np.empty((len(s) + 1, s.shape[1]))
        loops.prefix_sums(s, total)
        nothing = np.zeros_like(s)
        given = [nothing if part is None else np.asarray(part, np.float64) for part in (self.first, self.last)]
        tail = np.full(s.shape[1], -np.inf) if self.tail is None else np.asarray(self.tail, np.float64)
        w, durations = (np.ascontiguousarray(part, np.float64) for part in (self.steps, self.durations))
        return s, total, w, *given, durations, tail


@dataclass(frozen=True, eq=False)
class SegmentMoments:
    """The log-partition and the marginals of the segmentations of a sequence.

    nodes : (T, L), the probability of each label at each token.
    starts, ends : (T, L), the probability that a segment with a label starts at a token, or ends with it.
    steps : (L, L), the expected number of steps from one label to another.
    lengths : (D, L), the expected number of segments of each duration; the last row counts longer segments, too.
    more : (L,), the expected number of tokens beyond D in longer segments.
    """

    log_partition: float
    nodes: Floats
    starts: Floats
    ends: Floats
    steps: Floats
    lengths: Floats
    more: Floats


@dataclass(frozen=True, eq=False)
class SegmentMessages:
    """The forward and backward messages of a sequence, which the docstring of the module defines.

    blocks : sums of scores after a segment, and the scores of durations, as `loops.windows` stores them.
    """

    scores: SegmentScores
    log_partition: float
    A: Floats
    B: Floats
    H: Floats
    G: Floats
    Y: Floats = field(repr=False)
    C: Floats = field(repr=False)
    R: Floats = field(repr=False)
    blocks: tuple[tuple[Array, ...], tuple[Array, ...]] = field(repr=False)

    @classmethod
    def of(cls, scores: SegmentScores) -> SegmentMessages:
        """Compute all messages; raise InfeasibleSequenceError if scores of -inf forbid all segmentations."""
        s, total, w, first, last, durations, tail = scores.arrays
        T, L = s.shape
        A, B, H, opened, Y, C, R = (np.full((T + 1, L), -np.inf) for _ in range(7))
        log_z = 0.0
        of_durations, of_V = _empty_blocks(L, len(durations)), _empty_blocks(L, T)
        if T:
            push_all(durations, of_durations)
            of_H = _empty_blocks(L, T)
            log_z = loops.forward(s, total, w, first, last, durations, tail, A, B, H, opened, of_H, of_durations)
            if log_z == -np.inf:
                raise InfeasibleSequenceError(0, T - 1)
            loops.backward(s, total, w, first, last, durations, tail, Y, C, R, of_V, of_durations)
        return cls(scores, float(log_z), A, B, H, opened, Y, C, R, (of_V, of_durations))

    @cached_property
    def moments(self) -> SegmentMoments:
        """Return the marginals."""
        s, total, w, _, _, durations, tail = self.scores.arrays
        nodes, starts, ends = (np.zeros(s.shape) for _ in range(3))
        steps, lengths, more = np.zeros(w.shape), np.zeros(durations.shape), np.zeros(s.shape[1])
        loops.marginals(
            s, total, w, durations, tail, self.A, self.B, self.H, self.G, self.Y, self.C, self.R, *self.blocks,
            self.log_partition, nodes, starts, ends, steps, lengths, more,
        )  # fmt: skip
        # Rounding errors of long sums are removed from the probabilities of labels, which sum to one.
        nodes /= np.maximum(nodes.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return SegmentMoments(self.log_partition, nodes, starts, ends, steps, lengths, more)

    @property
    def entropy(self) -> float:
        """Return the entropy of p(segmentation | x): log Z minus the expected score."""
        found, (s, _, w, first, last, durations, tail) = self.moments, self.scores.arrays
        pairs = [(found.nodes, s), (found.steps, w), (found.starts, first), (found.ends, last)]
        pairs += [(found.lengths, durations), (found.more, tail)]
        return self.log_partition - sum(float((p * np.where(p > 0, x, 0.0)).sum()) for p, x in pairs)

    def tangent(self, direction: SegmentScores) -> SegmentMoments:
        """Return the derivatives of the log-partition and of all marginals if the scores move along a direction.

        The marginals are the gradient of the log-partition, so that this is a product with its Hessian. `direction`
        must have finite entries, and None where the scores have None.
        """
        s, total, w, first, last, durations, tail = self.scores.arrays
        tailless = replace(direction, tail=np.zeros(s.shape[1])) if direction.tail is None else direction
        ds, dtotal, dw, dfirst, dlast, dd, dtail = tailless.arrays
        along = ds, dtotal, dw, dfirst, dlast, dd, dtail
        dA, dB, dG, dY, dC, dR = (np.zeros(self.A.shape) for _ in range(6))
        own = self.A, self.B, self.H, self.G
        tangent_loops.forward_tangent(s, total, w, last, durations, tail, *own, *along, dA, dB, dG)
        tangent_loops.backward_tangent(
            s, total, w, first, last, durations, tail, self.Y, self.C, self.R, *along, dY, dC, dR
        )
        dlog_z = float(np.exp(self.A[-1] - self.log_partition) @ dA[-1]) if len(s) else 0.0
        nodes, starts, ends = (np.zeros(s.shape) for _ in range(3))
        steps, lengths, more = np.zeros(w.shape), np.zeros(durations.shape), np.zeros(s.shape[1])
        tangent_loops.marginals_tangent(
            s, total, w, last, durations, tail, *own, self.Y, self.C, self.R, self.log_partition, *along,
            dA, dB, dG, dY, dC, dR, dlog_z, nodes, starts, ends, steps, lengths, more,
        )  # fmt: skip
        return SegmentMoments(dlog_z, nodes, starts, ends, steps, lengths, more)


def _empty_blocks(n_labels: int, n: int) -> tuple[Array, ...]:
    """Return the arrays in which `loops.windows` stores n numbers for each label."""
    shape = n_labels, n
    return np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)


def score_of(scores: SegmentScores, segments: Segments) -> float:
    """Return the score of a segmentation, or -inf if it is forbidden."""
    _, total, w, first, last, durations, tail = scores.arrays
    D, result = len(durations), 0.0
    for at, (a, b, e) in enumerate(segments):
        result += first[b, a] + total[e, a] - total[b, a] + last[e - 1, a] + durations[min(e - b, D) - 1, a]
        result += (e - b - D) * tail[a] if e - b > D else 0.0  # not 0 * -inf
        result += w[segments[at - 1][0], a] if at else 0.0
    return float(result)


def viterbi(scores: SegmentScores) -> tuple[Segments, float]:
    """Return the best segmentation and its score."""
    return k_best(scores, 1)[0]


def k_best(scores: SegmentScores, k: int) -> list[tuple[Segments, float]]:
    """Return the k best segmentations with their scores, best first, or fewer if there are fewer."""
    s = scores.arrays[0]
    T, L = s.shape
    A, B, opened = (np.full((T + 1, L, k), -np.inf) for _ in range(3))
    A_start, A_rank, B_label, B_rank, G_start, G_rank = (np.zeros((T + 1, L, k), np.int64) for _ in range(6))
    if not T:
        return [([], 0.0)]
    decoding_loops.k_best(*scores.arrays, A, A_start, A_rank, B, B_label, B_rank, opened, G_start, G_rank)
    order = np.argsort(-A[T].ravel(), kind="stable")[:k]
    order = order[A[T].ravel()[order] > -np.inf]
    if not len(order):
        raise InfeasibleSequenceError(0, T - 1)
    labels, bounds, result = np.empty(T, np.int64), np.empty(T, np.int64), []
    for flat in order.tolist():
        a, r = divmod(flat, k)
        n = decoding_loops.trace(T, a, r, A_start, A_rank, B_label, B_rank, labels, bounds)
        result.append((_segments(labels[:n], bounds[:n]), float(A[T, a, r])))
    return result


def sample(messages: SegmentMessages, n_samples: int, rng: np.random.Generator) -> list[Segments]:
    """Return segmentations that are drawn from p(segmentation | x)."""
    s, total, w, _, _, durations, tail = messages.scores.arrays
    labels, bounds, result = np.empty(len(s), np.int64), np.empty(len(s), np.int64), []
    for _ in range(n_samples):
        uniform = rng.random(3 * len(s) + 2)
        n = decoding_loops.sample(
            s, total, w, durations, tail, messages.A, messages.H, messages.G, uniform, labels, bounds
        )
        result.append(_segments(labels[:n], bounds[:n]))
    return result


def _segments(labels: Ints, bounds: Ints) -> Segments:
    """Return the segments of a segmentation that is given from right to left."""
    ends = bounds[::-1].tolist()
    return list(zip(labels[::-1].tolist(), [0, *ends[:-1]], ends, strict=True)) if ends else []


def labels_of(segments: Segments) -> Labels:
    """Return the label of each token of a segmentation."""
    return np.concatenate([np.full(e - b, a, np.int32) for a, b, e in segments] or [np.empty(0, np.int32)])
