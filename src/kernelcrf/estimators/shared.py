"""Sequences in parts on a cluster, as users hand them in: surveyed by sums, then read by the workers.

What may be given as X, y

    lists of sequences and of labels                    cut into parts here, and kept by the engine's scheduler
    two dask.bag, or two lists of delayed lists         partition by partition
    a dask.dataframe                                    a row a sequence, with columns as in `formats.objects`:
                                                        features or vectors, labels, weight; y=None, or the name of
                                                        the column of labels
    Partitions(...)                                     calls that return `Sequences`, such as
                                                        `kernelcrf.formats.partitioned.read_parquet` makes

A survey of each part says what its kind, width, labels and names are; the sum of surveys is what one reader of all data
needs. Neighbouring parts are then joined into as many as the engine asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.factor import stack
from kernelcrf.corpora.sequences import LabelledSequences
from kernelcrf.corpora.shards import SharedSequences
from kernelcrf.engines.cluster import Cluster, Handle, Resident
from kernelcrf.estimators import feature_dicts
from kernelcrf.estimators.constraints import check_legal
from kernelcrf.estimators.labels import SETS, LabelReader, shown_labels
from kernelcrf.estimators.sequences import WORDS, Kind, SequenceReader, kind_of
from kernelcrf.estimators.weights import sequence_weights
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.inputs import is_sparse

Floats = npt.NDArray[np.float64]

SPARSE_BYTES = 24


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


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean, and sum of squared differences from it, of the stored entries of a matrix."""

    n: int
    mean: float
    squares: float

    @classmethod
    def of(cls, X: Any) -> Moments:
        """Of the entries that are stored."""
        values = np.asarray(X.data if is_sparse(X) else X, np.float64)
        mean = float(values.mean()) if values.size else 0.0
        return cls(values.size, mean, float(np.square(values - mean).sum()))

    def __add__(self, other: Moments) -> Moments:
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(n, mean, self.squares + other.squares + apart * apart * self.n * other.n / n)

    def variance(self, n: int) -> float:
        """Of n entries, of which those that are not stored are zero."""
        return (self + Moments(n - self.n, 0.0, 0.0)).squares / n


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of some parts: their size, their kind and columns, what labels they show and how often.

    tokens : of each part.
    n_values : stored numbers, or features of all tokens.
    names : columns of feature dicts by name, where they make a vocabulary.
    """

    sequences: tuple[int, ...]
    tokens: tuple[int, ...]
    kind: Kind | None
    n_features: int | None
    n_values: int
    itemsize: int
    shown: dict[Hashable, None]
    counts: Counter[Hashable]
    names: frozenset[str]
    moments: Moments | None
    ends: tuple[Any, Any] | None = None

    def __add__(self, other: Survey) -> Survey:
        if self.ends and other.ends and self.ends[1] == other.ends[0]:
            raise ValueError(
                f"sequence {self.ends[1]!r} goes on from one part into the next: expected parts with whole sequences; "
                "write the file anew with all rows of a sequence in one file"
            )
        for what in ("kind", "n_features"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if None not in (mine, theirs) and mine != theirs:
                here, there = (WORDS.get(value, f"{value} features") for value in (mine, theirs))
                raise ValueError(f"X has {here} in one part and {there} in another: expected the same in all")
        moments = self.moments if other.moments is None else other.moments
        if self.moments is not None and other.moments is not None:
            moments = self.moments + other.moments
        return Survey(
            self.sequences + other.sequences,
            self.tokens + other.tokens,
            self.kind or other.kind,
            self.n_features or other.n_features,
            self.n_values + other.n_values,
            max(self.itemsize, other.itemsize),
            self.shown | other.shown,
            self.counts + other.counts,
            self.names | other.names,
            moments,
            (self.ends[0], other.ends[1]) if self.ends and other.ends else self.ends or other.ends,
        )

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The number of sequences before each part."""
        return np.concatenate([[0], np.cumsum(self.sequences)])[:-1]

    @property
    def is_sparse(self) -> bool:
        """Whether inputs will be CSR."""
        return self.kind != "dense"

    def n_bytes(self, n_components: int) -> int:
        """What features of all tokens will take: inputs, and `n_components` numbers a token beside them."""
        stored = SPARSE_BYTES * self.n_values if self.is_sparse else self.itemsize * self.n_values
        return stored + max(self.itemsize, 4) * n_components * sum(self.tokens)

    def reader(self, hash_features: int | None) -> SequenceReader:
        """Of all parts."""
        if self.kind is None or not sum(self.tokens):
            raise ValueError(
                f"X has {sum(self.sequences)} sequence(s) and no token: expected at least one token to fit"
            )
        if self.kind != "dicts":
            return SequenceReader(self.kind, int(self.n_features or 0))
        if hash_features is not None:
            vectorizer = feature_dicts.new_vectorizer(hash_features)
        else:
            vectorizer = feature_dicts.restored(sorted(self.names), feature_dicts.SEPARATOR)
        return SequenceReader("dicts", feature_dicts.n_columns(vectorizer), vectorizer)


@dataclass(frozen=True, eq=False)
class Training:
    """What a fit reads on a cluster: the readers of inputs and labels, what is legal, the data, and their survey."""

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    data: SharedSequences
    survey: Survey

    @property
    def gamma(self) -> float:
        """1 / (d variance of all entries); 1 where they have none, or where the survey did not ask for it."""
        if self.survey.moments is None:
            return 1.0
        d = self.reader.n_features
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            variance = self.survey.moments.variance(sum(self.survey.tokens) * d)
            gamma = float(1.0 / np.float64(d * variance)) if variance > 0 else 1.0
        if not (np.isfinite(variance) and np.finfo(np.float64).tiny <= gamma < np.inf):
            raise ValueError(
                f"X has entries of variance {variance:.3g}, and gamma='scale' would be {gamma:g}: scale X, or give "
                "gamma as a number"
            )
        return gamma


def current_cluster() -> Cluster:
    """The workers of the current Dask client."""
    try:
        from kernelcrf.engines.dask import DaskEngine
    except ImportError:
        raise ImportError("data in parts need Dask, which is not installed: pip install 'kernelcrf[dask]'") from None
    engine = DaskEngine()
    try:
        _ = engine.client
    except ValueError:
        raise ValueError(
            "data in parts need a Dask client, and there is none: start one, client = distributed.Client(), or pass "
            "engine=DaskEngine(client)"
        ) from None
    return engine


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


def read_training(
    X: Any,
    y: Any,
    sample_weight: Any,
    cluster: Cluster,
    *,
    hash_features: int | None,
    moments: bool,
    n_components: int,
    classes: Iterable[Hashable] | None,
    class_weight: Any,
    legal_of: Callable[[npt.NDArray[Any]], Legal | None],
    earlier: tuple[SequenceReader, LabelReader] | None = None,
) -> Training:
    """Survey the parts, make one reader of them, join them and have them read where they are.

    moments : whether the variance of the inputs is needed.
    legal_of : what labelings may be, given the classes.
    earlier : the readers of an earlier fit, to be taken up.
    """
    raw = raw_parts(X, y, sample_weight, cluster)
    survey: Survey = cluster.sum(cluster.each(_survey, raw, shared=(hash_features, moments)))
    if earlier is None:
        reader, labels = survey.reader(hash_features), LabelReader.of(list(survey.shown), classes)
    else:
        reader, labels = earlier
    legal = legal_of(labels.classes)
    if class_weight == "balanced":
        known = {label: count for label, count in survey.counts.items() if label in labels.classes.tolist()}
        class_weight = {label: sum(known.values()) / (len(known) * count) for label, count in known.items()}
    filled = np.flatnonzero(survey.tokens)
    runs = _runs(np.array(survey.tokens)[filled], cluster.parts_of(survey.n_bytes(n_components), len(filled)))
    read = partial(_read, reader, labels, legal, class_weight)
    parts = [
        cluster.call(read, int(survey.firsts[own[0]]), [raw[k] for k in own], place=at / len(runs))
        for at, own in enumerate(filled[run] for run in runs)
    ]
    size = sum(survey.sequences), sum(survey.tokens)
    data = SharedSequences(cluster, parts, len(labels.classes), reader.n_features, survey.is_sparse, size)
    return Training(reader, labels, legal, data, survey)


def _runs(tokens: Sequence[int] | npt.NDArray[np.integer[Any]], n: int) -> list[range]:
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
    if y is None or len(y) != len(X):
        raise ValueError(f"y is of type {type(y).__name__}: expected a label sequence for each of {len(X)} sequences")
    weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
    if weights is not None and weights.shape != (len(X),):
        raise ValueError(f"sample_weight has shape {weights.shape}: expected ({len(X)},), a number for each sequence")
    runs = _runs(np.maximum(chains.lengths, 1).tolist(), cluster.parts_of(0, len(X)))
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
            f"a part has the columns {list(frame.columns)}: expected {labels!r}, and one of 'features' and 'vectors'"
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


def _survey(part: Sequences, hash_features: int | None, moments: bool) -> Survey:
    if part.y is None:
        raise ValueError("y is missing in a part of the data: expected labels for all sequences")
    kind, chains = kind_of(part.X, part.lengths) if len(part) else (None, Chains.from_lengths([]))
    size = (len(part),), (chains.n_nodes,)
    if kind is None or chains.n_nodes == 0:
        return Survey(*size, None, None, 0, 0, {}, Counter(), frozenset(), None, part.ends)
    flat_y = part.lengths is not None
    shown = dict.fromkeys(shown_labels(part.y, chains, flat=flat_y))
    labels = part.y if flat_y else chain.from_iterable(part.y)
    counts = Counter(label for label in labels if not isinstance(label, (*SETS, type(None))))
    n_features, names, itemsize, found = None, frozenset[str](), 8, None
    if kind == "dicts" and hash_features is not None and not moments:
        named = isinstance(part.X, feature_dicts.NamedTokens)
        n_values = len(part.X.ids) if named else sum(len(token) for sequence in part.X for token in sequence)
    else:
        reader, flat, _ = SequenceReader.fit(part.X, part.lengths, hash_features)
        n_features = None if kind == "dicts" else reader.n_features
        names = frozenset(reader.feature_names or ())
        n_values, itemsize = int(flat.nnz if is_sparse(flat) else flat.size), flat.dtype.itemsize
        found = Moments.of(flat) if moments else None
    return Survey(*size, kind, n_features, n_values, itemsize, shown, counts, names, found, part.ends)


def _read(
    reader: SequenceReader,
    labels: LabelReader,
    legal: Legal | None,
    class_weight: Any,
    first: int,
    parts: list[Sequences],
) -> LabelledSequences:
    """Parts with at least one token, as one."""
    read = [reader.read(part.X, part.lengths) for part in parts]
    flat = stack([one for one, _ in read])
    chains = Chains.from_lengths(np.concatenate([own.lengths for _, own in read]))
    flat_y = [part.y if part.lengths is not None else list(chain.from_iterable(part.y)) for part in parts]
    indices, allowed = labels.encode(list(chain.from_iterable(flat_y)), chains, flat=True)
    if legal is not None:
        check_legal(legal, chains, indices, labels, first)
    given = [np.ones(len(part)) if part.weights is None else np.asarray(part.weights, np.float64) for part in parts]
    weights = None if all(part.weights is None for part in parts) else np.concatenate(given)
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("weights of a part are not finite or below 0: expected a finite number >= 0 for each sequence")
    by_label = sequence_weights(None, class_weight, chains, indices, labels)
    if by_label is not None:
        weights = by_label if weights is None else weights * by_label
    return LabelledSequences(flat, chains, indices, len(labels.classes), allowed, weights, legal, first)
