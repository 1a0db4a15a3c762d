"""Compiled loops of `inference.decoding`, which explains the formulas, and of `inference.chain.labelling_scores`."""

import numpy as np

from kernelcrf.engines.compiled import compiled


@compiled
def labelling_scores(scores, w, tied, offsets, labels, result):
    for k in range(len(offsets) - 1):
        total = 0.0
        for t in range(offsets[k], offsets[k + 1]):
            total += scores[t, labels[t]]
            if t > offsets[k]:
                total += w[0 if tied else t, labels[t - 1], labels[t]]
        result[k] = total


@compiled
def rivals(scores, w, tied, offsets, labels, extra, detour, ahead, rival):
    n_labels = scores.shape[1]
    after, before = np.empty(n_labels), np.empty(n_labels)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        for t in range(first, last):
            edge, y = 0 if tied else t, labels[t]
            # Scores are relative to those of the given labels, so that long sequences lose no digits.
            label_score = scores[t, y] if t == first else scores[t, y] + w[edge, labels[t - 1], y]
            for j in range(n_labels):
                value = 0.0
                if t > first:
                    value = -np.inf
                    for i in range(n_labels):
                        along = j == y and i != labels[t - 1]
                        value = max(value, ahead[t - 1, i] + w[edge, i, j] + (detour[t] if along else 0.0))
                ahead[t, j] = value + (scores[t, j] - label_score) + extra[t, j]
        after[:] = 0.0
        for t in range(last - 1, first - 1, -1):
            edge, y = 0 if tied else t, labels[t]
            rival[t] = -np.inf
            for j in range(n_labels):
                if j != y:
                    rival[t] = max(rival[t], ahead[t, j] + after[j])
            if t > first:
                label_score = scores[t, y] + w[edge, labels[t - 1], y]
                for i in range(n_labels):
                    before[i] = -np.inf
                    for j in range(n_labels):
                        along = j == y and i != labels[t - 1]
                        value = w[edge, i, j] + (scores[t, j] - label_score) + extra[t, j] + after[j]
                        before[i] = max(before[i], value + (detour[t] if along else 0.0))
                for i in range(n_labels):
                    after[i] = before[i]


@compiled
def viterbi(scores, w, tied, offsets, back, labels, best):
    n_labels = scores.shape[1]
    delta, into = np.empty(n_labels), np.empty(n_labels)
    # Indices have as many bits as the numbers compared, so that the compiler can use SIMD for the selection below.
    came = np.empty(n_labels, np.int64)
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        total = 0.0
        for t in range(first, last):
            if t == first:
                for j in range(n_labels):
                    delta[j] = scores[t, j]
            else:
                edge = 0 if tied else t
                for j in range(n_labels):
                    into[j] = delta[0] + w[edge, 0, j]
                    came[j] = 0
                for i in range(1, n_labels):
                    d = delta[i]
                    for j in range(n_labels):
                        value = d + w[edge, i, j]
                        better = value > into[j]
                        into[j] = value if better else into[j]
                        came[j] = i if better else came[j]
                for j in range(n_labels):
                    delta[j] = into[j] + scores[t, j]
                    back[t, j] = came[j]
            top = delta[0]
            for j in range(1, n_labels):
                top = max(top, delta[j])
            if top == -np.inf:
                total = -np.inf
                break
            # Only differences matter. The sum of the maxima is kept separately, so that long sequences lose no digits.
            total += top
            for j in range(n_labels):
                delta[j] -= top
        best[k] = total
        if total == -np.inf or first == last:
            continue
        label = np.argmax(delta)
        for t in range(last - 1, first - 1, -1):
            labels[t] = label
            if t > first:
                label = back[t, label]


@compiled
def merge(values, into, heads, out, came):
    """Merge sorted lists: write the k largest numbers of all lists to `out`, and return how many of them are finite.

    values, into : list i consists of the k numbers values[i] + into[i], the largest first.
    heads : working memory, one entry per list.
    came : output. If out[r] comes from position p of list i, came[r] is i * k + p.
    """
    n_labels, k = values.shape
    heads[:] = 0
    for r in range(k):
        chosen, top = -1, -np.inf
        for i in range(n_labels):
            if heads[i] < k:
                value = values[i, heads[i]] + into[i]
                if value > top:
                    chosen, top = i, value
        if chosen < 0:
            out[r:] = -np.inf
            return r
        out[r] = top
        came[r] = chosen * k + heads[chosen]
        heads[chosen] += 1
    return k


@compiled
def k_best(scores, w, tied, k, labelings, best):
    """Write the k best labelings of one sequence into `labelings` and their scores into `best`, best first.

    Return the number of labelings, which is less than k if fewer are allowed.
    """
    n_nodes, n_labels = scores.shape
    came = np.empty((n_nodes, n_labels, k), np.int64)
    values, previous = np.full((n_labels, k), -np.inf), np.empty((n_labels, k))
    heads, zeros, last = np.empty(n_labels, np.int64), np.zeros(n_labels), np.empty(k, np.int64)
    for j in range(n_labels):
        values[j, 0] = scores[0, j]
    for t in range(1, n_nodes):
        for j in range(n_labels):
            for r in range(k):
                previous[j, r] = values[j, r]
        for j in range(n_labels):
            merge(previous, w[0 if tied else t, :, j], heads, values[j], came[t, j])
            for r in range(k):
                values[j, r] += scores[t, j]
    count = merge(values, zeros, heads, best, last)
    for r in range(count):
        place = last[r]
        for t in range(n_nodes - 1, -1, -1):
            labelings[r, t] = place // k
            if t > 0:
                place = came[t, place // k, place % k]
    return count
