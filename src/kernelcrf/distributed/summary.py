"""Summaries of parts of the data: their sizes, inputs and labels.

The sum of the summaries of all parts has all labels and all feature names, so that all parts can be read alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernelcrf.arrays import Flags, Inputs, UserData, is_sparse
from kernelcrf.distributed.sources import check_ends
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.columns import have_same_names
from kernelcrf.readers.containers import is_missing_value
from kernelcrf.readers.inputs import InputsReader, named_entry, open_entries
from kernelcrf.readers.labels import SETS
from kernelcrf.readers.sequences import OWNER, SequenceReader, open_sequences
from kernelcrf.readers.stored_inputs import WORDS, Kind
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.vocabulary import Vocabulary
from kernelcrf.validation import shown_list

SPARSE_BYTES = 24

Chosen = Mapping[str, tuple[str | None, UserData]]
"""For each input that has a name, the entry and the columns that it reads, as in `InputsReader.fit`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InputSummary:
    """A summary of the inputs of one or several parts of the data, or of one entry of these inputs.

    kind, n_features : the kind of the inputs and their number of columns. Both are None if there are no tokens;
        `n_features` is also None for feature dicts.
    n_values : the number of stored entries of the inputs; one entry takes `itemsize` bytes.
    names : the distinct feature names; empty unless the inputs are feature dicts without hashing.
    columns : the names of the columns of data frames; None if the columns have no names.
    """

    kind: Kind | None = None
    n_features: int | None = None
    n_values: int = 0
    itemsize: int = 0
    names: frozenset[str] = frozenset()
    columns: tuple[Hashable, ...] | None = None

    @classmethod
    def of_matrix(cls, X: Inputs, columns: UserData = None) -> InputSummary:
        """Return the summary of a dense or sparse matrix; `columns` has the names of its columns, or is None."""
        return cls(
            kind="sparse" if is_sparse(X) else "dense",
            n_features=X.shape[1],
            n_values=int(X.nnz if is_sparse(X) else X.size),
            itemsize=X.dtype.itemsize,
            columns=None if columns is None else tuple(columns),
        )

    @classmethod
    def of_sequences(
        cls, X: UserData, lengths: UserData, first: int, kept: Flags, hash_features: int | None
    ) -> InputSummary:
        """Return the summary of sequences; raise an error if they are invalid.

        first : the number of the first sequence in the whole data, for error messages.
        kept : one flag per sequence, which says whether its weight is not 0.
        """
        _, chains, kind = open_sequences(X, lengths, first)
        nodes = np.repeat(kept, chains.lengths)
        if kind is None or chains.n_nodes == 0 or (kind == "dicts" and not nodes.any()):
            return cls(kind=kind)
        if kind == "dicts" and hash_features is not None:
            named = isinstance(X, feature_dicts.NamedTokens)
            sequences = [X] if lengths is not None else X
            n_values = len(X.ids) if named else sum(len(token) for sequence in sequences for token in sequence)
            return cls(kind=kind, n_values=n_values, itemsize=8)
        reader, flat, _ = SequenceReader.fit(X, lengths, hash_features, kept.astype(np.float64), first)
        matrix = cls.of_matrix(flat if kept.all() else flat[nodes], reader.column_names)
        return cls(
            kind=kind,
            n_features=None if kind == "dicts" else matrix.n_features,
            n_values=matrix.n_values,
            itemsize=matrix.itemsize,
            names=frozenset(reader.vocabulary or ()),
            columns=matrix.columns,
        )

    def __add__(self, other: InputSummary) -> InputSummary:
        if self.kind and other.kind and self.kind != other.kind:
            raise _difference_error(WORDS[self.kind], WORDS[other.kind])
        if self.n_features and other.n_features and self.n_features != other.n_features:
            raise _difference_error(f"{self.n_features} features", f"{other.n_features} features")
        if self.n_features and other.n_features and not have_same_names(self.columns, other.columns):
            raise _difference_error(
                *(f"the column names [{shown_list(summary.columns or ())}]" for summary in (self, other))
            )
        return InputSummary(
            kind=self.kind or other.kind,
            n_features=self.n_features or other.n_features,
            n_values=self.n_values + other.n_values,
            itemsize=max(self.itemsize, other.itemsize),
            names=self.names | other.names,
            columns=self.columns or other.columns,
        )

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the inputs need."""
        return (self.itemsize if self.kind == "dense" else SPARSE_BYTES) * self.n_values

    def reader(self, hash_features: int | None = None, owner: str = OWNER) -> SequenceReader:
        """Return the reader that converts the inputs of all parts to arrays with the same columns."""
        if self.kind != "dicts":
            names = None if self.columns is None else object_array(self.columns)
            return SequenceReader(self.kind or "dense", int(self.n_features or 0), None, names, owner)
        if hash_features is not None:
            vectorizer: feature_dicts.Vectorizer = feature_dicts.new_hasher(hash_features)
        else:
            vectorizer = Vocabulary(sorted(self.names))
        return SequenceReader("dicts", feature_dicts.n_columns(vectorizer), vectorizer, owner=owner)


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSummary:
    """A summary of one or several parts of the data: their size, inputs and labels.

    samples : the number of sequences, rows or graphs.
    tokens : for each part, the number of tokens, rows or nodes in samples whose weight is not 0.
    ends : the names of the first and the last sequence; None if no sequence can continue in the next part.
    counted : the number of samples whose weight is not 0.
    inputs : the summary of each entry of the inputs; if the inputs have no entries, the only key is None. It is empty
        if there are no samples.
    labels : all distinct labels, in order of first appearance.
    counts : how often each label occurs in samples whose weight is not 0.
    others : facts that only one estimator needs; they can be added.
    """

    samples: int
    tokens: tuple[int, ...] = (0,)
    ends: tuple[object, object] | None = None
    counted: int = 0
    inputs: Mapping[str | None, InputSummary] = field(default_factory=dict)
    labels: dict[Hashable, None] = field(default_factory=dict)
    counts: Counter[Hashable] = field(default_factory=Counter)
    others: UserData = None

    def __add__(self, other: DataSummary) -> DataSummary:
        check_ends([self.ends, other.ends])
        if self.inputs and other.inputs and self.inputs.keys() != other.inputs.keys():
            raise _difference_error(*(_described(summary.inputs) for summary in (self, other)))
        added: UserData = other.others if self.others is None else self.others
        if self.others is not None and other.others is not None:
            added = self.others + other.others
        return DataSummary(
            samples=self.samples + other.samples,
            tokens=self.tokens + other.tokens,
            ends=(self.ends[0], other.ends[1]) if self.ends and other.ends else self.ends or other.ends,
            counted=self.counted + other.counted,
            inputs=self._add_inputs(other) or other.inputs,
            labels=self.labels | other.labels,
            counts=self.counts + other.counts,
            others=added,
        )

    def _add_inputs(self, other: DataSummary) -> dict[str | None, InputSummary]:
        inputs = {}
        for entry, own in self.inputs.items():
            with named_entry(entry):
                inputs[entry] = own + other.inputs.get(entry, InputSummary())
        return inputs

    def check_tokens(self, weight: str) -> None:
        """Raise ValueError if there is no token to fit, or if all sequences have the weight 0.

        weight : the name of the parameter that the error names if all weights are 0.
        """
        if self.counted == 0 and self.samples:
            raise ValueError(f"{weight} gives every sequence the weight 0: expected at least one weight above 0")
        if not any(self.tokens):
            raise ValueError(
                f"X has {self.samples} sequence(s), and the {self.counted} with a weight above 0 have no tokens: "
                "expected at least one token to fit"
            )

    def n_bytes(self, n_components: int) -> int:
        """Return how many bytes the inputs and `n_components` features per token need."""
        itemsize = max([4, *(one.itemsize for one in self.inputs.values())])
        return sum(one.n_bytes for one in self.inputs.values()) + itemsize * n_components * sum(self.tokens)

    def reader(
        self, chosen: Chosen | None, hash_features: int | None = None, owner: str = OWNER
    ) -> SequenceReader | InputsReader:
        """Return the reader that converts the inputs of all parts to arrays with the same columns."""
        readers = {
            entry: one.reader(hash_features if one.kind == "dicts" else None, owner)
            for entry, one in (self.inputs or {None: InputSummary()}).items()
        }
        return readers[None] if chosen is None else InputsReader.of(readers, chosen, hash_features)

    @property
    def names(self) -> dict[str | None, list[str]]:
        """Return the sorted feature names of each entry."""
        return {entry: sorted(one.names) for entry, one in self.inputs.items()}


def summarise_entries(
    X: UserData, lengths: UserData, first: int, kept: Flags, hash_features: int | None, chosen: Chosen | None
) -> dict[str | None, InputSummary]:
    """Return the summary of each entry of sequences that an input reads.

    first, kept, hash_features : as in `InputSummary.of_sequences`.
    """
    entries = {None: X} if chosen is None else open_entries(X, chosen, lengths)
    summaries = {}
    for entry, part in entries.items():
        with named_entry(entry):
            hashed = hash_features
            if chosen is not None and open_sequences(part, lengths, first)[2] != "dicts":
                hashed = None
            summaries[entry] = InputSummary.of_sequences(part, lengths, first, kept, hashed)
    return summaries


def count_labels(tokens: Iterable[UserData]) -> Counter[Hashable]:
    """Return how often each label occurs; a set of one label counts as this label, and larger sets do not count."""
    alone = (next(iter(label)) if isinstance(label, SETS) and len(label) == 1 else label for label in tokens)
    return Counter(label for label in alone if not (isinstance(label, SETS) or is_missing_value(label)))


def _described(inputs: Mapping[str | None, InputSummary]) -> str:
    return f"the entries [{shown_list(inputs)}]" if None not in inputs else "sequences that are not mappings"


def _difference_error(here: str, there: str) -> ValueError:
    return ValueError(f"X has {here} in one part and {there} in another: expected the same in all parts")
