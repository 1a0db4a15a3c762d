"""Compiled loops of `partitions.fused_chains`, which process the sequences in blocks.

Scores, marginals and gradient of a block are computed one after the other, while its features are in the CPU cache.

Numba compiles a loop again for each length of a tuple. Tuples of features are therefore filled up to the same length
with arrays without columns. The weights of all inputs are the rows of one array.

Numba also compiles a loop again for each literal argument, such as True, but not for `np.bool_(True)`.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled
from kernelcrf.inference.loops import tangents
from kernelcrf.inference.loops.scaled import backward, forward, shift

# From this number of labels on, the transposed product is faster.
TRANSPOSED = 11
# OpenBLAS has fast kernels for products of at most this many multiplications, which copy no matrix.
SMALL_PRODUCT, LEAST_ROWS = 10**6, 32


@compiled
def rows_at_once(n_rows, n_columns, n_labels):
    """Return how many rows of features to multiply at once, so that all products have about the same size."""
    most = max(SMALL_PRODUCT // max(n_columns * n_labels, 1), LEAST_ROWS)
    n_products = max((n_rows + most - 1) // most, 1)
    return (n_rows + n_products - 1) // n_products


@compiled
def node_scores(F, W, s):
    """Write the product of features F and weights W into the scores s."""
    rows = rows_at_once(len(F), F.shape[1], W.shape[1])
    for low in range(0, len(F), rows):
        high = min(low + rows, len(F))
        if W.shape[1] < TRANSPOSED:
            np.dot(F[low:high], W, s[low:high])
        else:
            # Numba compiles the assignment of a whole array for seconds.
            transposed = np.dot(W.T, F[low:high].T)
            for t in range(low, high):
                for j in range(s.shape[1]):
                    s[t, j] = transposed[j, t - low]


@compiled
def sum_scores(Fs, W, begin, end, s):
    """Write the scores of the tokens from `begin` to `end` - 1 into s.

    The scores are the products of features and weights, summed over all inputs.
    """
    top = Fs[0].shape[1]
    node_scores(Fs[0][begin:end], W[:top], s)
    if top < len(W):
        more = np.empty_like(s)
        for k in range(1, len(Fs)):
            low, top = top, top + Fs[k].shape[1]
            if low < top:
                node_scores(Fs[k][begin:end], W[low:top], more)
                s += more


@compiled
def add_products(r, Fs, begin, end, gradient):
    """Add r' F of each input to the input's part of `gradient`, for the tokens from `begin` to `end` - 1."""
    n_labels, top = r.shape[1], 0
    for k in range(len(Fs)):
        low, top = top, top + n_labels * Fs[k].shape[1]
        if low < top:
            part, rows = gradient[low:top].reshape(n_labels, -1), rows_at_once(end - begin, Fs[k].shape[1], n_labels)
            for t in range(begin, end, rows):
                stop = min(t + rows, end)
                part += np.dot(r[t - begin : stop - begin].T, Fs[k][t:stop])


@compiled
def add_outer(left, right, weights, offsets, total):
    """Add the outer products of left[t - 1] and right[t], for all tokens t, to `total`.

    Each product is multiplied by the weight of the sequence that contains t; if `weights` is empty, all weights are 1.
    `right` must be zero at the first token of each sequence.
    """
    if len(weights):
        right = right.copy()
        for k in range(len(offsets) - 1):
            for t in range(offsets[k], offsets[k + 1]):
                for j in range(right.shape[1]):
                    right[t, j] *= weights[k]
    total += np.dot(left[:-1].T, right[1:])


@compiled
def add_biases(biases, offsets, s):
    """Add biases[0] to all rows of the scores s, biases[1] to first tokens, and biases[2] to last tokens."""
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1] - 1
        for t in range(first, last + 1):
            for j in range(s.shape[1]):
                s[t, j] += biases[0, j]
        if last >= first:
            for j in range(s.shape[1]):
                s[first, j] += biases[1, j]
                s[last, j] += biases[2, j]


@compiled
def sum_nodes(r, offsets, nodes):
    """Add all rows of r to nodes[0], the rows of first tokens to nodes[1], and the rows of last tokens to nodes[2]."""
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1] - 1
        for t in range(first, last + 1):
            for j in range(r.shape[1]):
                nodes[0, j] += r[t, j]
        if last >= first:
            for j in range(r.shape[1]):
                nodes[1, j] += r[first, j]
                nodes[2, j] += r[last, j]


@compiled
def evaluate(
    Fs, W, biases, offsets, cuts, labels, weights, first, last, e, e_T, edge_shift, spread, least,
    s, p, r, alpha, v, log_partition, failed, gradient, steps, nodes,
):  # fmt: skip
    """Compute scores, marginals, residuals and messages of all sequences, block by block.

    Fs : a tuple with the features F of each input.
    W, biases : the weights of all inputs, and the biases of labels. The scores are the sum of the products of each F
        and its rows of W, plus biases[0]; in addition, biases[1] is added at the first token of each sequence, and
        biases[2] at the last token. If there are no biases, `biases` has no rows.
    cuts : the index of the first sequence of each block, followed by the number of sequences.
    s, p, r : outputs, the scores, marginals, and residuals (p minus the one-hot label, times the sequence's weight).
    alpha, v : outputs, the forward and backward messages, which `inference.scaled` defines.
    gradient, steps, nodes : sums that are updated in place. r' F of each input is added to its part of the vector
        `gradient`. The weighted outer products of alpha[t - 1] and v[t] are added to `steps`. The sums of r over
        all, over first and over last tokens are added to the three rows of `nodes`.

    The arrays s, p, r, alpha and v have one row per token. If they need not be kept, they can have only as many rows as
    the longest block. Return the weighted sum of the scores of the observed labels.
    """
    n_labels, shown, kept, target = s.shape[1], len(s) == len(Fs[0]), len(alpha) == len(Fs[0]), 0.0
    tied = np.bool_(True)
    for c in range(len(cuts) - 1):
        low, high = cuts[c], cuts[c + 1]
        begin, end = offsets[low], offsets[high]
        if begin == end:
            continue
        offsets_b = offsets[low : high + 1] - begin
        base = begin if shown else 0
        top = base + end - begin
        s_b, p_b, r_b = s[base:top], p[base:top], r[base:top]
        base = begin if kept else 0
        top = base + end - begin
        alpha_b, v_b = alpha[base:top], v[base:top]
        failed_b, log_b = failed[low:high], log_partition[low:high]
        sum_scores(Fs, W, begin, end, s_b)
        if len(biases):
            add_biases(biases, offsets_b, s_b)
        for k in range(high - low):
            if offsets_b[k + 1] > offsets_b[k]:
                for j in range(n_labels):
                    if not first[j]:
                        s_b[offsets_b[k], j] = -np.inf
                    if not last[j]:
                        s_b[offsets_b[k + 1] - 1, j] = -np.inf
        highest = np.empty(end - begin, v.dtype)
        shift(s_b, offsets_b, spread, v_b, highest, failed_b)
        for t in range(end - begin):
            for j in range(n_labels):
                v_b[t, j] = np.exp(v_b[t, j])
        forward(offsets_b, n_labels, e, tied, edge_shift, highest, least, v_b, alpha_b, log_b, failed_b)
        backward(offsets_b, e_T, tied, failed_b, alpha_b, v_b, p_b)
        add_outer(alpha_b, v_b, weights[low:high], offsets_b, steps)
        for k in range(high - low):
            weight = weights[low + k] if len(weights) else 1.0
            for t in range(offsets_b[k], offsets_b[k + 1]):
                for j in range(n_labels):
                    r_b[t, j] = weight * p_b[t, j]
                y = labels[begin + t]
                r_b[t, y] -= r.dtype.type(weight)
                target += weight * s_b[t, y]
        if len(nodes):
            sum_nodes(r_b, offsets_b, nodes)
        add_products(r_b, Fs, begin, end, gradient)
    return target


@compiled
def hessian_product(
    Fs, W, biases, offsets, cuts, weights, e, e_T, edw, edw_T, p, alpha, v, gradient, steps, nodes
):  # fmt: skip
    """Differentiate the sums `gradient`, `steps` and `nodes` of `evaluate` along a direction of the parameters.

    The derivatives are added to the arguments of the same names.

    W, biases : the direction of the weights and biases.
    edw, edw_T : the elementwise product of the edge potentials e with the direction of the edge scores, and its
        transpose.
    """
    n_labels, width, tied = p.shape[1], alpha.shape[1], np.bool_(True)
    for c in range(len(cuts) - 1):
        low, high = cuts[c], cuts[c + 1]
        begin, end = offsets[low], offsets[high]
        if begin == end:
            continue
        offsets_b, p_b = offsets[low : high + 1] - begin, p[begin:end]
        alpha_b, v_b = alpha[begin:end], v[begin:end]
        du, dp = np.empty((end - begin, n_labels), p.dtype), np.empty((end - begin, n_labels), p.dtype)
        buffers = np.empty((4, end - begin, width), v.dtype)
        d, pA, x, y = buffers[0], buffers[1], buffers[2], buffers[3]
        sum_scores(Fs, W, begin, end, du)
        if len(biases):
            add_biases(biases, offsets_b, du)
        tangents.centre_nodes(p_b, du, d)
        tangents.forward(offsets_b, e, edw, tied, alpha_b, v_b, p_b, d, pA, x)
        tangents.backward(offsets_b, e_T, edw_T, tied, alpha_b, v_b, p_b, d, y, dp)
        for k in range(high - low):
            weight = weights[low + k] if len(weights) else 1.0
            for t in range(offsets_b[k], offsets_b[k + 1]):
                for j in range(n_labels):
                    dp[t, j] = weight * (dp[t, j] + pA[t, j])
        if len(nodes):
            sum_nodes(dp, offsets_b, nodes)
        add_outer(x, v_b, weights[low:high], offsets_b, steps)
        add_outer(alpha_b, y, weights[low:high], offsets_b, steps)
        add_products(dp, Fs, begin, end, gradient)
