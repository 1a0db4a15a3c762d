"""Compiled loops of tree-reweighted messages (`inference.loopy`) and mean fields (`inference.lower_bounds`).

Node v has the entries nodes[v] .. nodes[v + 1] of a row of beliefs, q or scores. A row of `edges` is (i, j, table). For
messages, `tables` are the edges' tables divided by the share of forests, rho. `into_i` and `into_j` are the logarithms
of the messages into nodes i and j, at `ends[e]`. The edges of node v are the rows starts[v] .. starts[v + 1] of
`incident`: (other node, start of the table, stride of v's label, stride of the other node's label).
"""

from __future__ import annotations

import numpy as np

from kernelcrf.inference.loops.compiled import compiled

DAMPING = 0.6
"""Messages move by this share of an update, because whole updates can oscillate if potentials are strong."""


@compiled
def sweeps(beliefs, tables, nodes, edges, ends, rho, into_i, into_j, tol, most):
    """Update messages in both directions until none changes by more than `tol`; beliefs start as node scores."""
    widest = 0
    for v in range(len(nodes) - 1):
        widest = max(widest, nodes[v + 1] - nodes[v])
    pre, new = np.empty(widest), np.empty(widest)
    for r in range(len(beliefs)):
        moved = np.inf
        done = 0
        while done < most and moved > tol:
            moved = 0.0
            for k in range(2 * len(edges)):
                e = k if k < len(edges) else 2 * len(edges) - 1 - k
                i, j, table = edges[e, 0], edges[e, 1], edges[e, 2]
                a, b, at_i, at_j = nodes[i], nodes[j], ends[e, 0], ends[e, 1]
                n_i, n_j = nodes[i + 1] - a, nodes[j + 1] - b
                _send(beliefs[r], a, n_i, into_i[r], at_i, tables[r], table, n_j, n_j, 1, pre, new)
                moved = max(moved, _take(new, n_j, rho[e], into_j[r], at_j, beliefs[r], b))
                _send(beliefs[r], b, n_j, into_j[r], at_j, tables[r], table, n_i, 1, n_j, pre, new)
                moved = max(moved, _take(new, n_i, rho[e], into_i[r], at_i, beliefs[r], a))
            done += 1


@compiled
def _send(beliefs, start, n_from, received, at, tables, table, n_to, step_from, step_to, pre, new):
    """Compute the logarithm of the message along an edge; `received` is the message in the other direction."""
    for x in range(n_from):
        pre[x] = beliefs[start + x] - received[at + x] if beliefs[start + x] > -np.inf else -np.inf
    for y in range(n_to):
        peak, total = -np.inf, 0.0
        for x in range(n_from):
            value = pre[x] + tables[table + x * step_from + y * step_to]
            if value > peak:
                total = total * np.exp(peak - value) + 1.0
                peak = value
            elif value > -np.inf:
                total += np.exp(value - peak)
        new[y] = peak + np.log(total) if peak > -np.inf else -np.inf


@compiled
def _take(new, size, rho, messages, at, beliefs, start):
    """Replace a message by a normalised new one; return how much it changed."""
    peak = -np.inf
    for x in range(size):
        peak = max(peak, new[x])
    moved = 0.0
    for x in range(size):
        value = new[x] - peak if peak > -np.inf else 0.0
        old = messages[at + x]
        if value == -np.inf:
            beliefs[start + x] = -np.inf
        elif old > -np.inf:
            if beliefs[start + x] > -np.inf:
                moved = max(moved, abs(value - old))
            value = old + DAMPING * (value - old)
            beliefs[start + x] += rho * (value - old)
        messages[at + x] = value
    return moved


@compiled
def mean_field(q, scores, tables, nodes, starts, incident, tol, most):
    """Update one node after the other until no probability changes by more than `tol`."""
    widest = 0
    for v in range(len(nodes) - 1):
        widest = max(widest, nodes[v + 1] - nodes[v])
    new = np.empty(widest)
    for r in range(len(q)):
        moved, done = np.inf, 0
        while done < most and moved > tol:
            moved = 0.0
            for v in range(len(nodes) - 1):
                moved = max(moved, _update(q[r], scores[r], tables[r], nodes, starts, incident, v, new))
            done += 1


@compiled
def _update(q, scores, tables, nodes, starts, incident, v, new):
    """Replace q of one node by the softmax of its expected scores; return how much it changed."""
    low, size = nodes[v], nodes[v + 1] - nodes[v]
    peak = -np.inf
    for x in range(size):
        value = scores[low + x]
        for k in range(starts[v], starts[v + 1]):
            other, table, own_step, other_step = incident[k]
            base = nodes[other]
            for y in range(nodes[other + 1] - base):
                if q[base + y] > 0:
                    value += q[base + y] * tables[table + x * own_step + y * other_step]
        new[x] = value
        peak = max(peak, value)
    if not peak > -np.inf:
        return 0.0
    total, moved = 0.0, 0.0
    for x in range(size):
        new[x] = np.exp(new[x] - peak)
        total += new[x]
    for x in range(size):
        moved = max(moved, abs(new[x] / total - q[low + x]))
        q[low + x] = new[x] / total
    return moved
