"""Compiled message passing on clique trees; `inference.clique_tree` explains the formulas.

`values` contains the tables of the graph's cliques, of the tree's cliques, and of intermediate sums, one after the
other. Each row of `cliques` describes a clique of the tree; rows are sorted from the leaves to the roots. A row has the
start and the size of the clique's table, the clique's parent, the number of labellings of its separator, the starts of
two index maps, and the clique's sample. The map `up` gives the labelling of the separator for each entry of the
clique's table. The map `down` gives the labelling of the separator for each entry of the parent's table.
"""

from __future__ import annotations

import numpy as np

from kernelcrf.engines.compiled import compiled

TABLE, SIZE, PARENT, SEPARATOR_SIZE, UP, DOWN, SAMPLE = range(7)


@compiled
def copy(source, target):
    """Copy an array to the start of another array.

    A loop is used because Numba takes seconds to compile the assignment of an array to a slice.
    """
    for k in range(len(source)):
        target[k] = source[k]


@compiled
def assemble(steps, index, values):
    for k in range(len(steps)):
        dst, src, size, at = steps[k, 0], steps[k, 1], steps[k, 2], steps[k, 3]
        for e in range(size):
            values[dst + e] += values[src + index[at + e]]


@compiled
def distribute(steps, index, values):
    for k in range(len(steps) - 1, -1, -1):
        dst, src, size, at = steps[k, 0], steps[k, 1], steps[k, 2], steps[k, 3]
        for e in range(size):
            values[src + index[at + e]] += values[dst + e]


@compiled
def collect(cliques, index, values, sums, peaks, log_partition):
    for c in range(len(cliques)):
        table, size, parent, n = cliques[c, TABLE], cliques[c, SIZE], cliques[c, PARENT], cliques[c, SEPARATOR_SIZE]
        up, down = cliques[c, UP], cliques[c, DOWN]
        for k in range(n):
            peaks[k] = -np.inf
            sums[k] = 0.0
        for e in range(size):
            k = index[up + e]
            peaks[k] = max(peaks[k], values[table + e])
        for e in range(size):
            k = index[up + e]
            weight = np.exp(values[table + e] - peaks[k]) if peaks[k] > -np.inf else 0.0
            values[table + e] = weight
            sums[k] += weight
        for e in range(size):
            k = index[up + e]
            if sums[k] > 0:
                values[table + e] /= sums[k]
        for k in range(n):
            peaks[k] += np.log(sums[k]) if sums[k] > 0 else 0.0
        if parent < 0:
            log_partition[cliques[c, SAMPLE]] += peaks[0]
        else:
            above = cliques[parent, TABLE]
            for e in range(cliques[parent, SIZE]):
                values[above + e] += peaks[index[down + e]]


@compiled
def marginals(cliques, index, conditionals, base, separator, p):
    for c in range(len(cliques) - 1, -1, -1):
        table, size, parent = cliques[c, TABLE], cliques[c, SIZE], cliques[c, PARENT]
        if parent < 0:
            for e in range(size):
                p[table + e] = conditionals[table - base + e]
            continue
        n, up, down, above = cliques[c, SEPARATOR_SIZE], cliques[c, UP], cliques[c, DOWN], cliques[parent, TABLE]
        for k in range(n):
            separator[k] = 0.0
        for e in range(cliques[parent, SIZE]):
            separator[index[down + e]] += p[above + e]
        for e in range(size):
            p[table + e] = conditionals[table - base + e] * separator[index[up + e]]


@compiled
def moments(scores, steps, index, cliques, n_values, widest, conditionals, log_partition, out):
    values, sums, peaks = np.empty(n_values), np.empty(widest), np.empty(widest)
    n_entries, keep = scores.shape[1], len(conditionals) > 0
    end = n_entries + conditionals.shape[1]
    for i in range(len(scores)):
        copy(scores[i], values)
        values[n_entries:] = 0.0
        assemble(steps, index, values)
        collect(cliques, index, values, sums, peaks, log_partition[i])
        if keep:
            copy(values[n_entries:end], conditionals[i])
        if len(out):
            marginals(cliques, index, values[n_entries:], n_entries, sums, values)
            values[:n_entries] = 0.0
            values[end:] = 0.0
            distribute(steps, index, values)
            copy(values[:n_entries], out[i])


@compiled
def tangents(direction, steps, index, cliques, n_values, widest, conditionals, out):
    d, p, mean, separator = np.empty(n_values), np.empty(n_values), np.empty(widest), np.empty(widest)
    base = direction.shape[1]
    end = base + conditionals.shape[1]
    for i in range(len(direction)):
        copy(direction[i], d)
        d[base:] = 0.0
        assemble(steps, index, d)
        kappa = conditionals[i]
        marginals(cliques, index, kappa, base, separator, p)
        for c in range(len(cliques)):
            table, size, parent, n = cliques[c, TABLE], cliques[c, SIZE], cliques[c, PARENT], cliques[c, SEPARATOR_SIZE]
            up, down = cliques[c, UP], cliques[c, DOWN]
            for k in range(n):
                mean[k] = 0.0
            for e in range(size):
                mean[index[up + e]] += kappa[table - base + e] * d[table + e]
            for e in range(size):
                d[table + e] -= mean[index[up + e]]
            if parent >= 0:
                above = cliques[parent, TABLE]
                for e in range(cliques[parent, SIZE]):
                    d[above + e] += mean[index[down + e]]
        for c in range(len(cliques) - 1, -1, -1):
            table, size, parent = cliques[c, TABLE], cliques[c, SIZE], cliques[c, PARENT]
            if parent < 0:
                for e in range(size):
                    d[table + e] *= p[table + e]
                continue
            n, up, down, above = cliques[c, SEPARATOR_SIZE], cliques[c, UP], cliques[c, DOWN], cliques[parent, TABLE]
            for k in range(n):
                separator[k] = 0.0
            for e in range(cliques[parent, SIZE]):
                separator[index[down + e]] += d[above + e]
            for e in range(size):
                kept = kappa[table - base + e]
                d[table + e] = p[table + e] * d[table + e] + kept * separator[index[up + e]]
        d[:base] = 0.0
        d[end:] = 0.0
        distribute(steps, index, d)
        copy(d[:base], out[i])


@compiled
def entropy(cliques, index, base, widest, conditionals, out):
    p, separator = np.empty(base + conditionals.shape[1]), np.empty(widest)
    for i in range(len(conditionals)):
        marginals(cliques, index, conditionals[i], base, separator, p)
        for c in range(len(cliques)):
            table = cliques[c, TABLE]
            total = 0.0
            for e in range(cliques[c, SIZE]):
                if p[table + e] > 0:
                    total -= p[table + e] * np.log(conditionals[i, table - base + e])
            out[i, cliques[c, SAMPLE]] += total


@compiled
def best(scores, steps, index, cliques, n_values, widest, homes, labels, values_of_best):
    values, peaks = np.empty(n_values), np.empty(widest)
    n_entries = scores.shape[1]
    chosen = np.empty(len(cliques), np.int64)
    for i in range(len(scores)):
        copy(scores[i], values)
        values[n_entries:] = 0.0
        assemble(steps, index, values)
        for c in range(len(cliques)):
            table, size, parent, n = cliques[c, TABLE], cliques[c, SIZE], cliques[c, PARENT], cliques[c, SEPARATOR_SIZE]
            up, down = cliques[c, UP], cliques[c, DOWN]
            for k in range(n):
                peaks[k] = -np.inf
            for e in range(size):
                k = index[up + e]
                peaks[k] = max(peaks[k], values[table + e])
            if parent < 0:
                values_of_best[i, cliques[c, SAMPLE]] += peaks[0]
            else:
                above = cliques[parent, TABLE]
                for e in range(cliques[parent, SIZE]):
                    values[above + e] += peaks[index[down + e]]
        for c in range(len(cliques) - 1, -1, -1):
            table, parent, up = cliques[c, TABLE], cliques[c, PARENT], cliques[c, UP]
            wanted = index[cliques[c, DOWN] + chosen[parent]] if parent >= 0 else 0
            top, place = -np.inf, -1
            for e in range(cliques[c, SIZE]):
                if index[up + e] == wanted and (place < 0 or values[table + e] > top):
                    top, place = values[table + e], e
            chosen[c] = place
        _read(chosen, homes, labels[i])


@compiled
def sample(uniform, cliques, index, base, conditionals, homes, labels):
    chosen = np.empty(len(cliques), np.int64)
    for i in range(len(conditionals)):
        for draw in range(uniform.shape[1]):
            for c in range(len(cliques) - 1, -1, -1):
                table, parent, up = cliques[c, TABLE], cliques[c, PARENT], cliques[c, UP]
                wanted = index[cliques[c, DOWN] + chosen[parent]] if parent >= 0 else 0
                left, place = uniform[i, draw, c], -1
                for e in range(cliques[c, SIZE]):
                    weight = conditionals[i, table - base + e]
                    if index[up + e] == wanted and weight > 0:
                        place = e
                        left -= weight
                        if left < 0:
                            break
                chosen[c] = place
            _read(chosen, homes, labels[i, draw])


@compiled
def _read(chosen, homes, labels):
    for v in range(len(homes)):
        labels[v] = (chosen[homes[v, 0]] // homes[v, 1]) % homes[v, 2]
