"""Read rows with sets of labels in parts on a cluster, for MultiLabelCRF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Flags, UserData
from kernelcrf.distributed.cluster import Cluster, Function
from kernelcrf.distributed.inputs import stack_inputs
from kernelcrf.distributed.networks import DistributedNetworks
from kernelcrf.distributed.part_reader import (
    ExpectedFeatures,
    PartReader,
    PartsOfData,
    Reading,
    current_cluster,
    read_parts,
)
from kernelcrf.distributed.rows import count_labelled, is_sparse_row, settle_rows, summarise_rows, weights_of_parts
from kernelcrf.distributed.sources import RawSequences, load_rows
from kernelcrf.distributed.summary import Chosen, DataSummary
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.graphs.label_graphs import Pair, count_pairs
from kernelcrf.models.label_sets import inputs_of_rows, label_name, pair_graph
from kernelcrf.readers.rows import LabelSetReader, RowReader, label_columns, read_probabilities
from kernelcrf.readers.weights import only_weighted

# A column with more different values has no two values, which an error says.
MOST_VALUES = 4
PROBABILITIES = "probabilities"


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelSetPartReader(PartReader[tuple[RowReader, LabelSetReader]]):
    """Reads rows in parts that have a set of labels each.

    owner : the name of the estimator, for error messages.
    chosen : the entry and the columns that each input reads; None if there is one input without a name.
    sources : the inputs that terms read, as in `inputs_of_rows`.
    earlier, prior : the readers of rows and of label sets of the previous fit for a warm start, and of the model that
        is the prior; None if there is none.
    learns_names : whether new feature names are added to those of an earlier model.
    """

    owner: str
    sources: Collection[str]
    chosen: Chosen | None = None
    earlier: tuple[RowReader, LabelSetReader] | None = None
    prior: tuple[RowReader, LabelSetReader] | None = None
    learns_names: bool = True

    def count(self) -> Function:
        return count_labelled

    def summarise(self) -> Function:
        return partial(summarise_rows, self.owner, self.chosen, _find_values, multi_output=True)

    def settle(self, summary: DataSummary, weight: str) -> Reading[tuple[RowReader, LabelSetReader]]:
        if self.prior is None and not summary.samples:
            raise ValueError("X has no rows: expected at least one row")
        if self.prior is None and not summary.counted:
            raise ValueError(f"{weight} is zero for every row: expected at least one weight above zero")
        sets = _settle_sets(summary) if self.prior is None else self.prior[1]
        known = self.earlier or self.prior
        if known is not None and not self.learns_names:
            rows = known[0]
        else:
            rows = settle_rows(summary, self.owner, self.chosen, known)
        read = partial(_read, rows, sets, frozenset(self.sources))
        return Reading((rows, sets), read, partial(is_sparse_row, rows, summary))


def read_label_set_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    engine: Cluster | None,
    reader: LabelSetPartReader,
    expected: ExpectedFeatures,
) -> tuple[PartsOfData[tuple[RowReader, LabelSetReader]], DistributedNetworks]:
    """Load rows with label sets on the workers, and let the workers convert them to arrays.

    Return what reads new rows, and the rows as graphs of labels that do not interact yet.
    """
    cluster = engine or current_cluster()
    raw = load_rows(X, y, sample_weight, cluster, multi_output=True)
    parts = read_parts(raw, cluster, reader, expected)
    return parts, DistributedNetworks(cluster, parts.parts)


def count_pairs_of_parts(data: DistributedNetworks) -> Array:
    """Return how often two labels occur together, as `count_pairs` does."""
    tables: Array = data.cluster.sum(_count_pairs, data.parts)
    return tables


def with_interactions(data: DistributedNetworks, pairs: list[Pair]) -> DistributedNetworks:
    """Return the rows with cliques for the given pairs of labels."""
    return replace(data, parts=data.cluster.each(_with_interactions, data.parts, shared=(pairs,)))


def _settle_sets(summary: DataSummary) -> LabelSetReader:
    """Return the reader of label sets, given the values that each label has."""
    shapes: list[Any] = list(summary.counts)
    if PROBABILITIES in shapes:
        raise ValueError(
            "y has probabilities of labels, which cannot be combined with data on a cluster: expected label sets; or "
            "pass rows in this process and engine=None"
        )
    if len(shapes) > 1:
        raise ValueError(
            f"y has the shapes {[('n_rows', *shape) for shape in shapes]} in different parts: expected equally many "
            "columns in all parts"
        )
    columns: dict[int, list[Hashable]] = {}
    pairs: list[Any] = list(summary.labels)
    for column, value in pairs:
        columns.setdefault(column, []).append(value)
    most = max(map(len, columns.values()))
    # A small matrix with the same values in each column has the same reader as all rows.
    table = np.column_stack([np.resize(np.array(columns[j]), most) for j in sorted(columns)])
    return LabelSetReader.fit(table if shapes[0] else table[:, 0])[0]


# A worker calls the functions below with one part.


def _find_values(y: Array, kept: Flags) -> tuple[dict[Hashable, None], Counter[Hashable]]:
    """Return the values of each label as pairs (column, value), and the number of columns as an empty or full tuple."""
    if read_probabilities(y) is not None:
        return {}, Counter([PROBABILITIES])
    pairs = ((j, value) for j, column in enumerate(label_columns(y).T) for value in np.unique(column)[:MOST_VALUES])
    return dict.fromkeys(pairs), Counter([() if y.ndim == 1 else (int(y.shape[1]),)])


def _read(
    rows: RowReader, sets: LabelSetReader, sources: frozenset[str], firsts: list[int], parts: list[RawSequences]
) -> LabelledGraphs:
    """Convert several parts of the data to arrays, and join them into one part."""
    X = stack_inputs([rows.read(part.X) for part in parts])
    labels = np.concatenate([sets.read(part.y) for part in parts])
    weights, X, labels = only_weighted(weights_of_parts(parts, len(labels)), X, labels)
    cards = np.full(labels.shape[1], 2)
    cliques = pair_graph(cards, [], label_name).cliques
    return LabelledGraphs(cards, cliques, labels, inputs_of_rows(X, sources), weights=weights)


def _count_pairs(part: LabelledGraphs) -> Array:
    return count_pairs(part.labels, part.cards, part.weights)


def _with_interactions(part: LabelledGraphs, pairs: list[Pair]) -> LabelledGraphs:
    return replace(part, cliques=pair_graph(part.cards, pairs, label_name).cliques)
