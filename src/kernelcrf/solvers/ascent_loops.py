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
def fill_scores(tokens, low, T, pointers, columns, values, rows, labels, inputs, W, s):
    """Multiply the features of one sequence by the weights W, and write the resulting scores of labels to s.

    low, T : the first token of the sequence, and its number of tokens.
    pointers, columns, values : the arrays indptr, indices and data of the CSR matrix of sparse features, whose row
        tokens[t] is that of token t.
    rows, labels : the arrays `pointers` and `labels` of `WeightRows`.
    inputs : the dense features of the sequence. Their weights are the last ones in W.
    """
    width, n = s.shape[1], inputs.shape[1]
    if n > 0:
        np.dot(inputs[:T], W[len(W) - n * width :].reshape(n, width), s[:T])
    for t in range(T):
        if n == 0:
            for j in range(width):
                s[t, j] = 0
        row = tokens[low + t]
        for k in range(pointers[row], pointers[row + 1]):
            x, column = values[k], columns[k]
            first, last = rows[column], rows[column + 1]
            if last - first == width:
                for j in range(width):
                    s[t, j] += x * W[first + np.uint64(j)]
            else:
                for i in range(first, last):
                    s[t, labels[i]] += x * W[i]


@inlined
def copy_inputs(dense, places, scale, low, T, inputs):
    """Write the dense features of one sequence, times `scale`, to `inputs`. The row of token t is places[t]."""
    for t in range(T):
        for j in range(dense.shape[1]):
            inputs[t, j] = scale * dense[places[low + t], j]


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
def moments(
    offsets, tokens, pointers, columns, values, dense, places, factor, observed, weights, legal, rows, labels, width,
    a, b, r, q, entropies, G, g,
):  # fmt: skip
    """Run inference on all sequences, given the token scores a and the transition scores b.

    The results are written to r (label probabilities) and q (probabilities of transitions, summed over each sequence),
    both minus those of the observed labels, and to `entropies`. The observed features minus the expected features,
    times the weights of the sequences, are added to G and, for transitions, to g. Return the number of sequences that
    failed, because messages of `inference.scaled` would underflow.
    """
    n_failed, n_labels, n_steps, work = 0, a.shape[1], b.shape[1], memory(offsets, width, b.shape[1])
    _, _, _, e, _, u, _, _, failed = work
    step, p, q_i = np.zeros_like(u), np.empty((len(u), n_labels)), np.empty_like(e[0])
    none, change = np.zeros(0), np.zeros(width)
    every = np.ones(len(G), np.uint8)
    inputs, products = np.empty((len(u), dense.shape[1])), np.empty((dense.shape[1], width))
    for i in range(len(offsets) - 1):
        low, T = offsets[i], offsets[i + 1] - offsets[i]
        if T == 0:
            continue
        entropies[i] = infer(a[low : low + T], b[i], legal, work, p[:T], q_i)
        n_failed += failed[0]
        subtract_observed(observed, low, T, n_steps, p, q_i)
        for t in range(T):
            for j in range(n_labels):
                r[low + t, j] = p[t, j]
                step[t, j] = -weights[i] * p[t, j]
        for k in range(n_steps):
            for j in range(n_steps):
                q[i, k, j] = q_i[k, j]
                g[k, j] -= weights[i] * q_i[k, j]
        copy_inputs(dense, places, factor, low, T, inputs)
        multiply(inputs, T, step, products)
        move(tokens, low, T, pointers, columns, values, 1.0, step, products, rows, labels, every, 0.0, none, G, change)
    return n_failed


@inlined
def subtract_observed(observed, low, T, n_steps, p, q):
    """Subtract the observed labels of one sequence from the probabilities p of labels, and q of transitions."""
    for t in range(T):
        p[t, observed[low + t]] -= 1
        if t > 0 and n_steps > 0:
            q[observed[low + t - 1], observed[low + t]] -= 1


@inlined
def shrunk(value, threshold):
    """Move a number towards zero by `threshold`; numbers from -threshold to threshold become zero."""
    return max(value - threshold, 0.0) + min(value + threshold, 0.0)


@inlined
def multiply(inputs, T, step, products):
    """Write the product of the transposed dense features of one sequence and `step` to `products`."""
    if len(products) > 0:
        np.dot(inputs[:T].T, step[:T], products)


@compiled
def move(
    tokens, low, T, pointers, columns, values, sign, step, products, rows, labels, shares, threshold, V, W, change
):  # fmt: skip
    """Add the features of one sequence times `sign * step` to V, and write V, shrunk by `threshold`, to W.

    If `threshold` is 0, V is not used, and the product is added to W. The sequence has the tokens low to low + T - 1.
    `products` are its transposed dense features times `step`. The step of each weight is multiplied by its entry of
    `shares`. The changes of the squares of W, divided by these entries, are added up in `change`, one sum per label.
    """
    width = step.shape[1]
    low_dense = np.uint64(len(W) - products.size)
    for f in range(len(products)):
        first = low_dense + np.uint64(f * width)
        if threshold > 0:
            for j in range(width):
                i = first + np.uint64(j)
                before, after = W[i], V[i] + shares[i] * (sign * products[f, j])
                V[i] = after
                after = shrunk(after, threshold)
                change[j] += (after - before) * (after + before)
                W[i] = after
        else:
            for j in range(width):
                i = first + np.uint64(j)
                before, moved = W[i], sign * products[f, j]
                after = before + shares[i] * moved
                change[j] += moved * (after + before)
                W[i] = after
    for t in range(T):
        row = tokens[low + t]
        for k in range(pointers[row], pointers[row + 1]):
            x, column = sign * values[k], columns[k]
            first, last = rows[column], rows[column + 1]
            # Only loops with one branch outside use SIMD instructions.
            if last - first == width and threshold > 0:
                for j in range(width):
                    i = first + np.uint64(j)
                    before, after = W[i], V[i] + shares[i] * (x * step[t, j])
                    V[i] = after
                    after = shrunk(after, threshold)
                    change[j] += (after - before) * (after + before)
                    W[i] = after
            elif last - first == width:
                for j in range(width):
                    i = first + np.uint64(j)
                    before, moved = W[i], x * step[t, j]
                    after = before + shares[i] * moved
                    change[j] += moved * (after + before)
                    W[i] = after
            else:
                for i in range(first, last):
                    j = labels[i]
                    before, moved = W[i], x * step[t, j]
                    if threshold > 0:
                        after = V[i] + shares[i] * moved
                        V[i] = after
                        after = shrunk(after, threshold)
                        change[j] += (after - before) * (after + before)
                    else:
                        after = before + shares[i] * moved
                        change[j] += moved * (after + before)
                    W[i] = after


@inlined
def move_steps(v, w, step, sign, shares, threshold):
    """Add `sign * step` to transition scores, as `move` does; return the change of the sum of their squares."""
    change = 0.0
    for i in range(len(w)):
        for j in range(len(w)):
            before, moved = w[i, j], sign * step[i, j]
            v[i, j] += shares[i, j] * moved
            after = shrunk(v[i, j], threshold)
            w[i, j] = after
            change += (after - before if threshold > 0 else moved) * (after + before)
    return change


@compiled
def visit(
    order, measure, offsets, tokens, pointers, columns, values, dense, places, factor, observed, weights, legal,
    rows, labels, width,
    lam, lam_edge, l1, l1_edge, shares, shares_edge, V, W, v, w, a, b, r, q, entropies, etas, gaps,
):  # fmt: skip
    """Take one ascent step for each sequence in `order`, and write the duality gap of each sequence i to gaps[i].

    If `measure` is True, gaps[i] is the gap before the step, which costs one more run of inference. If `measure` is
    False, or if messages would underflow, gaps[i] is an estimate: the increase of the dual objective divided by the
    step size eta.

    shares, shares_edge : 1 for the entries of W and w that are weights, and 0 for those that stay 0. If
        weights have their own prior precisions, the entries are lam divided by these precisions.
    V, v : W and w before they are shrunk towards zero by l1 / lam; without an L1 penalty, V and W are the same array.
    """
    n_labels, n_steps = r.shape[1], len(w)
    threshold, threshold_edge = l1 / lam, l1_edge / lam_edge
    work = memory(offsets, width, n_steps)
    _, _, _, e, _, u, _, log_z, failed = work
    s, step, step_edge, change = np.empty_like(u), np.zeros_like(u), np.empty_like(w), np.empty(width)
    new_a, new_b = np.empty((len(u), n_labels), a.dtype), np.empty(w.shape, a.dtype)
    inputs, products = np.empty((len(u), dense.shape[1])), np.empty((dense.shape[1], width))
    p, new_r, new_q = np.empty((len(u), n_labels)), np.empty((len(u), n_labels), r.dtype), np.empty_like(e[0])
    for i in order:
        low, T = offsets[i], offsets[i + 1] - offsets[i]
        if T == 0 or weights[i] == 0:
            continue
        copy_inputs(dense, places, factor, low, T, inputs)
        fill_scores(tokens, low, T, pointers, columns, values, rows, labels, inputs, W, s)
        measured, gaps[i] = False, 0.0
        if measure:
            for t in range(T):
                for j in range(n_labels):
                    new_a[t, j] = s[t, j]
            for k in range(n_steps):
                for j in range(n_steps):
                    new_b[k, j] = w[k, j]
            infer(new_a[:T], new_b, legal, work, p[:0], new_q)
            measured, gap = not failed[0], log_z[0] - entropies[i]
            for t in range(T):
                gap -= s[t, observed[low + t]]
                if t > 0 and n_steps > 0:
                    gap -= w[observed[low + t - 1], observed[low + t]]
                for j in range(n_labels):
                    gap -= r[low + t, j] * s[t, j]
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
            entropy = infer(new_a[:T], new_b, legal, work, p[:T], new_q)
            if failed[0]:
                eta *= 0.5
                continue
            subtract_observed(observed, low, T, n_steps, p, new_q)
            for t in range(T):
                for j in range(n_labels):
                    new_r[t, j] = p[t, j]
                    step[t, j] = scale * (np.float64(r[low + t, j]) - np.float64(new_r[t, j]))
            for k in range(n_steps):
                for j in range(n_steps):
                    new_q[k, j] = q.dtype.type(new_q[k, j])
                    step_edge[k, j] = scale_edge * (q[i, k, j] - new_q[k, j])
            for j in range(width):
                change[j] = 0
            multiply(inputs, T, step, products)
            move(
                tokens, low, T, pointers, columns, values, 1.0, step, products, rows, labels, shares, threshold,
                V, W, change,
            )  # fmt: skip
            norms, norms_edge = 0.0, move_steps(v, w, step_edge, 1.0, shares_edge, threshold_edge)
            for j in range(width):
                norms += change[j]
            gain = weights[i] * (entropy - entropies[i]) - 0.5 * (lam * norms + lam_edge * norms_edge)
            if gain >= 0:
                for t in range(T):
                    for j in range(n_labels):
                        a[low + t, j], r[low + t, j] = new_a[t, j], new_r[t, j]
                for k in range(n_steps):
                    for j in range(n_steps):
                        b[i, k, j], q[i, k, j] = new_b[k, j], new_q[k, j]
                entropies[i] = entropy
                if not measured:
                    gaps[i] = gain / eta
                eta = min(GROWTH * eta, 1.0)
                break
            move(
                tokens, low, T, pointers, columns, values, -1.0, step, products, rows, labels, shares, threshold,
                V, W, change,
            )  # fmt: skip
            move_steps(v, w, step_edge, -1.0, shares_edge, threshold_edge)
            eta *= 0.5
        etas[i] = eta
