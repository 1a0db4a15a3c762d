"""Labelled sequences that are divided into segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from kernelcrf.arrays import Array, Inputs, Places
from kernelcrf.basis.features import Features
from kernelcrf.basis.pairs import Pairs, frequencies
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import input_of, rows_of
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.sequences import PIECE, LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.segments import candidate_rows
from kernelcrf.partitions.segments import SegmentPartition, SegmentRules
from kernelcrf.readers.segments import KnownSegments, SegmentLabels
from kernelcrf.score.cliques import SEGMENTS
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term
from kernelcrf.validation import ParameterError, shown

# Pieces of sequences have room for this many of the longest segments.
SEGMENTS_PER_PIECE = 10


@dataclass(frozen=True, eq=False)
class LabelledSegments(LabelledSequences):
    """Labelled sequences that are divided into segments.

    `labels`, `allowed` and `n_labels` are about the labels of tokens, `legal` is about the labels of segments.

    spec : the labels of tokens and of segments.
    longest, tail : the number of durations that have scores of their own, and whether segments may be longer.
    pooled : the inputs of all candidate segments, or None if segments have no inputs of their own.
    """

    spec: SegmentLabels = field(kw_only=True)
    longest: int = 1
    tail: bool = True
    pooled: Inputs = None

    @property
    def piece(self) -> int:
        return max(PIECE, SEGMENTS_PER_PIECE * self.longest)

    def take(self, nodes: Places, chains: Chains, samples: Array) -> Self:
        taken = super().take(nodes, chains, samples)
        if self.pooled is None:
            return taken
        counts = np.diff(candidate_rows(chains, self.longest))
        starts = candidate_rows(self.chains, self.longest)[nodes]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return replace(taken, pooled=self.pooled[np.repeat(starts, counts) + within])

    def rows(self, name: str) -> Inputs:
        return self.pooled if name == SEGMENTS else super().rows(name)

    @cached_property
    def known(self) -> KnownSegments:
        """Return the segments that the labels of tokens determine, completely or in part."""
        return self.spec.known(self.labels, self.allowed, self.chains)

    @property
    def rules(self) -> SegmentRules:
        """Return the rules that a segmentation must satisfy."""
        return SegmentRules(self.longest, self.tail, self.spec.repeats, self.legal)

    def observed(self, term: Term, least: float) -> Pairs | None:
        return None if self.known.observed is None else super().observed(term, least)

    def frequencies(self, term: Term) -> Array:
        segments, L = self.known.observed, len(self.spec.types)
        assert segments is not None
        eye = np.eye(L, dtype=bool)
        if term.kind.is_step:
            sequence = np.searchsorted(self.chains.offsets, segments.starts, side="right")
            follows = np.flatnonzero(sequence[1:] == sequence[:-1]) + 1
            steps = np.zeros((L, L), np.float32)
            np.add.at(steps, (segments.labels[follows - 1], segments.labels[follows]), 1)
            return steps.reshape(1, -1)
        X = self.rows(input_of(term)[0])
        if term.kind.is_token:
            return frequencies(X, eye[np.repeat(segments.labels, segments.durations)])
        rows = term.kind.segment_rows(segments, candidate_rows(self.chains, self.longest))
        return frequencies(X[rows], eye[segments.labels])

    def check(self) -> None:
        """Raise if an observed segment is too long, or if labels of segments break the constraints."""
        segments = self.known.observed
        if segments is None:
            return
        durations = segments.durations
        sequence = np.searchsorted(self.chains.offsets, segments.starts, side="right") - 1
        if not self.tail and durations.max(initial=0) > self.longest:
            i = int(durations.argmax())
            number = self.chains.number(int(sequence[i]))
            raise ParameterError(
                f"y has a segment of {durations[i]} tokens in sequence {number}: expected "
                f"at most max_duration={self.longest}, because tail=False; set tail=True, or a larger max_duration"
            )
        if self.legal is not None:
            order = Chains.from_lengths(np.bincount(sequence, minlength=self.chains.n_samples))
            broken = np.flatnonzero(~self.legal.allows(order, segments.labels))
            if len(broken):
                at, number = int(broken[0]), self.chains.number(int(sequence[broken[0]]))
                raise ValueError(
                    f"the labels y of sequence {number} break the constraints at the segment of label "
                    f"{shown(self.spec.types[segments.labels[at]])} that starts at token "
                    f"{segments.starts[at] - self.chains.offsets[sequence[at]]}; correct the labels, pass None for "
                    "labels that may be wrong, or omit constraints="
                )

    def partition(  # type: ignore[override]
        self, terms: Sequence[Term], rows: Mapping[str, TokenFeatures]
    ) -> SegmentPartition:
        pairs = {term.name: term.pairs for term in terms}
        tokens = {name: of_term.with_pairs(pairs[name]) for name, of_term in rows.items()}
        base = self.spec.base_of_types(self.base)
        return SegmentPartition(self.chains, len(self.spec.types), self.rules, *self.known, tokens, self.weights, base)

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[Any]:
        return [self.partition(terms, rows_of(features))]

    def digest(self) -> dict[str, Any]:
        pooled = None if self.pooled is None else digest_array(self.pooled)
        return {**super().digest(), "segments": digest_value([self.longest, self.tail, pooled])}

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        return None if term.kind.is_segment else super().positions(term, features, engine)


def longest_segment(data: LabelledSequences, spec: SegmentLabels) -> int:
    """Return the number of tokens of the longest segment of the data, or 1 if labels are missing everywhere."""
    known = spec.known(data.labels, data.allowed, data.chains)
    if known.observed is not None:
        return int(known.observed.durations.max(initial=1))
    # Runs of tokens whose label is known and that continue the same segment.
    same = (data.labels[1:] >= 0) & (data.labels[:-1] >= 0)
    types = spec.of_class[data.labels]
    inner = np.zeros(len(data.labels), bool)
    inner[1:] = same & (types[1:] == types[:-1]) & spec.continues[data.labels[1:]]
    inner[data.chains.first_nodes] = False
    starts = np.flatnonzero(~inner)
    return int(np.diff(np.append(starts, len(inner))).max(initial=1))
