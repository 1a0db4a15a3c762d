"""Compiled loops for derivatives of the messages and marginals of `inference.segments` along a direction.

The names of directions and derivatives begin with d; dd is the direction of the scores of durations.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled


@compiled
def forward_tangent(
    s, total, w, last, durations, tail, A, B, H, G, ds, dtotal, dw, dfirst, dlast, dd, dtail, dA, dB, dG
):
    """Write the derivatives of A, B and G along a direction."""
    T, L = s.shape
    D = len(durations)
    for e in range(T + 1):
        for a in range(L):
            dA[e, a], dG[e, a], dB[e, a] = 0.0, 0.0, 0.0
            if e == 0 or A[e, a] == -np.inf:
                continue
            base, value = A[e, a] - last[e - 1, a], 0.0
            for d in range(1, min(D - 1, e) + 1):
                b = e - d
                p = np.exp(H[b, a] + durations[d - 1, a] + total[e, a] - base)
                if p > 0:
                    value += p * (dB[b, a] + dfirst[b, a] - dtotal[b, a] + dd[d - 1, a] + dtotal[e, a])
            if G[e, a] > -np.inf:
                if e >= D:
                    b = e - D
                    p = np.exp(H[b, a] + durations[D - 1, a] + total[e, a] - G[e, a])
                    if p > 0:
                        dG[e, a] = p * (dB[b, a] + dfirst[b, a] - dtotal[b, a] + dd[D - 1, a] + dtotal[e, a])
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
def backward_tangent(
    s, total, w, first, last, durations, tail, Y, C, R, ds, dtotal, dw, dfirst, dlast, dd, dtail, dY, dC, dR
):
    """Write the derivatives of Y, C and R along a direction."""
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
                if e < T:
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
            for d in range(1, min(D - 1, T - start) + 1):
                at = start + d
                p = np.exp(total[at, a] + durations[d - 1, a] + last[at - 1, a] + C[at, a] - base)
                if p > 0:
                    value += p * (dtotal[at, a] + dd[d - 1, a] + dlast[at - 1, a] + dC[at, a])
            at = start + D
            if at <= T:
                p = np.exp(total[at, a] + durations[D - 1, a] + R[at, a] - base)
                if p > 0:
                    value += p * (dtotal[at, a] + dd[D - 1, a] + dR[at, a])
            dY[start, a] = value - dtotal[start, a] + dfirst[start, a]


@compiled
def marginals_tangent(
    s, total, w, last, durations, tail, A, B, H, G, Y, C, R, log_z, ds, dtotal, dw, dfirst, dlast, dd, dtail,
    dA, dB, dG, dY, dC, dR, dlog_z, nodes, starts, ends, steps, lengths, more,
):  # fmt: skip
    """Write the derivatives of the marginals along a direction."""
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
            dH = dB[t, a] + dfirst[t, a] - dtotal[t, a]
            for d in range(1, min(D - 1, T - t) + 1):
                at = t + d
                p = np.exp(H[t, a] + durations[d - 1, a] + total[at, a] + last[at - 1, a] + C[at, a] - log_z)
                if p > 0:
                    lengths[d - 1, a] += p * (dH + dd[d - 1, a] + dtotal[at, a] + dlast[at - 1, a] + dC[at, a] - dlog_z)
            at = t + D
            if at <= T:
                p = np.exp(H[t, a] + durations[D - 1, a] + total[at, a] + R[at, a] - log_z)
                if p > 0:
                    lengths[D - 1, a] += p * (dH + dd[D - 1, a] + dtotal[at, a] + dR[at, a] - dlog_z)
            if t > 0:
                p = np.exp(G[t, a] + s[t, a] + tail[a] + R[t + 1, a] - log_z)
                if p > 0:
                    more[a] += p * (dG[t, a] + ds[t, a] + dtail[a] + dR[t + 1, a] - dlog_z)
                for b in range(L):
                    p = np.exp(A[t, a] + w[a, b] + Y[t, b] - log_z)
                    if p > 0:
                        steps[a, b] += p * (dA[t, a] + dw[a, b] + dY[t, b] - dlog_z)
