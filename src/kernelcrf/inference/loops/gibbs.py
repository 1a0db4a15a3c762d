"""Compiled loops of `inference.gibbs`: conditional distributions of single nodes given all others.

The rows starts[v] .. starts[v + 1] of `uses` are the cliques of node v: (clique, stride, number of its nodes).
chosen[clique] is the entry of the clique's table that the labels select. If the label of v grows by one, the entry
grows by `stride`.
"""

from __future__ import annotations

import numpy as np

from kernelcrf.inference.loops.compiled import compiled


@compiled
def conditional(v, label, card, tables, chosen, starts, uses, p):
    """Fill p with the probabilities of the labels of v given all others; return log sum exp of their scores."""
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
    """Draw every node in turn; add the conditionals to `means`, (m, sum of cards), unless it has no columns."""
    p = np.empty(cards.max())
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
    """Compute -sum_v log p(y_v | others), its gradient, p divided by the arity of each clique, and the conditionals."""
    p = np.empty(cards.max())
    for i in range(len(labels)):
        at = 0
        for v in range(len(cards)):
            label, card = labels[i, v], cards[v]
            total = conditional(v, label, card, tables[i], chosen[i], starts, uses, p)
            own = 0.0
            for k in range(starts[v], starts[v + 1]):
                own += tables[i, chosen[i, uses[k, 0]]]
            losses[i, samples[v]] += total - own
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
    """Compute the derivative of the gradient of `pseudo_likelihood` along a direction of the tables."""
    d = np.empty(cards.max())
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
