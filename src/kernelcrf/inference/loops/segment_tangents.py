"""Compiled loops for derivatives of the messages and marginals of `inference.segments` along a direction.

The names of directions and derivatives begin with d; dd is the direction of the scores of durations. The direction of
the scores of one sequence is a tuple `dx` of ds, dtotal, dw, dfirst, dlast, dd, dtail and dg.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled
from kernelcrf.inference.loops.segments import most_tokens, of_sequence, segment_score


@compiled
def direction_of(dx, offsets, i):
    """Return the part of `dx`, the direction of all sequences, that belongs to sequence i."""
    ds, dtotal, dw, dfirst, dlast, dd, dtail, dg = dx
    low, high = offsets[i], offsets[i + 1]
    return ds[low:high], dtotal[low + i : high + i + 1], dw, dfirst[low:high], dlast[low:high], dd, dtail, dg


@compiled
def forward_tangent(x, A, B, H, G, dx, dA, dB, dG):
    """Write the derivatives of the forward messages A, B and G along a direction of the scores."""
    s, total, w, _, last, durations, tail, reach, _, g, rows = x
    ds, dtotal, dw, dfirst, dlast, dd, dtail, dg = dx
    T, L = s.shape
    D = len(durations)
    for e in range(T + 1):
        for a in range(L):
            dA[e, a], dG[e, a], dB[e, a] = 0.0, 0.0, 0.0
            if e == 0 or A[e, a] == -np.inf:
                continue
            base, value, most = A[e, a] - last[e - 1, a], 0.0, most_tokens(reach, e, a, e)
            for d in range(1, min(D - 1, most) + 1):
                b = e - d
                p = np.exp(H[b, a] + durations[d - 1, a] + segment_score(g, rows, b, d, a) + total[e, a] - base)
                if p > 0:
                    dH = dB[b, a] + dfirst[b, a] - dtotal[b, a]
                    value += p * (dH + dd[d - 1, a] + segment_score(dg, rows, b, d, a) + dtotal[e, a])
            if G[e, a] > -np.inf:
                if most >= D:
                    b = e - D
                    p = np.exp(H[b, a] + durations[D - 1, a] + segment_score(g, rows, b, D, a) + total[e, a] - G[e, a])
                    if p > 0:
                        dH = dB[b, a] + dfirst[b, a] - dtotal[b, a]
                        dG[e, a] = p * (dH + dd[D - 1, a] + segment_score(dg, rows, b, D, a) + dtotal[e, a])
                if most > D:
                    p = np.exp(G[e - 1, a] + s[e - 1, a] + tail[a] - G[e, a])
                    if p > 0:
                        dG[e, a] += p * (dG[e - 1, a] + ds[e - 1, a] + dtail[a])
                value += np.exp(G[e, a] - base) * dG[e, a]
            dA[e, a] = value + dlast[e - 1, a]
        if e == 0 or e == T:
            continue
        for b in range(L):
            if B[e, b] > -np.inf:
                for a in range(L):
                    p = np.exp(A[e, a] + w[a, b] - B[e, b])
                    if p > 0:
                        dB[e, b] += p * (dA[e, a] + dw[a, b])


@compiled
def backward_tangent(x, Y, C, R, dx, dY, dC, dR):
    """Write the derivatives of the backward messages Y, C and R along a direction of the scores."""
    s, total, w, first, last, durations, tail, _, ahead, g, rows = x
    ds, dtotal, dw, dfirst, dlast, dd, dtail, dg = dx
    T, L = s.shape
    D = len(durations)
    for e in range(T, -1, -1):
        for a in range(L):
            dC[e, a], dR[e, a] = 0.0, 0.0
            if e < T and C[e, a] > -np.inf:
                for b in range(L):
                    p = np.exp(w[a, b] + Y[e, b] - C[e, a])
                    if p > 0:
                        dC[e, a] += p * (dw[a, b] + dY[e, b])
            if e > 0 and R[e, a] > -np.inf:
                p = np.exp(last[e - 1, a] + C[e, a] - R[e, a])
                dR[e, a] = p * (dlast[e - 1, a] + dC[e, a]) if p > 0 else 0.0
                if e < T and most_tokens(ahead, e - 1, a, 2) > 1:
                    p = np.exp(s[e, a] + tail[a] + R[e + 1, a] - R[e, a])
                    if p > 0:
                        dR[e, a] += p * (ds[e, a] + dtail[a] + dR[e + 1, a])
        if e == 0:
            break
        start = e - 1
        for a in range(L):
            dY[start, a] = 0.0
            if Y[start, a] == -np.inf:
                continue
            base, value = Y[start, a] + total[start, a] - first[start, a], 0.0
            most = most_tokens(ahead, start, a, T - start)
            for d in range(1, min(D - 1, most) + 1):
                at = start + d
                score = durations[d - 1, a] + segment_score(g, rows, start, d, a) + last[at - 1, a] + C[at, a]
                p = np.exp(total[at, a] + score - base)
                if p > 0:
                    slope = dd[d - 1, a] + segment_score(dg, rows, start, d, a) + dlast[at - 1, a] + dC[at, a]
                    value += p * (dtotal[at, a] + slope)
            if most >= D:
                at = start + D
                p = np.exp(total[at, a] + durations[D - 1, a] + segment_score(g, rows, start, D, a) + R[at, a] - base)
                if p > 0:
                    value += p * (dtotal[at, a] + dd[D - 1, a] + segment_score(dg, rows, start, D, a) + dR[at, a])
            dY[start, a] = value - dtotal[start, a] + dfirst[start, a]


@compiled
def marginals_tangent(
    x, A, B, H, G, Y, C, R, log_z, dx, dA, dB, dG, dY, dC, dR, dlog_z,
    nodes, starts, ends, steps, lengths, more, segments,
):  # fmt: skip
    """Write the derivatives of the marginals along a direction of the scores."""
    s, total, w, _, last, durations, tail, _, ahead, g, rows = x
    ds, dtotal, dw, dfirst, dlast, dd, dtail, dg = dx
    T, L = s.shape
    D = len(durations)
    for a in range(L):
        inside = 0.0
        for t in range(T):
            starts[t, a] = np.exp(B[t, a] + Y[t, a] - log_z) * (dB[t, a] + dY[t, a] - dlog_z)
            ends[t, a] = np.exp(A[t + 1, a] + C[t + 1, a] - log_z) * (dA[t + 1, a] + dC[t + 1, a] - dlog_z)
            inside += starts[t, a]
            nodes[t, a] = inside
            inside -= ends[t, a]
            dH, most = dB[t, a] + dfirst[t, a] - dtotal[t, a] - dlog_z, most_tokens(ahead, t, a, T - t)
            for d in range(1, min(D, most) + 1):
                at = t + d
                score = segment_score(g, rows, t, d, a) + total[at, a]
                slope = segment_score(dg, rows, t, d, a) + dtotal[at, a]
                if d < D:
                    score, slope = score + last[at - 1, a] + C[at, a], slope + dlast[at - 1, a] + dC[at, a]
                else:
                    score, slope = score + R[at, a], slope + dR[at, a]
                p = np.exp(H[t, a] + durations[d - 1, a] + score - log_z)
                if p > 0:
                    change = p * (dH + dd[d - 1, a] + slope)
                    lengths[d - 1, a] += change
                    if g.shape[0] > 0:
                        segments[rows[t] + d - 1, a] = change
            if t > 0:
                if most_tokens(ahead, t - 1, a, 2) > 1:
                    p = np.exp(G[t, a] + s[t, a] + tail[a] + R[t + 1, a] - log_z)
                    if p > 0:
                        more[a] += p * (dG[t, a] + ds[t, a] + dtail[a] + dR[t + 1, a] - dlog_z)
                for b in range(L):
                    p = np.exp(A[t, a] + w[a, b] + Y[t, b] - log_z)
                    if p > 0:
                        steps[a, b] += p * (dA[t, a] + dw[a, b] + dY[t, b] - dlog_z)


@compiled
def tangents_all(
    low, high, x, offsets, weights, A, B, H, G, Y, C, R, log_z, dx, dlog_z,
    nodes, starts, ends, steps, lengths, more, segments,
):  # fmt: skip
    """Write the derivatives of log Z and of the marginals of the sequences from `low` to `high` - 1.

    In sums over sequences, each sequence counts with its weight.
    """
    L = A.shape[1]
    for i in range(low, high):
        at, end = offsets[i] + i, offsets[i + 1] + i + 1
        if end - at == 1:
            continue
        own_x, own_dx, shape = of_sequence(x, offsets, i), direction_of(dx, offsets, i), (end - at, L)
        dA, dB, dG, dY, dC, dR = (
            np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape),
        )  # fmt: skip
        forward_tangent(own_x, A[at:end], B[at:end], H[at:end], G[at:end], own_dx, dA, dB, dG)
        backward_tangent(own_x, Y[at:end], C[at:end], R[at:end], own_dx, dY, dC, dR)
        change = 0.0
        for a in range(L):
            p = np.exp(A[end - 1, a] - log_z[i])
            if p > 0:
                change += p * dA[shape[0] - 1, a]
        dlog_z[i] = change
        own_steps, own_lengths, own_more = np.zeros_like(steps), np.zeros_like(lengths), np.zeros_like(more)
        t = slice(offsets[i], offsets[i + 1])
        marginals_tangent(
            own_x, A[at:end], B[at:end], H[at:end], G[at:end], Y[at:end], C[at:end], R[at:end], log_z[i], own_dx,
            dA, dB, dG, dY, dC, dR, change, nodes[t], starts[t], ends[t], own_steps, own_lengths, own_more, segments,
        )  # fmt: skip
        steps += weights[i] * own_steps
        lengths += weights[i] * own_lengths
        more += weights[i] * own_more
