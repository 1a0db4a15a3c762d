"""Compiled loops that find the best segmentations and draw segmentations, for `inference.segments`."""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.segments import most_tokens, segment_score


@inlined
def insert(scores, first, second, e, a, score, one, two):
    """Insert `score` into the sorted list scores[e, a] if it is larger than the last entry, which is dropped.

    `one` and `two` are inserted into first[e, a] and second[e, a] at the same position.
    """
    k = scores.shape[2]
    if score > scores[e, a, k - 1]:
        r = k - 1
        while r > 0 and scores[e, a, r - 1] < score:
            scores[e, a, r] = scores[e, a, r - 1]
            first[e, a, r] = first[e, a, r - 1]
            second[e, a, r] = second[e, a, r - 1]
            r -= 1
        scores[e, a, r] = score
        first[e, a, r] = one
        second[e, a, r] = two


@compiled
def k_best(x, A, A_start, A_rank, B, B_label, B_rank, G, G_start, G_rank):
    """Write the scores of the k best segmentations, best first, and the links from which `trace` finds their segments.

    A[e, a] has the scores of segmentations that end at position e with label a. G[e, a] has the scores of those whose
    last segment has at least D tokens, without the score `last`, because this segment may continue. B[b, a] has the
    scores of segmentations that end at b, plus the step to a next segment with label a. All scores are -inf at first.

    A_start and G_start contain the start of the last segment of each segmentation; A_rank and G_rank contain the rank
    in B of the segmentation before this start. For each entry of B, B_label contains the label a' of the last segment
    before b, and B_rank contains the rank of the segmentation in A[b, a'].
    """
    s, total, w, first, last, durations, tail, reach, _, g, rows = x
    T, L = s.shape
    D, k = len(durations), A.shape[2]
    for e in range(T + 1):
        for a in range(L):
            if e == 0:
                B[e, a, 0] = 0.0
                continue
            most = most_tokens(reach, e, a, e)
            for d in range(1, min(D - 1, most) + 1):
                b = e - d
                score = first[b, a] - total[b, a] + durations[d - 1, a] + segment_score(g, rows, b, d, a) + total[e, a]
                score += last[e - 1, a]
                for r in range(k):
                    if B[b, a, r] + score <= A[e, a, k - 1]:
                        break
                    insert(A, A_start, A_rank, e, a, B[b, a, r] + score, b, r)
            if most > D:
                for r in range(k):
                    score = G[e - 1, a, r] + s[e - 1, a] + tail[a]
                    insert(G, G_start, G_rank, e, a, score, G_start[e - 1, a, r], G_rank[e - 1, a, r])
            if most >= D:
                b = e - D
                score = first[b, a] - total[b, a] + durations[D - 1, a] + segment_score(g, rows, b, D, a) + total[e, a]
                for r in range(k):
                    insert(G, G_start, G_rank, e, a, B[b, a, r] + score, b, r)
            for r in range(k):
                insert(A, A_start, A_rank, e, a, G[e, a, r] + last[e - 1, a], G_start[e, a, r], G_rank[e, a, r])
        if 0 < e < T:
            for b in range(L):
                for a in range(L):
                    for r in range(k):
                        insert(B, B_label, B_rank, e, b, A[e, a, r] + w[a, b], a, r)


@compiled
def trace(e, a, r, A_start, A_rank, B_label, B_rank, labels, bounds):
    """Write the segments of one segmentation from right to left, and return their number.

    The segmentation has rank r among those that end at position e with label a.
    """
    n = 0
    while e > 0:
        labels[n], bounds[n] = a, e
        start, rank = A_start[e, a, r], A_rank[e, a, r]
        n += 1
        e, a, r = start, B_label[start, a, rank], B_rank[start, a, rank]
    return n


@compiled
def sample(x, A, H, G, uniform, labels, bounds):
    """Draw a segmentation, from right to left; return its number of segments.

    uniform : random numbers between 0 and 1. A segment uses two of them, and a long segment up to one more per token;
        3 T numbers are enough for T tokens.
    labels, bounds : the label and the end of each segment, from right to left.
    """
    s, total, w, _, _, durations, _, reach, _, g, rows = x
    T, L = s.shape
    D = len(durations)
    e, n, used, a = T, 0, 0, -1
    weights = np.empty(max(L, D))
    while e > 0:
        for b in range(L):
            weights[b] = A[e, b] + (0.0 if a < 0 else w[b, a])
        a = draw_log(weights, L, uniform[used])
        used += 1
        labels[n], bounds[n] = a, e
        most = min(D - 1, most_tokens(reach, e, a, e))
        for d in range(1, most + 1):
            weights[d - 1] = H[e - d, a] + durations[d - 1, a] + segment_score(g, rows, e - d, d, a) + total[e, a]
        weights[most] = G[e, a]
        d = draw_log(weights, most + 1, uniform[used]) + 1
        used += 1
        if d <= most:
            e -= d
        else:
            while True:
                begun = -np.inf
                if most_tokens(reach, e, a, e) >= D:
                    begun = H[e - D, a] + durations[D - 1, a] + segment_score(g, rows, e - D, D, a) + total[e, a]
                if uniform[used] < np.exp(begun - G[e, a]):
                    used += 1
                    e -= D
                    break
                used += 1
                e -= 1
        n += 1
    return n


@compiled
def draw_log(weights, n, target):
    """Return an index below n, drawn with probabilities proportional to exp(weights)."""
    top = -np.inf
    for i in range(n):
        top = max(top, weights[i])
    total = 0.0
    for i in range(n):
        total += np.exp(weights[i] - top)
    chosen, mass = 0, 0.0
    for i in range(n):
        p = np.exp(weights[i] - top) / total
        if p > 0:
            chosen = i
            mass += p
            if mass > target:
                break
    return chosen
