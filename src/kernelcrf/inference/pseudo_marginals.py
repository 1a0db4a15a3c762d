"""Points of the local polytope, and lower bounds from them, for inference by tree-reweighted messages.

The least bound over all messages is, with rho_e the share of forests that an edge is in,

    B(t) = max over tau of <tau, t> + sum_i H(tau_i) - sum_ij rho_ij I(tau_ij)

over tau whose edges agree with their nodes. Any such tau bounds B from below at *all* tables, even if messages have not
converged. With mu the statistics of the labels and g(tau) the gradient of <tau - mu, t(theta)>,

    min_theta sum B(t) - <mu, t> + sum_k lam_k/2 |theta_k|^2 >= sum H_rho(tau) - sum_k |g_k(tau)|^2 / (2 lam_k)

The marginals of messages that have not converged do not agree exactly; `consistent` moves those of edges until they do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.inference.forests import Cover


@dataclass(frozen=True, eq=False)
class PseudoMarginals:
    """Marginals (m, n_entries) whose edges agree with their nodes, and H_rho (m, n_samples) of them."""

    cliques: Floats
    entropy: Floats


def consistent(cover: Cover, marginals: Floats) -> PseudoMarginals:
    """Return pseudo-marginals near some marginals (m, n_entries): nodes as they are, edges moved to agree with them."""
    graph, cliques = cover.graph, marginals.copy()
    singles = [name for name, nodes in graph.cliques.items() if nodes.shape[1] == 1]
    nodes = np.zeros((len(marginals), int(cover.node_starts[-1])))
    for v, card in enumerate(graph.cards.tolist()):
        nodes[:, cover.node_starts[v] : cover.node_starts[v + 1]] = 1.0 / card
    for name in singles:
        card = graph.shape(name)[0]
        columns = (cover.node_starts[graph.cliques[name][:, 0]][:, None] + np.arange(card)).ravel()
        own = np.maximum(marginals[:, graph.slices[name]], 0.0).reshape(len(marginals), -1, card)
        nodes[:, columns] = (own / own.sum(axis=2, keepdims=True)).reshape(len(marginals), -1)
    for name in singles:
        columns = (cover.node_starts[graph.cliques[name][:, 0]][:, None] + np.arange(graph.shape(name)[0])).ravel()
        cliques[:, graph.slices[name]] = nodes[:, columns]
    sample_of = np.zeros(graph.n_nodes, np.intp) if graph.samples is None else graph.samples
    entropy = np.zeros((len(marginals), graph.n_samples))
    by_node = np.add.reduceat(-_times_log(nodes, nodes), cover.node_starts[:-1], axis=1) if graph.n_nodes else nodes
    np.add.at(entropy.T, sample_of, by_node.T)
    first = 0
    for name, ends in graph.cliques.items():
        if ends.shape[1] == 2 and len(ends):
            shape = graph.shape(name)
            left, right = (nodes[:, cover.node_starts[ends[:, k]][:, None] + np.arange(shape[k])] for k in range(2))
            tables = _transported(marginals[:, graph.slices[name]].reshape(len(marginals), -1, *shape), left, right)
            cliques[:, graph.slices[name]] = tables.reshape(len(marginals), -1)
            apart = left[..., :, None] * right[..., None, :]
            information = _times_log(tables, tables / np.where(apart > 0, apart, 1.0)).sum(axis=(2, 3))
            rho = cover.rho[first : first + len(ends)]
            np.add.at(entropy.T, sample_of[ends[:, 0]], -(rho * information).T)
            first += len(ends)
    return PseudoMarginals(cliques, entropy)


def _times_log(p: Floats, of: Floats) -> Floats:
    """Return p log of, 0 where p is."""
    return np.asarray(p * np.log(of, where=of > 0, out=np.zeros_like(of)))


def _transported(tables: Floats, left: Floats, right: Floats) -> Floats:
    """Return tables (..., a, b) near some whose sums are exactly `left` (..., a) and `right` (..., b).

    Rows and then columns that have too much are scaled down; what all of them lack goes to their outer product.
    """
    tables = np.maximum(tables, 0.0)
    for wanted, axis in ((left, -1), (right, -2)):
        sums = tables.sum(axis=axis)
        share = np.minimum(1.0, np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0))
        tables = tables * np.expand_dims(share, axis)
    lacks_left = np.maximum(left - tables.sum(axis=-1), 0.0)
    lacks_right = np.maximum(right - tables.sum(axis=-2), 0.0)
    total = lacks_left.sum(axis=-1)[..., None, None]
    rest = lacks_left[..., :, None] * lacks_right[..., None, :]
    return np.asarray(tables + np.divide(rest, total, out=np.zeros_like(rest), where=total > 0))
