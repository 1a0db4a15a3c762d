"""Compiled loops of `inference.scaled`, which explains the arrays and formulas.

In calls, the index 0 of an array with a single row is passed as the variable `only`, because Numba would compile the
called loop again for the literal 0.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined

# Up to this number of labels, plain loops are faster than loops of unit stride.
SMALL = 7

# SMALLEST_PRODUCT * SMALLEST_FACTOR is a normal number.
SMALLEST_FACTOR, SMALLEST_PRODUCT, LARGEST_PRODUCT = 1e-100, 1e-200, 1e200


@compiled
def shift(scores, offsets, spread, u, highest, failed):
    n_labels, width = scores.shape[1], u.shape[1]
    for k in range(len(offsets) - 1):
        for t in range(offsets[k], offsets[k + 1]):
            top = scores[t, 0]
            for j in range(1, n_labels):
                if scores[t, j] > top:
                    top = scores[t, j]
            for j in range(n_labels):
                u[t, j] = u.dtype.type(scores[t, j]) - u.dtype.type(top)
            for j in range(n_labels, width):
                u[t, j] = 0
            highest[t] = top
            if spread < np.inf:
                for j in range(n_labels):
                    if -np.inf < u[t, j] < -spread:
                        failed[k] = True


@inlined
def advance(x, t, matrices, k, y, r):
    """Compute y[r] = x[t] @ matrices[k]."""
    width = matrices.shape[1]
    if width <= SMALL:
        for j in range(width):
            total = x[t, 0] * matrices[k, 0, j]
            for i in range(1, width):
                total += x[t, i] * matrices[k, i, j]
            y[r, j] = total
    else:
        for j in range(width):
            y[r, j] = 0
        i = 0
        while i + 4 <= width:
            x0, x1, x2, x3 = x[t, i], x[t, i + 1], x[t, i + 2], x[t, i + 3]
            for j in range(width):
                y[r, j] += (
                    x0 * matrices[k, i, j]
                    + x1 * matrices[k, i + 1, j]
                    + x2 * matrices[k, i + 2, j]
                    + x3 * matrices[k, i + 3, j]
                )
            i += 4
        while i < width:
            x0 = x[t, i]
            for j in range(width):
                y[r, j] += x0 * matrices[k, i, j]
            i += 1


@compiled
def forward(offsets, n_labels, e, tied, shift, highest, least, u, alpha, log_partition, failed):
    width = alpha.shape[1]
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        total, product = 0.0, 1.0
        fail = failed[k]
        for t in range(first, last):
            mass = alpha.dtype.type(0)
            if t == first:
                for j in range(n_labels):
                    alpha[t, j] = u[t, j]
                    mass += u[t, j]
                for j in range(n_labels, width):
                    alpha[t, j] = 0
            else:
                edge = 0 if tied else t
                total += shift[edge]
                if width <= SMALL:
                    # `advance`, the product with u and the sum in one loop: with few labels, loops themselves are slow.
                    for j in range(width):
                        value = alpha[t - 1, 0] * e[edge, 0, j]
                        for i in range(1, width):
                            value += alpha[t - 1, i] * e[edge, i, j]
                        value *= u[t, j]
                        alpha[t, j] = value
                        mass += value
                else:
                    advance(alpha, t - 1, e, edge, alpha, t)
                    for j in range(width):
                        alpha[t, j] *= u[t, j]
                    for j in range(width):
                        mass += alpha[t, j]
            inverse = alpha.dtype.type(1.0 / mass)
            for j in range(width):
                alpha[t, j] *= inverse
                u[t, j] *= inverse
            if least > 0:
                for j in range(width):
                    if alpha[t, j] == 0:
                        # No path reaches this label, and its backward messages could overflow.
                        u[t, j] = 0
                    elif alpha[t, j] < least:
                        fail = True
            total += highest[t]
            # One logarithm for many tokens. Both factors are so large that the product is never a subnormal number.
            # The logarithm of a mass of 0 or NaN is added by itself.
            if mass > SMALLEST_FACTOR:
                product *= mass
                if not SMALLEST_PRODUCT < product < LARGEST_PRODUCT:
                    total += np.log(product)
                    product = 1.0
            else:
                total += np.log(mass)
        total += np.log(product)
        log_partition[k] = total
        failed[k] = fail or not np.isfinite(total)
        if failed[k]:
            for t in range(first, last):
                for j in range(width):
                    alpha[t, j] = 0
                    u[t, j] = 0


@compiled
def backward(offsets, e_T, tied, failed, alpha, v, nodes):
    width, n_labels = alpha.shape[1], nodes.shape[1]
    beta, only = np.empty((1, width), alpha.dtype), np.int64(0)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        if failed[k]:
            nodes[first:last] = 0
            continue
        for j in range(width):
            beta[0, j] = 1
        for t in range(last - 1, first - 1, -1):
            for j in range(n_labels):
                nodes[t, j] = alpha[t, j] * beta[0, j]
            if t > first:
                for j in range(width):
                    v[t, j] *= beta[0, j]
                advance(v, t, e_T, 0 if tied else t, beta, only)
            else:
                for j in range(width):
                    v[t, j] = 0


@compiled
def edge_marginals(e, tied, alpha, v, out):
    n_labels = out.shape[1]
    for t in range(len(out)):
        k = 0 if tied else t
        for i in range(n_labels):
            # The block's first token has no predecessor; v is zero there.
            a = alpha[max(t - 1, 0), i]
            for j in range(n_labels):
                out[t, i, j] = a * e[k, i, j] * v[t, j]


@compiled
def entropy(offsets, n_labels, e, e_log_e, tied, alpha, failed, out):
    width = e.shape[1]
    buffers = np.empty((4, 1, width), alpha.dtype)
    a, x, y, z = buffers[0], buffers[1], buffers[2], buffers[3]
    only = np.int64(0)
    h = np.zeros(width, alpha.dtype)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        if failed[k] or first == last:
            out[k] = 0
            continue
        h[:] = 0
        base = 0.0
        for t in range(first + 1, last):
            edge = 0 if tied else t
            for i in range(width):
                b = alpha[t - 1, i]
                x[0, i] = b * (h[i] - np.log(b)) if b > 0 else b
            advance(alpha, t - 1, e, edge, a, only)
            advance(x, only, e, edge, y, only)
            advance(alpha, t - 1, e_log_e, edge, z, only)
            least = np.inf
            for j in range(n_labels):
                b = a[0, j]
                h[j] = max(np.log(b) + (y[0, j] - z[0, j]) / b, 0) if b > 0 else 0
                if b > 0:
                    least = min(least, h[j])
            # Later steps average H_t, so that a constant part can be stored separately, in double precision.
            for j in range(n_labels):
                h[j] = max(h[j] - least, 0)
            base += least
        total = 0.0
        for j in range(n_labels):
            b = alpha[last - 1, j]
            if b > 0:
                total += b * (h[j] - np.log(b))
        out[k] = base + total


@compiled
def sample(offsets, e_T, tied, alpha, failed, uniform, labels):
    width = e_T.shape[1]
    weights = np.empty(width, np.float64)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        if failed[k]:
            continue
        for r in range(uniform.shape[1]):
            for t in range(last - 1, first - 1, -1):
                total = 0.0
                for i in range(width):
                    weights[i] = alpha[t, i]
                    if t < last - 1:
                        weights[i] *= e_T[0 if tied else t + 1, labels[t + 1, r], i]
                    total += weights[i]
                labels[t, r] = draw(weights, total * uniform[t, r])


@compiled
def draw(weights, target):
    """Return the first index with a positive weight at which the cumulative sum of weights exceeds `target`."""
    chosen, total = 0, 0.0
    for i in range(len(weights)):
        if weights[i] > 0:
            chosen = i
            total += weights[i]
            if total > target:
                break
    return chosen
