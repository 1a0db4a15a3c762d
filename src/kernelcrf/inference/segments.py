"""Inference on segmentations: a labelling is a sequence of segments, each with a label, a start and an end.

A sequence of T tokens is divided into segments (a, b, e) with label a, from token b to token e - 1. The score of a
segmentation is a sum over its segments, and over the steps w(a, a') from one segment to the next (a semi-Markov model).
The score of a segment is

    first_b(a) + sum_{b <= t < e} s_t(a) + last_{e-1}(a) + duration(e - b, a) + g(b, e, a).

Segments of up to D tokens have free scores of durations and, optionally, one score g per segment. If there is a tail,
longer segments have the score duration(d, a) = duration(D, a) + (d - D) tail(a), and their g is the g of their first D
tokens. Without a tail, longer segments are forbidden. With S_e the sum of the scores s of all tokens before position e,
the logarithms of the sums over segmentations are, if g = 0,

    B_0 = 0,   B_b(a) = log sum_a' exp(A_b(a') + w(a', a)),   H_b = B_b + first_b - S_b          (a segment starts at b)
    G_e(a) = log [exp(H_{e-D}(a) + duration(D, a) + S_e(a)) + exp(G_{e-1}(a) + s_{e-1}(a) + tail(a))] (D tokens or more)
    A_e(a) = log [sum_{d < D} exp(H_{e-d}(a) + duration(d, a) + S_e(a)) + exp G_e(a)] + last_{e-1}(a) (it ends at e)

and log Z = log sum_a exp A_T(a). The backward recursions of Y_b (a segment starts at b), C_e (a segment has ended at e)
and R_e (a segment of D tokens or more is open at e) mirror them. They give all marginals, for instance

    p(segment starts at b with label a) = exp(B_b(a) + Y_b(a) - log Z),
    p(y_t = a) = sum_{b <= t} p(starts at b with a) - sum_{e <= t} p(ends at e with a).

One pass takes O(T L (D + L)) operations and O(T L) memory; a score g needs memory O(T L D). All numbers are float64.
Sums over durations are sums of products, with a few exponentials and logarithms per position (`loops.windows`), if
g = 0. Sequences are stored one after the other, as in `graphs.structure`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.loops import segment_tangents as tangent_loops
from kernelcrf.inference.loops import segments as loops
from kernelcrf.inference.loops.windows import empty_blocks, push_all

# Threads work on groups of sequences with about this many tokens, whatever the number of threads.
GROUP = 2048


def candidate_rows(chains: Chains, D: int) -> Ints:
    """Return, for each token, the row of the candidate segment that consists of this token alone.

    Candidates are all segments of up to D tokens, sorted by their first token and then by their length. The result has
    an additional entry at its end, the number of all candidates.
    """
    left = np.repeat(chains.offsets[1:], chains.lengths) - np.arange(chains.n_nodes)
    return np.concatenate(([0], np.cumsum(np.minimum(left, D))))


@dataclass(frozen=True, eq=False)
class SegmentScores:
    """The scores of the segmentations of sequences with N tokens in total, and with L labels.

    tokens : (N, L), the score s of each label at each token.
    steps : (L, L), the score w of a step from one segment to the next, [from, to].
    durations : (D, L), the score of segments of 1 to D tokens.
    first, last : (N, L), the scores of labels at the first and the last token of a segment, or None for zeros.
    tail : (L,), the score of each token beyond D, or None if no segment is longer than D.
    segments : the scores g of candidate segments in the order of `candidate_rows`, one column per label, or None.
    continues : (N, L), whether a token may belong to the same segment as the token before it; None if it always may.
    chains : the sequences; None if all tokens are one sequence.
    """

    tokens: Floats
    steps: Floats
    durations: Floats
    first: Floats | None = None
    last: Floats | None = None
    tail: Floats | None = None
    segments: Floats | None = None
    continues: Flags | None = None
    chains: Chains | None = None

    @cached_property
    def order(self) -> Chains:
        """Return `chains`, or all tokens as one sequence if `chains` is None."""
        return Chains.from_lengths([len(self.tokens)]) if self.chains is None else self.chains

    def move(self, direction: SegmentScores, step: float) -> SegmentScores:
        """Return these scores plus `step` times the scores `direction`."""
        names = "tokens", "steps", "durations", "first", "last", "tail", "segments"
        pairs = {name: (getattr(self, name), getattr(direction, name)) for name in names}
        moved: dict[str, Any] = {
            name: None if x is None else x if dx is None else x + step * dx for name, (x, dx) in pairs.items()
        }
        return replace(self, **moved)

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Return the tuple of arrays that the compiled loops take.

        Scores that are None become zeros or empty arrays. A tail that is None becomes -inf, so that no segment is
        longer than D tokens.
        """
        s = np.ascontiguousarray(self.tokens, np.float64)
        L, positions = s.shape[1], (len(s) + self.order.n_samples, s.shape[1])
        total, nothing = np.empty(positions), np.zeros_like(s)
        loops.prefix_sums(s, self.order.offsets, total)
        given = [nothing if part is None else np.asarray(part, np.float64) for part in (self.first, self.last)]
        tail = np.full(L, -np.inf) if self.tail is None else np.asarray(self.tail, np.float64)
        w, durations = (np.ascontiguousarray(part, np.float64) for part in (self.steps, self.durations))
        reach, ahead = (np.zeros((0, L) if self.continues is None else positions, np.int32) for _ in range(2))
        if self.continues is not None:
            loops.limits(np.ascontiguousarray(self.continues), self.order.offsets, reach, ahead)
        g = np.zeros((0, L)) if self.segments is None else np.ascontiguousarray(self.segments, np.float64)
        rows = candidate_rows(self.order, len(durations))[:-1]
        return s, total, w, *given, durations, tail, reach, ahead, g, rows

    def part(self, low: int, high: int) -> SegmentScores:
        """Return the scores of the sequences from `low` to `high` - 1."""
        t, rows = slice(*self.order.offsets[[low, high]].tolist()), candidate_rows(self.order, len(self.durations))
        given = {name: getattr(self, name) for name in ("tokens", "first", "last", "continues")}
        fields: dict[str, Any] = {name: None if x is None else x[t] for name, x in given.items()}
        fields["segments"] = None if self.segments is None else self.segments[rows[t.start] : rows[t.stop]]
        return replace(self, **fields, chains=self.order.part(low, high))

    def of_sequence(self, i: int) -> tuple[Array, ...]:
        """Return the tuple of arrays that the compiled loops take for sequence i."""
        arrays: tuple[Array, ...] = loops.of_sequence(self.arrays, self.order.offsets, i)
        return arrays


@dataclass(frozen=True, eq=False)
class SegmentMoments:
    """The log-partitions and the marginals of the segmentations of sequences.

    log_partition : one number per sequence.
    nodes : (N, L), the probability of each label at each token.
    starts, ends : (N, L), the probability that a segment with a label starts at a token, or ends with it.
    steps : (L, L), the expected number of steps from one label to another, summed over sequences with their weights.
    lengths : (D, L), the expected number of segments of each duration; the last row counts longer segments, too.
    more : (L,), the expected number of tokens beyond D in longer segments.
    segments : the probabilities of candidate segments; empty if candidates have no scores. A candidate of D tokens
        stands for all longer segments, too.
    """

    log_partition: Floats
    nodes: Floats
    starts: Floats
    ends: Floats
    steps: Floats
    lengths: Floats
    more: Floats
    segments: Floats

    @classmethod
    def zeros(cls, arrays: tuple[Array, ...], n_samples: int) -> SegmentMoments:
        """Return moments that are 0, in the shapes that the scores require."""
        s, w, durations, g = arrays[0], arrays[2], arrays[5], arrays[9]
        shapes = [s.shape] * 3 + [w.shape, durations.shape, (s.shape[1],), g.shape]
        return cls(np.zeros(n_samples), *map(np.zeros, shapes))

    @property
    def sums(self) -> tuple[Floats, ...]:
        """Return the moments that are sums over sequences."""
        return self.steps, self.lengths, self.more

    @property
    def rows(self) -> tuple[Floats, ...]:
        """Return the moments of single tokens."""
        return self.nodes, self.starts, self.ends


@dataclass(frozen=True, eq=False)
class Observed:
    """The observed segments of all sequences.

    labels, starts, ends : the label of each segment, its first token, and the token after its last token.
    """

    labels: Ints
    starts: Ints
    ends: Ints

    @property
    def durations(self) -> Ints:
        """Return the number of tokens of each segment."""
        return self.ends - self.starts

    def moments(self, scores: SegmentScores, weights: Floats | None = None) -> SegmentMoments:
        """Return the moments of a distribution that always draws these segments; its sums over sequences are counts.

        The log-partition of a sequence is the score of its segments.

        weights : the weight of each sequence in moments that are sums over sequences; None means 1.
        """
        x, chains = scores.arrays, scores.order
        s, total, w, first, last, durations, tail, _, _, g, rows = x
        a, b, e, d, D = self.labels, self.starts, self.ends, self.durations, len(durations)
        short, beyond = np.minimum(d, D) - 1, np.maximum(d - D, 0)
        sequence = np.searchsorted(chains.offsets, b, side="right") - 1
        values = first[b, a] + total[e + sequence, a] - total[b + sequence, a] + last[e - 1, a] + durations[short, a]
        values = values + beyond * np.where(beyond > 0, tail[a], 0.0)
        follows = np.flatnonzero(sequence[1:] == sequence[:-1]) + 1
        values[follows] += w[a[follows - 1], a[follows]]
        values = values + g[rows[b] + short, a] if len(g) else values
        each = np.ones(len(a)) if weights is None else weights[sequence]
        moments = SegmentMoments.zeros(x, chains.n_samples)
        np.add.at(moments.log_partition, sequence, values)
        moments.nodes[np.arange(len(s)), np.repeat(a, d)] = 1.0
        moments.starts[b, a] = 1.0
        moments.ends[e - 1, a] = 1.0
        np.add.at(moments.steps, (a[follows - 1], a[follows]), each[follows])
        np.add.at(moments.lengths, (short, a), each)
        np.add.at(moments.more, a, each * beyond)
        if len(g):
            moments.segments[rows[b] + short, a] = 1.0
        return moments


@dataclass(frozen=True, eq=False)
class SegmentMessages:
    """The forward and backward messages of sequences; the docstring of the module defines them.

    weights : the weight of each sequence in moments that are sums over sequences.
    forward, backward : the messages A, B, H and G, and Y, C and R, with one row per position of each sequence.
    """

    scores: SegmentScores
    weights: Floats
    n_threads: int
    log_partition: Floats
    forward: tuple[Floats, ...]
    backward: tuple[Floats, ...]
    blocks: tuple[Array, ...]

    @classmethod
    def of(cls, scores: SegmentScores, weights: Floats | None = None, n_threads: int = 1) -> SegmentMessages:
        """Compute all messages; raise InfeasibleSequenceError if scores of -inf forbid all segmentations of a sequence.

        weights : the weight of each sequence; None means 1.
        """
        x, offsets, m = scores.arrays, scores.order.offsets, scores.order.n_samples
        L, durations = x[0].shape[1], x[5]
        forward, backward = (tuple(np.full(x[1].shape, -np.inf) for _ in range(n)) for n in (4, 3))
        blocks, log_z = empty_blocks(L, len(durations)), np.zeros(m)
        push_all(durations, blocks)
        weights = np.ones(m) if weights is None else np.asarray(weights, np.float64)
        messages = cls(scores, weights, n_threads, log_z, forward, backward, blocks)
        messages.run(lambda low, high: loops.forward_all(low, high, x, offsets, *forward, blocks, log_z))
        if (log_z == -np.inf).any():
            i = int(np.argmax(log_z == -np.inf))
            raise InfeasibleSequenceError(i, int(scores.order.lengths[i]) - 1)
        messages.run(lambda low, high: loops.backward_all(low, high, x, offsets, *backward, blocks))
        return messages

    def run(self, function: Any) -> list[Any]:
        """Divide the sequences into groups, and call `function(low, high)` for each group, in threads.

        A group consists of the sequences `low` to `high` - 1. Return one result per group.
        """
        return LocalEngine(self.n_threads).map(lambda group: function(*group), list(self.scores.order.runs(GROUP)))

    @cached_property
    def moments(self) -> SegmentMoments:
        """Return the log-partitions and the marginals."""
        x, offsets = self.scores.arrays, self.scores.order.offsets
        moments = replace(SegmentMoments.zeros(x, 0), log_partition=self.log_partition)

        def one(low: int, high: int) -> tuple[Floats, ...]:
            sums = tuple(np.zeros_like(total) for total in moments.sums)
            loops.marginals_all(
                low, high, x, offsets, self.weights, *self.forward, *self.backward, self.blocks, self.log_partition,
                *moments.rows, *sums, moments.segments,
            )  # fmt: skip
            return sums

        _add(moments.sums, self.run(one))
        # Rounding errors of long sums are removed from the probabilities of labels, which sum to one.
        nodes = moments.nodes
        nodes /= np.maximum(nodes.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return moments

    def entropy(self) -> Floats:
        """Return the entropy of p(segmentation | x) of each sequence: log Z minus the expected score."""
        x, order, moments = self.scores.arrays, self.scores.order, self.moments
        s, _, w, first, last, durations, tail, _, _, g, _ = x
        rows, scratch = candidate_rows(order, len(durations)), SegmentMoments.zeros(x, 0)
        ones, entropies = np.ones_like(self.weights), self.log_partition.copy()
        for i, (low, high) in enumerate(pairwise(order.offsets.tolist())):
            # The moments that are sums over sequences are needed for each sequence alone.
            sums = tuple(np.zeros_like(total) for total in moments.sums)
            loops.marginals_all(
                i, i + 1, x, order.offsets, ones, *self.forward, *self.backward, self.blocks, self.log_partition,
                *scratch.rows, *sums, scratch.segments,
            )  # fmt: skip
            pairs = list(zip(sums, (w, durations, tail), strict=True))
            pairs += [(p[low:high], score[low:high]) for p, score in zip(moments.rows, (s, first, last), strict=True)]
            if len(g):
                pairs.append((moments.segments[rows[low] : rows[high]], g[rows[low] : rows[high]]))
            entropies[i] -= sum(float((p * np.where(p > 0, score, 0.0)).sum()) for p, score in pairs)
        return entropies

    def tangent(self, direction: SegmentScores) -> SegmentMoments:
        """Return the derivatives of the log-partitions and of all marginals if the scores move along a direction.

        The marginals are the gradient of the log-partition, so their derivatives are the product of its Hessian and
        `direction`. The entries of `direction` must be finite. Arrays that are None in the scores must also be None in
        `direction`.
        """
        x, offsets, L = self.scores.arrays, self.scores.order.offsets, self.scores.tokens.shape[1]
        tail = np.zeros(L) if direction.tail is None else direction.tail
        along = replace(direction, tail=tail, chains=self.scores.order).arrays
        dx = (*along[:7], along[9])
        derivatives = SegmentMoments.zeros(x, len(self.log_partition))

        def one(low: int, high: int) -> tuple[Floats, ...]:
            sums = tuple(np.zeros_like(total) for total in derivatives.sums)
            tangent_loops.tangents_all(
                low, high, x, offsets, self.weights, *self.forward, *self.backward, self.log_partition, dx,
                derivatives.log_partition, *derivatives.rows, *sums, derivatives.segments,
            )  # fmt: skip
            return sums

        _add(derivatives.sums, self.run(one))
        return derivatives

    def log_probabilities(self, labels: Ints, starts: Ints, ends: Ints) -> Floats:
        """Return the log-probability of each of the given segments.

        labels, starts, ends : the label of each segment, its first token, and the token after its last token. Tokens
            are counted over all sequences; no segment may cross the end of a sequence.
        """
        _, total, _, _, last, durations, tail, _, ahead, g, rows = self.scores.arrays
        order = self.scores.order
        sequence = np.searchsorted(order.offsets, starts, side="right") - 1
        b, e, D, d = starts + sequence, ends + sequence, len(durations), ends - starts
        (_, _, H, _), (_, C, _) = self.forward, self.backward
        score = H[b, labels] + durations[np.minimum(d, D) - 1, labels] + total[e, labels] + last[ends - 1, labels]
        score = score + C[e, labels] - self.log_partition[sequence]
        with np.errstate(invalid="ignore"):
            score = np.where(d > D, score + (d - D) * tail[labels], score)
        if len(g):
            score = score + g[rows[starts] + np.minimum(d, D) - 1, labels]
        return np.where(d <= ahead[b, labels], score, -np.inf) if len(ahead) else np.asarray(score)


def _add(totals: tuple[Floats, ...], parts: list[tuple[Floats, ...]]) -> None:
    """Add the sums of all groups of sequences to the totals, in a fixed order."""
    for part in parts:
        for total, increment in zip(totals, part, strict=True):
            total += increment
