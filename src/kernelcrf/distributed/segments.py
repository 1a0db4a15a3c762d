"""Labelled sequences that are divided into segments, on the workers of a cluster, for SegmentCRF.

The workers read the labels of tokens, as for ChainCRF. Segments are derived from these labels in each part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, cast

from kernelcrf.arrays import Config, Places, UserData, join_columns
from kernelcrf.basis.factor import stack
from kernelcrf.basis.features import Features
from kernelcrf.basis.pairs import Pairs
from kernelcrf.distributed.cluster import Cluster, Handle, method
from kernelcrf.distributed.corpus import DistributedSequences, join_parts
from kernelcrf.distributed.sources import RawSequences
from kernelcrf.distributed.summary import Chosen
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.digest import digest_value
from kernelcrf.fitting.segments import LabelledSegments, longest_segment
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Legal
from kernelcrf.readers.inputs import open_chains
from kernelcrf.readers.pooling import pool
from kernelcrf.readers.segments import SegmentLabels, need_tags, read_tokens
from kernelcrf.score.terms import Term


@dataclass(frozen=True, eq=False)
class DistributedSegments(DistributedSequences):
    """Labelled sequences that are divided into segments, and among the workers of a cluster.

    parts : for each part of the data, a handle that refers to `LabelledSegments` on a worker.
    spec, longest, tail : as in `LabelledSegments`.
    pooling : how the inputs of whole segments are computed from those of their tokens; None if segments have no inputs.
    """

    spec: SegmentLabels = field(kw_only=True)
    longest: int = field(kw_only=True)
    tail: bool = field(kw_only=True)
    pooling: str | None = field(kw_only=True)

    @classmethod
    def of(
        cls,
        data: DistributedSequences,
        spec: SegmentLabels,
        longest: int,
        tail: bool,
        pooling: str | None,
        legal: Legal | None,
    ) -> DistributedSegments:
        """Let the workers derive segments from the labels of tokens; raise if the segments break a rule."""
        segments = cls(data.cluster, data.parts, legal, spec=spec, longest=longest, tail=tail, pooling=pooling)
        parts = data.cluster.each(_derive_segments, data.parts, shared=(spec, longest, tail, legal, pooling))
        data.cluster.fetch(data.cluster.each(method("check"), parts))
        return replace(segments, parts=parts)

    def digest(self) -> Config:
        return {**super().digest(), "segments": digest_value([self.longest, self.tail, self.pooling])}

    def observed(self, term: Term, least: float) -> Pairs | None:
        # If a label is missing in one part, every pair has a weight.
        complete = self.cluster.fetch(self.cluster.each(_is_complete, self.parts))
        return super().observed(term, least) if all(complete) else None

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        return None if term.kind.is_segment else super().positions(term, features, engine)

    def _join(self, parts: Sequence[LabelledSequences]) -> LabelledSegments:
        joined = _derive_segments(join_parts(parts), self.spec, self.longest, self.tail, self.legal, None)
        if self.pooling is None:
            return joined
        return replace(joined, pooled=stack([cast(LabelledSegments, part).pooled for part in parts]))


def longest_of_parts(data: DistributedSequences, spec: SegmentLabels) -> int:
    """Return the number of tokens of the longest segment of all parts, or 1 if labels are missing everywhere."""
    lengths: list[int] = data.cluster.fetch(data.cluster.each(longest_segment, data.parts, shared=(spec,)))
    return max(lengths)


def settle_tokens(raw: Sequence[Handle], cluster: Cluster, chosen: Chosen | None) -> Callable[..., list[UserData]]:
    """Return a function that reads the labels of tokens from lists of segments, in the same way in all parts.

    The segments are read as IOB2 tags if some part needs tags.
    """
    return partial(read_tokens, is_tags=bool(cluster.sum(_count_tagged, raw, shared=(chosen,))))


# A worker calls the functions below with one part.


def _derive_segments(
    data: LabelledSequences, spec: SegmentLabels, longest: int, tail: bool, legal: Legal | None, pooling: str | None
) -> LabelledSegments:
    given: dict[str, Any] = {one.name: getattr(data, one.name) for one in fields(LabelledSequences)}
    pooled = None if pooling is None else pool(join_columns(data.X), data.chains, longest, pooling)
    return LabelledSegments(**given | {"legal": legal}, spec=spec, longest=longest, tail=tail, pooled=pooled)


def _is_complete(data: LabelledSegments) -> bool:
    return data.known.observed is not None


def _count_tagged(part: RawSequences, chosen: Chosen | None) -> int:
    if not len(part):
        return 0
    return int(need_tags(part.y, open_chains(part.X, part.lengths, 0, chosen), flat=part.lengths is not None))
