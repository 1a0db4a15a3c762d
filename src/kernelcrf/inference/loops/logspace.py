"""Compiled loops of `inference.logspace`, which explains the arrays and formulas."""

import numpy as np

from kernelcrf.engines.compiled import compiled
from kernelcrf.inference.loops.scaled import draw


@compiled
def log_sum_exp(x):
    top = -np.inf
    for value in x:
        if not value <= top:
            top = value
    if not np.isfinite(top):
        return top
    total = 0.0
    for value in x:
        total += np.exp(value - top)
    return top + np.log(total)


@compiled
def messages(s, w, tied, a, la, lb, c):
    n_nodes, n_labels = s.shape
    x = np.empty(n_labels)
    for t in range(n_nodes):
        k = 0 if tied else t
        for j in range(n_labels):
            if t > 0:
                for i in range(n_labels):
                    x[i] = la[t - 1, i] + w[k, i, j]
                a[t, j] = log_sum_exp(x)
            la[t, j] = s[t, j] + a[t, j]
        c[t] = log_sum_exp(la[t])
        if not np.isfinite(c[t]):
            c[:] = c[t]
            return
        la[t] -= c[t]
    for t in range(n_nodes - 1, -1, -1):
        k = 0 if tied else t + 1
        for i in range(n_labels):
            if t == n_nodes - 1:
                lb[t, i] = 0
            else:
                for j in range(n_labels):
                    x[j] = w[k, i, j] + s[t + 1, j] + lb[t + 1, j]
                lb[t, i] = log_sum_exp(x) - c[t + 1]


@compiled
def sample(w, tied, la, uniform, labels):
    n_nodes, n_labels = la.shape
    x = np.empty(n_labels)
    for r in range(uniform.shape[1]):
        for t in range(n_nodes - 1, -1, -1):
            for i in range(n_labels):
                x[i] = la[t, i]
                if t < n_nodes - 1:
                    x[i] += w[0 if tied else t + 1, i, labels[t + 1, r]]
            weights = np.exp(x - x.max())
            labels[t, r] = draw(weights, weights.sum() * uniform[t, r])


@compiled
def tangents(s, w, tied, a, la, lb, c, p, du, dw, dp, dq):
    n_nodes, n_labels = s.shape
    A, B = np.zeros((n_nodes, n_labels)), np.zeros((n_nodes, n_labels))
    d = np.empty((n_nodes, n_labels))
    for t in range(n_nodes):
        d[t] = du[t] - np.sum(p[t] * du[t])
        A[t] = d[t]
        if t == 0:
            continue
        k = 0 if tied else t
        for j in range(n_labels):
            mean, total = 0.0, 0.0
            for i in range(n_labels):
                log_p = la[t - 1, i] + w[k, i, j] - a[t, j]
                if log_p > -np.inf:
                    mean += np.exp(log_p) * (A[t - 1, i] + dw[k, i, j])
                    total += np.exp(log_p)
            A[t, j] += mean / total if total > 0 else 0.0
        A[t] -= np.sum(p[t] * A[t])
    for t in range(n_nodes - 1, 0, -1):
        k = 0 if tied else t
        for i in range(n_labels):
            mean, total = 0.0, 0.0
            for j in range(n_labels):
                log_q = w[k, i, j] + s[t, j] + lb[t, j] - c[t] - lb[t - 1, i]
                if log_q > -np.inf:
                    mean += np.exp(log_q) * (dw[k, i, j] + d[t, j] + B[t, j])
                    total += np.exp(log_q)
            B[t - 1, i] += mean / total if total > 0 else 0.0
        B[t - 1] -= np.sum(p[t - 1] * B[t - 1])
    for t in range(n_nodes):
        for j in range(n_labels):
            dp[t, j] = p[t, j] * (A[t, j] + B[t, j])
        if t == 0:
            continue
        k = 0 if tied else t
        mean, total = 0.0, 0.0
        for i in range(n_labels):
            for j in range(n_labels):
                q = np.exp(la[t - 1, i] + w[k, i, j] + s[t, j] + lb[t, j] - c[t])
                mean += q * dw[k, i, j] if q > 0 else 0.0
                total += q
                dq[t, i, j] = q
        for i in range(n_labels):
            for j in range(n_labels):
                if dq[t, i, j] > 0:
                    dq[t, i, j] *= (A[t - 1, i] + dw[k, i, j] - mean / total + d[t, j] + B[t, j]) / total
