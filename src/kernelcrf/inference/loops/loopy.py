"""Compiled loops of tree-reweighted messages (`inference.loopy`) and mean fields (`inference.lower_bounds`).

Entries nodes[v] to nodes[v + 1] - 1 of a row of `beliefs`, `q` or `scores` belong to the labels of node v. Each row of
`edges` is (first node i, second node j, start of the edge's table). `rho` is the fraction of the forests that contain
each edge; for messages, `tables` are the edges' tables divided by it. `into_i` and `into_j` are the logarithms of the
messages into the first and the second nodes, and ends[e] is where the messages of edge e start in them. The edges of
node v are the rows starts[v] to starts[v + 1] - 1 of `incident`. A row is (other node, start of the edge's table,
stride of the label of v, stride of the label of the other node).
"""

from __future__ import annotations

import numpy as np

from kernelcrf.engines.compiled import compiled

DAMPING = 0.6
"""Messages move by this share of an update, because whole updates can oscillate if potentials are strong."""


@compiled
def sweeps(beliefs, tables, nodes, edges, ends, rho, into_i, into_j, tol, most):
    """Update all messages in both directions until none changes by more than `tol`, in at most `most` sweeps.

    `beliefs` are the node scores plus rho times the logarithms of the messages; they are updated in place.
    """
    pre, new = np.empty(nodes[-1]), np.empty(nodes[-1])
    for r in range(len(beliefs)):
        moved, done = np.inf, 0
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
    """Write the logarithm of the message along an edge into `new`; `received` are messages in the other direction."""
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
    """Move a message towards its new value and update the beliefs; return the largest distance to the new value."""
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
    """Update the label probabilities `q` of one node after the other.

    Stop if no probability changes by more than `tol`, or after `most` updates of all nodes.
    """
    new = np.empty(nodes[-1])
    for r in range(len(q)):
        moved, done = np.inf, 0
        while done < most and moved > tol:
            moved = 0.0
            for v in range(len(nodes) - 1):
                moved = max(moved, _update(q[r], scores[r], tables[r], nodes, starts, incident, v, new))
            done += 1


@compiled
def _update(q, scores, tables, nodes, starts, incident, v, new):
    """Replace the label probabilities of node v by the softmax of its expected scores; return the largest change."""
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
