"""Compiled loops of `streams`: filtering, fixed-lag smoothing and delayed decisions while tokens arrive.

The scores w of steps are an array with one matrix per token, or with one matrix for all tokens (`tied`). The arrays e
and tops belong to w: e[k] = exp(w[k] - tops[k]), where tops[k] is the largest entry of w[k], or 0 if all are -inf.
`streams.chain_filter` has the formulas.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.segments import LEAST, scale_row

# The number of tokens whose backward messages are computed side by side.
SIDE = 64


@compiled
def filter_tokens(before, s, w, e, tops, tied, la):
    """Write log p(y_t | x_1..x_t) of each new token to `la`; return the first token without a possible label, or -1.

    before : (1, L), these logarithms for the token before the new ones; (0, L) if the sequence begins here.
    """
    n, L = s.shape
    scaled, top = np.empty(L), 0.0
    if len(before):
        top = scale_row(before, 0, scaled)
    for t in range(n):
        k = 0 if tied else t
        for j in range(L):
            la[t, j] = s[t, j]
            if t > 0 or len(before):
                value = 0.0
                for i in range(L):
                    value += scaled[i] * e[k, i, j]
                if value > LEAST:
                    la[t, j] += top + tops[k] + np.log(value)
                elif t > 0:
                    la[t, j] += log_sum(la, t - 1, w, k, j)
                else:
                    la[t, j] += log_sum(before, 0, w, k, j)
        top = scale_row(la, t, scaled)
        total = 0.0
        for j in range(L):
            total += scaled[j]
        if not total > 0.0:
            return t
        norm = top + np.log(total)
        for j in range(L):
            la[t, j] -= norm
        top -= norm
    return -1


@inlined
def log_sum(x, row, w, k, j):
    """Return log sum_i exp(x[row, i] + w[k, i, j])."""
    top = -np.inf
    for i in range(x.shape[1]):
        top = max(top, x[row, i] + w[k, i, j])
    if top == -np.inf:
        return top
    value = 0.0
    for i in range(x.shape[1]):
        value += np.exp(x[row, i] + w[k, i, j] - top)
    return top + np.log(value)


@compiled
def smooth_scaled(alpha, u, e, tied, first, lag, p):
    """Write the probabilities of the labels of the tokens first, first + 1, ... to the columns of `p`.

    Each token is given the tokens up to `lag` tokens later. The backward messages of several tokens are computed side
    by side. The scores of steps must be finite, and must not differ by more than 300.

    alpha, u : (L, n), the filtered probabilities, and exp(s - max s), one column per token.
    """
    L, n = p.shape
    b, x, total = np.empty((L, SIDE)), np.empty((L, SIDE)), np.empty(SIDE)
    for low in range(0, n, SIDE):
        width = min(SIDE, n - low)
        b[:] = 1.0
        for step in range(lag, 0, -1):
            at = first + low + step
            total[:] = 0.0
            # Loops over one row at a time use SIMD.
            for j in range(L):
                x_j, u_j, b_j = x[j], u[j, at : at + width], b[j]
                for c in range(width):
                    x_j[c] = u_j[c] * b_j[c]
            for i in range(L):
                b_i = b[i]
                b_i[:] = 0.0
                for j in range(L):
                    x_j = x[j]
                    if tied:
                        factor = e[0, i, j]
                        for c in range(width):
                            b_i[c] += factor * x_j[c]
                    else:
                        for c in range(width):
                            b_i[c] += e[at + c, i, j] * x_j[c]
                for c in range(width):
                    total[c] += b_i[c]
            for c in range(width):
                total[c] = 1.0 / total[c]
            for i in range(L):
                b_i = b[i]
                for c in range(width):
                    b_i[c] *= total[c]
        total[:] = 0.0
        for j in range(L):
            for c in range(width):
                p[j, low + c] = alpha[j, first + low + c] * b[j, c]
                total[c] += p[j, low + c]
        for j in range(L):
            for c in range(width):
                p[j, low + c] /= total[c]


@compiled
def smooth(la, s, w, e, tops, tied, first, lag, p):
    """Do the same as `smooth_scaled` in logarithms, for all scores; s has the scores of labels."""
    L = la.shape[1]
    x, scaled, lb = np.empty((1, L)), np.empty(L), np.empty(L)
    for r in range(len(p)):
        t = first + r
        lb[:] = 0.0
        for at in range(t + lag, t, -1):
            step_back(s, at, w, e, tops, 0 if tied else at, x, scaled, lb)
        normalise(la, t, lb, p, r)


@compiled
def smooth_rest(la, s, w, e, tops, tied, end, p):
    """Write the probabilities of the labels of all tokens of a sequence that has ended to `p`; `end` has end scores."""
    n, L = la.shape
    x, scaled, lb = np.empty((1, L)), np.empty(L), end.copy()
    for t in range(n - 1, -1, -1):
        normalise(la, t, lb, p, t)
        if t > 0:
            step_back(s, t, w, e, tops, 0 if tied else t, x, scaled, lb)


@inlined
def step_back(s, at, w, e, tops, k, x, scaled, lb):
    """Replace lb(j) of token `at` by that of the token before: log sum_j exp(w(i, j) + s_at(j) + lb(j))."""
    L = len(lb)
    for j in range(L):
        x[0, j] = s[at, j] + lb[j]
    top = scale_row(x, 0, scaled)
    for i in range(L):
        value = 0.0
        for j in range(L):
            value += e[k, i, j] * scaled[j]
        if value > LEAST:
            lb[i] = top + tops[k] + np.log(value)
        else:
            highest = -np.inf
            for j in range(L):
                highest = max(highest, w[k, i, j] + x[0, j])
            value = 0.0
            if highest > -np.inf:
                for j in range(L):
                    value += np.exp(w[k, i, j] + x[0, j] - highest)
            lb[i] = highest + np.log(value) if value > 0 else -np.inf


@inlined
def normalise(la, t, lb, p, r):
    """Write exp(la[t] + lb) to p[r], divided by its sum."""
    top = -np.inf
    for j in range(len(lb)):
        top = max(top, la[t, j] + lb[j])
    total = 0.0
    for j in range(len(lb)):
        p[r, j] = np.exp(la[t, j] + lb[j] - top)
        total += p[r, j]
    for j in range(len(lb)):
        p[r, j] /= total


@compiled
def decide_chain(s, w, tied, la, delta, back, root, counts, allowed, max_delay, labels):
    """Go on with Viterbi's recursion; write the labels that are decided to `labels`, and return their number.

    delta : (L,), the score of the best path into each label, changed in place; back, root and counts are explained in
        `settle`. Before the first token, delta is not read.
    la : the filtered logarithms of the new tokens, which say what labels are possible at all.
    """
    n, L = s.shape
    label_of, new, came, n_out = np.arange(L), np.empty(L), np.empty(L, np.int64), 0
    work = empty_work(back)
    for r in range(n):
        k, t, top = 0 if tied else r, counts[1], -np.inf
        for j in range(L):
            if t == 0:
                new[j], came[j] = s[r, j], j
            else:
                value, at = delta[0] + w[k, 0, j], 0
                for i in range(1, L):
                    other = delta[i] + w[k, i, j]
                    if other > value:
                        value, at = other, i
                new[j], came[j] = value + s[r, j], at
            top = max(top, new[j])
        if top == -np.inf:
            n_out = settle_all(delta, back, counts, label_of, labels, n_out)
            counts[2] += 1
            for j in range(L):
                new[j] = s[r, j] if la[r, j] > -np.inf else -np.inf
                top = max(top, new[j])
        for j in range(L):
            delta[j] = new[j] - top
        n_out = settle(delta, delta, came, back, root, counts, label_of, allowed, max_delay, labels, n_out, work)
    return n_out


@compiled
def empty_work(back):
    """Return arrays in which `settle` computes."""
    K = back.shape[1]
    return np.empty(K, np.int64), np.empty(K, np.int64), np.empty(len(back), np.int64)


@compiled
def settle(value, delta, came, back, root, counts, label_of, allowed, max_delay, labels, n_out, work):
    """Take one more token, and decide the labels on which all paths agree; return the number of labels decided so far.

    value : (K,), the score of the best path into each of K states of the token; -inf if there is none.
    delta : (K,), set to -inf for states whose paths may not follow a decision that was forced.
    came : (K,), the state of the token before on this path.
    back : the rows of `came` of the undecided tokens; the row of token t is t modulo the number of rows.
    root : (K,), the label of the first undecided token on the path into each state.
    counts : the first undecided token, the number of tokens, the number of forced decisions, and the label of the last
        token that is decided, or -1.
    label_of : (K,), the label of each state.
    allowed : whether a label may follow another, [from, to].
    """
    K, t, row, before = len(value), counts[1], counts[1] % len(back), work[0]
    counts[1] += 1
    for j in range(K):
        before[j] = root[j]
    for j in range(K):
        back[row, j] = came[j]
        root[j] = label_of[j] if counts[0] == t else before[came[j]]
    if counts[0] == t:
        follow(value, delta, root, counts, allowed)
    while counts[0] <= t:
        best, agree = 0, True
        for j in range(1, K):
            if value[j] > value[best]:
                best = j
        for j in range(K):
            agree = agree and (value[j] == -np.inf or root[j] == root[best])
        if agree:
            n_out = settle_agreed(value, back, counts, label_of, labels, n_out, work)
        elif t - counts[0] >= max_delay:
            labels[n_out] = counts[3] = root[best]
            n_out += 1
            counts[0] += 1
            counts[2] += 1
        else:
            break
        for j in range(K):
            state = j
            for at in range(t, counts[0], -1):
                state = back[at % len(back), state]
            root[j] = label_of[state]
        if counts[0] <= t:
            follow(value, delta, root, counts, allowed)
    return n_out


@compiled
def follow(value, delta, root, counts, allowed):
    """Give up the paths whose first undecided label may not follow the last decided one, unless no path is left."""
    last, some = counts[3], False
    if last < 0:
        return
    for j in range(len(root)):
        some = some or (value[j] > -np.inf and allowed[last, root[j]])
    for j in range(len(root) if some else 0):
        if not allowed[last, root[j]]:
            value[j] = -np.inf
            delta[j] = -np.inf


@compiled
def settle_agreed(value, back, counts, label_of, labels, n_out, work):
    """Decide the undecided tokens up to the first on which the paths disagree."""
    K, first, t, state, known = len(value), counts[0], counts[1] - 1, work[1], work[2]
    for j in range(K):
        state[j] = j
    for at in range(t, first - 1, -1):
        label = -1
        for j in range(K):
            if value[j] > -np.inf:
                at_state = label_of[state[j]]
                label = at_state if label == -1 or label == at_state else -2
            state[j] = back[at % len(back), state[j]]
        known[at - first] = label
    for at in range(t - first + 1):
        if known[at] < 0:
            break
        labels[n_out] = counts[3] = known[at]
        n_out += 1
        counts[0] += 1
    return n_out


@compiled
def settle_all(value, back, counts, label_of, labels, n_out):
    """Decide all tokens by the best path into the newest one; return the number of labels decided so far."""
    state, first, t = np.argmax(value), counts[0], counts[1] - 1
    for at in range(t, first - 1, -1):
        labels[n_out + at - first] = label_of[state]
        state = back[at % len(back), state]
    counts[0] = t + 1
    if t >= first:
        counts[3] = labels[n_out + t - first]
    return n_out + t - first + 1
