"""Find the labels with the highest expected F1 score of spans.

The F1 score of predicted spans S' and true spans S is 2 |S & S'| / (|S| + |S'|). Given the probabilities p of spans,
the expected number of true spans that are predicted is the sum of p over S', and the expected number of true spans is
the sum of p over all spans. The ratio of these expectations,

    F(S') = 2 sum_{S'} p / (sum over all spans of p + |S'|),

is maximised over all sets S' of spans that do not overlap, for all sequences of a batch together. If the maximum is F,
the best S' maximises sum_{S'} (p - F / 2). For a given F, the best S' is a shortest path in each sequence. Dinkelbach's
method computes S' and F in turn until F does not change. A span is worth predicting if its probability is above F / 2,
and not only if it is above 1/2: where the F1 score is low, as for rare entities, the likeliest labelling predicts too
few spans.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

import numpy as np

from ..arrays import Floats, Labels, Places
from ..inference.feasibility import InfeasibleSequenceError
from ..readers.spans import SpanRules
from .span_probabilities import Field, SpanTable, Steps, probable_spans

LEAST_PROBABILITY, FIRST_LIMIT, MOST_STEPS, CLOSE = 0.01, 0.5, 50, 1e-6

Candidate: TypeAlias = tuple[int, int, float, int]
"""The start, the end and the probability of a span, and its row in the table."""


def f1_labels(field: Field, rules: SpanRules) -> Labels:
    """Return the labels, one per token, whose spans have the highest expected F1 score over all sequences of the batch.

    For each sequence, return the likeliest of the labellings that have these spans and no others. If the constraints
    forbid all of these labellings, return the likeliest labelling that is allowed.
    """
    table, p = probable_spans(field, rules, LEAST_PROBABILITY, None)
    return labels_of_spans(field, rules, table.take(_choose(table, p, _expected_number(field, rules))))


def labels_of_spans(field: Field, rules: SpanRules, chosen: SpanTable) -> Labels:
    """Return labels, one per token, that have exactly the chosen spans.

    For each sequence, return the likeliest of the labellings that have these spans and no others. If the constraints
    forbid all of these labellings, return the likeliest labelling that is allowed.
    """
    labels = np.empty(field.chains.n_nodes, np.int32)
    for low, high, part in field.batches():
        here = chosen.take((chosen.sequence >= low) & (chosen.sequence < high))
        offsets = part.chains.offsets
        first = offsets[here.sequence - low]
        limited = _limit(part, rules, first + here.start, first + here.end, here.type)
        rows = slice(*field.chains.offsets[[low, high]])
        try:
            labels[rows] = limited.best()
        except InfeasibleSequenceError:
            for i in range(high - low):
                labels[rows][offsets[i] : offsets[i + 1]] = _best_of_one(limited.part(i, i + 1), part.part(i, i + 1))
    return labels


def _best_of_one(limited: Field, free: Field) -> Labels:
    try:
        return limited.best()
    except InfeasibleSequenceError:
        return free.best()


def _expected_number(field: Field, rules: SpanRules) -> float:
    """Return the expected number of spans in all sequences together."""
    return sum(float(Steps.of(part, rules).begun.sum()) for _, _, part in field.batches())


def _choose(table: SpanTable, p: Floats, expected: float) -> Places:
    """Choose the spans of a table that together have the highest expected F1 score; return their rows.

    p, expected : the probability of each span, and the expected number of spans in all sequences.
    """
    sequences = _candidates(table, p)
    limit, rows = FIRST_LIMIT, np.empty(0, np.intp)
    for _ in range(MOST_STEPS):
        rows = _best_sets(sequences, limit)
        before, limit = limit, float(p[rows].sum() / max(expected + len(rows), 1e-300))
        if abs(limit - before) <= CLOSE:
            break
    return rows


def best_spans(table: SpanTable, p: Floats, limit: float) -> Places:
    """Choose the spans of a table that do not overlap and have the largest sum of p - limit; return their rows.

    p : the probability of each span.
    """
    return _best_sets(_candidates(table, p), limit)


def _candidates(table: SpanTable, p: Floats) -> list[list[Candidate]]:
    """Return the spans of a table with their probabilities p, one list per sequence that has spans, sorted by `end`."""
    sequences: dict[int, list[Candidate]] = {}
    order = np.lexsort((table.start, table.end, table.sequence))
    for row in order.tolist():
        candidate = int(table.start[row]), int(table.end[row]), float(p[row]), row
        sequences.setdefault(int(table.sequence[row]), []).append(candidate)
    return list(sequences.values())


def _best_sets(sequences: list[list[Candidate]], limit: float) -> Places:
    """Return the rows of the spans that `_best_set` chooses in each sequence."""
    return np.array([row for candidates in sequences for row in _best_set(candidates, limit)], np.intp)


def _best_set(candidates: list[Candidate], limit: float) -> list[int]:
    """Choose spans of one sequence that do not overlap and have the largest sum of p - limit; return their rows.

    candidates : tuples (start, end, probability p, row) of spans, sorted by `end`.
    """
    kept = [one for one in candidates if one[2] > limit]
    ends, values, choices = [one[1] for one in kept], [0.0], list[int]()
    for at, (start, _, p, _) in enumerate(kept):
        before = bisect_right(ends, start, 0, at)
        gain = values[before] + p - limit
        choices.append(before if gain > values[-1] else -1)
        values.append(max(gain, values[-1]))
    rows, at = [], len(kept)
    while at:
        at -= 1
        if choices[at] >= 0:
            rows.append(kept[at][3])
            at = choices[at]
    return rows


def _limit(part: Field, rules: SpanRules, start: Places, end: Places, k: Places) -> Field:
    """Limit a distribution of labels to the labellings that have exactly the given spans.

    start, end, k : the first token, the token after the last, and the index of the type of each span.
    """
    (N, L), chains = part.s.shape, part.chains
    type_, begins = np.full(N, -1), np.zeros(N, bool)
    for low, high, one in zip(start, end, k, strict=True):
        type_[low:high] = one
    begins[start] = True
    of_type = np.zeros((len(rules.types) + 1, L), bool)
    for one, members in enumerate(rules.members):
        of_type[one, members[members >= 0]] = True
    of_type[-1] = ~of_type[:-1].any(axis=0)
    allowed = of_type[type_]
    nonempty = chains.lengths > 0
    firsts, lasts = chains.offsets[:-1][nonempty], chains.offsets[1:][nonempty] - 1
    allowed[firsts] &= rules.starts[L] | ~begins[firsts, None]
    allowed[lasts] &= rules.completes[:, L] | (type_[lasts, None] < 0)
    goes_on = (type_ >= 0) & ~begins
    after = np.concatenate([[False], type_[:-1] >= 0]) & ~goes_on
    steps = np.ones((N, L, L), bool)
    steps[goes_on] = rules.continues
    steps[begins] = rules.starts[:L] & ~rules.continues
    steps[after] &= rules.completes[:, :L]
    nothing = part.s.dtype.type(-np.inf)
    return part.replaced(np.where(allowed, part.s, nothing), np.where(steps, part.w, nothing))
