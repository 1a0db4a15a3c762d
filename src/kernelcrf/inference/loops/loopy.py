"""Compiled loops of tree-reweighted messages (`inference.loopy`) and mean fields (`inference.lower_bounds`).

The functions share these arguments:

beliefs, q, scores : in each row, the entries nodes[v] to nodes[v + 1] - 1 belong to the labels of node v.
edges : one row (first node i, second node j, start of the edge's table) per edge.
rho : the fraction of the spanning forests that contain each edge.
tables : the tables of all edges, one after the other. Functions for messages expect tables divided
    by the rho of their edges.
into_i, into_j : the logarithms of the messages into the first and into the second nodes of all edges.
ends : for each edge, the positions at which its messages start in `into_i` and in `into_j`.
starts, incident : the edges of node v are the rows starts[v] to starts[v + 1] - 1 of `incident`. A row is (other node,
    start of the edge's table, stride of the label of v, stride of the label of the other node).
"""

from __future__ import annotations

import numpy as np

from kernelcrf.engines.compiled import compiled

DAMPING = 0.6
"""Messages move by this share of an update, because whole updates can oscillate if potentials are strong."""


@compiled
def sweeps(beliefs, tables, nodes, edges, ends, rho, into_i, into_j, tol, most):
    """Update all messages in both directions until no logarithm changes by more than `tol`, in at most `most` sweeps.

    `beliefs` contains the scores of each node, plus the logarithms of all messages into the node. Each logarithm is
    multiplied by rho, the fraction of the forests that contain the edge. Messages and beliefs are updated in place.
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
    """Compute the logarithm of the message from one node of an edge to the other, and write it into `new`.

    `received` contains the logarithms of the messages in the opposite direction.
    """
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
    """Move a message part of the way to its new value `new`, and update the beliefs of the node that receives it.

    Return the largest difference between the message before the update and its new value.
    """
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
    """Update the label probabilities `q` of a mean field in place, one node after the other.

    Stop if no probability changes by more than `tol`, or after `most` sweeps over all nodes.
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
    """Replace the label probabilities of node v by the softmax of its expected scores; return the largest change.

    The expectation is over the labels of the neighbours of v, with their current probabilities `q`.
    """
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
