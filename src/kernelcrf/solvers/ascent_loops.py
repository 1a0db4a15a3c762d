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
def memory(offsets, width, n_steps, tied):
    """Allocate arrays for the results of inference on one sequence; the next sequence overwrites them.

    n_steps : the number of labels, or 0 if the model does not score transitions.
    tied : whether all steps of a sequence have the same transition scores.

    Return them in this order: the offsets of the sequence; highest, shift, e, e_T, u and alpha, as in
    `inference.scaled`; log Z; and failed, which is True if messages of `inference.scaled` would underflow.
    """
    longest, square = 0, width if n_steps > 0 else 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    n_rows = 1 if tied else longest
    e, e_T = np.zeros((n_rows, square, square)), np.zeros((n_rows, square, square))
    u, alpha = np.empty((longest, width)), np.empty((longest, width))
    highest, shift, log_z = np.empty(longest), np.zeros(n_rows), np.empty(1)
    return np.zeros(2, np.int64), highest, shift, e, e_T, u, alpha, log_z, np.zeros(1, np.bool_)


@compiled
def infer(a, b, tied, legal, work, p, q):
    """Compute log Z and the probabilities of labels and transitions of one sequence; return the entropy of its labels.

    a : the token scores.
    b : the transition scores [from, to]: one matrix for all steps if `tied` is True, otherwise the matrix b[t] for the
        step into token t. It may be empty if the sequence has one token.
    legal : three boolean arrays that say which first labels, last labels and transitions are legal. All others get the
        probability 0.
    work : the arrays that `memory` allocated; log Z and messages are written to them.
    p : receives the label probabilities, one row per token. If it has no rows, only log Z is computed.
    q : receives the probabilities of transitions in the order of b; those of tied steps are summed over the steps.
    """
    first, last, steps = legal
    offsets, highest, shift, e, e_T, u, alpha, log_z, failed = work
    n_nodes, n_labels = a.shape
    width, n_steps = u.shape[1], b.shape[1]
    low_row, n_rows = (0, len(b)) if tied else (1, n_nodes)
    guarded, spread = False, 0.0
    for i in range(n_steps):
        for j in range(n_steps):
            guarded = guarded or not steps[i, j]
    # Numba's loops over one matrix are faster than those over a matrix among several.
    for k in range(low_row, n_rows):
        top, lowest, b_k, e_k = -np.inf, np.inf, b[k], e[k]
        for i in range(n_steps):
            for j in range(n_steps):
                if steps[i, j]:
                    top, lowest = max(top, b_k[i, j]), min(lowest, b_k[i, j])
        if top > -np.inf:
            spread = max(spread, top - lowest)
        else:
            top = 0.0
        shift[k] = top
        for i in range(n_steps):
            for j in range(n_steps):
                e_k[i, j] = np.exp(b_k[i, j] - top) if steps[i, j] else 0.0
    guarded = guarded or spread > FREE
    failed[0] = guarded and spread > EDGE_RANGE
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
    forward(offsets, n_labels, e, tied, shift, highest, LEAST if guarded else 0.0, u, alpha, log_z, failed)
    if len(p) == 0:
        return 0.0
    for k in range(low_row, n_rows):
        e_k, e_T_k = e[k], e_T[k]
        for i in range(n_steps):
            for j in range(n_steps):
                e_T_k[j, i] = e_k[i, j]
    backward(offsets, e_T, tied, failed, alpha, u, p)
    q[:] = 0
    for t in range(1, n_nodes):
        q_k = q[0 if tied else t]
        for i in range(n_steps):
            x = alpha[t - 1, i]
            for j in range(width):
                q_k[i, j] += x * u[t, j]
    energy = 0.0
    for k in range(low_row, n_rows):
        b_k, e_k, q_k = b[k], e[k], q[k]
        for i in range(n_steps):
            for j in range(n_steps):
                q_k[i, j] *= e_k[i, j]
                energy += q_k[i, j] * b_k[i, j]
    for t in range(n_nodes):
        for j in range(n_labels):
            energy += p[t, j] * a[t, j]
    return log_z[0] - energy


@compiled
def moments(
    offsets, tokens, pointers, columns, values, dense, places, factor, observed, weights, legal,
    tied, step_offsets, step_rows, step_pointers, step_columns, step_values,
    rows, labels, width, rows_edge, labels_edge, width_edge, a, b, r, q, entropies, G, g,
):  # fmt: skip
    """Run inference on all sequences, given the token scores a and the transition scores b.

    The results are written to r (label probabilities) and q (probabilities of transitions), both minus those of the
    observed labels, and to `entropies`. The observed features minus the expected features, times the weights of the
    sequences, are added to G and, for transitions, to g. Return the number of sequences that failed, because messages
    of `inference.scaled` would underflow.
    """
    n_failed, n_labels, n_steps = 0, a.shape[1], b.shape[1]
    work = memory(offsets, width, n_steps, tied)
    _, _, _, e, _, u, _, _, failed = work
    step, p, q_i = np.zeros_like(u), np.empty((len(u), n_labels)), np.empty_like(e)
    step_edge, none_edge, change_edge = np.zeros((len(e), width_edge)), np.zeros((0, width_edge)), np.zeros(width_edge)
    none, change = np.zeros(0), np.zeros(width)
    every, every_edge = np.ones(len(G), np.uint8), np.ones(len(g), np.uint8)
    inputs, products = np.empty((len(u), dense.shape[1])), np.empty((dense.shape[1], width))
    for i in range(len(offsets) - 1):
        low, T = offsets[i], offsets[i + 1] - offsets[i]
        low_edge, n_rows = step_offsets[i], step_offsets[i + 1] - step_offsets[i]
        if T == 0:
            continue
        entropies[i] = infer(a[low : low + T], b[low_edge : low_edge + n_rows], tied, legal, work, p[:T], q_i[:n_rows])
        n_failed += failed[0]
        subtract_observed(observed, low, T, n_steps, tied, p, q_i)
        for t in range(T):
            for j in range(n_labels):
                r[low + t, j] = p[t, j]
                step[t, j] = -weights[i] * p[t, j]
        for k in range(n_rows):
            for x in range(n_steps):
                for y in range(n_steps):
                    q[low_edge + k, x, y] = q_i[k, x, y]
                    step_edge[k, x * n_steps + y] = -weights[i] * q_i[k, x, y]
        copy_inputs(dense, places, factor, low, T, inputs)
        multiply(inputs, T, step, products)
        move(tokens, low, T, pointers, columns, values, 1.0, step, products, rows, labels, every, 0.0, none, G, change)
        move(
            step_rows, low_edge, n_rows, step_pointers, step_columns, step_values, 1.0, step_edge, none_edge,
            rows_edge, labels_edge, every_edge, 0.0, none, g, change_edge,
        )  # fmt: skip
    return n_failed


@inlined
def subtract_observed(observed, low, T, n_steps, tied, p, q):
    """Subtract the observed labels of one sequence from the probabilities p of labels, and q of transitions."""
    for t in range(T):
        p[t, observed[low + t]] -= 1
        if t > 0 and n_steps > 0:
            q[0 if tied else t, observed[low + t - 1], observed[low + t]] -= 1


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


@compiled
def visit(
    order, measure, offsets, tokens, pointers, columns, values, dense, places, factor, observed, weights, legal,
    tied, step_offsets, step_rows, step_pointers, step_columns, step_values,
    rows, labels, width, rows_edge, labels_edge, width_edge,
    lam, lam_edge, l1, l1_edge, shares, shares_edge, V, W, v, w, a, b, r, q, entropies, etas, gaps,
):  # fmt: skip
    """Take one ascent step for each sequence in `order`, and write the duality gap of each sequence i to gaps[i].

    If `measure` is True, gaps[i] is the gap before the step, which costs one more run of inference. If `measure` is
    False, or if messages would underflow, gaps[i] is an estimate: the increase of the dual objective divided by the
    step size eta.

    tied, step_offsets : whether all steps of a sequence have the same transition scores; those of sequence i are in the
        rows step_offsets[i] to step_offsets[i + 1] - 1 of b and q.
    shares, shares_edge : 1 for the entries of W and w that are weights, and 0 for those that stay 0. If
        weights have their own prior precisions, the entries are lam divided by these precisions.
    V, v : W and w before they are shrunk towards zero by l1 / lam; without an L1 penalty, V and W are the same array.
    """
    n_labels, n_steps, n_pairs = r.shape[1], b.shape[1], b.shape[1] ** 2
    threshold, threshold_edge = l1 / lam, l1_edge / lam_edge
    work = memory(offsets, width, n_steps, tied)
    _, _, _, e, _, u, _, log_z, failed = work
    s, step, change = np.empty_like(u), np.zeros_like(u), np.empty(width)
    s_edge, step_edge = np.empty((len(e), width_edge)), np.zeros((len(e), width_edge))
    change_edge, none_edge, none = np.empty(width_edge), np.zeros((0, width_edge)), np.zeros((len(u), 0))
    new_a, new_b = np.empty((len(u), n_labels), a.dtype), np.empty((len(e), n_steps, n_steps), a.dtype)
    inputs, products = np.empty((len(u), dense.shape[1])), np.empty((dense.shape[1], width))
    p, new_r, new_q = np.empty((len(u), n_labels)), np.empty((len(u), n_labels), r.dtype), np.empty_like(e)
    for i in order:
        low, T = offsets[i], offsets[i + 1] - offsets[i]
        low_edge, n_rows = step_offsets[i], step_offsets[i + 1] - step_offsets[i]
        if T == 0 or weights[i] == 0:
            continue
        copy_inputs(dense, places, factor, low, T, inputs)
        fill_scores(tokens, low, T, pointers, columns, values, rows, labels, inputs, W, s)
        fill_scores(
            step_rows,
            low_edge,
            n_rows,
            step_pointers,
            step_columns,
            step_values,
            rows_edge,
            labels_edge,
            none,
            w,
            s_edge,
        )
        measured, gaps[i] = False, 0.0
        if measure:
            for t in range(T):
                for j in range(n_labels):
                    new_a[t, j] = s[t, j]
            for k in range(n_rows):
                new_b[k] = s_edge[k, :n_pairs].reshape(n_steps, n_steps)
            infer(new_a[:T], new_b[:n_rows], tied, legal, work, p[:0], new_q[:n_rows])
            measured, gap = not failed[0], log_z[0] - entropies[i]
            for t in range(T):
                gap -= s[t, observed[low + t]]
                if t > 0 and n_steps > 0:
                    gap -= s_edge[0 if tied else t, observed[low + t - 1] * n_steps + observed[low + t]]
                for j in range(n_labels):
                    gap -= r[low + t, j] * s[t, j]
            for k in range(n_rows):
                q_k, s_k = q[low_edge + k], s_edge[k, :n_pairs].reshape(n_steps, n_steps)
                for x in range(n_steps):
                    for y in range(n_steps):
                        gap -= q_k[x, y] * s_k[x, y]
            if measured:
                gaps[i] = max(weights[i] * gap, 0.0)
        eta, scale, scale_edge = etas[i], weights[i] / lam, weights[i] / lam_edge
        for _ in range(ATTEMPTS):
            for t in range(T):
                for j in range(n_labels):
                    new_a[t, j] = (1 - eta) * a[low + t, j] + eta * s[t, j]
            for k in range(n_rows):
                b_k, s_k, new_b_k = b[low_edge + k], s_edge[k, :n_pairs].reshape(n_steps, n_steps), new_b[k]
                for x in range(n_steps):
                    for y in range(n_steps):
                        new_b_k[x, y] = (1 - eta) * b_k[x, y] + eta * s_k[x, y]
            entropy = infer(new_a[:T], new_b[:n_rows], tied, legal, work, p[:T], new_q[:n_rows])
            if failed[0]:
                eta *= 0.5
                continue
            subtract_observed(observed, low, T, n_steps, tied, p, new_q)
            for t in range(T):
                for j in range(n_labels):
                    new_r[t, j] = p[t, j]
                    step[t, j] = scale * (np.float64(r[low + t, j]) - np.float64(new_r[t, j]))
            for k in range(n_rows):
                q_k, new_q_k, step_k = q[low_edge + k], new_q[k], step_edge[k, :n_pairs].reshape(n_steps, n_steps)
                for x in range(n_steps):
                    for y in range(n_steps):
                        rounded = q.dtype.type(new_q_k[x, y])
                        new_q_k[x, y] = rounded
                        step_k[x, y] = scale_edge * (q_k[x, y] - rounded)
            for j in range(width):
                change[j] = 0
            for j in range(width_edge):
                change_edge[j] = 0
            multiply(inputs, T, step, products)
            move(
                tokens, low, T, pointers, columns, values, 1.0, step, products, rows, labels, shares, threshold,
                V, W, change,
            )  # fmt: skip
            move(
                step_rows, low_edge, n_rows, step_pointers, step_columns, step_values, 1.0, step_edge, none_edge,
                rows_edge, labels_edge, shares_edge, threshold_edge, v, w, change_edge,
            )  # fmt: skip
            norms, norms_edge = 0.0, 0.0
            for j in range(width):
                norms += change[j]
            for j in range(width_edge):
                norms_edge += change_edge[j]
            gain = weights[i] * (entropy - entropies[i]) - 0.5 * (lam * norms + lam_edge * norms_edge)
            if gain >= 0:
                for t in range(T):
                    for j in range(n_labels):
                        a[low + t, j], r[low + t, j] = new_a[t, j], new_r[t, j]
                for k in range(n_rows):
                    b_k, q_k, new_b_k, new_q_k = b[low_edge + k], q[low_edge + k], new_b[k], new_q[k]
                    for x in range(n_steps):
                        for y in range(n_steps):
                            b_k[x, y], q_k[x, y] = new_b_k[x, y], new_q_k[x, y]
                entropies[i] = entropy
                if not measured:
                    gaps[i] = gain / eta
                eta = min(GROWTH * eta, 1.0)
                break
            move(
                tokens, low, T, pointers, columns, values, -1.0, step, products, rows, labels, shares, threshold,
                V, W, change,
            )  # fmt: skip
            move(
                step_rows, low_edge, n_rows, step_pointers, step_columns, step_values, -1.0, step_edge, none_edge,
                rows_edge, labels_edge, shares_edge, threshold_edge, v, w, change_edge,
            )  # fmt: skip
            eta *= 0.5
        etas[i] = eta
