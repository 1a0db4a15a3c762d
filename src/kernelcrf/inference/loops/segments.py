"""Compiled loops of `inference.segments`, which explains the arrays and formulas.

Arrays have one column per label, and one row per token or per position between tokens (0 to T). The scores of one
sequence are a tuple `x` of the arrays s, total, w, first, last, durations, tail, reach, ahead, g and rows:

total : the sums of the scores s of the tokens before each position.
reach, ahead : the largest length of a segment that ends, or starts, at a position; empty if there is no such limit.
g : the scores of candidate segments; the segment of d tokens from token b has row rows[b] + d - 1. `g` may be empty.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.windows import add_window, empty_blocks, log_window, push

# Sums of products of scaled numbers above this have lost nothing that matters; products of more than MOST may overflow.
LEAST, MOST = 1e-250, 600.0


@inlined
def log_add(a, b):
    """Return log(exp(a) + exp(b))."""
    top, low = max(a, b), min(a, b)
    return top if low == -np.inf else top + np.log1p(np.exp(low - top))


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


@inlined
def scaled_steps(w):
    """Return exp(w - top) and `top`, where `top` is the largest entry of w, or 0 if all entries are -inf."""
    top = -np.inf
    for a in range(w.shape[0]):
        for b in range(w.shape[1]):
            top = max(top, w[a, b])
    top = 0.0 if top == -np.inf else top
    return np.exp(w - top), top


@inlined
def scale_row(x, row, scaled):
    """Write exp(x[row] - top) to `scaled`; return `top`, the largest entry of the row, or 0 if all entries are -inf."""
    top = -np.inf
    for i in range(x.shape[1]):
        top = max(top, x[row, i])
    top = 0.0 if top == -np.inf else top
    for i in range(x.shape[1]):
        scaled[i] = np.exp(x[row, i] - top)
    return top


@inlined
def log_times_scaled(matrix, scaled_matrix, k, x, row, scaled, top):
    """Return log sum_i exp(matrix[k, i] + x[row, i]), computed from scaled numbers unless they underflow.

    top : the sum of the logarithms of the factors by which the matrix and the row of x were divided.
    """
    value = 0.0
    for i in range(x.shape[1]):
        value += scaled_matrix[k, i] * scaled[i]
    return top + np.log(value) if value > LEAST else log_times(matrix, k, x, row)


@inlined
def most_tokens(limits, position, a, most):
    """Return the largest length of a segment at a position: `most`, or the entry of `limits` if it is smaller."""
    return most if limits.shape[0] == 0 else min(most, limits[position, a])


@inlined
def segment_score(g, rows, b, d, a):
    """Return the score of the candidate segment of d tokens from token b, or 0 if candidates have no scores."""
    return 0.0 if g.shape[0] == 0 else g[rows[b] + d - 1, a]


@compiled
def of_sequence(x, offsets, i):
    """Return the part of `x`, the scores of all sequences, that belongs to sequence i."""
    s, total, w, first, last, durations, tail, reach, ahead, g, rows = x
    low, high = offsets[i], offsets[i + 1]
    return (
        s[low:high], total[low + i : high + i + 1], w, first[low:high], last[low:high], durations, tail,
        reach[low + i : high + i + 1], ahead[low + i : high + i + 1], g, rows[low:high],
    )  # fmt: skip


@compiled
def prefix_sums(s, offsets, total):
    """Write the sums of the scores of the tokens before each position of each sequence."""
    for i in range(len(offsets) - 1):
        total[offsets[i] + i] = 0.0
        for t in range(offsets[i], offsets[i + 1]):
            for a in range(s.shape[1]):
                total[t + i + 1, a] = total[t + i, a] + s[t, a]


@compiled
def limits(continues, offsets, reach, ahead):
    """Write the largest length of a segment that ends (`reach`) or starts (`ahead`) at each position of each sequence.

    continues : whether a token may belong to the same segment as the token before it.
    """
    for i in range(len(offsets) - 1):
        low, high = offsets[i], offsets[i + 1]
        for a in range(continues.shape[1]):
            reach[low + i, a], ahead[high + i, a] = 0, 0
            for t in range(low, high):
                reach[t + i + 1, a] = 1 + (reach[t + i, a] if t > low and continues[t, a] else 0)
            for t in range(high - 1, low - 1, -1):
                ahead[t + i, a] = 1 + (ahead[t + i + 1, a] if t + 1 < high and continues[t + 1, a] else 0)


@compiled
def forward(x, A, B, H, G, of_durations):
    """Write the forward messages A, B, H and G of one sequence; return log Z.

    of_durations : the blocks of the scores of durations (see `windows`).
    """
    s, total, w, first, last, durations, tail, reach, _, g, rows = x
    T, L = s.shape
    D, w_T, of_H, scaled = len(durations), np.ascontiguousarray(w.T), empty_blocks(L, T), np.empty(L)
    scaled_w, top_w = scaled_steps(w_T)
    for e in range(T + 1):
        for a in range(L):
            G[e, a] = -np.inf
            A[e, a] = -np.inf
            if e > 0:
                most = most_tokens(reach, e, a, e)
                # A long segment goes on, or a segment has just reached the length D.
                if most > D:
                    G[e, a] = G[e - 1, a] + s[e - 1, a] + tail[a]
                if most >= D:
                    begun = H[e - D, a] + durations[D - 1, a] + total[e, a] + segment_score(g, rows, e - D, D, a)
                    G[e, a] = log_add(begun, G[e, a])
                most = min(D - 1, most)
                if g.shape[0] == 0:
                    short = log_window(a, e, most, of_H, of_durations)
                else:
                    top = -np.inf
                    for d in range(1, most + 1):
                        top = max(top, H[e - d, a] + durations[d - 1, a] + segment_score(g, rows, e - d, d, a))
                    value = 0.0
                    for d in range(1, most + 1):
                        if top > -np.inf:
                            value += np.exp(
                                H[e - d, a] + durations[d - 1, a] + segment_score(g, rows, e - d, d, a) - top
                            )
                    short = top + np.log(value) if value > 0 else -np.inf
                A[e, a] = log_add(short + total[e, a], G[e, a]) + last[e - 1, a]
        if e == T:
            break
        top_A = scale_row(A, e, scaled)
        for b in range(L):
            B[e, b] = 0.0 if e == 0 else log_times_scaled(w_T, scaled_w, b, A, e, scaled, top_w + top_A)
            H[e, b] = B[e, b] + first[e, b] - total[e, b]
            if g.shape[0] == 0:
                push(b, e, H[e, b], of_H)
    return log_times(np.zeros((1, L)), 0, A, T)


@compiled
def backward(x, Y, C, R, of_durations):
    """Write the backward messages Y, C and R of one sequence."""
    s, total, w, first, last, durations, tail, _, ahead, g, rows = x
    T, L = s.shape
    D, of_V, scaled = len(durations), empty_blocks(L, T), np.empty(L)
    scaled_w, top_w = scaled_steps(w)
    for e in range(T, -1, -1):
        top_Y = 0.0 if e == T else scale_row(Y, e, scaled)
        for a in range(L):
            C[e, a] = 0.0 if e == T else log_times_scaled(w, scaled_w, a, Y, e, scaled, top_w + top_Y)
            R[e, a] = -np.inf if e == 0 else last[e - 1, a] + C[e, a]
            if e < T and e > 0 and most_tokens(ahead, e - 1, a, 2) > 1:
                R[e, a] = log_add(R[e, a], s[e, a] + tail[a] + R[e + 1, a])
        if e == 0:
            break
        # Segments that start at e - 1 need C and R of later positions only.
        start = e - 1
        for a in range(L):
            # V_e = total_e + last_{e-1} + C_e is stored from the last position on.
            if g.shape[0] == 0:
                push(a, T - e, total[e, a] + last[e - 1, a] + C[e, a], of_V)
            long, m = -np.inf, T - start
            most = most_tokens(ahead, start, a, m)
            if most >= D:
                long = total[start + D, a] + durations[D - 1, a] + R[start + D, a] + segment_score(g, rows, start, D, a)
            most = min(D - 1, most)
            if g.shape[0] == 0:
                short = log_window(a, m, most, of_V, of_durations)
            else:
                top = -np.inf
                for d in range(1, most + 1):
                    at = start + d
                    V = total[at, a] + last[at - 1, a] + C[at, a]
                    top = max(top, V + durations[d - 1, a] + segment_score(g, rows, start, d, a))
                value = 0.0
                for d in range(1, most + 1):
                    at = start + d
                    V = total[at, a] + last[at - 1, a] + C[at, a]
                    if top > -np.inf:
                        value += np.exp(V + durations[d - 1, a] + segment_score(g, rows, start, d, a) - top)
                short = top + np.log(value) if value > 0 else -np.inf
            Y[start, a] = log_add(short, long) - total[start, a] + first[start, a]


@compiled
def marginals(x, A, B, H, G, Y, C, R, of_durations, log_z, nodes, starts, ends, steps, lengths, more, segments):
    """Write the probabilities of labels, of starts and ends of segments, and the expected steps and lengths.

    segments : the probabilities of candidate segments, if these have scores.
    """
    s, total, w, _, last, durations, tail, _, ahead, g, rows = x
    T, L = s.shape
    D, of_V = len(durations), empty_blocks(L, T)
    for a in range(L):
        for e in range(T if g.shape[0] == 0 else 0, 0, -1):
            push(a, T - e, total[e, a] + last[e - 1, a] + C[e, a], of_V)
        inside = 0.0
        for t in range(T):
            starts[t, a] = np.exp(B[t, a] + Y[t, a] - log_z)
            ends[t, a] = np.exp(A[t + 1, a] + C[t + 1, a] - log_z)
            inside += starts[t, a]
            nodes[t, a] = min(max(inside, 0.0), 1.0)
            inside -= ends[t, a]
            most = most_tokens(ahead, t, a, T - t)
            if H[t, a] > -np.inf:
                if g.shape[0] == 0:
                    add_window(a, T - t, min(D - 1, most), H[t, a] - log_z, of_V, of_durations, lengths)
                else:
                    for d in range(1, min(D - 1, most) + 1):
                        e = t + d
                        V = total[e, a] + last[e - 1, a] + C[e, a]
                        p = np.exp(H[t, a] + durations[d - 1, a] + segment_score(g, rows, t, d, a) + V - log_z)
                        lengths[d - 1, a] += p
                        segments[rows[t] + d - 1, a] = p
                if most >= D:
                    score = H[t, a] + durations[D - 1, a] + total[t + D, a] + R[t + D, a]
                    p = np.exp(score + segment_score(g, rows, t, D, a) - log_z)
                    lengths[D - 1, a] += p
                    if g.shape[0] > 0:
                        segments[rows[t] + D - 1, a] = p
            if t > 0 and most_tokens(ahead, t - 1, a, 2) > 1:
                more[a] += np.exp(G[t, a] + s[t, a] + tail[a] + R[t + 1, a] - log_z)
    scaled_w, top_w = scaled_steps(w)
    before, after = np.empty(L), np.empty(L)
    for t in range(1, T):
        size = scale_row(A, t, before) + scale_row(Y, t, after) + top_w - log_z
        factor = np.exp(size) if size < MOST else 0.0
        for a in range(L):
            for b in range(L):
                if factor > 0:
                    steps[a, b] += factor * before[a] * scaled_w[a, b] * after[b]
                else:
                    steps[a, b] += np.exp(A[t, a] + w[a, b] + Y[t, b] - log_z)


@compiled
def forward_all(low, high, x, offsets, A, B, H, G, of_durations, log_z):
    """Write the forward messages A, B, H and G, and log Z, of the sequences from `low` to `high` - 1."""
    for i in range(low, high):
        at, end = offsets[i] + i, offsets[i + 1] + i + 1
        if end - at > 1:
            own_x = of_sequence(x, offsets, i)
            log_z[i] = forward(own_x, A[at:end], B[at:end], H[at:end], G[at:end], of_durations)


@compiled
def backward_all(low, high, x, offsets, Y, C, R, of_durations):
    """Write the backward messages Y, C and R of the sequences from `low` to `high` - 1."""
    for i in range(low, high):
        at, end = offsets[i] + i, offsets[i + 1] + i + 1
        if end - at > 1:
            backward(of_sequence(x, offsets, i), Y[at:end], C[at:end], R[at:end], of_durations)


@compiled
def marginals_all(
    low, high, x, offsets, weights, A, B, H, G, Y, C, R, of_durations, log_z,
    nodes, starts, ends, steps, lengths, more, segments,
):  # fmt: skip
    """Write the marginals of the sequences from `low` to `high` - 1.

    In sums over sequences, each sequence counts with its weight.
    """
    for i in range(low, high):
        at, end = offsets[i] + i, offsets[i + 1] + i + 1
        own_steps, own_lengths, own_more = np.zeros_like(steps), np.zeros_like(lengths), np.zeros_like(more)
        if end - at > 1:
            t = slice(offsets[i], offsets[i + 1])
            marginals(
                of_sequence(x, offsets, i), A[at:end], B[at:end], H[at:end], G[at:end], Y[at:end], C[at:end],
                R[at:end], of_durations, log_z[i], nodes[t], starts[t], ends[t], own_steps, own_lengths, own_more,
                segments,
            )  # fmt: skip
        steps += weights[i] * own_steps
        lengths += weights[i] * own_lengths
        more += weights[i] * own_more
