"""Compiled loops of `inference.gibbs`: distributions of single nodes given the labels of all other nodes.

The cliques that contain node v are the rows starts[v] to starts[v + 1] - 1 of `uses`. A row is (index of the clique,
stride of the label of v in the clique's table, number of nodes of the clique). chosen[clique] is the index of the table
entry that the current labels select. If the label of v grows by one, this index grows by the stride.
"""

from __future__ import annotations

import numpy as np

from kernelcrf.engines.compiled import compiled


@compiled
def conditional(v, label, card, tables, chosen, starts, uses, p):
    """Write the probabilities of the labels of node v, given the labels of all other nodes, into `p`.

    Return the log-sum-exp of the scores of these labels, which is -inf if all of them are forbidden.
    """
    for x in range(card):
        p[x] = 0.0
    for k in range(starts[v], starts[v + 1]):
        at = chosen[uses[k, 0]] - label * uses[k, 1]
        for x in range(card):
            p[x] += tables[at + x * uses[k, 1]]
    peak = -np.inf
    for x in range(card):
        peak = max(peak, p[x])
    if peak == -np.inf:
        for x in range(card):
            p[x] = 1.0 / card
        return -np.inf
    total = 0.0
    for x in range(card):
        p[x] = np.exp(p[x] - peak)
        total += p[x]
    for x in range(card):
        p[x] /= total
    return peak + np.log(total)


@compiled
def sweep(tables, labels, chosen, cards, starts, uses, uniform, means):
    """Draw a new label for every node in turn, given the labels of all other nodes.

    If `means` has columns, the probabilities that the labels are drawn from are added to it.
    """
    p = np.empty(cards.sum())
    for i in range(len(labels)):
        at = 0
        for v in range(len(cards)):
            label, card = labels[i, v], cards[v]
            conditional(v, label, card, tables[i], chosen[i], starts, uses, p)
            left, new = uniform[i, v], -1
            for x in range(card):
                if p[x] > 0:
                    new = x
                    left -= p[x]
                    if left < 0:
                        break
            if means.shape[1]:
                for x in range(card):
                    means[i, at + x] += p[x]
            at += card
            if new != label:
                for k in range(starts[v], starts[v + 1]):
                    chosen[i, uses[k, 0]] += (new - label) * uses[k, 1]
                labels[i, v] = new


@compiled
def pseudo_likelihood(tables, labels, chosen, cards, samples, starts, uses, kept, losses, residual, shares):
    """Compute -sum_v log p(y_v | labels of the other nodes) and its gradient with respect to the tables.

    losses, residual : outputs, the negative log pseudo-likelihood of each sample and its gradient.
    shares : output, estimates of the marginals of each clique: p(y_v | labels of the other nodes), averaged over the
        nodes v of the clique.
    kept : output, the label probabilities of all nodes, one node after the other; it is not used if it has no columns.
    """
    p = np.empty(cards.sum())
    for i in range(len(labels)):
        at = 0
        for v in range(len(cards)):
            label, card = labels[i, v], cards[v]
            total = conditional(v, label, card, tables[i], chosen[i], starts, uses, p)
            score = 0.0
            for k in range(starts[v], starts[v + 1]):
                score += tables[i, chosen[i, uses[k, 0]]]
            losses[i, samples[v]] += total - score
            for k in range(starts[v], starts[v + 1]):
                first = chosen[i, uses[k, 0]] - label * uses[k, 1]
                for x in range(card):
                    residual[i, first + x * uses[k, 1]] += p[x] - (1.0 if x == label else 0.0)
                    shares[i, first + x * uses[k, 1]] += p[x] / uses[k, 2]
            if kept.shape[1]:
                for x in range(card):
                    kept[i, at + x] = p[x]
            at += card


@compiled
def tangents(direction, labels, chosen, cards, starts, uses, kept, out):
    """Add the derivative of the gradient of `pseudo_likelihood`, along a direction of the tables, to `out`."""
    d = np.empty(cards.sum())
    for i in range(len(labels)):
        at = 0
        for v in range(len(cards)):
            label, card = labels[i, v], cards[v]
            for x in range(card):
                d[x] = 0.0
            for k in range(starts[v], starts[v + 1]):
                first = chosen[i, uses[k, 0]] - label * uses[k, 1]
                for x in range(card):
                    d[x] += direction[i, first + x * uses[k, 1]]
            mean = 0.0
            for x in range(card):
                mean += kept[i, at + x] * d[x]
            for k in range(starts[v], starts[v + 1]):
                first = chosen[i, uses[k, 0]] - label * uses[k, 1]
                for x in range(card):
                    out[i, first + x * uses[k, 1]] += kept[i, at + x] * (d[x] - mean)
            at += card
