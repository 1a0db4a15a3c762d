"""Segments with their probabilities, from the distribution of segmentations.

The probability of a segment (label, start, end) is the sum of the probabilities of all segmentations that contain
exactly this segment.
"""

from __future__ import annotations

import numpy as np

from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.arrays import Floats, Ints, UserData
from kernelcrf.models.segments import SegmentField
from kernelcrf.readers.containers import read_list
from kernelcrf.readers.segments import OUTSIDE
from kernelcrf.validation import is_whole, shown, shown_list

# Less probable segments are not searched for if `n_best` asks for more segments than there are.
LEAST = 1e-9


def predicted_segments(field: SegmentField, threshold: float | None, n_best: int | None) -> list[list[PredictedSpan]]:
    """Return segments with their probabilities, one list per sequence, from left to right.

    threshold, n_best : return the segments with at least the probability `threshold`, and of these the `n_best` most
        probable per sequence. If both are None, return the segments of the likeliest segmentation.
    """
    offsets = field.chains.offsets
    if threshold is None and n_best is None:
        rows = [
            (a, offsets[i] + b, offsets[i] + e)
            for i, segments in enumerate(field.best_segments)
            for a, b, e in segments
        ]
        table = np.array(rows, np.int64).reshape(-1, 3)
    else:
        table = _enough(field, threshold or 0.0, n_best)
    if field.spec.is_tags and OUTSIDE in field.spec.types:
        table = table[table[:, 0] != field.spec.types.index(OUTSIDE)]
    p = np.minimum(np.exp(field.messages.log_probabilities(*table.T)), 1.0)
    result: list[list[PredictedSpan]] = [[] for _ in range(field.chains.n_samples)]
    order = np.lexsort((table[:, 2], table[:, 1])) if n_best is None else np.argsort(-p, kind="stable")
    sequences = np.searchsorted(offsets, table[:, 1], side="right") - 1
    for k in order.tolist():
        i, (a, b, e) = int(sequences[k]), table[k].tolist()
        if n_best is None or len(result[i]) < n_best:
            low = int(offsets[i])
            result[i].append(PredictedSpan(b - low, e - low, field.spec.types[a], float(p[k])))
    return result


def _enough(field: SegmentField, threshold: float, n_best: int | None) -> Ints:
    """Return a table of segments whose probability is at least `threshold`, with the columns label, start and end.

    If `n_best` is None, return all of them. Otherwise, begin with the most probable ones, and add less probable ones
    until every sequence has `n_best` segments, or no others are left. Here, start and end are positions among the
    tokens of all sequences.
    """
    least = max(threshold, np.finfo(np.float64).tiny) if n_best is None else max(threshold, 0.5)
    while True:
        table = _probable(field, least)
        if n_best is None or least <= max(threshold, LEAST):
            return table
        outside = field.spec.types.index(OUTSIDE) if field.spec.is_tags and OUTSIDE in field.spec.types else -1
        sequences = np.searchsorted(field.chains.offsets, table[table[:, 0] != outside, 1], side="right") - 1
        counts = np.bincount(sequences, minlength=field.chains.n_samples)
        if (counts[field.chains.lengths > 0] >= n_best).all():
            return table
        least = max(least / 4, threshold, LEAST)


def _probable(field: SegmentField, least: float) -> Ints:
    """Return the table of all segments whose probability is at least `least`.

    The search uses upper bounds on the probability of a segment: the probabilities of its start, of its end, and of its
    label at each of its tokens.
    """
    moments, last = field.messages.moments, np.repeat(field.chains.offsets[1:], field.chains.lengths)
    rows = list[tuple[int, int, int]]()
    for b, a in np.argwhere(moments.starts >= least).tolist():
        for e in range(b + 1, int(last[b]) + 1):
            if moments.nodes[e - 1, a] < least:
                break
            if moments.ends[e - 1, a] >= least:
                rows.append((a, b, e))
    table = np.array(rows, np.int64).reshape(-1, 3)
    kept = field.messages.log_probabilities(*table.T) >= np.log(least)
    return np.asarray(table[kept])


def segment_probabilities(field: SegmentField, given: UserData) -> list[Floats]:
    """Return the probabilities of the segments in `given`: one list of tuples (start, end, label) per sequence."""
    lists = read_list(given, "spans", "a list of tuples (start, end, label) for each sequence")
    chains, types = field.chains, field.spec.types
    if len(lists) != chains.n_samples:
        raise ValueError(
            f"spans has {len(lists)} lists and X has {chains.n_samples} sequences: expected one list per sequence"
        )
    result = []
    for i, (segments, T, low) in enumerate(zip(lists, chains.lengths.tolist(), chains.offsets.tolist(), strict=False)):
        rows = []
        for one in segments:
            start, end, label = one[:3]
            if label not in types:
                raise ValueError(f"spans[{i}] has the label {shown(label)}: expected one of {shown_list(types)}")
            if not (is_whole(start) and is_whole(end) and 0 <= start < end <= T):
                raise ValueError(
                    f"spans[{i}] has the span {shown(one)}: expected (start, end, label) with 0 <= start < end <= {T}"
                )
            rows.append((types.index(label), low + start, low + end))
        table = np.array(rows, np.int64).reshape(-1, 3)
        result.append(np.minimum(np.exp(field.messages.log_probabilities(*table.T)), 1.0))
    return result
