"""Sequences in parts, as users hand them in, and how they become parts on a cluster.

What may be given as X, y:

    lists of sequences and of labels                    cut into parts here, and kept by the engine's scheduler
    two dask.bag, or two lists of delayed lists         partition by partition
    a dask.dataframe                                    a row a sequence, with columns as in `formats.objects`:
                                                        features or vectors, labels, weight; y=None, or the name of
                                                        the column of labels
    Partitions(...)                                     calls that return `Sequences`, such as
                                                        `kernelcrf.formats.partitioned.read_parquet` makes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Cluster, Handle, Resident
from kernelcrf.estimators.containers import read_list
from kernelcrf.estimators.sequences import kind_of
from kernelcrf.estimators.weights import checked_weights
from kernelcrf.validation import shown, shown_list


@dataclass(frozen=True, eq=False)
class Sequences(Resident):
    """Some sequences as they came.

    X, y : lists of sequences and of their labels; or all tokens and labels one after the other, with `lengths`. y is
        None where there are no labels.
    weights : (m,) or None.
    ends : names of the first and of the last sequence, where a sequence may have been cut between two parts.
    """

    X: Any
    y: Any = None
    weights: npt.ArrayLike | None = None
    lengths: npt.NDArray[np.int64] | None = None
    ends: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.X) if self.lengths is None else len(self.lengths)


@dataclass(frozen=True, eq=False)
class Partitions:
    """Sequences in parts that are read where they are needed: calls without arguments that return `Sequences`."""

    sources: Sequence[Callable[[], Sequences]]

    def __len__(self) -> int:
        return len(self.sources)


def is_shared(X: Any) -> bool:
    """Whether X is in parts, of Dask or ours."""
    if isinstance(X, Partitions) or hasattr(X, "__dask_graph__"):
        return True
    return isinstance(X, list | tuple) and len(X) > 0 and hasattr(X[0], "__dask_graph__")


def raw_parts(X: Any, y: Any, sample_weight: Any, cluster: Cluster) -> list[Handle]:
    """Handles of `Sequences`, a part each."""
    if isinstance(X, Partitions):
        _no_others(y, sample_weight, "partitions that were read with their labels")
        return cluster.load(X.sources)
    if not is_shared(X):
        return cluster.load(_cut(X, y, sample_weight, cluster))
    parts = cluster.load(_delayed(X))
    if hasattr(X, "columns"):
        _no_others(None if isinstance(y, str) else y, sample_weight, "a dask.dataframe")
        return cluster.each(_of_frame, parts, shared=("labels" if y is None else y,))
    if sample_weight is not None:
        raise ValueError("sample_weight goes with lists in memory, or as column `weight` of a dask.dataframe")
    if y is None or not is_shared(y):
        raise TypeError(f"X is in parts and y is of type {type(y).__name__}: expected y in the same parts")
    others = cluster.load(_delayed(y))
    if len(parts) != len(others):
        raise ValueError(f"X has {len(parts)} parts and y has {len(others)}: expected the same")
    return cluster.each(_paired, parts, others)


def runs_of(tokens: Sequence[int] | npt.NDArray[np.integer[Any]], n: int) -> list[range]:
    """Neighbouring parts joined into n runs of about as many tokens each, none of them empty."""
    ends = np.cumsum(tokens)
    middle = (ends - np.asarray(tokens) / 2) / max(float(ends[-1]), 1.0)
    run = np.minimum((middle * n).astype(int), n - 1)
    cuts = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(tokens)]
    return [range(low, high) for low, high in pairwise(cuts)]


def _no_others(y: Any, sample_weight: Any, what: str) -> None:
    if y is not None or sample_weight is not None:
        raise ValueError(f"X is {what}, and y or sample_weight is given too: expected both to come with X")


def _delayed(parts: Any) -> list[Any]:
    return list(parts) if isinstance(parts, list | tuple) else list(np.ravel(parts.to_delayed()))


def _cut(X: Any, y: Any, sample_weight: Any, cluster: Cluster) -> list[Callable[[], Sequences]]:
    """Lists in memory, cut into parts of about as many tokens each."""
    _, chains = kind_of(X)
    if not chains.n_samples:
        raise ValueError("X has no sequences: expected at least one")
    if y is None:
        raise ValueError("y is None: expected a list of label sequences, one for each of X")
    X, y = read_list(X, "X"), read_list(y, "y", "a list of label sequences, one for each of X")
    if len(y) != len(X):
        raise ValueError(
            f"y has {len(y)} sequences and X has {len(X)}: expected a label sequence for each sequence of X"
        )
    weights = None if sample_weight is None else checked_weights(sample_weight, len(X), "sequence")
    runs = runs_of(np.maximum(chains.lengths, 1).tolist(), cluster.parts_of(0, len(X)))
    return [
        partial(Sequences, [X[i] for i in run], [y[i] for i in run], None if weights is None else weights[run])
        for run in runs
    ]


# What workers do with a part.


def _paired(X: Any, y: Any) -> Sequences:
    X, y = list(X), list(y)
    if len(X) != len(y):
        raise ValueError(f"a part of X has {len(X)} sequences and that of y has {len(y)}: expected the same")
    return Sequences(X, y)


def _of_frame(frame: Any, labels: str) -> Sequences:
    """The rows of a pandas.DataFrame."""
    inputs = [name for name in ("features", "vectors") if name in frame.columns]
    if len(inputs) != 1 or labels not in frame.columns:
        raise ValueError(
            f"a part has the columns {shown_list(frame.columns)}: expected {shown(labels)}, and one of 'features' "
            "and 'vectors'"
        )
    y = [_plain(row) for row in frame[labels]]
    weights = frame["weight"].to_numpy(np.float64) if "weight" in frame.columns else None
    if inputs == ["vectors"]:
        return Sequences(
            [np.stack([np.asarray(token, np.float64) for token in row]) for row in frame["vectors"]], y, weights
        )
    return Sequences([_plain(row) for row in frame["features"]], y, weights)


def _plain(value: Any) -> Any:
    """Nested arrays, as Arrow hands them over, as lists."""
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value]
    return [_plain(one) for one in value] if isinstance(value, list) else value
