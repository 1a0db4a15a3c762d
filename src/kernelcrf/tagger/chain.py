"""Compute the likeliest labels and the probabilities of the labels of one sequence with NumPy, in float64.

With the scores s_t(j) of labels and w_t(i, j) of steps, Viterbi's recursion is

    delta_t(j) = s_t(j) + max_i [delta_{t-1}(i) + w_t(i, j)],

and the first of several labels with equal values is chosen. Probabilities come from messages that sum to one, as in
`inference.scaled`, whose docstring has the formulas. If transitions are forbidden or differ by more than FREE_RANGE,
labels of negligible weight may matter later. Messages are then logarithms, as in `inference.logspace`.

A score of -inf forbids a label or a step. `w` has one matrix for all tokens, or one per token. The matrix of the first
token is not used.
"""

from __future__ import annotations

from itertools import repeat
from math import isfinite

import numpy as np

from ..arrays import Array, Floats
from ..inference.feasibility import reason

FREE_RANGE = 300.0
# After this number of tokens, the largest value is subtracted from all, so that long sequences lose no digits.
SHIFT_EVERY = 64


def viterbi(s: Floats, w: Floats) -> list[int]:
    """Return the likeliest labels of a sequence."""
    T, L = s.shape
    if not T:
        return []
    sums, delta = np.empty((L, L)), np.empty((T, L))
    steps = repeat(w, T) if w.ndim == 2 else iter(w)
    delta[0] = s[0]
    rows, add, largest = list(delta), np.add, np.maximum.reduce
    next(steps)
    for t, (before, now, of_token, step) in enumerate(zip(delta[:, :, None], rows[1:], s[1:], steps, strict=False), 1):
        add(step, before, out=sums)
        largest(sums, axis=0, out=now)
        add(now, of_token, out=now)
        if not t % SHIFT_EVERY:
            now -= largest(now)
    label = int(rows[-1].argmax())
    if not isfinite(rows[-1][label]):
        raise reason(0, s, w)
    labels, into = [label], w.swapaxes(-1, -2)
    for t in range(T - 1, 0, -1):
        label = int((rows[t - 1] + (into[label] if into.ndim == 2 else into[t, label])).argmax())
        labels.append(label)
    labels.reverse()
    return labels


def marginals(s: Floats, w: Floats, *, edges: bool = False) -> tuple[Floats, Floats | None]:
    """Return p(y_t = j) as an array [t, j] and, if `edges` is true, p(y_{t-1} = i, y_t = j) as an array [t, i, j].

    The second array is 0 at the first token.
    """
    T, L = s.shape
    if not T:
        return np.empty((0, L)), np.empty((0, L, L)) if edges else None
    steps = w if w.ndim == 2 else w[1:]
    with np.errstate(all="ignore"):
        spread = float(np.ptp(steps)) if steps.size else 0.0
        free = spread <= FREE_RANGE and bool((s > -np.inf).all())
        p, q = (_scaled if free else _in_logarithms)(s, w, edges)
    if not np.isfinite(p).all():
        raise reason(0, s, w)
    return p, q


def log_probability(s: Floats, w: Floats, labels: list[int]) -> float:
    """Return log p(labels) of a sequence, which is -inf if the labels are forbidden.

    It is the score of the labels minus log Z. The sums of exponentials that lead to log Z are computed forwards.
    """
    T = len(s)
    if not T:
        return 0.0
    with np.errstate(all="ignore"):
        total, score = s[0], s[0, labels[0]]
        for t in range(1, T):
            step = w if w.ndim == 2 else w[t]
            score += step[labels[t - 1], labels[t]] + s[t, labels[t]]
            total = s[t] + log_sum(total[:, None] + step, 0)
        log_z = float(log_sum(total, 0))
    if not isfinite(log_z):
        raise reason(0, s, w)
    # Rounding must not make a probability larger than 1.
    return min(float(score) - log_z, 0.0)


def _scaled(s: Floats, w: Floats, edges: bool) -> tuple[Floats, Floats | None]:
    T, L = s.shape
    e = np.exp(w - (w.max() if w.ndim == 2 else w.max(axis=(1, 2), keepdims=True)))
    tied = e.ndim == 2
    u = np.exp(s - s.max(axis=1, keepdims=True))
    alpha, v = np.empty((T, L)), np.empty((T, L))
    beta = np.ones((T, L))
    alpha[0] = u[0] / u[0].sum()
    for t in range(1, T):
        now = alpha[t - 1] @ (e if tied else e[t])
        now *= u[t]
        total = now.sum()
        alpha[t] = now / total
        v[t] = u[t] / total
    for t in range(T - 1, 0, -1):
        v[t] *= beta[t]
        beta[t - 1] = (e if tied else e[t]) @ v[t]
    p = alpha * beta
    q = None
    if edges:
        q = np.zeros((T, L, L))
        q[1:] = alpha[:-1, :, None] * (e if tied else e[1:]) * v[1:, None, :]
    return p, q


def _in_logarithms(s: Floats, w: Floats, edges: bool) -> tuple[Floats, Floats | None]:
    T, L = s.shape
    tied, la, lb, c = w.ndim == 2, np.empty((T, L)), np.zeros((T, L)), np.empty(T)
    for t in range(T):
        la[t] = s[t] if t == 0 else s[t] + log_sum(la[t - 1][:, None] + (w if tied else w[t]), 0)
        c[t] = log_sum(la[t], 0)
        la[t] -= c[t]
    for t in range(T - 1, 0, -1):
        lb[t - 1] = log_sum((w if tied else w[t]) + (s[t] + lb[t]), 1) - c[t]
    q = None
    if edges:
        q = np.zeros((T, L, L))
        q[1:] = normalised(la[:-1, :, None] + (w if tied else w[1:]) + (s + lb)[1:, None, :])
    return normalised(la + lb), q


def log_sum(logarithms: Floats, axis: int) -> Floats:
    """Return log sum exp along an axis; -inf is the logarithm of zero."""
    top = logarithms.max(axis=axis, keepdims=True)
    top[top == -np.inf] = 0.0
    return np.asarray(np.log(np.exp(logarithms - top).sum(axis=axis)) + np.squeeze(top, axis))


def normalised(logarithms: Floats) -> Floats:
    """Return exp(logarithms), divided by its sum for each token."""
    axes = tuple(range(1, logarithms.ndim))
    p: Array = np.exp(logarithms - logarithms.max(axis=axes, keepdims=True))
    return np.asarray(p / p.sum(axis=axes, keepdims=True))
