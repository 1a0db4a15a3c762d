"""Labelled sequences in parts on a cluster: summarised first, then read by the workers.

The summaries of the parts are added up, and their sum says how to read all parts alike. Neighbouring parts are then
joined into as many as the engine asks for.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from kernelcrf.arrays import UserData, is_sparse
from kernelcrf.basis.factor import stack
from kernelcrf.distributed.cluster import Cluster, Handle
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.distributed.sources import RawSequences, load_sequences, split_evenly
from kernelcrf.distributed.summary import DataSummary
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.gamma import gamma_of_variance
from kernelcrf.readers.constraints import legal_labelings
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.sequences import SequenceReader, open_sequences
from kernelcrf.readers.training import TokenLabels
from kernelcrf.readers.weights import read_class_weights, read_weights


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled sequences on a cluster, their summary, and the readers that read new sequences alike.

    legal : the labellings that are allowed, or None for all.
    """

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    data: DistributedSequences
    summary: DataSummary

    @property
    def gamma(self) -> float:
        """The number for gamma="scale": two passes over the parts find the mean and the variance of all entries."""
        cluster, parts, d = self.data.cluster, self.data.parts, self.reader.n_features
        n = max(sum(self.summary.tokens) * d, 1)
        mean = cluster.sum(cluster.each(_sum_entries, parts)) / n
        return gamma_of_variance(float(cluster.sum(cluster.each(_sum_squares, parts, shared=(mean,)))) / n, d)


def _sum_entries(part: LabelledSequences) -> float:
    return float(part.X.sum(dtype=np.float64))


def _sum_squares(part: LabelledSequences, mean: float) -> float:
    """Return the sum of squared differences from the mean over all entries of X, stored or not."""
    stored = np.asarray(part.X.data if is_sparse(part.X) else part.X, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(stored - mean).sum() + (math.prod(part.X.shape) - stored.size) * mean * mean)


def current_cluster() -> Cluster:
    """Return an engine on the workers of the current Dask client."""
    try:
        from kernelcrf.distributed.dask import DaskEngine
    except ImportError:
        raise ImportError("X is in parts, and Dask is not installed: pip install 'kernelcrf[dask]'") from None
    engine = DaskEngine()
    try:
        _ = engine.client
    except ValueError:
        raise ValueError(
            "X is in parts, and there is no Dask client: start one by distributed.Client(), or pass "
            "engine=DaskEngine(client)"
        ) from None
    return engine


def read_training_data(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    cluster: Cluster,
    *,
    hash_features: int | None,
    n_components: int,
    classes: Iterable[Hashable] | None,
    class_weight: UserData,
    constraints: UserData,
    earlier: tuple[SequenceReader, LabelReader] | None = None,
) -> TrainingData:
    """Summarise the parts, join neighbours, and have the workers read them.

    n_components : the expected number of features per token, for the size of the parts.
    earlier : the readers of an earlier fit, if this one continues it.
    """
    raw = load_sequences(X, y, sample_weight, cluster)
    summary = _summarise(raw, cluster, hash_features)
    summary.check_tokens("sample_weight")
    labels = LabelReader.of(list(summary.labels), classes) if earlier is None else earlier[1]
    if class_weight is not None:
        names = labels.classes.tolist()
        by_class = read_class_weights(class_weight, labels.classes, np.array([summary.counts[name] for name in names]))
        class_weight = dict(zip(names, by_class.tolist(), strict=True))
        if not by_class.all():
            raw = cluster.each(_leave_out, raw, shared=(labels, class_weight))
            summary = _summarise(raw, cluster, hash_features)
            summary.check_tokens("class_weight")
    reader = summary.reader(hash_features) if earlier is None else earlier[0]
    legal = None if constraints is None else legal_labelings(constraints, labels.classes)
    filled = np.flatnonzero(summary.tokens)
    n_parts = cluster.parts_of(summary.n_bytes(n_components), len(filled))
    runs = [filled[run] for run in split_evenly(np.array(summary.tokens)[filled], n_parts)]
    read = partial(_read, reader, labels, legal, class_weight)
    parts = [
        cluster.call(read, summary.firsts[own].tolist(), [raw[k] for k in own], place=at / len(runs))
        for at, own in enumerate(runs)
    ]
    data = DistributedSequences(cluster, parts, len(labels.classes), reader.n_features, summary.is_sparse, legal)
    return TrainingData(reader, labels, legal, data, summary)


def _summarise(raw: list[Handle], cluster: Cluster, hash_features: int | None) -> DataSummary:
    """Return the summary of all parts, or raise the error of the first part that cannot be read."""
    summary: DataSummary = cluster.sum(cluster.each(DataSummary.of, raw, shared=(hash_features,)))
    if any(summary.failed):
        failed = summary.failed.index(True)
        cluster.fetch([cluster.call(DataSummary.check_part, raw[failed], hash_features, int(summary.firsts[failed]))])
    return summary


def _leave_out(part: RawSequences, labels: LabelReader, class_weight: UserData) -> RawSequences:
    """Return a part in which the sequences that class_weight leaves out have the sample weight 0."""
    _, chains, _ = open_sequences(part.X, part.lengths)
    given = read_weights(part.weights, len(part), "sequence", part=True)
    tokens = TokenLabels.read(
        part.y, chains, labels, None, given, class_weight, flat=part.lengths is not None, part=True
    )
    weights = np.ones(len(part)) if given is None else given
    return replace(part, weights=np.where(tokens.weights == 0, 0.0, weights))


def _read(
    reader: SequenceReader,
    labels: LabelReader,
    legal: Legal | None,
    class_weight: UserData,
    firsts: list[int],
    parts: list[RawSequences],
) -> LabelledSequences:
    """Join and read parts that have tokens; `firsts` are the numbers of their first sequences. A worker calls this."""
    read = [reader.read(part.X, part.lengths, first) for part, first in zip(parts, firsts, strict=True)]
    flat = stack([one for one, _ in read])
    numbers = [first + np.arange(own.n_samples) for (_, own), first in zip(read, firsts, strict=True)]
    lengths = Chains.from_lengths(np.concatenate([own.lengths for _, own in read]))
    chains = Chains(lengths.offsets, np.concatenate(numbers))
    flat_y = [
        flat_labels(part.y, own, flat=part.lengths is not None) for part, (_, own) in zip(parts, read, strict=True)
    ]
    given = None
    if any(part.weights is not None for part in parts):
        own = [np.ones(len(part)) if part.weights is None else part.weights for part in parts]
        given = read_weights(np.concatenate(own), chains.n_samples, "sequence", part=True)
    every = list(chain.from_iterable(flat_y))
    tokens = TokenLabels.read(every, chains, labels, legal, given, class_weight, flat=True, part=True)
    flat, chains, tokens = tokens.drop_weightless(flat, chains)
    n_labels = len(labels.classes)
    return LabelledSequences(flat, chains, tokens.indices, n_labels, tokens.allowed, tokens.weights, legal)
