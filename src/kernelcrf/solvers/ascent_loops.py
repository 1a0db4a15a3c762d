"""Compiled loops of the solver `Dual`; the docstring of `solvers.dual` explains the arrays and formulas.

Rows with one number per label are padded with zeros to the length that `padded_width` returns, so that the processor
can use SIMD instructions.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.scaled import backward, forward
from kernelcrf.inference.scaled import EDGE_RANGE, FREE_RANGE, MESSAGE_RANGE, NODE_RANGE

FREE = FREE_RANGE[np.dtype(np.float64)]
LEAST = float(np.exp(-MESSAGE_RANGE))
ATTEMPTS = 12
GROWTH = 1.1


@inlined
def scores_of(pointers, columns, values, row, W, s, t):
    """Multiply one row of a sparse matrix by the weights W, and write the resulting scores of labels to s[t].

    pointers, columns, values : the arrays indptr, indices and data of the CSR matrix.
    """
    width = W.shape[1]
    for j in range(width):
        s[t, j] = 0
    for k in range(pointers[row], pointers[row + 1]):
        x, column = values[k], columns[k]
        for j in range(width):
            s[t, j] += x * W[column, j]


@compiled
def memory(offsets, width, n_steps):
    """Allocate arrays for the results of inference on one sequence; the next sequence overwrites them.

    Return them in this order: the offsets of the sequence; highest, shift, e, e_T, u and alpha, as in
    `inference.scaled`; log Z; and failed, which is True if messages of `inference.scaled` would underflow.
    """
    longest, square = 0, width if n_steps > 0 else 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    e, e_T = np.zeros((1, square, square)), np.zeros((1, square, square))
    u, alpha = np.empty((longest, width)), np.empty((longest, width))
    highest, shift, log_z = np.empty(longest), np.empty(1), np.empty(1)
    return np.zeros(2, np.int64), highest, shift, e, e_T, u, alpha, log_z, np.zeros(1, np.bool_)


@compiled
def infer(a, b, legal, work, p, q):
    """Compute log Z and the probabilities of labels and transitions of one sequence; return the entropy of its labels.

    a, b : the token scores and the transition scores. b may be empty if the sequence has one token.
    legal : three boolean arrays that say which first labels, last labels and transitions are legal. All others get the
        probability 0.
    work : the arrays that `memory` allocated; log Z and messages are written to them.
    p : receives the label probabilities, one row per token. If it has no rows, only log Z is computed.
    q : receives the probabilities of transitions [from, to], summed over tokens.
    """
    first, last, steps = legal
    offsets, highest, shift, e, e_T, u, alpha, log_z, failed = work
    n_nodes, n_labels = a.shape
    width, n_steps = u.shape[1], b.shape[0]
    top, lowest, guarded, tied = -np.inf, np.inf, False, np.bool_(True)
    for i in range(n_steps):
        for j in range(n_steps):
            if steps[i, j]:
                top, lowest = max(top, b[i, j]), min(lowest, b[i, j])
            else:
                guarded = True
    top, lowest = (top, lowest) if top > -np.inf else (0.0, 0.0)
    guarded = guarded or top - lowest > FREE
    failed[0] = guarded and top - lowest > EDGE_RANGE
    for i in range(n_steps):
        for j in range(n_steps):
            e[0, i, j] = np.exp(b[i, j] - top) if steps[i, j] else 0.0
    for t in range(n_nodes):
        at_first, at_last = t == 0, t == n_nodes - 1
        top_node = -np.inf
        for j in range(n_labels):
            if (first[j] or not at_first) and (last[j] or not at_last):
                top_node = max(top_node, a[t, j])
        for j in range(n_labels):
            legal = (first[j] or not at_first) and (last[j] or not at_last)
            u[t, j] = np.exp(a[t, j] - top_node) if legal else 0.0
            if guarded and legal and a[t, j] < top_node - NODE_RANGE:
                failed[0] = True
        for j in range(n_labels, width):
            u[t, j] = 0
        highest[t] = top_node
    offsets[1] = n_nodes
    shift[0] = top
    forward(offsets, n_labels, e, tied, shift, highest, LEAST if guarded else 0.0, u, alpha, log_z, failed)
    if len(p) == 0:
        return 0.0
    for i in range(n_steps):
        for j in range(n_steps):
            e_T[0, j, i] = e[0, i, j]
    backward(offsets, e_T, tied, failed, alpha, u, p)
    for i in range(len(q)):
        for j in range(len(q)):
            q[i, j] = 0
    for t in range(1, n_nodes):
        for i in range(n_labels):
            x = alpha[t - 1, i]
            for j in range(width):
                q[i, j] += x * u[t, j]
    energy = 0.0
    for i in range(n_steps):
        for j in range(n_steps):
            q[i, j] *= e[0, i, j]
            energy += q[i, j] * b[i, j]
    for t in range(n_nodes):
        for j in range(n_labels):
            energy += p[t, j] * a[t, j]
    return log_z[0] - energy


@compiled
def moments(offsets, width, legal, a, b, p, q, entropies):
    """Compute the probabilities and entropies of all sequences, given the token scores a and transition scores b.

    The results are written to p (label probabilities), q (probabilities of transitions, summed over each sequence) and
    entropies. Return the number of sequences that failed, because messages of `inference.scaled` would underflow.
    """
    n_failed, n_steps, work = 0, b.shape[1], memory(offsets, width, b.shape[1])
    _, _, _, e, _, _, _, _, failed = work
    q_i = np.empty_like(e[0])
    for i in range(len(offsets) - 1):
        low, high = offsets[i], offsets[i + 1]
        if low == high:
            continue
        entropies[i] = infer(a[low:high], b[i], legal, work, p[low:high], q_i)
        n_failed += failed[0]
        for k in range(n_steps):
            for j in range(n_steps):
                q[i, k, j] = q_i[k, j]
    return n_failed


@inlined
def shrunk(value, threshold):
    """Move a number towards zero by `threshold`; numbers from -threshold to threshold become zero."""
    return max(value - threshold, 0.0) + min(value + threshold, 0.0)


@compiled
def move(rows, low, T, pointers, columns, values, sign, step, kept, precise, threshold, V, W, change):
    """Add the features of one sequence times `sign * step` to V, and write V, shrunk by `threshold`, to W.

    If `threshold` is 0, V is not used, and the product is added to W. The sequence has the tokens low to low + T - 1.
    The changes of the squares of W are added up in `change`, one sum per column. If `precise` is True, the step of each
    weight is multiplied by its entry of `kept`, and the change of its square is divided by this entry.
    """
    width, every = W.shape[1], 0 if len(kept) == 1 else 1
    for t in range(T):
        row = rows[low + t]
        for k in range(pointers[row], pointers[row + 1]):
            x, column = sign * values[k], columns[k]
            entry = every * column
            if threshold > 0:
                for j in range(width):
                    before = W[column, j]
                    after = V[column, j] + kept[entry, j] * (x * step[t, j])
                    V[column, j] = after
                    after = shrunk(after, threshold)
                    change[j] += (after - before) * (after + before)
                    W[column, j] = after
            elif precise:
                for j in range(width):
                    before, moved = W[column, j], x * step[t, j]
                    after = before + kept[entry, j] * moved
                    change[j] += moved * (after + before)
                    W[column, j] = after
            else:
                for j in range(width):
                    before = W[column, j]
                    after = before + kept[entry, j] * (x * step[t, j])
                    change[j] += (after - before) * (after + before)
                    W[column, j] = after


@compiled
def visit(
    order, measure, offsets, rows, pointers, columns, values, weights, legal, lam, lam_edge, l1, l1_edge,
    kept, kept_edge, precise, V, W, v, w, a, b, p, q, entropies, etas, gaps,
):  # fmt: skip
    """Take one ascent step for each sequence in `order`, and write the duality gap of each sequence i to gaps[i].

    If `measure` is True, gaps[i] is the gap before the step, which costs one more run of inference. If `measure` is
    False, or if messages would underflow, gaps[i] is an estimate: the increase of the dual objective divided by the
    step size eta.

    kept, kept_edge : 1 for the entries of W and w that are weights, and 0 for those that stay 0. If `kept` has one row,
        it applies to all rows of W. If `precise` is True, the entries of weights are lam divided by their precision.
    V, v : W and w before they are shrunk towards zero by l1 / lam; without an L1 penalty, V and W are the same array.
    """
    n_labels, width, n_steps = p.shape[1], W.shape[1], len(w)
    threshold, threshold_edge = l1 / lam, l1_edge / lam_edge
    work = memory(offsets, width, n_steps)
    _, _, _, e, _, u, _, log_z, failed = work
    s, step, step_edge, change = np.empty_like(u), np.zeros_like(u), np.empty_like(w), np.empty(width)
    new_a, new_p = np.empty((len(u), n_labels)), np.empty((len(u), n_labels))
    new_b, new_q = np.empty_like(w), np.empty_like(e[0])
    for i in order:
        low, T = offsets[i], offsets[i + 1] - offsets[i]
        if T == 0 or weights[i] == 0:
            continue
        for t in range(T):
            scores_of(pointers, columns, values, rows[low + t], W, s, t)
        measured, gaps[i] = False, 0.0
        if measure:
            for t in range(T):
                for j in range(n_labels):
                    new_a[t, j] = s[t, j]
            infer(new_a[:T], w, legal, work, new_p[:0], new_q)
            measured, gap = not failed[0], log_z[0] - entropies[i]
            for t in range(T):
                for j in range(n_labels):
                    gap -= p[low + t, j] * s[t, j]
            for k in range(n_steps):
                for j in range(n_steps):
                    gap -= q[i, k, j] * w[k, j]
            if measured:
                gaps[i] = max(weights[i] * gap, 0.0)
        eta, scale, scale_edge = etas[i], weights[i] / lam, weights[i] / lam_edge
        for _ in range(ATTEMPTS):
            for t in range(T):
                for j in range(n_labels):
                    new_a[t, j] = (1 - eta) * a[low + t, j] + eta * s[t, j]
            for k in range(n_steps):
                for j in range(n_steps):
                    new_b[k, j] = (1 - eta) * b[i, k, j] + eta * w[k, j]
            entropy = infer(new_a[:T], new_b, legal, work, new_p[:T], new_q)
            if failed[0]:
                eta *= 0.5
                continue
            for t in range(T):
                for j in range(n_labels):
                    step[t, j] = scale * (p[low + t, j] - new_p[t, j])
            for k in range(n_steps):
                for j in range(n_steps):
                    step_edge[k, j] = kept_edge[k, j] * scale_edge * (q[i, k, j] - new_q[k, j])
            for j in range(width):
                change[j] = 0
            move(rows, low, T, pointers, columns, values, 1.0, step, kept, precise, threshold, V, W, change)
            norms, norms_edge = 0.0, 0.0
            for j in range(width):
                norms += change[j]
            for k in range(n_steps):
                for j in range(n_steps):
                    before = w[k, j]
                    v[k, j] += step_edge[k, j]
                    w[k, j] = shrunk(v[k, j], threshold_edge)
                    if precise:
                        norms_edge += scale_edge * (q[i, k, j] - new_q[k, j]) * (w[k, j] + before)
                    else:
                        norms_edge += (w[k, j] - before) * (w[k, j] + before)
            gain = weights[i] * (entropy - entropies[i]) - 0.5 * (lam * norms + lam_edge * norms_edge)
            if gain >= 0:
                for t in range(T):
                    for j in range(n_labels):
                        a[low + t, j], p[low + t, j] = new_a[t, j], new_p[t, j]
                for k in range(n_steps):
                    for j in range(n_steps):
                        b[i, k, j], q[i, k, j] = new_b[k, j], new_q[k, j]
                entropies[i] = entropy
                if not measured:
                    gaps[i] = gain / eta
                eta = min(GROWTH * eta, 1.0)
                break
            move(rows, low, T, pointers, columns, values, -1.0, step, kept, precise, threshold, V, W, change)
            for k in range(n_steps):
                for j in range(n_steps):
                    v[k, j] -= step_edge[k, j]
                    w[k, j] = shrunk(v[k, j], threshold_edge)
            eta *= 0.5
        etas[i] = eta
