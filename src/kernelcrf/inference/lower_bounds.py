"""Lower bounds for pairwise graphs: mean fields for log Z, and pseudo-marginals for the bound of `inference.loopy`.

With the tables t of nodes and edges, any distributions q_i of the labels of single nodes bound log Z from below:

    log Z >= sum_i <q_i, t_i> + H(q_i) + sum_ij q_i' t_ij q_j

Here H is the entropy. Each update replaces the distribution of one node by the best one, given all other nodes.
Forbidden labels have the probability 0. If all known labels are fixed, the bound is exact unless two neighbouring nodes
both have missing labels.

`inference.loopy` computes upper bounds on log Z. The smallest of them is

    B(t) = max over tau of <tau, t> + H_rho(tau),    H_rho(tau) = sum_i H(tau_i) - sum_ij rho_ij I(tau_ij).

The maximum is over pseudo-marginals tau in which the marginals of edges agree with those of their nodes; rho_ij is the
fraction of the forests that contain an edge, and I is the mutual information. Any such tau gives a lower bound on B at
*all* tables, and therefore a lower bound on the training objective with parameters theta and regularisation lam_k:

    min_theta sum B(t) - <mu, t> + sum_k lam_k/2 |theta_k|^2 >= sum H_rho(tau) - sum_k |g_k(tau)|^2 / (2 lam_k)

The sums without an index are over samples. mu are the statistics of the observed labels, and g(tau) is the gradient of
<tau - mu, t(theta)>. If messages have not converged, the marginals of edges and nodes do not agree exactly, and
`make_consistent` corrects the marginals of edges.
"""

from __future__ import annotations

import numpy as np
from scipy.special import entr, rel_entr

from kernelcrf.arrays import Floats, Ints
from kernelcrf.inference.forests import Cover
from kernelcrf.inference.loops import loopy as loops
from kernelcrf.inference.loss import GraphMoments

TOL, MOST_UPDATES = 1e-9, 500


def mean_field(cover: Cover, tables: Floats) -> GraphMoments:
    """Return the mean-field lower bound on log Z of each sample, and the marginals of the mean field."""
    graph = cover.graph
    scores, edge_scores = cover.spread(tables)
    q = _softmax(scores, graph.node_starts)
    starts, incident = _incidence(cover)
    loops.mean_field(q, scores, edge_scores, graph.node_starts, starts, incident, TOL, MOST_UPDATES)
    first, second = (nodes[at] for nodes, at in zip(cover.message_nodes, cover.message_entries, strict=True))
    joint = q[:, first] * q[:, second]
    node_terms = np.multiply(q, scores, where=q > 0, out=np.zeros_like(q)) + entr(q)
    energy = np.multiply(joint, edge_scores, where=joint > 0, out=np.zeros_like(joint))
    bound = np.zeros((len(tables), graph.n_samples))
    np.add.at(bound.T, np.repeat(graph.node_samples, graph.cards), node_terms.T)
    np.add.at(bound.T, np.repeat(graph.node_samples[cover.edge_nodes[:, 0]], cover.edge_sizes), energy.T)
    return GraphMoments(bound, np.take(np.concatenate((q, joint), axis=1), cover.entries, axis=1))


def _softmax(scores: Floats, starts: Ints) -> Floats:
    """Return exp(scores), normalised over the labels of each node; `starts` contains the first column of each node."""
    if not scores.shape[1]:
        return scores.copy()
    sizes = np.diff(starts)
    peaks = np.maximum.reduceat(scores, starts[:-1], axis=1)
    q = np.exp(scores - np.repeat(np.where(np.isfinite(peaks), peaks, 0.0), sizes, axis=1))
    totals = np.add.reduceat(q, starts[:-1], axis=1)
    return np.asarray(q / np.repeat(np.where(totals > 0, totals, 1.0), sizes, axis=1))


def _incidence(cover: Cover) -> tuple[Ints, Ints]:
    """Return the edges of each node, as the arrays `starts` and `incident`.

    The edges of node v are the rows starts[v] to starts[v + 1] - 1 of `incident`. A row is (other node, start of the
    edge's table, stride of the label of v, stride of the label of the other node).
    """
    tables = np.cumsum(cover.edge_sizes) - cover.edge_sizes
    i, j = cover.edge_nodes.T
    width, one = cover.graph.cards[j], np.ones_like(j)
    incident = np.concatenate((np.column_stack((j, tables, width, one)), np.column_stack((i, tables, one, width))))
    owners = np.concatenate((i, j))
    counts = np.bincount(owners, minlength=cover.graph.n_nodes)
    return np.concatenate(([0], np.cumsum(counts))), incident[np.argsort(owners, kind="stable")]


def make_consistent(cover: Cover, marginals: Floats) -> tuple[Floats, Floats]:
    """Correct the marginals of edges so that they agree with the marginals of their nodes.

    Return the corrected marginals, in the shape of `marginals`, and their entropy H_rho for each sample. The module
    docstring defines H_rho.
    """
    graph, cliques = cover.graph, marginals.copy()
    starts = graph.node_starts
    nodes = np.tile(np.repeat(1.0 / graph.cards, graph.cards), (len(marginals), 1))
    is_node = cover.entries < starts[-1]
    nodes[:, cover.entries[is_node]] = np.maximum(marginals[:, is_node], 0.0)
    nodes /= np.repeat(np.add.reduceat(nodes, starts[:-1], axis=1), graph.cards, axis=1) if graph.n_nodes else 1.0
    cliques[:, is_node] = nodes[:, cover.entries[is_node]]
    entropy = np.zeros((len(marginals), graph.n_samples))
    np.add.at(entropy.T, np.repeat(graph.node_samples, graph.cards), entr(nodes).T)
    first = 0
    for name, ends in graph.cliques.items():
        if ends.shape[1] == 2 and len(ends):
            shape = graph.shape(name)
            left, right = (nodes[:, starts[ends[:, k]][:, None] + np.arange(shape[k])] for k in range(2))
            tables = _match_sums(marginals[:, graph.slices[name]].reshape(len(marginals), -1, *shape), left, right)
            cliques[:, graph.slices[name]] = tables.reshape(len(marginals), -1)
            apart = left[..., :, None] * right[..., None, :]
            information = rel_entr(tables, np.where(apart > 0, apart, tables)).sum(axis=(2, 3))
            rho = cover.rho[first : first + len(ends)]
            np.add.at(entropy.T, graph.node_samples[ends[:, 0]], -(rho * information).T)
            first += len(ends)
    return cliques, entropy


def _match_sums(tables: Floats, left: Floats, right: Floats) -> Floats:
    """Change tables (..., a, b) so that their row sums are `left` (..., a) and their column sums `right` (..., b).

    First the rows whose sum is too large are scaled down, then the columns whose sum is too large. Then a multiple of
    the outer product of the remaining differences is added, which makes all sums correct.
    """
    tables = np.maximum(tables, 0.0)
    for wanted, axis in ((left, -1), (right, -2)):
        sums = tables.sum(axis=axis)
        share = np.minimum(1.0, np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0))
        tables = tables * np.expand_dims(share, axis)
    missing_left = np.maximum(left - tables.sum(axis=-1), 0.0)
    missing_right = np.maximum(right - tables.sum(axis=-2), 0.0)
    total = missing_left.sum(axis=-1)[..., None, None]
    rest = missing_left[..., :, None] * missing_right[..., None, :]
    return np.asarray(tables + np.divide(rest, total, out=np.zeros_like(rest), where=total > 0))
