"""Find the best segmentations of a sequence, and draw random ones; `inference.segments` has the formulas."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from kernelcrf.arrays import Ints, Labels
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.loops import segment_decoding as loops
from kernelcrf.inference.segments import SegmentMessages, SegmentScores

Segments: TypeAlias = list[tuple[int, int, int]]
"""A segmentation: the label, the first token and the token after the last one of each segment, from left to right."""


def score_of(scores: SegmentScores, segments: Segments, sequence: int = 0) -> float:
    """Return the score of a segmentation of a sequence, or -inf if it is forbidden."""
    _, total, w, first, last, durations, tail, _, ahead, g, rows = scores.of_sequence(sequence)
    D, result = len(durations), 0.0
    for at, (a, b, e) in enumerate(segments):
        d = min(e - b, D)
        result += first[b, a] + total[e, a] - total[b, a] + last[e - 1, a] + durations[d - 1, a]
        result += (e - b - D) * tail[a] if e - b > D else 0.0  # not 0 * -inf
        result += w[segments[at - 1][0], a] if at else 0.0
        result += g[rows[b] + d - 1, a] if len(g) else 0.0
        if len(ahead) and e - b > ahead[b, a]:
            return -np.inf
    return float(result)


def viterbi(scores: SegmentScores, sequence: int = 0) -> tuple[Segments, float]:
    """Return the best segmentation of a sequence and its score."""
    return k_best(scores, 1, sequence)[0]


def k_best(scores: SegmentScores, k: int, sequence: int = 0) -> list[tuple[Segments, float]]:
    """Return the k best segmentations of a sequence with their scores, best first, or all if there are fewer than k."""
    x = scores.of_sequence(sequence)
    T, L = x[0].shape
    A, B, opened = (np.full((T + 1, L, k), -np.inf) for _ in range(3))
    A_start, A_rank, B_label, B_rank, G_start, G_rank = (np.zeros((T + 1, L, k), np.int64) for _ in range(6))
    if not T:
        return [([], 0.0)]
    loops.k_best(x, A, A_start, A_rank, B, B_label, B_rank, opened, G_start, G_rank)
    order = np.argsort(-A[T].ravel(), kind="stable")[:k]
    order = order[A[T].ravel()[order] > -np.inf]
    if not len(order):
        raise InfeasibleSequenceError(sequence, T - 1)
    labels, bounds, result = np.empty(T, np.int64), np.empty(T, np.int64), []
    for flat in order.tolist():
        a, r = divmod(flat, k)
        n = loops.trace(T, a, r, A_start, A_rank, B_label, B_rank, labels, bounds)
        result.append((_segments(labels[:n], bounds[:n]), float(A[T, a, r])))
    return result


def sample(messages: SegmentMessages, n_samples: int, rng: np.random.Generator, sequence: int = 0) -> list[Segments]:
    """Return segmentations of a sequence that are drawn from p(segmentation | x)."""
    x, offsets = messages.scores.of_sequence(sequence), messages.scores.order.offsets
    positions = slice(int(offsets[sequence]) + sequence, int(offsets[sequence + 1]) + sequence + 1)
    A, _, H, G = (message[positions] for message in messages.forward)
    T, result = len(x[0]), []
    labels, bounds = np.empty(T, np.int64), np.empty(T, np.int64)
    for _ in range(n_samples):
        n = loops.sample(x, A, H, G, rng.random(3 * T + 2), labels, bounds)
        result.append(_segments(labels[:n], bounds[:n]))
    return result


def _segments(labels: Ints, bounds: Ints) -> Segments:
    """Return segments from left to right, given their labels and ends from right to left."""
    ends = bounds[::-1].tolist()
    return list(zip(labels[::-1].tolist(), [0, *ends[:-1]], ends, strict=True)) if ends else []


def labels_of(segments: Segments) -> Labels:
    """Return the label of each token of a segmentation."""
    return np.concatenate([np.full(e - b, a, np.int32) for a, b, e in segments] or [np.empty(0, np.int32)])
