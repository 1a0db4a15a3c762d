"""Mean-field updates, compiled: see `inference.mean_field`.

Node v has the entries nodes[v] .. nodes[v + 1] of a row of q and of scores. The edges of node v are the rows starts[v]
.. starts[v + 1] of `incident`: (other end, start of the table, stride of v's label, stride of the other's).
"""

from __future__ import annotations

import numpy as np

from kernelcrf.inference.loops.compiled import compiled


@compiled
def updates(q, scores, tables, nodes, starts, incident, tol, most):
    """Update one node after the other until no probability moves by more than `tol`."""
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
    """Replace q of one node by the softmax of its expected scores; return by how much it moved."""
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
