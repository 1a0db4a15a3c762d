"""Compiled loops of `inference.segments`, which explains the arrays and formulas.

Arrays have one row per position between tokens, 0 to T, or per token, and one column per label.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.windows import add_window, log_window, push


@inlined
def log_add(a, b):
    """Return log(exp(a) + exp(b))."""
    top = max(a, b)
    return top if top == -np.inf else top + np.log(np.exp(a - top) + np.exp(b - top))


@inlined
def log_times(matrix, k, x, row):
    """Return log sum_i exp(matrix[k, i] + x[row, i])."""
    top = -np.inf
    for i in range(x.shape[1]):
        top = max(top, matrix[k, i] + x[row, i])
    if top == -np.inf:
        return top
    value = 0.0
    for i in range(x.shape[1]):
        value += np.exp(matrix[k, i] + x[row, i] - top)
    return top + np.log(value)


@compiled
def prefix_sums(s, total):
    """Write the sums of the scores of the tokens before each position."""
    total[0] = 0.0
    for t in range(len(s)):
        for a in range(s.shape[1]):
            total[t + 1, a] = total[t, a] + s[t, a]


@compiled
def forward(s, total, w, first, last, durations, tail, A, B, H, G, of_H, of_durations):
    """Write A, B, H = B + first - total, and G; return log Z.

    of_H : empty blocks (see `windows`), in which H is stored.
    of_durations : the blocks of the scores of durations.
    """
    T, L = s.shape
    D, w_T = len(durations), np.ascontiguousarray(w.T)
    for e in range(T + 1):
        for a in range(L):
            if e > 0:
                begun = -np.inf if e < D else H[e - D, a] + durations[D - 1, a] + total[e, a]
                # A long segment goes on, or a segment has just reached the length D.
                G[e, a] = log_add(begun, G[e - 1, a] + s[e - 1, a] + tail[a])
                short = total[e, a] + log_window(a, e, min(D - 1, e), of_H, of_durations)
                A[e, a] = log_add(short, G[e, a]) + last[e - 1, a]
            else:
                G[e, a] = -np.inf
                A[e, a] = -np.inf
        if e == T:
            break
        for b in range(L):
            B[e, b] = 0.0 if e == 0 else log_times(w_T, b, A, e)
            H[e, b] = B[e, b] + first[e, b] - total[e, b]
            push(b, e, H[e, b], of_H)
    return log_times(np.zeros((1, L)), 0, A, T)


@compiled
def backward(s, total, w, first, last, durations, tail, Y, C, R, of_V, of_durations):
    """Write Y, C and R.

    of_V : empty blocks, in which V_e = total_e + last_{e-1} + C_e is stored, from the last position on.
    of_durations : the blocks of the scores of durations.
    """
    T, L = s.shape
    D = len(durations)
    for e in range(T, -1, -1):
        for a in range(L):
            C[e, a] = 0.0 if e == T else log_times(w, a, Y, e)
            R[e, a] = -np.inf if e == 0 else last[e - 1, a] + C[e, a]
            if e < T and e > 0:
                R[e, a] = log_add(R[e, a], s[e, a] + tail[a] + R[e + 1, a])
        if e == 0:
            break
        # Segments that start at e - 1 need C and R of later positions only.
        start = e - 1
        for a in range(L):
            push(a, T - e, total[e, a] + last[e - 1, a] + C[e, a], of_V)
            long = -np.inf
            if start + D <= T:
                long = total[start + D, a] + durations[D - 1, a] + R[start + D, a]
            m = T - start
            short = log_window(a, m, min(D - 1, m), of_V, of_durations)
            Y[start, a] = log_add(short, long) - total[start, a] + first[start, a]


@compiled
def marginals(
    s, total, w, durations, tail, A, B, H, G, Y, C, R, of_V, of_durations, log_z, nodes, starts, ends, steps, lengths,
    more,
):  # fmt: skip
    """Write the probabilities of labels, of starts and ends of segments, and the expected steps and lengths.

    of_V, of_durations : the blocks of V and of the scores of durations, as `backward` leaves them.
    """
    T, L = s.shape
    D = len(durations)
    for a in range(L):
        inside = 0.0
        for t in range(T):
            starts[t, a] = np.exp(B[t, a] + Y[t, a] - log_z)
            ends[t, a] = np.exp(A[t + 1, a] + C[t + 1, a] - log_z)
            inside += starts[t, a]
            nodes[t, a] = min(max(inside, 0.0), 1.0)
            inside -= ends[t, a]
            if H[t, a] > -np.inf:
                add_window(a, T - t, min(D - 1, T - t), H[t, a] - log_z, of_V, of_durations, lengths)
            if t + D <= T:
                lengths[D - 1, a] += np.exp(H[t, a] + durations[D - 1, a] + total[t + D, a] + R[t + D, a] - log_z)
            if t > 0:
                more[a] += np.exp(G[t, a] + s[t, a] + tail[a] + R[t + 1, a] - log_z)
                for b in range(L):
                    steps[a, b] += np.exp(A[t, a] + w[a, b] + Y[t, b] - log_z)
