"""NumPy twins of compiled routines, written from the formulas of the docstrings."""

import numpy as np
from scipy.special import logsumexp


def log_space_moments(scores, transitions):
    """log Z, p (T, L) and q (T, L, L) of one chain by forward-backward in log space."""
    n_nodes, n_labels = scores.shape
    w = np.broadcast_to(transitions, (n_nodes, n_labels, n_labels))
    la, lb = np.empty_like(scores), np.zeros_like(scores)
    la[0] = scores[0]
    for t in range(1, n_nodes):
        la[t] = scores[t] + logsumexp(la[t - 1][:, None] + w[t], axis=0)
    for t in range(n_nodes - 1, 0, -1):
        lb[t - 1] = logsumexp(w[t] + scores[t] + lb[t], axis=1)
    log_z = logsumexp(la[-1])
    q = np.zeros((n_nodes, n_labels, n_labels))
    for t in range(1, n_nodes):
        q[t] = np.exp(la[t - 1][:, None] + w[t] + scores[t] + lb[t] - log_z)
    return log_z, np.exp(la + lb - log_z), q


def log_space_tangents(scores, transitions, du, dw):
    """dp and dq of one chain by central differences of the moments above, extrapolated once."""

    def difference(h):
        plus = log_space_moments(scores + h * du, transitions + h * dw)
        minus = log_space_moments(scores - h * du, transitions - h * dw)
        return [(a - b) / (2 * h) for a, b in zip(plus[1:], minus[1:], strict=True)]

    return [(4 * fine - coarse) / 3 for fine, coarse in zip(difference(5e-4), difference(1e-3), strict=True)]
