"""Mean field: a lower bound on the log-partition of any pairwise graph.

    log Z >= sum_i <q_i, t_i> + H(q_i) + sum_ij q_i' t_ij q_j        for any distributions q_i of the labels of nodes

Each update makes q_i the best one given the others. The bound is exact if no two neighbours lack their labels. Labels
that are forbidden by -inf on nodes have q_i = 0.
"""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import Floats, Ints
from kernelcrf.inference.forests import Cover
from kernelcrf.inference.loops import mean_field as loops
from kernelcrf.inference.loss import GraphMoments

TOL, MOST_UPDATES = 1e-9, 500


def mean_field(cover: Cover, tables: Floats) -> GraphMoments:
    """Return the bound on log Z, (m, n_samples), and the marginals (m, n_entries) of q."""
    graph, m = cover.graph, len(tables)
    scores = cover.node_scores(tables)
    q = _softmax(scores, cover.node_starts)
    edges = np.ascontiguousarray(tables[:, cover.edge_entries])
    starts, incident = _incidence(cover)
    loops.updates(q, scores, edges, cover.node_starts.astype(np.int64), starts, incident, TOL, MOST_UPDATES)
    cliques = np.empty((m, graph.n_entries))
    bound = np.zeros((m, graph.n_samples))
    sample_of = np.zeros(graph.n_nodes, np.intp) if graph.samples is None else graph.samples
    logs = np.log(q, where=q > 0, out=np.zeros_like(q))
    own = np.multiply(q, scores - logs, where=q > 0, out=np.zeros_like(q))
    np.add.at(bound.T, np.repeat(sample_of, graph.cards), own.T)
    for name, nodes in graph.cliques.items():
        place, shape = graph.slices[name], graph.shape(name)
        parts = [q[:, cover.node_starts[nodes[:, k]][:, None] + np.arange(shape[k])] for k in range(len(shape))]
        if len(parts) == 1:
            cliques[:, place] = parts[0].reshape(m, -1)
            continue
        joint = (parts[0][..., :, None] * parts[1][..., None, :]).reshape(m, -1)
        cliques[:, place] = joint
        energy = np.multiply(joint, tables[:, place], where=joint > 0, out=np.zeros_like(joint))
        np.add.at(bound.T, sample_of[nodes[:, 0]], energy.reshape(m, len(nodes), -1).sum(axis=2).T)
    return GraphMoments(bound, cliques)


def _softmax(scores: Floats, starts: Ints) -> Floats:
    """Return exp(scores) of each node, normalised."""
    if not scores.shape[1]:
        return scores.copy()
    sizes = np.diff(starts)
    peaks = np.maximum.reduceat(scores, starts[:-1], axis=1)
    q = np.exp(scores - np.repeat(np.where(np.isfinite(peaks), peaks, 0.0), sizes, axis=1))
    totals = np.add.reduceat(q, starts[:-1], axis=1)
    return np.asarray(q / np.repeat(np.where(totals > 0, totals, 1.0), sizes, axis=1))


def _incidence(cover: Cover) -> tuple[Ints, Ints]:
    """Return the edges of each node, as the loops read them."""
    tables = np.cumsum(cover.edge_sizes) - cover.edge_sizes
    i, j = cover.edge_nodes.T
    width, one = cover.graph.cards[j], np.ones(len(j), np.int64)
    from_i, from_j = np.column_stack((j, tables, width, one)), np.column_stack((i, tables, one, width))
    owners = np.concatenate((i, j))
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=cover.graph.n_nodes)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return starts, np.ascontiguousarray(np.concatenate((from_i, from_j))[order], np.int64)
