"""Compiled loops that sum exponentials over the durations of segments, and compute few exponentials for it.

The sum over durations d of exp(x_{m-d} + y_d) is computed for every position m. The numbers x are stored as
exp(x - c), with one constant c per block of positions, and the numbers y in the same way. A block ends if it has
SIZE entries, or if a number differs from c by more than SPREAD, so that no product underflows or overflows. Within a
pair of blocks, the sum needs only products. The blocks of x are a tuple of four arrays with one row per label:
exp(x - c), the index of the block of each position, the first position of each block, and the c of each block.
"""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined

SIZE, SPREAD = 256, 150.0


@compiled
def empty_blocks(n_labels, n):
    """Return empty arrays for the blocks of n numbers per label."""
    shape = (n_labels, n)
    return np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)


@inlined
def push(a, at, value, x):
    """Store `value` at position `at` of label a in the blocks x; all earlier positions must have been stored."""
    scaled, block, starts, constants = x
    n = block[a, at - 1] if at > 0 else -1
    far = value > -np.inf and n >= 0 and abs(value - constants[a, n]) > SPREAD
    if n < 0 or far or at - starts[a, n] >= SIZE:
        n += 1
        starts[a, n] = at
        constants[a, n] = value if value > -np.inf else 0.0
    block[a, at] = n
    scaled[a, at] = np.exp(value - constants[a, n])


@compiled
def push_all(values, x):
    """Store each column of `values`, which has the numbers of one label, in the blocks x."""
    for a in range(values.shape[1]):
        for at in range(len(values)):
            push(a, at, values[at, a], x)


@inlined
def piece_start(a, at, m, low, x, y):
    """Return the smallest p >= low such that x_p to x_at are in one block, and y_{m-p} to y_{m-at} are in one block."""
    _, block, starts, _ = x
    _, y_block, y_starts, _ = y
    n, D = y_block[a, m - at - 1] + 1, y_block.shape[1]
    stop = y_starts[a, n] if n <= y_block[a, D - 1] else D
    return max(low, starts[a, block[a, at]], m - stop)


@inlined
def log_window(a, m, reach, x, y):
    """Return log sum_{d = 1..reach} exp(x_{m-d} + y_d) for label a; y_d is stored at d - 1."""
    result, constant, at, low = 0.0, -np.inf, m - 1, m - reach
    while at >= low:
        first = piece_start(a, at, m, low, x, y)
        value = 0.0
        for u in range(first, at + 1):
            value += x[0][a, u] * y[0][a, m - u - 1]
        if value > 0:
            exponent = x[3][a, x[1][a, at]] + y[3][a, y[1][a, m - at - 1]]
            if exponent > constant:
                result = result * np.exp(constant - exponent) + value
                constant = exponent
            else:
                result += value * np.exp(exponent - constant)
        at = first - 1
    return constant + np.log(result) if result > 0 else -np.inf


@inlined
def add_window(a, m, reach, log_factor, x, y, out):
    """Add exp(log_factor + x_{m-d} + y_d) to out[d - 1, a] for d = 1..reach."""
    at, low = m - 1, m - reach
    while at >= low:
        first = piece_start(a, at, m, low, x, y)
        factor = np.exp(log_factor + x[3][a, x[1][a, at]] + y[3][a, y[1][a, m - at - 1]])
        for u in range(first, at + 1):
            out[m - u - 1, a] += factor * (x[0][a, u] * y[0][a, m - u - 1])
        at = first - 1
