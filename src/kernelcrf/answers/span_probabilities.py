"""Compute the probability of spans, such as entities, chunks or runs of one label.

A span (start, end, label) has the probability that the labelling of its sequence contains exactly this span: it starts
at `start`, continues until `end` - 1 and ends there. A labelling y is a Markov chain with the transition probabilities

    Q_t(i, j) = p(y_t = j | y_{t-1} = i, x) = p(y_{t-1} = i, y_t = j | x) / p(y_{t-1} = i | x),

which one forward-backward pass gives. Let v_t(j) be the probability that a span starts at s, still continues at t, and
has the label j there. Then

    v_s(j) = p(a span starts at s, y_s = j | x),    v_t(j) = sum_i v_{t-1}(i) Q_t(i, j) [j continues i],
    p(span from s to e) = sum_i v_{e-1}(i) sum_j Q_e(i, j) [j completes the span of i].

The rules in brackets are those of the tagging scheme (`readers.spans`). A span starts at s if the scheme allows it
for y_{s-1} and y_s, unless y_s continues a span. If the scheme is IOB1, y_s may look like the continuation of a tag
that is not in any span; the span then starts at s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from ..arrays import Array, Flags, Floats, Labels, Places
from ..graphs.structure import Chains
from ..readers.spans import SpanRules


class Field(Protocol):
    """Protocol of random fields of the labels of sequences, such as `models.chain_field.ChainField`."""

    @property
    def s(self) -> Array:
        """Return the token scores, (N, L)."""

    @property
    def w(self) -> Array:
        """Return the transition scores, (L, L) or (N, L, L)."""

    @property
    def chains(self) -> Chains:
        """Return which tokens belong to which sequence."""

    def part(self, low: int, high: int) -> Self:
        """Return the field of the sequences from `low` to `high` - 1."""

    def batches(self) -> Iterator[tuple[int, int, Self]]:
        """Yield (low, high, field of the sequences from `low` to `high` - 1) for a few sequences at a time."""

    def replaced(self, s: Array, w: Array) -> Self:
        """Return the field of the same sequences with other scores."""

    def in_float64(self) -> Self:
        """Return the field with its scores in float64."""

    def marginals(self) -> Array:
        """Return the probabilities p(y_t = j | x), with one row per token t and one column per label j."""

    def edge_marginals(self) -> Array:
        """Return p(y_{t-1} = i, y_t = j | x) as an array [t, i, j]; it is 0 if t is the first token of a sequence."""

    def best(self) -> Labels:
        """Return the likeliest labelling of each sequence."""


class SpanTable(NamedTuple):
    """Spans as columns: the index of the sequence, the first token, the token after the last, and the type."""

    sequence: Places
    start: Places
    end: Places
    type: Places

    def take(self, rows: Array) -> SpanTable:
        """Return the spans with the given indices or flags."""
        return SpanTable(*(column[rows] for column in self))


def span_probabilities(field: Field, rules: SpanRules, table: SpanTable) -> Floats:
    """Return the probability of each span of the table."""
    result = np.zeros(len(table.start))
    for low, high, few in field.batches():
        part = Steps.of(few, rules)
        rows = np.flatnonzero((table.sequence >= low) & (table.sequence < high))
        few_spans, firsts = table.take(rows), part.offsets
        t = firsts[few_spans.sequence - low] + few_spans.start
        last = firsts[few_spans.sequence - low] + few_spans.end - 1
        v = part.begin(t, few_spans.type)
        while (going := t < last).any():
            v[going] = part.advance(t[going], few_spans.type[going], v[going])
            t = t + going
        result[rows] = part.complete(t, few_spans.type, v)
    return result


def probable_spans(field: Field, rules: SpanRules, threshold: float, n_best: int | None) -> tuple[SpanTable, Floats]:
    """Return all spans whose probability is positive and at least `threshold`, and their probabilities.

    The search drops an incomplete span as soon as the sum of v_t is below the threshold, because no span that begins in
    the same way has a probability above this sum.

    n_best : return at most this many spans per sequence, those with the highest probabilities; None means all.
    """
    tables, values = [], []
    for low, high, few in field.batches():
        part = Steps.of(few, rules)
        sequence = np.repeat(np.arange(high - low), np.diff(part.offsets))
        floor = np.full(high - low, max(threshold, np.finfo(np.float64).tiny))
        t, k = (axis.ravel() for axis in np.mgrid[: len(sequence), : len(rules.types)])
        start, v = t, part.begin(t, k)
        parts: list[tuple[Places, Places, Places, Places, Floats]] = []
        while True:
            going = v.sum(axis=1) >= floor[sequence[t]]
            start, t, k, v = start[going], t[going], k[going], v[going]
            if not len(t):
                break
            p = part.complete(t, k, v)
            kept = p >= floor[sequence[t]]
            parts.append((sequence[t[kept]], start[kept], t[kept] + 1, k[kept], p[kept]))
            if n_best is not None:
                parts = [_best(parts, n_best, floor)]
            inside = ~part.last[t]
            start, t, k, v = start[inside], t[inside], k[inside], v[inside]
            v, t = part.advance(t, k, v), t + 1
        i, s, e, k, p = (
            (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else [np.empty(0, int)] * 5
        )
        first = part.offsets[i]
        order = np.lexsort((e, s, i) if n_best is None else (e, s, -p, i))
        tables.append(SpanTable(i + low, s - first, e - first, k).take(order))
        values.append(np.asarray(p, np.float64)[order])
    if not tables:
        return SpanTable(*np.empty((4, 0), np.intp)), np.empty(0)
    return SpanTable(*(np.concatenate(column) for column in zip(*tables, strict=True))), np.concatenate(values)


def _best(parts: Sequence[tuple[Array, ...]], n_best: int, floor: Floats) -> Any:
    """Return the `n_best` most probable spans per sequence, and raise `floor`, below which spans are not searched for.

    If a sequence has at least `n_best` spans, its entry of `floor` rises to the lowest probability that is returned.
    """
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    sequence, p = columns[0], columns[-1]
    order = np.lexsort((columns[2], columns[1], -p, sequence))
    rank = np.arange(len(order)) - np.searchsorted(sequence[order], sequence[order])
    least = order[rank == n_best - 1]
    floor[sequence[least]] = np.maximum(floor[sequence[least]], p[least])
    return tuple(column[order[rank < n_best]] for column in columns)


@dataclass(frozen=True, eq=False)
class Steps:
    """The transition probabilities of labels in a few sequences, and the probabilities that spans begin and end.

    The type of a span is its index k in the rules.

    begun : (N, L), the probability that a span starts at token t and that the token has label j.
    Q : (N, L, L), the probability of each label given the label before; 0 at the first token of a sequence.
    ended : (N, L), the probability that a span ends with token t, given that it includes t and that t has label i.
    last : (N,), whether a token is the last one of its sequence.
    inside : (K, n, n), for each type and each pair of its labels, whether the second continues a span after the first.
    """

    offsets: Places
    members: Places
    begun: Floats
    Q: Floats
    ended: Floats
    last: Flags
    inside: Flags

    @classmethod
    def of(cls, field: Field, rules: SpanRules) -> Steps:
        """Compute the probabilities from a distribution of labels, by one forward-backward pass in float64."""
        exact = field.in_float64()
        q, p, chains = exact.edge_marginals(), exact.marginals(), field.chains
        N, L = p.shape
        nonempty = chains.lengths > 0
        firsts, lasts = chains.offsets[:-1][nonempty], chains.offsets[1:][nonempty] - 1
        before = np.vstack([np.ones((1, L)), p[:-1]]) if N else p
        Q = np.divide(q, before[:, :, None], out=np.zeros_like(q), where=before[:, :, None] > 0)
        starts, continues = rules.starts[:L], rules.continues
        begun = np.einsum("tij,ij->tj", q, starts & ~continues)
        begun[firsts] = p[firsts] * rules.starts[L]
        # The probability of a label that is in no span although the next label may continue it, such as B in IOB1. Such
        # a label never continues a span itself, so that the label before it says whether it is in a span.
        free = np.einsum("tij,ij->tj", q, ~starts & ~continues)
        free[firsts] = p[firsts] * ~rules.starts[L]
        begun[1:] += np.einsum("ti,tij,ij->tj", free[:-1], Q[1:], starts & continues)
        ended = np.zeros((N, L))
        ended[:-1] = np.einsum("tij,ij->ti", Q[1:], rules.completes[:, :L])
        ended[lasts] = rules.completes[:, L]
        last = np.zeros(N, bool)
        last[lasts] = True
        real = rules.members >= 0
        inside = continues[rules.members[:, :, None], rules.members[:, None, :]] & real[:, :, None] & real[:, None, :]
        return cls(chains.offsets, rules.members, begun, Q, ended, last, inside)

    def begin(self, t: Places, k: Places) -> Floats:
        """Return the probabilities that spans of the types k start at the tokens t.

        The result has one row per span, and one column for each label of its type that token t may have.
        """
        labels = self.members[k]
        return np.where(labels >= 0, self.begun[t[:, None], labels], 0.0)

    def advance(self, t: Places, k: Places, v: Floats) -> Floats:
        """Return the probabilities that spans of the types k, which reach the tokens t, also continue at t + 1.

        v : the probabilities that the spans reach the tokens t, with one row per span and one column per label of t.
        """
        labels = self.members[k]
        steps = self.Q[(t + 1)[:, None, None], labels[:, :, None], labels[:, None, :]]
        return np.asarray(np.einsum("si,sij->sj", v, steps * self.inside[k]))

    def complete(self, t: Places, k: Places, v: Floats) -> Floats:
        """Return, for each span of a type k, the probability that it reaches its token t and ends there.

        v : the probabilities that the spans reach the tokens t, with one row per span and one column per label of t.
        """
        return np.asarray(np.minimum((v * self.ended[t[:, None], self.members[k]]).sum(axis=1), 1.0))
