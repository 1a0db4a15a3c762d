"""Read labelled sequences in parts on a cluster, for ChainCRF and SegmentCRF."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.distributed.cluster import Cluster, Function, Handle
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.distributed.gamma import gamma_by_scale
from kernelcrf.distributed.inputs import stack_inputs
from kernelcrf.distributed.part_reader import (
    ExpectedFeatures,
    PartReader,
    Reading,
    count_sequences,
    current_cluster,
    read_parts,
)
from kernelcrf.distributed.sources import RawSequences, load_sequences
from kernelcrf.distributed.summary import Chosen, DataSummary, count_labels, summarise_entries
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.fitting.training_data import TrainingData
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.readers.constraints import check_legal, legal_labelings
from kernelcrf.readers.inputs import InputsReader, open_chains
from kernelcrf.readers.labels import LabelReader, distinct_labels, flat_labels
from kernelcrf.readers.reader_extension import add_names
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.weights import read_class_weights, read_weights, weigh_samples

ReadTokens: TypeAlias = Callable[..., list[UserData]]
"""A function that returns the labels of all tokens, such as `flat_labels`."""

ReaderOfInputs: TypeAlias = SequenceReader | InputsReader


@dataclass(frozen=True, eq=False, kw_only=True)
class SequencePartReader(PartReader[tuple[ReaderOfInputs, LabelReader, Legal | None]]):
    """Reads labelled sequences in parts.

    hash_features, classes, class_weight, constraints : parameters of the estimator.
    chosen : the entry and the columns that each input reads; None if there is one input without a name.
    earlier : if this fit continues an earlier fit, the readers that convert inputs and labels in that fit.
    prior, read_tokens, fit_labels, extend_labels, learns_names : as in `read_training_data`.
    """

    hash_features: int | None = None
    classes: Iterable[Hashable] | None = None
    class_weight: UserData = None
    constraints: UserData = None
    chosen: Chosen | None = None
    earlier: tuple[ReaderOfInputs, LabelReader] | None = None
    prior: tuple[ReaderOfInputs, LabelReader] | None = None
    read_tokens: ReadTokens = flat_labels
    fit_labels: Callable[[Any, UserData], LabelReader] = LabelReader.fit
    extend_labels: Callable[[LabelReader, Any, UserData], LabelReader] = LabelReader.extend
    learns_names: bool = True

    def count(self) -> Function:
        return count_sequences

    def summarise(self) -> Function:
        return partial(_summarise, self.hash_features, self.chosen, self.read_tokens)

    def settle(self, summary: DataSummary, weight: str) -> Reading[tuple[ReaderOfInputs, LabelReader, Legal | None]]:
        if self.prior is None:
            summary.check_tokens(weight)
        if self.earlier is not None:
            labels = self.earlier[1]
        elif self.prior is not None:
            labels = self.extend_labels(self.prior[1], summary.labels, self.classes)
        else:
            labels = self.fit_labels(summary.labels, self.classes)
        class_weight, leave_out = None, None
        if self.class_weight is not None:
            names = labels.classes.tolist()
            counts = np.array([summary.counts[name] for name in names])
            by_class = read_class_weights(self.class_weight, labels.classes, counts)
            class_weight = dict(zip(names, by_class.tolist(), strict=True))
            if not by_class.all() and weight != "class_weight":
                leave_out = partial(_leave_out, labels, class_weight, self.read_tokens, self.chosen)
        reader = self._reader(summary)
        legal = None if self.constraints is None else legal_labelings(self.constraints, labels.classes)
        read = partial(_read, reader, labels, legal, class_weight, self.read_tokens)
        return Reading((reader, labels, legal), read, reader.is_sparse, leave_out)

    def _reader(self, summary: DataSummary) -> ReaderOfInputs:
        """Return the reader of the inputs of all parts."""
        known = self.prior or self.earlier
        if known is None:
            return summary.reader(self.chosen, self.hash_features)
        if not self.learns_names:
            return known[0]
        if isinstance(known[0], InputsReader):
            return known[0].with_names(summary.names)
        return add_names(known[0], summary.names.get(None, ()))


def read_sequence_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    lengths: UserData,
    engine: Cluster | None,
    reader: SequencePartReader,
    expected: ExpectedFeatures,
    settle_tokens: Callable[[Sequence[Handle], Cluster, Chosen | None], ReadTokens] | None = None,
) -> TrainingData:
    """Load labelled sequences on the workers, and let the workers convert them to arrays.

    settle_tokens : a function that returns `read_tokens` for these data, if it depends on all parts; else None.
    """
    if lengths is not None:
        raise ValueError("lengths cannot be used with data on a cluster: pass sequences, and omit lengths")
    cluster = engine or current_cluster()
    raw = load_sequences(X, y, sample_weight, cluster, reader.read_tokens, reader.chosen)
    if settle_tokens is not None:
        reader = replace(reader, read_tokens=settle_tokens(raw, cluster, reader.chosen))
    parts = read_parts(raw, cluster, reader, expected)
    of_inputs, labels, legal = parts.readers
    data = DistributedSequences(cluster, parts.parts, legal)
    return TrainingData(of_inputs, labels, legal, data, lambda name: gamma_by_scale(data, [name]), parts.n_tokens)


# A worker calls the functions below with one part.


def _summarise(
    hash_features: int | None, chosen: Chosen | None, read_tokens: ReadTokens, part: RawSequences, first: int
) -> DataSummary:
    if part.y is None:
        raise ValueError(
            "y is None in a part of the data: expected labels for all sequences. Pass them as y of RawSequences, "
            "or pass the name of their column as labels to read_parquet"
        )
    if not len(part):
        return DataSummary(samples=0, ends=part.ends)
    chains = open_chains(part.X, part.lengths, first, chosen)
    weights = read_weights(part.weights, len(part), "sequence", first=first, part=True)
    kept = np.ones(len(part), bool) if weights is None else weights > 0
    tokens = read_tokens(part.y, chains, flat=part.lengths is not None)
    nodes = np.repeat(kept, chains.lengths)
    return DataSummary(
        samples=len(part),
        tokens=(int(nodes.sum()),),
        ends=part.ends,
        counted=int(kept.sum()),
        inputs=summarise_entries(part.X, part.lengths, first, kept, hash_features, chosen),
        labels=dict.fromkeys(distinct_labels(tokens)),
        counts=count_labels(label for label, is_kept in zip(tokens, nodes.tolist(), strict=True) if is_kept),
    )


def _leave_out(
    labels: LabelReader, class_weight: UserData, read_tokens: ReadTokens, chosen: Chosen | None, part: RawSequences
) -> RawSequences:
    """Return a copy of the part in which a sequence has the weight 0 if `class_weight` gives it the weight 0."""
    if not len(part):
        return part
    chains = open_chains(part.X, part.lengths, 0, chosen)
    given = read_weights(part.weights, len(part), "sequence", part=True)
    indices, _ = labels.encode(read_tokens(part.y, chains, flat=part.lengths is not None), chains)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "sequence", part=True)
    return replace(part, weights=np.where(weights == 0, 0.0, np.ones(len(part)) if given is None else given))


def _read(
    reader: ReaderOfInputs,
    labels: LabelReader,
    legal: Legal | None,
    class_weight: UserData,
    read_tokens: ReadTokens,
    firsts: list[int],
    parts: list[RawSequences],
) -> LabelledSequences:
    """Convert several parts of the data to arrays, and join them into one part."""
    read = [reader.read(part.X, part.lengths, first) for part, first in zip(parts, firsts, strict=True)]
    flat = stack_inputs([one for one, _ in read])
    numbers = [first + np.arange(part_chains.n_samples) for (_, part_chains), first in zip(read, firsts, strict=True)]
    lengths = Chains.from_lengths(np.concatenate([part_chains.lengths for _, part_chains in read]))
    chains = Chains(lengths.offsets, np.concatenate(numbers))
    flat_y = [
        read_tokens(part.y, part_chains, flat=part.lengths is not None)
        for part, (_, part_chains) in zip(parts, read, strict=True)
    ]
    given = None
    if any(part.weights is not None for part in parts):
        part_weights = [np.ones(len(part)) if part.weights is None else part.weights for part in parts]
        given = read_weights(np.concatenate(part_weights), chains.n_samples, "sequence", part=True)
    indices, allowed = labels.encode(list(chain.from_iterable(flat_y)), chains)
    if legal is not None:
        check_legal(legal, chains, indices, labels.classes)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "sequence", part=True)
    n_labels = len(labels.classes)
    return LabelledSequences(flat, chains, indices, n_labels, allowed, weights, legal).only_weighted()
