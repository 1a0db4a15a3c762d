"""Read labelled rows on a cluster, for KernelClassifier: a row becomes a sequence of one token.

The workers check rows and labels as a fit in one process does. The summaries of parts are those of sequences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kernelcrf.arrays import Array, UserData, is_sparse, matrix_of
from kernelcrf.basis.factor import stack
from kernelcrf.distributed.cluster import Cluster
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.distributed.sources import RawSequences, load_rows
from kernelcrf.distributed.training_data import (
    DataSummary,
    current_cluster,
    gamma_by_scale,
    place_parts,
    size_of_data,
)
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.rows import RowReader, find_classes, read_classes
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.weights import read_class_weights, read_weights, weigh_samples
from kernelcrf.score.cliques import TOKENS


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Labelled rows on a cluster, with the reader of new rows and the classes.

    by_scale : a function that returns the value of gamma="scale".
    """

    reader: RowReader
    classes: Array
    data: DistributedSequences
    by_scale: Callable[[], float]


def read_row_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    engine: Cluster | None,
    *,
    owner: str,
    n_components: Mapping[bool, tuple[int, int]],
    classes: UserData,
    class_weight: UserData,
    earlier: tuple[RowReader, Array] | None = None,
) -> TrainingRows:
    """Load labelled rows on the workers in parts, and let the workers convert the parts to arrays.

    owner : the name of the estimator, for error messages.
    n_components : a dict from False (for dense rows) and True (for sparse rows) to the expected numbers of stored
        features, if there is memory for all features and if there is not.
    earlier : for a warm start, the reader and the classes of the previous fit.
    """
    cluster = engine or current_cluster()
    raw = load_rows(X, y, sample_weight, cluster)
    if not len(raw):
        raise ValueError("X has no parts: expected at least one part with rows")
    firsts = np.concatenate([[0], np.cumsum(cluster.fetch(cluster.each(_count, raw)))]).astype(int)[:-1]
    summary: DataSummary = cluster.sum(_summarise, raw, firsts.tolist(), shared=(owner,))
    if not summary.sequences:
        raise ValueError("X has no rows: expected at least one row")
    labels = _same_objects(list(summary.labels))
    found, _ = find_classes(labels, classes)
    if earlier is not None and not np.array_equal(found, earlier[1]):
        raise ValueError(
            f"y has the classes {found.tolist()} and the previous fit had {earlier[1].tolist()}: expected the same "
            "classes for a warm start; use the same labels, or set warm_start=False"
        )
    names = found.tolist()
    counts = np.array([summary.counts[name] for name in names])
    if not counts.any():
        raise ValueError("sample_weight is 0 for every row with a known label: expected a weight above 0")
    if class_weight is not None:
        by_class = read_class_weights(class_weight, found, counts)
        if not by_class[counts > 0].any():
            raise ValueError("class_weight gives every row the weight 0: expected at least one weight above 0")
        class_weight = dict(zip(names, by_class.tolist(), strict=True))
    columns = None if summary.columns is None else object_array(summary.columns)
    reader = RowReader(owner, int(summary.n_features or 0), columns) if earlier is None else earlier[0]
    read = partial(_read, reader, found, class_weight)
    n_bytes = size_of_data(cluster, summary, n_components)
    parts = place_parts(cluster, read, raw, firsts, summary.tokens, n_bytes)
    data = DistributedSequences(cluster, parts, len(found), reader.n_features, summary.is_sparse)
    return TrainingRows(reader, found, data, partial(gamma_by_scale, data, weighted=True))


def _same_objects(labels: list[Hashable]) -> Array:
    """Return labels as an array of their own type if they have one type, and of objects otherwise."""
    kinds = {type(label) for label in labels}
    return np.asarray(labels) if len(kinds) == 1 and kinds <= {str, int, float, bool} else object_array(labels)


# A worker calls the functions below with one part.


def _count(part: RawSequences) -> int:
    return int(np.shape(part.X)[0]) if part.lengths is None else len(part)


def _summarise(part: RawSequences, first: int, owner: str) -> DataSummary:
    n_rows = _count(part)
    if not n_rows:
        return DataSummary(sequences=0)
    reader, rows, y = RowReader.fit(owner, part.X, part.y)
    X = matrix_of(rows, TOKENS)
    weights = read_weights(part.weights, n_rows, "row", first=first, part=True)
    kept = np.ones(n_rows, bool) if weights is None else weights > 0
    return DataSummary(
        sequences=n_rows,
        tokens=(int(kept.sum()),),
        counted=int(kept.sum()),
        kind="sparse" if is_sparse(X) else "dense",
        n_features=reader.n_features,
        n_values=int(X.nnz if is_sparse(X) else X.size),
        itemsize=X.dtype.itemsize,
        labels=dict.fromkeys(y.tolist()),
        counts=Counter(y[kept].tolist()),
        columns=None if reader.column_names is None else tuple(reader.column_names),
    )


def _read(
    reader: RowReader, classes: Array, class_weight: UserData, firsts: list[int], parts: list[RawSequences]
) -> LabelledSequences:
    """Convert several parts of the data to arrays, and join them into one part.

    firsts : for each part, the index of its first row in the whole data.
    """
    X = stack([reader.read(part.X) for part in parts])
    labels = np.concatenate([read_classes(part.y, classes, _count(part)) for part in parts])
    given = None
    if any(part.weights is not None for part in parts):
        of_parts = [np.ones(_count(part)) if part.weights is None else part.weights for part in parts]
        given = read_weights(np.concatenate(of_parts), len(labels), "row", part=True)
    known = labels != UNKNOWN
    numbers = np.concatenate([first + np.arange(_count(part)) for part, first in zip(parts, firsts, strict=True)])
    chains = replace(Chains.from_lengths(np.ones(len(labels), np.int64)), numbers=numbers)
    weights = weigh_samples(given, class_weight, chains.lengths, labels, classes, "row", part=True)
    kept = known if weights is None else known & (weights > 0)
    data = LabelledSequences(X, chains, labels, len(classes), weights=weights)
    return data if kept.all() else data.only(kept)
