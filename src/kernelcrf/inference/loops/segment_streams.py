"""Compiled loops of `streams.segment_filter`, which explains the arrays and formulas.

Arrays of tokens have one row per token and one column per label of segments. E has one row per age, from 1 token to
D - 1 tokens; the last row of arrays of ages belongs to all segments of D tokens or more.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.segments import log_add, log_times
from kernelcrf.inference.loops.streams import empty_work, settle, settle_all


@inlined
def log_sum_two(x, y, a):
    """Return log sum_d exp(x[d, a] + y[d, a])."""
    top = -np.inf
    for d in range(len(x)):
        top = max(top, x[d, a] + y[d, a])
    if top == -np.inf:
        return top
    value = 0.0
    for d in range(len(x)):
        value += np.exp(x[d, a] + y[d, a] - top)
    return top + np.log(value)


@inlined
def duration(durations, tail, d, a):
    """Return the score of the duration of d tokens."""
    D = len(durations)
    return durations[d - 1, a] if d <= D else durations[D - 1, a] + (d - D) * tail[a]


@compiled
def filter_tokens(s, first, last, w_T, durations, tail, E, B, A, norm, nodes, starts):
    """Write the messages B, A and norm of new tokens, and the probabilities of labels and of starts of segments.

    w_T : the scores of steps from one segment to the next, [to, from].
    E : (D, L), the messages of the ages at the token before, changed in place; all are -inf before the first token.
    A : (n + 1, L); its first row belongs to the token before, and is -inf before the first token of the sequence.

    Return the first token without a possible label, or -1.
    """
    n, L = s.shape
    D = len(durations)
    begins = E.max() == -np.inf
    for t in range(n):
        Z = -np.inf
        for a in range(L):
            B[t, a] = 0.0 if begins and t == 0 else log_times(w_T, a, A, t)
        for a in range(L):
            long = log_add(E[D - 2, a] + durations[D - 1, a], E[D - 1, a] + tail[a])
            E[D - 1, a] = long + s[t, a]
            for d in range(D - 2, 0, -1):
                E[d, a] = E[d - 1, a] + s[t, a]
            E[0, a] = B[t, a] + first[t, a] + s[t, a]
            short = log_sum_two(E[: D - 1], durations[: D - 1], a)
            A[t + 1, a] = log_add(short, E[D - 1, a]) + last[t, a]
            Z = log_add(Z, A[t + 1, a])
        if not -np.inf < Z:
            return t
        norm[t] = Z
        for a in range(L):
            nodes[t, a] = np.exp(A[t + 1, a] - Z)
            starts[t, a] = np.exp(E[0, a] + durations[0, a] + last[t, a] - Z)
            A[t + 1, a] -= Z
            for d in range(D):
                E[d, a] -= Z
    return -1


@compiled
def smooth(at, newest, s, first, last, w, durations, tail, end, B, A, norm, out):
    """Write the probabilities of labels (out[0]) and starts (out[1]) of the tokens from `at` to `newest`.

    The rows of out[0] and out[1] are those of these tokens. Row t of A belongs to the token before t.

    end : (L,), the scores of the label of the token `newest`; 0 unless the sequence has ended.
    """
    L, n = s.shape[1], newest - at + 1
    Y, C, total = np.empty((n + 1, L)), np.empty((n + 1, L)), np.empty(L)
    log_z = -np.inf
    for a in range(L):
        log_z = log_add(log_z, A[newest + 1, a] + end[a])
    for a in range(L):
        out[0, n - 1, a] = np.exp(A[newest + 1, a] + end[a] - log_z)
    # log_z - offset is the log-partition, relative to the messages of token b.
    offset = 0.0
    for r in range(n - 1, -1, -1):
        b = at + r
        if r < n - 1:
            # C[r]: a segment has ended with token b.
            for a in range(L):
                C[r, a] = log_times(w, a, Y, r + 1)
        for a in range(L):
            top, score = -np.inf, first[b, a]
            # The scores of the segments from token b on, by their last token e.
            value = 0.0
            for e in range(b, newest + 1):
                score += s[e, a]
                one = score + duration(durations, tail, e - b + 1, a) + last[e, a]
                one += C[e - at, a] if e < newest else end[a]
                if one > top:
                    value = value * np.exp(top - one) + 1.0 if top > -np.inf else 1.0
                    top = one
                elif one > -np.inf:
                    value += np.exp(one - top)
            Y[r, a] = top + np.log(value) if value > 0 else -np.inf
        # B[b] is relative to the messages of the token before b, and A[b + 1] to those of token b.
        for a in range(L):
            out[1, r, a] = np.exp(B[b, a] + Y[r, a] - log_z - offset - norm[b])
            if r < n - 1:
                out[0, r, a] = out[0, r + 1, a] - total[a] + np.exp(A[b + 1, a] + C[r, a] - log_z - offset)
            total[a] = out[1, r, a]
        offset += norm[b]
    for r in range(n):
        mass = 0.0
        for a in range(L):
            out[0, r, a] = max(out[0, r, a], 0.0)
            mass += out[0, r, a]
        for a in range(L):
            out[0, r, a] /= mass
            out[1, r, a] = min(out[1, r, a], out[0, r, a])


@compiled
def smooth_all(at, lag, s, first, last, w, durations, tail, B, A, norm, out):
    """Write the probabilities of the tokens at, at + 1, ..., each given `lag` more tokens, to the rows of out."""
    window, end = np.empty((2, lag + 1, s.shape[1])), np.zeros(s.shape[1])
    for r in range(out.shape[1]):
        t = at + r
        smooth(t, t + lag, s, first, last, w, durations, tail, end, B, A, norm, window)
        out[:, r] = window[:, 0]


@compiled
def decide(s, first, last, w, durations, tail, delta, back, root, counts, label_of, allowed, max_delay, before, labels):
    """Go on with Viterbi's recursion; write the labels that are decided to `labels`, and return their number.

    The state d L + a of a token is a segment with label a of d + 1 tokens so far, or of D tokens or more.

    delta : (D L,), the scores of the best paths into these states, changed in place.
    before : (L,), the scores of last tokens of segments at the token before, changed in place.
    """
    n, L = s.shape
    D = len(durations)
    new, came, value = np.empty(D * L), np.zeros(D * L, np.int64), np.empty(D * L)
    ended, at_end = np.empty(L), np.empty(L, np.int64)
    work, n_out = empty_work(back), 0
    for r in range(n):
        t = counts[1]
        if t > 0:
            best_ends(delta, durations, before, ended, at_end)
        for a in range(L):
            new[a], came[a] = (0.0 if t == 0 else -np.inf), 0
            for b in range(L if t > 0 else 0):
                score = ended[b] + w[b, a]
                if score > new[a]:
                    new[a], came[a] = score, at_end[b]
            new[a] += first[r, a] + s[r, a]
            for d in range(1, D):
                k = d * L + a
                new[k], came[k] = -np.inf, k - L
                if t > 0:
                    new[k] = delta[k - L] + s[r, a] + (durations[D - 1, a] if d == D - 1 else 0.0)
                    if d == D - 1 and delta[k] + s[r, a] + tail[a] > new[k]:
                        new[k], came[k] = delta[k] + s[r, a] + tail[a], k
        if complete(new, durations, last[r], value) == -np.inf:
            complete(delta, durations, before, value)
            n_out = settle_all(value, back, counts, label_of, labels, n_out)
            counts[2] += 1
            new[:] = -np.inf
            for a in range(L):
                new[a] = first[r, a] + s[r, a]
            complete(new, durations, last[r], value)
        top = new.max()
        for k in range(D * L):
            delta[k] = new[k] - top
            value[k] -= top
        for a in range(L):
            before[a] = last[r, a]
        n_out = settle(value, delta, came, back, root, counts, label_of, allowed, max_delay, labels, n_out, work)
    return n_out


@compiled
def best_ends(delta, durations, last, ended, at_end):
    """Write the score of the best path that ends a segment of each label, and the state of its last token."""
    D, L = durations.shape
    for a in range(L):
        ended[a], at_end[a] = -np.inf, 0
        for d in range(D):
            score = delta[d * L + a] + (durations[d, a] if d < D - 1 else 0.0) + last[a]
            if score > ended[a]:
                ended[a], at_end[a] = score, d * L + a


@compiled
def complete(delta, durations, last, value):
    """Write the scores of paths whose newest segment ends with the newest token, and return the best."""
    D, L = durations.shape
    best = -np.inf
    for a in range(L):
        for d in range(D):
            k = d * L + a
            value[k] = delta[k] + (durations[d, a] if d < D - 1 else 0.0) + last[a]
            best = max(best, value[k])
    return best
