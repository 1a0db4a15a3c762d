"""Compute the probability of spans, such as entities, chunks or runs of one label.

A span (start, end, label) has the probability that the labelling of its sequence contains exactly this span: it starts
at `start`, continues until `end` - 1 and ends there. A labelling y is a Markov chain with the steps

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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.answers.certified_labels import CertifiedLabels
from kernelcrf.arrays import Array, Flags, Floats, Places, UserData
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.readers.missing_labels import missing_among
from kernelcrf.readers.schemes import SCHEMES
from kernelcrf.readers.spans import SCHEME, SpanRules, scheme_of, spans
from kernelcrf.validation import either, is_whole, nothing, real, shown, whole

SPAN_SCHEME = either(*SCHEME.constraints, nothing)
THRESHOLD = either(real(least=0.0, most=1.0), nothing)
N_BEST = either(whole(least=1), nothing)


class PredictedSpan(NamedTuple):
    """A span of the tokens from `start` to `end` - 1, its label, and the probability that it is a span of its sequence.

    certified : whether the optimum of the objective provably predicts this span too; None if this was not computed.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> sentences = [["the", "dog", "of", "Ann"], ["Bob", "and", "Ann", "Lee"]]
    >>> X = [[{"word": word, "upper": word[0].isupper()} for word in sentence] for sentence in sentences]
    >>> crf = ChainCRF(C=1.0).fit(X, [["O", "O", "O", "B-PER"], ["B-PER", "O", "B-PER", "I-PER"]])
    >>> spans = crf.distribution(X).spans()[1]
    >>> [span.start for span in spans], spans[1].label
    ([0, 2], 'PER')
    """

    start: int
    end: int
    label: Any
    probability: float
    certified: bool | None = None


class SpanTable(NamedTuple):
    """Spans as columns: the index of the sequence, the first token, the token after the last, and the type."""

    sequence: Places
    start: Places
    end: Places
    type: Places

    def take(self, rows: Array) -> SpanTable:
        """Return the spans with the given indices or flags."""
        return SpanTable(*(column[rows] for column in self))


def read_spans(field: ChainField, rules: SpanRules, given: UserData) -> SpanTable:
    """Return the spans that a user passes, one list of tuples (start, end, label) per sequence."""
    lengths, number = field.chains.lengths, {label: k for k, label in enumerate(rules.types)}
    lists = list(given)
    if len(lists) != len(lengths):
        raise ValueError(
            f"spans has {len(lists)} lists: expected one list of spans per sequence, {len(lengths)} in all"
        )
    rows = []
    for i, listed in enumerate(lists):
        for span in listed:
            if isinstance(span, str) or not isinstance(span, Sequence) or len(span) < 3:
                raise ValueError(f"spans[{i}] has {shown(span)}: expected tuples (start, end, label)")
            start, end, label = span[:3]
            if not (is_whole(start) and is_whole(end) and 0 <= start < end <= lengths[i]):
                raise ValueError(
                    f"spans[{i}] has the span {shown(tuple(span))}: expected integers 0 <= start < end <= "
                    f"{lengths[i]}, the number of tokens of the sequence"
                )
            if label not in number:
                raise ValueError(
                    f"spans[{i}] has the label {shown(label)}: expected one of {shown(rules.types)}. Pass the type of "
                    "the span without the letter of the tag"
                )
            rows.append((i, start, end, number[label]))
    return SpanTable(*np.array(rows, np.intp).reshape(-1, 4).T)


def labelled_spans(field: ChainField, rules: SpanRules, labels: Array, scheme: str) -> SpanTable:
    """Return the spans of the given labels, which are names of labels, one per token."""
    offsets = field.chains.offsets
    labelled = [spans(labels[low:high].tolist(), scheme) for low, high in pairwise(offsets)]
    return read_spans(field, rules, labelled)


def predicted_spans(table: SpanTable, p: Floats, rules: SpanRules, n_samples: int) -> list[list[PredictedSpan]]:
    """Return the spans of a table with their probabilities, one list per sequence."""
    result: list[list[PredictedSpan]] = [[] for _ in range(n_samples)]
    for i, start, end, k, probability in zip(*(column.tolist() for column in (*table, p)), strict=True):
        result[i].append(PredictedSpan(start, end, rules.types[k], probability))
    return result


def mark_certified(
    predicted: list[list[PredictedSpan]], certified: CertifiedLabels, scheme: str
) -> list[list[PredictedSpan]]:
    """Set the attribute `certified` of the spans: whether the optimum provably predicts them.

    This is so if the labels of the span, and the labels next to it, are certified.
    """
    separates = scheme in SCHEMES and SCHEMES[scheme].b_separates
    before, result = 2 if separates else 1, []
    for row, labels, flags in zip(predicted, certified.labels, certified.tokens, strict=True):
        sure = {
            (span.start, span.end, span.label)
            for span in spans(labels.tolist(), scheme)
            if flags[max(span.start - before, 0) : span.end + 1].all()
        }
        result.append([span._replace(certified=span[:3] in sure) for span in row])
    return result


def right_spans(
    y_true: UserData, predicted: Sequence[Sequence[PredictedSpan]], scheme: str | None = None
) -> tuple[Floats, Flags]:
    """Return the probabilities of all predicted spans, and whether each is a span of the true labels.

    Sequences with missing labels are left out.

    scheme : the tagging scheme of the labels; None means "lenient" if they look like tags, and "runs" otherwise.
    """
    rows = [read_labels(labels, f"y_true[{i}]") for i, labels in enumerate(read_list(y_true, "y_true"))]
    if len(rows) != len(predicted):
        raise ValueError(f"y_true has {len(rows)} sequences, and y_spans has {len(predicted)}: expected equally many")
    is_missing = missing_among(label for labels in rows for label in labels)
    scheme = scheme_of([label for labels in rows for label in labels if not is_missing(label)], scheme)
    p, right = list[float](), list[bool]()
    for i, (labels, row) in enumerate(zip(rows, predicted, strict=True)):
        if not any(map(is_missing, labels)):
            true = set(spans(labels, scheme, name=f"y_true[{i}]"))
            p += [span.probability for span in row]
            right += [span[:3] in true for span in row]
    return np.array(p, np.float64), np.array(right, bool)


def span_probabilities(field: ChainField, rules: SpanRules, table: SpanTable) -> Floats:
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


def probable_spans(
    field: ChainField, rules: SpanRules, threshold: float, n_best: int | None
) -> tuple[SpanTable, Floats]:
    """Return all spans whose probability is positive and at least `threshold`, and their probabilities.

    A span that is not complete is dropped as soon as v_t sums to less than the threshold, because no span that begins
    in the same way can have a higher probability.

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
    """Return the `n_best` most probable spans of each sequence; raise its entry of `floor` to the least of them."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    sequence, p = columns[0], columns[-1]
    order = np.lexsort((columns[2], columns[1], -p, sequence))
    rank = np.arange(len(order)) - np.searchsorted(sequence[order], sequence[order])
    least = order[rank == n_best - 1]
    floor[sequence[least]] = np.maximum(floor[sequence[least]], p[least])
    return tuple(column[order[rank < n_best]] for column in columns)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps Q_t of the labels of a few sequences, and what the rules of a scheme say about them.

    The type of a span is its index k in the rules.

    begun : (N, L), v_s of a span that starts at token s, for all labels.
    Q : (N, L, L), the probability of each label given the label before; 0 at the first token of a sequence.
    ended : (N, L), the probability that a span is complete after token t, given that it continues at t with label i.
    last : (N,), whether a token is the last one of its sequence.
    inside : (K, n, n), for each type, whether one of its labels continues the span of another.
    """

    offsets: Places
    members: Places
    begun: Floats
    Q: Floats
    ended: Floats
    last: Flags
    inside: Flags

    @classmethod
    def of(cls, field: ChainField, rules: SpanRules) -> Steps:
        """Return the steps of a distribution, by one forward-backward pass in float64."""
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
        """Return v_t of spans of type k that start at token t; one row per span, one column per label of the type."""
        labels = self.members[k]
        return np.where(labels >= 0, self.begun[t[:, None], labels], 0.0)

    def advance(self, t: Places, k: Places, v: Floats) -> Floats:
        """Return v_{t+1}, given v_t."""
        labels = self.members[k]
        steps = self.Q[(t + 1)[:, None, None], labels[:, :, None], labels[:, None, :]]
        return np.asarray(np.einsum("si,sij->sj", v, steps * self.inside[k]))

    def complete(self, t: Places, k: Places, v: Floats) -> Floats:
        """Return the probability that spans end after token t."""
        return np.asarray(np.minimum((v * self.ended[t[:, None], self.members[k]]).sum(axis=1), 1.0))
