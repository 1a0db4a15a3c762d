"""The forms in which users can pass labelled sequences to a fit on a cluster, and how they are divided into parts.

- X and y are lists in memory: they are divided into parts here, and the scheduler of the cluster stores the parts.
- X and y are two dask.bag collections, or two lists of dask.delayed values: each partition or value is a part.
- X is a dask.dataframe with one sequence per row, and the columns `features` or `vectors`, `labels`, and optionally
  `weight`. y is None, or the name of the column that has the labels. Each partition is a part.
- X is a `SequenceSources` object, which `read_parquet` returns: each of its functions loads one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import UserData, is_sparse
from kernelcrf.distributed.cluster import Cluster, Handle, Value
from kernelcrf.readers.containers import read_list
from kernelcrf.readers.inputs import open_chains
from kernelcrf.readers.labels import flat_labels
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown, shown_list


@dataclass(frozen=True, eq=False)
class RawSequences:
    """Sequences with their labels and weights, before they are converted to arrays.

    The functions in `SequenceSources` return objects of this class.

    X, y : a list of sequences, and a list with the labels of each sequence. If `lengths` is given, X is one list of the
        tokens of all sequences, and y one list of their labels. y is None if there are no labels.
    weights : one weight per sequence, or None if all weights are 1.
    lengths : the number of tokens of each sequence, or None if X is a list of sequences.
    ends : the names of the first and the last sequence, or None. Pass them if a sequence might be divided between two
        parts of the data: an error is then raised if the last name of a part is also the first name of the next.

    Examples
    --------
    >>> from kernelcrf.distributed import RawSequences
    >>> len(RawSequences(X=[[["w=a"], ["w=b"]], [["w=b"]]], y=[["A", "B"], ["B"]]))
    2
    """

    X: UserData
    y: UserData = None
    weights: npt.ArrayLike | None = None
    lengths: npt.NDArray[np.int64] | None = None
    ends: tuple[object, object] | None = None

    def __len__(self) -> int:
        return len(self.X) if self.lengths is None else len(self.lengths)


@dataclass(frozen=True, eq=False)
class SequenceSources:
    """Functions that the workers of a cluster call to load the data.

    Each function takes no arguments, and returns one part of the data as `RawSequences`. Pass this object to
    `ChainCRF.fit` as X. A function is called again if it fails, or if its result is lost with a worker, so it must
    return the same sequences each time.

    Examples
    --------
    >>> from functools import partial
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.distributed import RawSequences, SequenceSources
    >>> load = partial(RawSequences, X=[[["w=a"], ["w=b"]], [["w=b"]]] * 5, y=[["A", "B"], ["B"]] * 5)
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     crf = ChainCRF("linear", C=10.0).fit(SequenceSources([load, load]))
    >>> crf.predict([[["w=b"], ["w=a"]]])[0].tolist()
    ['B', 'A']
    """

    sources: Sequence[Callable[[], RawSequences]]

    def __len__(self) -> int:
        return len(self.sources)


def is_distributed(X: UserData) -> bool:
    """Return whether X is a Dask collection, a list of dask.delayed values, or a `SequenceSources` object."""
    if isinstance(X, SequenceSources) or hasattr(X, "__dask_graph__"):
        return True
    return isinstance(X, list | tuple) and len(X) > 0 and hasattr(X[0], "__dask_graph__")


def load_sequences(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    cluster: Cluster,
    read_tokens: Callable[..., list[UserData]] = flat_labels,
    chosen: Mapping[str, tuple[str | None, UserData]] | None = None,
) -> Sequence[Handle]:
    """Load the data on the workers; return one handle per part of the data, which refers to `RawSequences`.

    read_tokens : a function that returns the labels of all tokens in y, and raises an error if they are invalid.
    chosen : the entry and the columns that each input reads; None if there is one input without a name.
    """
    if isinstance(X, SequenceSources):
        _refuse_others(y, sample_weight, "SequenceSources")
        return cluster.load(X.sources)
    if not is_distributed(X):
        return cluster.load(_cut(X, y, sample_weight, cluster, read_tokens, chosen))
    parts = cluster.load(list_delayed(X))
    if hasattr(X, "columns"):
        _refuse_others(None if isinstance(y, str) else y, sample_weight, "a dask.dataframe")
        return cluster.each(_read_frame, parts, shared=("labels" if y is None else y,))
    if sample_weight is not None:
        raise ValueError(
            "sample_weight was passed, but X is a Dask collection: pass X as lists in memory, or as a dask.dataframe "
            "with a column `weight`"
        )
    if y is None or not is_distributed(y):
        raise TypeError(
            f"X is a Dask collection, but y is of type {type(y).__name__}: expected a Dask collection with as many "
            "partitions as X"
        )
    others = cluster.load(list_delayed(y))
    if len(parts) != len(others):
        raise ValueError(f"X has {len(parts)} partitions, but y has {len(others)}: expected the same number")
    return cluster.each(_pair, parts, others)


def load_graphs(X: UserData, y: UserData, sample_weight: UserData, cluster: Cluster) -> Sequence[Handle]:
    """Load labelled graphs on the workers; return one handle per part of the data, which refers to `RawSequences`."""
    if is_distributed(X):
        return load_sequences(X, y, sample_weight, cluster)
    graphs, labels = read_list(X, "X", "a list of graphs"), read_list(y, "y", "a list of labels for each graph")
    if len(graphs) != len(labels):
        raise ValueError(f"X has {len(graphs)} graphs and y has {len(labels)}: expected labels for each graph")
    weights = read_weights(sample_weight, len(graphs), "graph", part=True)
    if not graphs:
        raise ValueError("X is empty: expected at least one graph")
    sizes = [max(len(one), 1) if hasattr(one, "__len__") else 1 for one in labels]
    runs = split_evenly(sizes, cluster.parts_of(0, len(graphs)))
    cut = _cut_lists(graphs, labels, weights, runs)
    return cluster.load(cut)


def load_rows(
    X: UserData, y: UserData, sample_weight: UserData, cluster: Cluster, *, multi_output: bool = False
) -> Sequence[Handle]:
    """Load labelled rows on the workers; return one handle per part of the data, which refers to `RawSequences`.

    multi_output : whether a row may have several labels, so that y may have several columns.
    """
    if isinstance(X, SequenceSources):
        _refuse_others(y, sample_weight, "SequenceSources")
        return cluster.load(X.sources)
    if not is_distributed(X):
        return cluster.load(_cut_rows(X, y, sample_weight, cluster, multi_output=multi_output))
    parts: Sequence[Handle] = cluster.load(list_delayed(X))
    n = len(parts)
    columns = [_load_column(name, given, X, n, cluster) for name, given in (("y", y), ("sample_weight", sample_weight))]
    return cluster.each(_join_columns, parts, *columns)


def _load_column(name: str, given: UserData, X: UserData, n_parts: int, cluster: Cluster) -> Sequence[Value]:
    """Return labels or weights of rows: for each part of X, a handle to them, names of their columns in X, or None.

    name : the argument `given`, for error messages.
    """
    if given is None and name == "sample_weight":
        return [None] * n_parts
    if _are_names(given) and hasattr(X, "columns"):
        absent = [one for one in ([given] if isinstance(given, str) else given) if one not in X.columns]
        if absent:
            raise ValueError(
                f"{name}={absent[0]!r} is not a column of the dask.dataframe X, whose columns are "
                f"{shown_list(X.columns)}: expected one of them"
            )
        return [given] * n_parts
    if not is_distributed(given):
        raise TypeError(
            f"X is a Dask collection, but {name} is of type {type(given).__name__}: expected a Dask collection with as "
            "many partitions as X, or the name of a column of a dask.dataframe"
        )
    column = cluster.load(list_delayed(given))
    if len(column) != n_parts:
        raise ValueError(f"X has {n_parts} partitions, but {name} has {len(column)}: expected the same number")
    return column


def _are_names(given: UserData) -> bool:
    """Return whether labels are given as the name of a column, or as a list of such names."""
    is_list = isinstance(given, list) and len(given) > 0 and all(isinstance(one, str) for one in given)
    return is_list or isinstance(given, str)


def check_ends(ends: Iterable[tuple[object, object] | None]) -> None:
    """Raise if a sequence is in two parts of the data.

    ends : the names of the first and of the last sequence of each part, or None where they are not known.
    """
    for (_, last), (first, _) in pairwise(filter(None, ends)):
        if last == first:
            raise ValueError(
                f"sequence {shown(last)} is in two files or parts of the data: expected whole sequences. "
                "Write all tokens of a sequence to one file."
            )


def split_evenly(tokens: Sequence[int] | npt.NDArray[np.integer[Any]], n: int) -> list[range]:
    """Divide items into at most n ranges of consecutive items with about the same number of tokens each.

    tokens : the number of tokens of each item.
    """
    ends = np.cumsum(tokens)
    middle = (ends - np.asarray(tokens) / 2) / max(float(ends[-1]), 1.0)
    run = np.minimum((middle * n).astype(int), n - 1)
    cuts = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(tokens)]
    return [range(low, high) for low, high in pairwise(cuts)]


def _refuse_others(y: UserData, sample_weight: UserData, kind: str) -> None:
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"X is {kind}, but y or sample_weight was passed as well: expected X to provide labels and weights. Leave "
            "out the other arguments."
        )


def list_delayed(parts: UserData) -> list[UserData]:
    """Return the partitions of a Dask collection as a list of delayed values."""
    if isinstance(parts, list | tuple):
        return list(parts)
    blocks = np.asarray(parts.to_delayed())
    if blocks.size > len(blocks):
        raise ValueError(
            f"a Dask array has chunks {shown(parts.chunks)}, which cut sequences: expected chunks along the first axis "
            "only. Call rechunk({0: 'auto', 1: -1, 2: -1})"
        )
    return list(blocks.ravel())


def _cut(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    cluster: Cluster,
    read_tokens: Callable[..., list[UserData]],
    chosen: Mapping[str, tuple[str | None, UserData]] | None,
) -> list[Callable[[], RawSequences]]:
    """Divide lists in memory into parts with similar numbers of tokens; return one function per part.

    Each function takes no arguments, and returns its part as `RawSequences`.
    """
    chains = open_chains(X, chosen=chosen)
    if not chains.n_samples:
        raise ValueError("X has no sequences: expected at least one sequence")
    read_tokens(y, chains)
    X = read_list(X, "X")
    y = list(y) if np.ma.isMaskedArray(y) else read_list(y, "y", "a list of label sequences, one for each of X")
    weights = read_weights(sample_weight, len(X), "sequence", part=True)
    return _cut_lists(X, y, weights, split_evenly(np.maximum(chains.lengths, 1).tolist(), cluster.parts_of(0, len(X))))


def _cut_lists(
    X: list[UserData], y: list[UserData], weights: npt.NDArray[np.float64] | None, runs: Iterable[range]
) -> list[Callable[[], RawSequences]]:
    """Return one function per run of neighbouring samples, which returns these samples."""
    return [
        partial(RawSequences, [X[i] for i in run], [y[i] for i in run], None if weights is None else weights[run])
        for run in runs
    ]


def _cut_rows(
    X: UserData, y: UserData, sample_weight: UserData, cluster: Cluster, *, multi_output: bool
) -> list[Callable[[], RawSequences]]:
    """Divide rows in memory into parts of equal size; return one function per part, which returns `RawSequences`."""
    n_rows = count_rows(X)
    shape = np.shape(y) if not hasattr(y, "shape") else tuple(y.shape)
    if len(shape) not in ((1, 2) if multi_output else (1,)) or shape[0] != n_rows:
        raise ValueError(f"X has {n_rows} rows and y has shape {shape}: expected one label per row")
    weights = read_weights(sample_weight, n_rows, "row")
    if not n_rows:
        raise ValueError("X has no rows: expected at least one row")
    runs = split_evenly(np.ones(n_rows, int), cluster.parts_of(0, n_rows))
    cuts = [slice(run.start, run.stop) for run in runs]
    y = y.tocsr() if is_sparse(y) else y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    return [
        partial(RawSequences, _take_rows(X, cut), y[cut], None if weights is None else weights[cut]) for cut in cuts
    ]


def _take_rows(X: UserData, cut: slice) -> UserData:
    """Return some rows of a matrix, or of each entry of a mapping."""
    if isinstance(X, Mapping):
        return {name: _take_rows(entry, cut) for name, entry in X.items()}
    return X.iloc[cut] if hasattr(X, "iloc") else X.tocsr()[cut] if is_sparse(X) else X[cut]


def count_rows(X: UserData) -> int:
    """Return the number of rows of a matrix, or of the longest entry of a mapping."""
    if isinstance(X, Mapping):
        return max(map(count_rows, X.values()), default=0)
    return int(X.shape[0]) if hasattr(X, "shape") else len(read_list(X, "X"))


# A worker calls the functions below with one part.


def _join_columns(X: UserData, y: UserData, weights: UserData) -> RawSequences:
    """Return rows with their labels and weights, either of which may be names of columns of the data frame X."""
    names = [name for column in (y, weights) if _are_names(column) for name in np.atleast_1d(column).tolist()]
    y, weights = (X[column] if _are_names(column) else column for column in (y, weights))
    labels = y if is_sparse(y) else y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    weights = None if weights is None else np.asarray(weights, np.float64)
    return RawSequences(X.drop(columns=names) if names else X, labels, weights)


def _pair(X: UserData, y: UserData) -> RawSequences:
    X, y = list(X), list(y)
    if len(X) != len(y):
        raise ValueError(
            f"a partition of X has {len(X)} sequences, but the partition of y with their labels has {len(y)}: "
            "expected the same number"
        )
    return RawSequences(X, y)


def _read_frame(frame: UserData, labels: str) -> RawSequences:
    if labels not in frame.columns:
        raise ValueError(
            f"the dask.dataframe X has the columns {shown_list(frame.columns)}: expected a column {shown(labels)} with "
            "the labels"
        )
    y = [_as_lists(row) for row in frame[labels]]
    weights = frame["weight"].to_numpy(np.float64) if "weight" in frame.columns else None
    return RawSequences(read_frame_inputs(frame), y, weights)


def read_frame_inputs(frame: UserData) -> UserData:
    """Return the sequences of a data frame with one sequence per row."""
    inputs = [name for name in ("features", "vectors") if name in frame.columns]
    if len(inputs) != 1:
        raise ValueError(
            f"the dask.dataframe X has the columns {shown_list(frame.columns)}: expected either a column 'features' or "
            "a column 'vectors'"
        )
    if inputs == ["vectors"]:
        vectors = [[np.asarray(token, np.float64) for token in row] for row in frame["vectors"]]
        width = max((len(token) for row in vectors for token in row), default=0)
        return [np.stack(row) if row else np.empty((0, width)) for row in vectors]
    return [_as_lists(row) for row in frame["features"]]


def _as_lists(value: UserData) -> UserData:
    """Convert nested arrays, which Arrow returns, to nested lists."""
    return [_as_lists(one) for one in value] if isinstance(value, np.ndarray | list) else value
