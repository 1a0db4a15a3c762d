"""Read training data in parts on a cluster: summarise, add, read.

The workers first summarise each source of the data. The sum of the summaries says how all sources are read alike. Then
the workers read them, and join neighbouring sources if the engine asks for fewer parts. Each estimator has a
`PartReader`, which does this in three methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from kernelcrf.arrays import Places
from kernelcrf.distributed.cluster import Cluster, Function, Handle
from kernelcrf.distributed.sources import RawSequences, split_evenly
from kernelcrf.distributed.summary import DataSummary

Readers = TypeVar("Readers")

ExpectedFeatures = Callable[[Callable[[str], bool]], tuple[int, int]]
"""A function that returns the likely numbers of stored features per token, if there is memory for all features and if
there is not, given a function that says whether an input is sparse. The more features, the smaller are the parts."""


@dataclass(frozen=True, eq=False)
class Reading(Generic[Readers]):
    """A way to read all parts alike, which follows from the sum of their summaries.

    readers : objects that read new data in the same format.
    read : a picklable function that converts several sources to one part of the data, a `LocalCorpus`, given the index
        of the first sample of each source, and the sources.
    is_sparse : a function that says whether the input of a given name is sparse.
    leave_out : a picklable function that returns a source in which some samples have the weight 0, and are left out;
        None if no sample is left out.
    """

    readers: Readers
    read: Function
    is_sparse: Callable[[str], bool]
    leave_out: Function | None = None


class PartReader(Protocol[Readers]):
    """Protocol of objects that read the samples of an estimator in parts."""

    def count(self) -> Function:
        """Return a picklable function that returns the number of samples of a source."""

    def summarise(self) -> Function:
        """Return a picklable function that returns the `DataSummary` of a source, and raises if the source is invalid.

        Its second argument is the index of the first sample of the source in the whole data.
        """

    def settle(self, summary: DataSummary, weight: str) -> Reading[Readers]:
        """Decide how all sources are read, given the sum of their summaries.

        weight : the name of the parameter that an error names if all weights are 0.
        """


@dataclass(frozen=True, eq=False)
class PartsOfData(Generic[Readers]):
    """Parts of the data on the workers, with what reads new data.

    parts : one handle per part, which refers to a `LocalCorpus`; empty if no sample has a token and a weight above 0.
    n_tokens : the number of tokens, rows or nodes in samples with a weight above 0.
    """

    cluster: Cluster
    readers: Readers
    is_sparse: Callable[[str], bool]
    parts: Sequence[Handle]
    n_tokens: int


def read_parts(
    raw: Sequence[Handle], cluster: Cluster, reader: PartReader[Readers], expected: ExpectedFeatures
) -> PartsOfData[Readers]:
    """Let the workers read the sources `raw`, and return the parts of the data."""
    if not len(raw):
        raise ValueError("X has no parts: expected at least one part with samples")
    counts = cluster.fetch(cluster.each(reader.count(), raw))
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(int)[:-1]
    summary: DataSummary = cluster.sum(reader.summarise(), raw, firsts.tolist())
    reading = reader.settle(summary, "sample_weight")
    if reading.leave_out is not None:
        raw = cluster.each(reading.leave_out, raw)
        summary = cluster.sum(reader.summarise(), raw, firsts.tolist())
        reading = reader.settle(summary, "class_weight")
    usual, least = expected(reading.is_sparse)
    n_bytes = summary.n_bytes(usual)
    n_bytes = n_bytes if cluster.fits(n_bytes) else summary.n_bytes(least)
    parts: Sequence[Handle] = []
    if any(summary.tokens):
        parts = _place(cluster, reading.read, raw, firsts, summary.tokens, n_bytes)
    return PartsOfData(cluster, reading.readers, reading.is_sparse, parts, sum(summary.tokens))


def _place(
    cluster: Cluster, read: Function, raw: Sequence[Handle], firsts: Places, tokens: Sequence[int], n_bytes: int
) -> Sequence[Handle]:
    """Join neighbouring sources, and let the workers convert them to the parts of the data; return handles.

    raw, firsts, tokens : for each source, its handle, the index of its first sample, and its number of tokens.
    n_bytes : the size of the data with their features.
    """
    filled = np.flatnonzero(tokens)
    n_parts = cluster.parts_of(n_bytes, len(filled))
    runs = [filled[run] for run in split_evenly(np.array(tokens)[filled], n_parts)]
    parts = [
        cluster.call(read, firsts[run].tolist(), [raw[k] for k in run], place=at / len(runs))
        for at, run in enumerate(runs)
    ]
    return cluster.bundle(parts, n_bytes)


def count_sequences(part: RawSequences) -> int:
    """Return the number of sequences of a source; a worker calls this function."""
    return len(part)


def current_cluster() -> Cluster:
    """Return an engine that uses the current Dask client; raise an error if there is no client."""
    try:
        from kernelcrf.distributed.dask import DaskEngine
    except ImportError:
        raise ImportError(
            "Dask is not installed, but the data have to be loaded on a cluster: run pip install 'kernelcrf[dask]'"
        ) from None
    engine = DaskEngine()
    try:
        _ = engine.client
    except ValueError:
        raise ValueError(
            "the data have to be loaded on a cluster, but there is no Dask client: start one with "
            "distributed.Client(), or pass engine=DaskEngine(client)"
        ) from None
    return engine
