"""Read labelled rows in parts on a cluster, for KernelClassifier, where a row becomes a sequence of one token.

The workers check rows and labels as a fit in one process does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, UserData
from kernelcrf.distributed.cluster import Cluster, Function
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.distributed.inputs import stack_inputs
from kernelcrf.distributed.part_reader import (
    ExpectedFeatures,
    PartReader,
    PartsOfData,
    Reading,
    current_cluster,
    read_parts,
)
from kernelcrf.distributed.sources import RawSequences, count_rows, load_rows
from kernelcrf.distributed.summary import Chosen, DataSummary, InputSummary, summarise_entries
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.rows import RowReader, find_classes, more_classes, read_classes
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.weights import read_class_weights, read_weights, weigh_samples
from kernelcrf.validation import shown_list

CountLabels = Callable[[Array, Flags], tuple[dict[Hashable, None], Counter[Hashable]]]
"""A function of checked labels, and of flags of the rows with a weight above 0.

It returns the distinct labels, and how often each occurs in these rows.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowPartReader(PartReader[tuple[RowReader, Array]]):
    """Reads rows in parts that have one label each.

    owner : the name of the estimator, for error messages.
    chosen : the entry and the columns that each input reads; None if there is one input without a name.
    earlier, prior : the readers of rows and the classes of the previous fit for a warm start, and of the model that is
        the prior; None if there is none.
    """

    owner: str
    classes: UserData = None
    class_weight: UserData = None
    chosen: Chosen | None = None
    earlier: tuple[RowReader, Array] | None = None
    prior: tuple[RowReader, Array] | None = None

    def count(self) -> Function:
        return count_labelled

    def summarise(self) -> Function:
        return partial(summarise_rows, self.owner, self.chosen, _count_classes)

    def settle(self, summary: DataSummary, weight: str) -> Reading[tuple[RowReader, Array]]:
        classes = self._classes(summary)
        names = classes.tolist()
        counts = np.array([summary.counts[name] for name in names])
        if self.prior is None and not counts.any():
            raise ValueError("sample_weight is 0 for every row with a known label: expected a weight above 0")
        class_weight = None
        if self.class_weight is not None:
            by_class = read_class_weights(self.class_weight, classes, counts)
            if counts.any() and not by_class[counts > 0].any():
                raise ValueError("class_weight gives every row the weight 0: expected at least one weight above 0")
            class_weight = dict(zip(names, by_class.tolist(), strict=True))
        reader = settle_rows(summary, self.owner, self.chosen, self.earlier or self.prior)
        read = partial(_read, reader, classes, class_weight)
        return Reading((reader, classes), read, partial(is_sparse_row, reader, summary))

    def _classes(self, summary: DataSummary) -> Array:
        labels = _same_objects(list(summary.labels))
        if self.prior is not None:
            return more_classes(labels, self.prior[1], self.classes, len(labels))[0]
        if not summary.samples:
            raise ValueError("X has no rows: expected at least one row")
        found = find_classes(labels, self.classes)[0]
        if self.earlier is not None and not np.array_equal(found, self.earlier[1]):
            raise ValueError(
                f"y has the classes {shown_list(found.tolist())} and the previous fit had "
                f"{shown_list(self.earlier[1].tolist())}: expected the same classes for a warm start; use the same "
                "labels, or set warm_start=False"
            )
        return found


def read_row_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    engine: Cluster | None,
    reader: RowPartReader,
    expected: ExpectedFeatures,
) -> tuple[PartsOfData[tuple[RowReader, Array]], DistributedSequences]:
    """Load labelled rows on the workers in parts, and let the workers convert the parts to arrays.

    Return what reads new rows, and the rows.
    """
    cluster = engine or current_cluster()
    parts = read_parts(load_rows(X, y, sample_weight, cluster), cluster, reader, expected)
    return parts, DistributedSequences(cluster, parts.parts)


def settle_rows(
    summary: DataSummary, owner: str, chosen: Chosen | None, known: tuple[RowReader, object] | None
) -> RowReader:
    """Return the reader of the rows of all parts.

    known : the reader of an earlier model, to which new feature names are added, and any object; None if there is no
        earlier model.
    """
    if known is not None:
        before = known[0]
        if before.named is None:
            return before
        more = before.named.with_names(summary.names)
        return replace(before, n_features=more.n_features, named=more)
    reader = summary.reader(chosen, owner=owner)
    if isinstance(reader, InputsReader):
        return RowReader(owner, reader.n_features, reader.column_names, reader)
    return RowReader(owner, reader.n_features, reader.column_names)


def is_sparse_row(reader: RowReader, summary: DataSummary, name: str) -> bool:
    """Return whether the input called `name` is sparse, given the summary of all rows."""
    if reader.named is not None:
        return reader.named.is_sparse(name)
    return None in summary.inputs and summary.inputs[None].kind == "sparse"


def _same_objects(labels: list[Hashable]) -> Array:
    """Return labels as an array of their own type if they have one type, and of objects otherwise."""
    kinds = {type(label) for label in labels}
    return np.asarray(labels) if len(kinds) == 1 and kinds <= {str, int, float, bool} else object_array(labels)


# A worker calls the functions below with one part.


def count_labelled(part: RawSequences) -> int:
    """Return the number of rows of a source."""
    return count_rows(part.X) if part.lengths is None else len(part)


def summarise_rows(
    owner: str,
    chosen: Chosen | None,
    count: CountLabels,
    part: RawSequences,
    first: int,
    *,
    multi_output: bool = False,
) -> DataSummary:
    """Return the summary of labelled rows; raise an error if they are invalid.

    count : a function that returns the distinct labels and their counts.
    multi_output : whether a row may have several labels.
    """
    n_rows = count_labelled(part)
    if not n_rows:
        return DataSummary(samples=0)
    weights = read_weights(part.weights, n_rows, "row", first=first, part=True)
    kept = np.ones(n_rows, bool) if weights is None else weights > 0
    if chosen is None:
        reader, rows, y = RowReader.fit(owner, part.X, part.y, multi_output=multi_output)
        inputs: dict[str | None, InputSummary] = {None: InputSummary.of_matrix(rows, reader.column_names)}
    else:
        _, _, y = RowReader.fit(owner, np.zeros((n_rows, 1)), part.y, multi_output=multi_output)
        inputs = summarise_entries(part.X, np.ones(n_rows, np.int64), first, kept, None, chosen)
    labels, counts = count(y, kept)
    n_kept = int(kept.sum())
    return DataSummary(samples=n_rows, tokens=(n_kept,), counted=n_kept, inputs=inputs, labels=labels, counts=counts)


def _count_classes(y: Array, kept: Flags) -> tuple[dict[Hashable, None], Counter[Hashable]]:
    return dict.fromkeys(y.tolist()), Counter(y[kept].tolist())


def weights_of_parts(parts: Sequence[RawSequences], n_rows: int) -> Floats | None:
    """Return the weights of the rows of all parts, or None if all are 1."""
    if all(part.weights is None for part in parts):
        return None
    of_parts = [np.ones(count_labelled(part)) if part.weights is None else part.weights for part in parts]
    return read_weights(np.concatenate(of_parts), n_rows, "row", part=True)


def _read(
    reader: RowReader, classes: Array, class_weight: UserData, firsts: list[int], parts: list[RawSequences]
) -> LabelledSequences:
    """Convert several parts of the data to arrays, and join them into one part.

    firsts : for each part, the index of its first row in the whole data.
    """
    X = stack_inputs([reader.read(part.X) for part in parts])
    labels = np.concatenate([read_classes(part.y, classes, count_labelled(part)) for part in parts])
    known = labels != UNKNOWN
    numbers = np.concatenate(
        [first + np.arange(count_labelled(part)) for part, first in zip(parts, firsts, strict=True)]
    )
    chains = replace(Chains.from_lengths(np.ones(len(labels), np.int64)), numbers=numbers)
    given = weights_of_parts(parts, len(labels))
    weights = weigh_samples(given, class_weight, chains.lengths, labels, classes, "row", part=True)
    kept = known if weights is None else known & (weights > 0)
    data = LabelledSequences(X, chains, labels, len(classes), weights=weights)
    return data if kept.all() else data.only(kept)
