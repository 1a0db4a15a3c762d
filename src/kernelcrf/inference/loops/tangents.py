"""Compiled loops of `inference.tangents`, which explains the arrays and formulas."""

import numpy as np

from kernelcrf.engines.compiled import compiled, inlined
from kernelcrf.inference.loops.scaled import advance


@compiled
def centre_nodes(p, du, d):
    """Write du[t] minus its mean under p[t] into d[t] for each token t, and pad d[t] with zeros."""
    n_labels, width = p.shape[1], d.shape[1]
    for t in range(len(p)):
        mean = 0.0
        for j in range(n_labels):
            mean += p[t, j] * du[t, j]
        for j in range(n_labels):
            d[t, j] = du[t, j] - mean
        for j in range(n_labels, width):
            d[t, j] = 0


@inlined
def centre(p, t, x):
    """Subtract p[t] * sum(x[t]) from x[t], so that x[t] sums to zero."""
    n_labels = p.shape[1]
    mean = 0.0
    for j in range(n_labels):
        mean += x[t, j]
    for j in range(n_labels):
        x[t, j] -= p[t, j] * mean


@compiled
def forward(offsets, e, edw, tied, alpha, v, p, d, pA, x):
    n_labels, width = p.shape[1], e.shape[1]
    y = np.empty((1, width), alpha.dtype)
    z, only = np.empty((1, width), alpha.dtype), np.int64(0)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        for t in range(first, last):
            for j in range(n_labels):
                pA[t, j] = p[t, j] * d[t, j]
            for j in range(n_labels, width):
                pA[t, j] = 0
            if t > first:
                edge = 0 if tied else t
                for i in range(width):
                    x[t - 1, i] = 0
                for i in range(n_labels):
                    if p[t - 1, i] > 0:
                        x[t - 1, i] = alpha[t - 1, i] * (pA[t - 1, i] / p[t - 1, i])
                advance(x, t - 1, e, edge, y, only)
                advance(alpha, t - 1, edw, edge, z, only)
                mean = 0.0
                for j in range(n_labels):
                    mean += v[t, j] * z[0, j]
                    pA[t, j] += v[t, j] * (y[0, j] + z[0, j])
                for i in range(n_labels):
                    x[t - 1, i] -= alpha[t - 1, i] * mean
            centre(p, t, pA)
        if last > first:
            for i in range(width):
                x[last - 1, i] = 0


@compiled
def backward(offsets, e_T, edw_T, tied, alpha, v, p, d, y, pB):
    n_labels, width = p.shape[1], e_T.shape[1]
    b = np.empty((1, width), alpha.dtype)
    z, only = np.empty((1, width), alpha.dtype), np.int64(0)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        for t in range(last - 1, first - 1, -1):
            if t == last - 1:
                for j in range(n_labels):
                    pB[t, j] = 0
            for j in range(width):
                y[t, j] = 0
            if t == first:
                continue
            for j in range(n_labels):
                y[t, j] = v[t, j] * d[t, j]
                if p[t, j] > 0:
                    y[t, j] += v[t, j] * (pB[t, j] / p[t, j])
            edge = 0 if tied else t
            advance(y, t, e_T, edge, b, only)
            advance(v, t, edw_T, edge, z, only)
            for i in range(n_labels):
                pB[t - 1, i] = alpha[t - 1, i] * (b[0, i] + z[0, i])
            centre(p, t - 1, pB)


@compiled
def edge_tangents(e, edw, tied, alpha, v, x, y, out):
    n_labels = out.shape[1]
    for t in range(len(out)):
        k = 0 if tied else t
        before = max(t - 1, 0)
        for i in range(n_labels):
            a, b = alpha[before, i], x[before, i]
            for j in range(n_labels):
                out[t, i, j] = e[k, i, j] * (b * v[t, j] + a * y[t, j]) + a * edw[k, i, j] * v[t, j]
