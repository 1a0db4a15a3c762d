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

Runs of equal labels are spans that fill their sequence: every token is in one, and neighbouring runs have different
labels. The best S' then is a shortest path over such divisions of the sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ..arrays import Floats, Labels, Places
from ..inference.feasibility import InfeasibleSequenceError
from ..readers.spans import SpanRules
from .span_probabilities import Field, SpanTable, Steps, probable_spans, span_probabilities

LEAST_PROBABILITY, FIRST_LIMIT, MOST_STEPS, CLOSE = 0.01, 0.5, 50, 1e-6

Candidate: TypeAlias = tuple[int, int, float, int]
"""The start, the end and the probability of a span, and its row in the table."""

Path: TypeAlias = tuple[float, int, int]
"""The value of the best runs up to a token, the label of the last of them, and its row in the table; -1 if none."""


def f1_labels(field: Field, rules: SpanRules) -> Labels:
    """Return the labels, one per token, whose spans have the highest expected F1 score over all sequences of the batch.

    For each sequence, return the likeliest of the labellings that have these spans and no others. If the constraints
    forbid all of these labellings, return the likeliest labelling that is allowed.
    """
    table, p = probable_spans(field, rules, LEAST_PROBABILITY, None)
    return labels_of_spans(field, rules, table.take(_choose(table, p, _expected_number(field, rules))))


def f1_runs(field: Field, rules: SpanRules) -> Labels:
    """Return the labels, one per token, whose runs have the highest expected F1 score over all sequences of the batch.

    Runs are chosen among those whose probability is at least 0.01 and those of the likeliest labelling. If constraints
    forbid the labelling of a sequence that has the chosen runs, return the likeliest labelling of this sequence.

    rules : the rules of the scheme "runs".
    """
    likeliest, offsets = field.best(), field.chains.offsets
    table, p = probable_spans(field, rules, LEAST_PROBABILITY, None)
    usual = _runs_of(likeliest, offsets)
    table = SpanTable(*map(np.concatenate, zip(table, usual, strict=True)))
    p = np.concatenate([p, span_probabilities(field, rules, usual)])
    sequences, labels = _candidates(table, p), likeliest.copy()
    expected, limit = _expected_number(field, rules), FIRST_LIMIT
    rows = np.empty(0, np.intp)
    for _ in range(MOST_STEPS):
        rows = np.array([row for candidates in sequences for row in _best_runs(candidates, table.type, limit)], np.intp)
        before, limit = limit, float(p[rows].sum() / max(expected + len(rows), 1e-300))
        if abs(limit - before) <= CLOSE:
            break
    first = offsets[table.sequence]
    for low, high, k in zip(*((first + table.start)[rows], (first + table.end)[rows], table.type[rows]), strict=True):
        labels[low:high] = k
    for low, high in pairwise(offsets):
        if not _is_possible(field, labels, int(low), int(high)):
            labels[low:high] = likeliest[low:high]
    return labels


def _runs_of(labels: Labels, offsets: Places) -> SpanTable:
    """Return the runs of equal labels of all sequences."""
    starts = np.append(True, labels[1:] != labels[:-1])[: len(labels)]
    starts[offsets[:-1][np.diff(offsets) > 0]] = True
    first = np.flatnonzero(starts)
    sequence = np.searchsorted(offsets, first, side="right") - 1
    end = np.append(first[1:], len(labels))[: len(first)]
    return SpanTable(sequence, first - offsets[sequence], end - offsets[sequence], labels[first].astype(np.intp))


def _best_runs(candidates: list[Candidate], label: Places, limit: float) -> list[int]:
    """Divide one sequence into runs with the largest sum of p - limit; return their rows.

    candidates : tuples (start, end, probability p, row) of runs, sorted by `end`; some of them fill the sequence.
    label : the label of each row.
    """
    # For each token, the best runs that end before it, and the best ones whose last label is another one.
    best: dict[int, list[Path]] = {0: [(0.0, -1, -1)]}
    before: dict[int, int] = {}
    for start, end, p, row in candidates:
        k = int(label[row])
        path = next((one for one in best.get(start, []) if one[1] != k), None)
        if path is None:
            continue
        before[row] = path[2]
        others = best.setdefault(end, [])
        others.append((path[0] + p - limit, k, row))
        others.sort(key=lambda one: -one[0])
        others[:] = others[:1] + [one for one in others[1:] if one[1] != others[0][1]][:1]
    rows, row = [], best[candidates[-1][1]][0][2]
    while row >= 0:
        rows.append(row)
        row = before[row]
    return rows


def _is_possible(field: Field, labels: Labels, low: int, high: int) -> bool:
    """Return whether the labels of the tokens from `low` to `high` - 1, one sequence, have a probability above 0."""
    t = np.arange(low, high)
    steps = (
        field.w[labels[t[:-1]], labels[t[1:]]] if field.w.ndim == 2 else field.w[t[1:], labels[t[:-1]], labels[t[1:]]]
    )
    return bool(np.isfinite(field.s[t, labels[t]]).all() and np.isfinite(steps).all())


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
