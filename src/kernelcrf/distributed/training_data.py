"""Read training data on a cluster: the workers first summarise the parts of the data, then convert them to arrays.

The sum of the summaries has all labels and all feature names, so that all parts can be converted in the same way.
Neighbouring parts are joined if the engine asks for fewer parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress
from typing import Any, TypeAlias

import numpy as np

from kernelcrf.arrays import Floats, Places, UserData, is_sparse
from kernelcrf.basis.factor import stack
from kernelcrf.distributed.cluster import Cluster, Function, Handle
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.distributed.sources import RawSequences, check_ends, load_sequences, split_evenly
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.fitting.training_data import TrainingData
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.gamma import gamma_of_variance
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.columns import have_same_names
from kernelcrf.readers.constraints import check_legal, legal_labelings
from kernelcrf.readers.containers import is_missing_value
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import SETS, LabelReader, distinct_labels, flat_labels
from kernelcrf.readers.reader_extension import add_names
from kernelcrf.readers.sequences import SequenceReader, open_sequences
from kernelcrf.readers.stored_inputs import WORDS, Kind
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.vocabulary import Vocabulary
from kernelcrf.readers.weights import read_class_weights, read_weights, weigh_samples
from kernelcrf.score.cliques import TOKENS
from kernelcrf.validation import shown_list

SPARSE_BYTES = 24

ReadTokens: TypeAlias = Callable[..., list[UserData]]
"""A function that returns the labels of all tokens, such as `flat_labels`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSummary:
    """A summary of one or several parts of the data: their size, inputs and labels.

    tokens : for each part, the number of tokens in sequences whose weight is not 0.
    ends : the names of the first and the last sequence; None if no sequence can continue in the next part.
    counted : the number of sequences whose weight is not 0.
    kind, n_features : the kind of the inputs and their number of columns. Both are None if there are no tokens;
        `n_features` is also None for feature dicts.
    n_values : the number of stored entries of the inputs; one entry takes `itemsize` bytes.
    labels : all distinct labels, in order of first appearance.
    counts : how often each label occurs in sequences whose weight is not 0.
    names : the distinct feature names; empty unless the inputs are feature dicts without hashing.
    columns : the names of the columns of data frames; None if the columns have no names.
    """

    sequences: int
    tokens: tuple[int, ...] = (0,)
    ends: tuple[object, object] | None = None
    counted: int = 0
    kind: Kind | None = None
    n_features: int | None = None
    n_values: int = 0
    itemsize: int = 0
    labels: dict[Hashable, None] = field(default_factory=dict)
    counts: Counter[Hashable] = field(default_factory=Counter)
    names: frozenset[str] = frozenset()
    columns: tuple[Hashable, ...] | None = None

    @classmethod
    def of(
        cls, part: RawSequences, first: int, hash_features: int | None, read_tokens: ReadTokens = flat_labels
    ) -> DataSummary:
        """Return the summary of one part of the data; raise an error if the part is invalid.

        first : the index of the part's first sequence in the whole data, for error messages.
        read_tokens : a function that returns the labels of all tokens.
        """
        if part.y is None:
            raise ValueError(
                "y is None in a part of the data: expected labels for all sequences. Pass them as y of RawSequences, "
                "or pass the name of their column as labels to read_parquet"
            )
        if not len(part):
            return cls(sequences=0, ends=part.ends)
        _, chains, kind = open_sequences(part.X, part.lengths, first)
        weights = read_weights(part.weights, len(part), "sequence", first=first, part=True)
        kept = np.ones(len(part), bool) if weights is None else weights > 0
        tokens = read_tokens(part.y, chains, flat=part.lengths is not None)
        nodes = np.repeat(kept, chains.lengths)
        known = cls(
            sequences=len(part),
            tokens=(int(nodes.sum()),),
            ends=part.ends,
            counted=int(kept.sum()),
            kind=kind,
            labels=dict.fromkeys(distinct_labels(tokens)),
        )
        if kind is None or chains.n_nodes == 0 or (kind == "dicts" and not nodes.any()):
            return known
        labels = compress(tokens, nodes.tolist())
        # A set of one label says this label.
        alone = (next(iter(label)) if isinstance(label, SETS) and len(label) == 1 else label for label in labels)
        counts = Counter(label for label in alone if not (isinstance(label, SETS) or is_missing_value(label)))
        if kind == "dicts" and hash_features is not None:
            named = isinstance(part.X, feature_dicts.NamedTokens)
            n_values = len(part.X.ids) if named else sum(len(token) for sequence in part.X for token in sequence)
            return replace(known, counts=counts, n_values=n_values, itemsize=8)
        reader, flat, _ = SequenceReader.fit(part.X, part.lengths, hash_features, part.weights, first)
        flat = flat if kept.all() else flat[nodes]
        return replace(
            known,
            counts=counts,
            n_features=None if kind == "dicts" else reader.n_features,
            n_values=int(flat.nnz if is_sparse(flat) else flat.size),
            itemsize=flat.dtype.itemsize,
            names=frozenset(reader.vocabulary or ()),
            columns=None if reader.column_names is None else tuple(reader.column_names),
        )

    def __add__(self, other: DataSummary) -> DataSummary:
        check_ends([self.ends, other.ends])
        if self.kind and other.kind and self.kind != other.kind:
            raise _difference_error(WORDS[self.kind], WORDS[other.kind])
        if self.n_features and other.n_features and self.n_features != other.n_features:
            raise _difference_error(f"{self.n_features} features", f"{other.n_features} features")
        if self.n_features and other.n_features and not have_same_names(self.columns, other.columns):
            raise _difference_error(
                *(f"the column names [{shown_list(summary.columns or ())}]" for summary in (self, other))
            )
        return DataSummary(
            sequences=self.sequences + other.sequences,
            tokens=self.tokens + other.tokens,
            ends=(self.ends[0], other.ends[1]) if self.ends and other.ends else self.ends or other.ends,
            counted=self.counted + other.counted,
            kind=self.kind or other.kind,
            n_features=self.n_features or other.n_features,
            n_values=self.n_values + other.n_values,
            itemsize=max(self.itemsize, other.itemsize),
            labels=self.labels | other.labels,
            counts=self.counts + other.counts,
            names=self.names | other.names,
            columns=self.columns or other.columns,
        )

    def check_tokens(self, weight: str) -> None:
        """Raise ValueError if there is no token to fit, or if all sequences have the weight 0.

        weight : the name of the parameter that the error names if all weights are 0.
        """
        if self.counted == 0 and self.sequences:
            raise ValueError(f"{weight} gives every sequence the weight 0: expected at least one weight above 0")
        if not any(self.tokens):
            raise ValueError(
                f"X has {self.sequences} sequence(s), and the {self.counted} with a weight above 0 have no tokens: "
                "expected at least one token to fit"
            )

    @property
    def is_sparse(self) -> bool:
        """Return whether the inputs will be read as sparse (CSR) matrices."""
        return self.kind != "dense"

    def n_bytes(self, n_components: int) -> int:
        """Return how many bytes the inputs and `n_components` features per token need."""
        stored = SPARSE_BYTES * self.n_values if self.is_sparse else self.itemsize * self.n_values
        return stored + max(self.itemsize, 4) * n_components * sum(self.tokens)

    def reader(self, hash_features: int | None) -> SequenceReader:
        """Return the reader that converts the inputs of all parts to arrays with the same columns."""
        if self.kind != "dicts":
            names = None if self.columns is None else object_array(self.columns)
            return SequenceReader(self.kind or "dense", int(self.n_features or 0), None, names)
        if hash_features is not None:
            vectorizer: feature_dicts.Vectorizer = feature_dicts.new_hasher(hash_features)
        else:
            vectorizer = Vocabulary(sorted(self.names))
        return SequenceReader("dicts", feature_dicts.n_columns(vectorizer), vectorizer)


def _difference_error(here: str, there: str) -> ValueError:
    return ValueError(f"X has {here} in one part and {there} in another: expected the same in all parts")


def gamma_by_scale(data: DistributedSequences, *, weighted: bool = False) -> float:
    """Return the value of gamma="scale", computed from the variance of all entries of the inputs.

    weighted : whether tokens count with the weight of their sequence.
    """
    cluster, parts, d = data.cluster, data.parts, data.n_features
    total, mass = cluster.sum(_sum_entries, parts, shared=(weighted,))
    n = max(mass * d, np.finfo(np.float64).tiny)
    squares = float(cluster.sum(_sum_squares, parts, shared=(total / n, weighted)))
    return gamma_of_variance(squares / n, d)


def _weights_of_tokens(part: LabelledSequences, weighted: bool) -> Floats:
    if part.weights is None or not weighted:
        return np.ones(part.chains.n_nodes)
    return np.repeat(part.weights, part.chains.lengths)


def _sum_entries(part: LabelledSequences, weighted: bool) -> Floats:
    """Return the weighted sum of all entries of the inputs, and the sum of the weights of all tokens."""
    weights = _weights_of_tokens(part, weighted)
    return np.array([weights @ np.asarray(part.X.sum(axis=1, dtype=np.float64)).ravel(), weights.sum()])


def _sum_squares(part: LabelledSequences, mean: float, weighted: bool) -> float:
    """Return the weighted sum of (x - mean)^2 over all entries x, including zeros that are not stored."""
    X, weights = part.X, _weights_of_tokens(part, weighted)
    stored = np.asarray(X.data if is_sparse(X) else X, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(stored - mean)
        if not is_sparse(X):
            return float(weights @ squares.sum(axis=1))
        counts = np.diff(X.indptr)
        return float(np.repeat(weights, counts) @ squares + (weights @ (X.shape[1] - counts)) * mean * mean)


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


def read_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    lengths: UserData,
    engine: Cluster | None,
    *,
    hash_features: int | None,
    n_components: Mapping[bool, tuple[int, int]],
    classes: Iterable[Hashable] | None,
    class_weight: UserData,
    constraints: UserData,
    inputs: Sequence[str] = (),
    earlier: tuple[SequenceReader | InputsReader, LabelReader] | None = None,
    prior: tuple[SequenceReader | InputsReader, LabelReader] | None = None,
    read_tokens: ReadTokens = flat_labels,
    settle: Callable[[Sequence[Handle], Cluster], ReadTokens] | None = None,
    fit_labels: Callable[[Any, UserData], LabelReader] = LabelReader.fit,
    extend_labels: Callable[[LabelReader, Any, UserData], LabelReader] = LabelReader.extend,
) -> TrainingData:
    """Load the data on the workers in parts, and let the workers convert the parts to arrays.

    n_components : a dict from False (for dense inputs) and True (for sparse inputs) to the expected numbers of stored
        features per token, if there is memory for all features and if there is not. The more features, the smaller are
        the parts.
    inputs : the names of the inputs, each of which reads all data; empty if there is one input without a name.
    earlier : if this fit continues an earlier fit, the readers that convert inputs and labels in that fit.
    prior, read_tokens, fit_labels, extend_labels : as in `read_training_data`.
    settle : a function that returns `read_tokens` for these data, if it depends on all parts; else None.
    """
    if lengths is not None:
        raise ValueError("lengths cannot be used with data on a cluster: pass sequences, and omit lengths")
    cluster = engine or current_cluster()
    raw: Sequence[Handle] = load_sequences(X, y, sample_weight, cluster, read_tokens)
    if not raw:
        raise ValueError("X has no parts: expected at least one part with sequences")
    if settle is not None:
        read_tokens = settle(raw, cluster)
    firsts = np.concatenate([[0], np.cumsum(cluster.fetch(cluster.each(len, raw)))]).astype(int)[:-1]

    def summarise(weight: str) -> DataSummary:
        summary: DataSummary = cluster.sum(DataSummary.of, raw, firsts.tolist(), shared=(hash_features, read_tokens))
        if prior is None:
            summary.check_tokens(weight)
        return summary

    summary = summarise("sample_weight")
    if earlier is not None:
        labels = earlier[1]
    elif prior is not None:
        labels = extend_labels(prior[1], summary.labels, classes)
    else:
        labels = fit_labels(summary.labels, classes)
    if class_weight is not None:
        names = labels.classes.tolist()
        by_class = read_class_weights(class_weight, labels.classes, np.array([summary.counts[name] for name in names]))
        class_weight = dict(zip(names, by_class.tolist(), strict=True))
        if not by_class.all():
            raw = cluster.each(_leave_out, raw, shared=(labels, class_weight, read_tokens))
            summary = summarise("class_weight")
    if (known := prior or earlier) is None:
        reader = summary.reader(hash_features)
    else:
        reader = add_names(_reader_of_whole(known[0]), sorted(summary.names))
    legal = None if constraints is None else legal_labelings(constraints, labels.classes)
    read = partial(_read, reader, labels, legal, class_weight, read_tokens)
    n_bytes = size_of_data(cluster, summary, n_components)
    parts: Sequence[Handle] = []
    if any(summary.tokens):
        parts = place_parts(cluster, read, raw, firsts, summary.tokens, n_bytes)
    is_sparse = summary.is_sparse if known is None else reader.is_sparse(TOKENS)
    data = DistributedSequences(cluster, parts, len(labels.classes), reader.n_features, is_sparse, legal)
    named = InputsReader.of_whole(reader, inputs) if inputs else reader
    return TrainingData(named, labels, legal, data, lambda _: gamma_by_scale(data), sum(summary.tokens))


def _reader_of_whole(earlier: SequenceReader | InputsReader) -> SequenceReader:
    """Return the reader of whole sequences that an earlier fit used; raise if it reads entries of mappings."""
    if not isinstance(earlier, InputsReader):
        return earlier
    if None not in earlier.entries:
        raise ValueError(
            f"the earlier model reads the entries {shown_list(earlier.entries)} of mappings: expected a model that "
            "reads whole sequences, because the data are on a cluster. Pass sequences in this process and engine=None"
        )
    return earlier.entries[None]


def size_of_data(cluster: Cluster, summary: DataSummary, n_components: Mapping[bool, tuple[int, int]]) -> int:
    """Return how many bytes the data need with the features that a fit will store; see `read_parts`."""
    usual, least = n_components[summary.is_sparse]
    n_bytes = summary.n_bytes(usual)
    return n_bytes if cluster.fits(n_bytes) else summary.n_bytes(least)


def place_parts(
    cluster: Cluster, read: Function, raw: Sequence[Handle], firsts: Places, tokens: Sequence[int], n_bytes: int
) -> Sequence[Handle]:
    """Join neighbouring sources, and let the workers convert them to the parts of the data; return handles.

    read : a function that converts several sources to one part, given the index of the first sample of each source, and
        the sources.
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


def _leave_out(
    part: RawSequences, labels: LabelReader, class_weight: UserData, read_tokens: ReadTokens
) -> RawSequences:
    """Return a copy of the part in which a sequence has the weight 0 if `class_weight` gives it the weight 0."""
    _, chains, _ = open_sequences(part.X, part.lengths)
    given = read_weights(part.weights, len(part), "sequence", part=True)
    indices, _ = labels.encode(read_tokens(part.y, chains, flat=part.lengths is not None), chains)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "sequence", part=True)
    return replace(part, weights=np.where(weights == 0, 0.0, np.ones(len(part)) if given is None else given))


def _read(
    reader: SequenceReader,
    labels: LabelReader,
    legal: Legal | None,
    class_weight: UserData,
    read_tokens: ReadTokens,
    firsts: list[int],
    parts: list[RawSequences],
) -> LabelledSequences:
    """Convert several parts of the data to arrays, and join them into one part; a worker calls this function.

    firsts : for each part, the index of its first sequence in the whole data.
    """
    read = [reader.read(part.X, part.lengths, first) for part, first in zip(parts, firsts, strict=True)]
    flat = stack([one for one, _ in read])
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
