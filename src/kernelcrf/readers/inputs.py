"""Read sequences, rows or nodes of graphs that have several inputs, each with its own kernel.

A sequence is a mapping from names to entries. Each entry is an array, a sparse matrix, a data frame or a list of
feature dicts, with one row or dict per token. An input reads one entry, or some columns of this entry. A sequence may
also be a single array, matrix, data frame or list. Each input then reads all or some columns of this object.

With `lengths=`, X is a single mapping or object of this form, in which the tokens of all sequences follow one another.
A row is read as a sequence of one token. The nodes of a graph are read as the tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Inputs, NamedInputs, Places, UserData, take_columns
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import read_container
from kernelcrf.readers.reader_extension import add_names, extend_reader
from kernelcrf.readers.sequences import OWNER, SequenceReader, open_sequences
from kernelcrf.readers.stored_inputs import SEVERAL, Source, sources_from_config
from kernelcrf.score.terms import BETWEEN
from kernelcrf.validation import is_whole, shown, shown_list


@dataclass(frozen=True, eq=False)
class InputsReader:
    """Reads sequences with the same entries and columns as the sequences passed to `fit`.

    entries : a dict from the entries of a sequence to their readers. If sequences are not mappings, the only key is
        None.
    sources : a dict from the names of inputs to the entry and the columns that each input reads.
    """

    entries: Mapping[str | None, SequenceReader]
    sources: Mapping[str, Source]

    kind = SEVERAL
    vectorizer = vocabulary = None

    @classmethod
    def fit(
        cls,
        X: UserData,
        chosen: Mapping[str, tuple[str | None, UserData]],
        lengths: UserData = None,
        hash_features: int | None = None,
        sample_weight: UserData = None,
        owner: str = OWNER,
    ) -> tuple[InputsReader, NamedInputs, Chains]:
        """Return three values: a reader for sequences like X, the inputs of X, and the `Chains` of X.

        chosen : a dict from the names of inputs to pairs (entry, columns). The entry None means the entry with the name
            of the input. The columns are None for all columns, a slice, or a list of indices or names.
        sample_weight : one weight per sequence; names in a sequence of weight 0 are not added to the vocabulary.
        owner : the name of the estimator, for error messages.
        """
        readers: dict[str | None, SequenceReader] = {}
        tables: dict[str | None, Inputs] = {}
        chains: dict[str | None, Chains] = {}
        for entry, part in open_entries(X, chosen, lengths).items():
            with named_entry(entry):
                hashed = hash_features if open_sequences(part, lengths)[2] == "dicts" else None
                reading = SequenceReader.fit(part, lengths, hashed, sample_weight, owner=owner)
            readers[entry], tables[entry], chains[entry] = reading
        reader = cls.of(readers, chosen, hash_features)
        return reader, reader.select_columns(tables), _same_lengths(chains)

    @classmethod
    def of(
        cls,
        readers: Mapping[str | None, SequenceReader],
        chosen: Mapping[str, tuple[str | None, UserData]],
        hash_features: int | None = None,
    ) -> InputsReader:
        """Return a reader of inputs, given the readers of the entries that they read; raise if a column is missing.

        chosen, hash_features : as in `fit`.
        """
        if hash_features is not None and not any(reader.kind == "dicts" for reader in readers.values()):
            raise ValueError(
                f"hash_features={shown(hash_features)} needs feature dicts, but no entry of X has them: pass "
                "hash_features=None"
            )
        of = _entries_by_input(chosen, are_mappings=None not in readers)
        sources = {
            name: Source(of[name], _find_columns(columns, readers[of[name]], name))
            for name, (_, columns) in chosen.items()
        }
        return cls(readers, sources)

    @classmethod
    def of_whole(cls, reader: SequenceReader, names: Iterable[str]) -> InputsReader:
        """Return a reader of sequences that are not mappings; each named input has all columns that `reader` reads."""
        return cls({None: reader}, dict.fromkeys(names, Source(None, None)))

    def extend(
        self, X: UserData, lengths: UserData = None, sample_weight: UserData = None
    ) -> tuple[InputsReader, NamedInputs, Chains]:
        """Return three values: a reader that also knows the feature names of X, the inputs of X, and their `Chains`."""
        self._check_mappings(X, lengths)
        readers: dict[str | None, SequenceReader] = {}
        tables: dict[str | None, Inputs] = {}
        chains: dict[str | None, Chains] = {}
        for entry, part in _entries_of(X, lengths, list(self.entries)).items():
            with named_entry(entry):
                reading = extend_reader(self.entries[entry], part, lengths, sample_weight)
            readers[entry], tables[entry], chains[entry] = reading
        return InputsReader(readers, self.sources), self.select_columns(tables), _same_lengths(chains)

    def with_names(self, names: Mapping[str | None, Iterable[str]]) -> InputsReader:
        """Return a reader that also knows these feature names of entries, in columns after those of the old ones."""
        readers = {entry: add_names(reader, names.get(entry, ())) for entry, reader in self.entries.items()}
        return InputsReader(readers, self.sources)

    def read(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[NamedInputs, Chains]:
        """Return the inputs of X as dense or CSR matrices, and the `Chains` with the rows of each sequence."""
        named, chains = self.read_entries(X, lengths, first)
        plain = {name: x.to_csr() if isinstance(x, Entries) else x for name, x in named.matrices.items()}
        return NamedInputs(plain), chains

    def read_entries(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[NamedInputs, Chains]:
        """Return the same as `read`, but with feature dicts as sparse rows of the type `Entries`."""
        self._check_mappings(X, lengths)
        tables: dict[str | None, Inputs] = {}
        chains: dict[str | None, Chains] = {}
        for entry, part in _entries_of(X, lengths, list(self.entries)).items():
            with named_entry(entry):
                tables[entry], chains[entry] = self.entries[entry].read_entries(part, lengths, first)
        return self.select_columns(tables), _same_lengths(chains)

    def _check_mappings(self, X: UserData, lengths: UserData) -> None:
        were_mappings = None not in self.entries
        if _are_mappings(X, lengths) != were_mappings and not _is_empty(X, lengths):
            expected = (
                f"mappings with the entries {_listed(self.entries)}"
                if were_mappings
                else "sequences that are not mappings"
            )
            raise TypeError(f"X and the X of fit do not have the same form: expected {expected}")

    def select_columns(self, tables: Mapping[str | None, Inputs]) -> NamedInputs:
        """Return the matrix of each input, given the table of each entry."""
        return NamedInputs(
            {
                name: tables[source.entry]
                if source.columns is None
                else take_columns(tables[source.entry], source.columns)
                for name, source in self.sources.items()
            }
        )

    def width(self, name: str) -> int:
        """Return the number of columns of an input."""
        source = self.sources[name]
        return self.entries[source.entry].n_features if source.columns is None else len(source.columns)

    @property
    def widths(self) -> dict[str, int]:
        """Return the number of columns of each input."""
        return {name: self.width(name) for name in self.sources}

    def is_sparse(self, name: str) -> bool:
        """Return whether an input is sparse."""
        return self.entries[self.sources[name].entry].kind != "dense"

    def names_of(self, name: str) -> list[str] | None:
        """Return the names of the columns of an input, or None if they have no names."""
        source = self.sources[name]
        names = self.entries[source.entry].feature_names
        if source.columns is None:
            return names
        return [f"x{c}" if names is None else names[c] for c in source.columns.tolist()]

    @property
    def has_vocabulary(self) -> bool:
        """Return whether an entry has columns for the feature names of the training data."""
        return any(reader.has_vocabulary for reader in self.entries.values())

    @property
    def n_features(self) -> int:
        """Return the number of columns of all entries together."""
        return sum(reader.n_features for reader in self.entries.values())

    @property
    def column_names(self) -> Array | None:
        """Return the names of the columns if sequences were single data frames; otherwise None."""
        return self.entries[None].column_names if None in self.entries else None

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the columns of all inputs, such as "words__the" for the column "the" of "words"."""
        names = {name: self.names_of(name) or [f"x{c}" for c in range(self.width(name))] for name in self.sources}
        return [f"{name}{BETWEEN}{column}" for name, columns in names.items() for column in columns]

    def to_config(self) -> dict[str, object]:
        """Return the reader as a dict that can be written as JSON; `from_config` reads this dict."""
        return {
            "kind": SEVERAL,
            "entries": [[entry, reader.to_config()] for entry, reader in self.entries.items()],
            "sources": [
                [name, source.entry, None if source.columns is None else source.columns.tolist()]
                for name, source in self.sources.items()
            ],
        }

    @classmethod
    def from_config(cls, config: Mapping[str, UserData], owner: str = OWNER) -> InputsReader:
        """Return the reader whose `to_config` returned `config`; raise if the values in `config` are inconsistent."""
        entries = {entry: SequenceReader.from_config(settings, owner) for entry, settings in config["entries"]}
        return cls(entries, sources_from_config(config, entries))


def reader_from_config(config: Mapping[str, UserData], owner: str = OWNER) -> SequenceReader | InputsReader:
    """Return the reader that a model file describes, for the estimator called `owner`."""
    return (InputsReader if config["kind"] == SEVERAL else SequenceReader).from_config(config, owner)


def _listed(entries: Mapping[str | None, UserData]) -> str:
    return shown_list(list(entries))


def _are_mappings(X: UserData, lengths: UserData) -> bool:
    """Return whether sequences are mappings; if `lengths` is given, whether X is a mapping."""
    if lengths is not None:
        return isinstance(X, Mapping)
    if isinstance(X, Mapping):
        raise TypeError(
            "X is a mapping: expected a list with one mapping per sequence, such as "
            '[{"words": ..., "vectors": ...}, ...]; if X has the tokens of all sequences, pass lengths= as well'
        )
    opened = read_container(X, "X", "a list of sequences, each a mapping from names to arrays or feature dicts")
    return isinstance(opened, list) and any(isinstance(x, Mapping) for x in opened)


def _entries_by_input(
    chosen: Mapping[str, tuple[str | None, UserData]], *, are_mappings: bool
) -> dict[str, str | None]:
    """Return a dict from names of inputs to the entries that they read; they are None if sequences are no mappings."""
    return {name: (entry or name) if are_mappings else None for name, (entry, _) in chosen.items()}


def open_entries(
    X: UserData, chosen: Mapping[str, tuple[str | None, UserData]], lengths: UserData = None
) -> dict[str | None, UserData]:
    """Return a dict from each entry that an input reads to its part of X; {None: X} if sequences are not mappings.

    chosen : the inputs, as in `InputsReader.fit`.
    """
    are_mappings = _are_mappings(X, lengths)
    if not are_mappings:
        for name, (entry, _) in chosen.items():
            if entry is not None:
                raise ValueError(
                    f"inputs[{name!r}] has of={entry!r}, but the sequences of X are not mappings: expected "
                    f"mappings such as {{{entry!r}: an array}}; pass of=None if the input reads the whole sequence"
                )
    of = _entries_by_input(chosen, are_mappings=are_mappings)
    return _entries_of(X, lengths, list(dict.fromkeys(of.values())))


def open_chains(
    X: UserData,
    lengths: UserData = None,
    first: int = 0,
    chosen: Mapping[str, tuple[str | None, UserData]] | None = None,
) -> Chains:
    """Return the `Chains` of sequences, whose numbers begin with `first`.

    chosen : the inputs, as in `InputsReader.fit`, if sequences have several inputs; else None. The `Chains` are then
        those of the first entry.
    """
    part = X if chosen is None else next(iter(open_entries(X, chosen, lengths).values()))
    return open_sequences(part, lengths, first)[1]


def _is_empty(X: UserData, lengths: UserData) -> bool:
    return lengths is None and len(X) == 0


def _entries_of(X: UserData, lengths: UserData, entries: list[str | None]) -> dict[str | None, UserData]:
    """Return a dict from each entry to its part of X; if sequences are not mappings, return {None: X}."""
    if entries == [None]:
        return {None: X}
    if lengths is not None:
        return {entry: _entry(X, "X", entry) for entry in entries}
    opened = read_container(X, "X")
    return {entry: [_entry(x, f"X[{i}]", entry) for i, x in enumerate(opened)] for entry in entries}


def _entry(x: UserData, place: str, entry: str | None) -> UserData:
    if not isinstance(x, Mapping):
        raise TypeError(f"{place} is of type {type(x).__name__}: expected a mapping with an entry {entry!r}")
    if entry not in x:
        raise ValueError(f"{place} has the entries {_listed(x)}: expected an entry {entry!r}, which an input reads")
    return x[entry]


@contextmanager
def named_entry(entry: str | None) -> Iterator[None]:
    """Put the name of an entry, if it has one, in front of the messages of errors in a `with` block."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if entry is None or type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(f"entry {entry!r}: {error}") from None


def _same_lengths(chains: Mapping[str | None, Chains]) -> Chains:
    """Return the `Chains` that all entries share; raise if the entries of a sequence have different lengths."""
    (first, first_chains), *others = chains.items()
    for entry, entry_chains in others:
        differ = np.flatnonzero(entry_chains.lengths != first_chains.lengths)
        if len(differ):
            i = int(differ[0])
            raise ValueError(
                f"X[{first_chains.number(i)}] has {first_chains.lengths[i]} token(s) in {first!r} and "
                f"{entry_chains.lengths[i]} in {entry!r}: "
                "expected one row per token in every entry"
            )
    return first_chains


def _find_columns(columns: UserData, reader: SequenceReader, name: str) -> Places | None:
    """Return the indices of the columns that an input reads, or None if it reads all columns.

    columns : None, a slice, or a list of indices or names.
    """
    if columns is None:
        return None
    expected = f"a slice, or a list of indices from 0 to {reader.n_features - 1}"
    if reader.kind == "dicts":
        raise ValueError(
            f"inputs[{name!r}] has columns={shown(columns)}, but its entry has feature dicts, which have no columns: "
            "pass columns=None, and put the features of each input into an entry of its own"
        )
    known = [] if reader.column_names is None else reader.column_names.tolist()
    if isinstance(columns, slice):
        places = np.arange(reader.n_features)[columns]
    else:
        listed = [columns] if isinstance(columns, str) else list(columns)
        at = {column: c for c, column in enumerate(known)}
        for c in listed:
            if is_whole(c) and at.get(c, c) != c:
                raise ValueError(
                    f"inputs[{name!r}] has the column {c}, which may mean the column at position {c}, or the column "
                    f"with this name at position {at[c]}: rename the columns of X to strings"
                )
        indices = [at.get(c, -1) if isinstance(c, str) else c if is_whole(c) else -1 for c in listed]
        wrong = [c for c, k in zip(listed, indices, strict=True) if not 0 <= k < reader.n_features]
        if wrong:
            expected += f", or of the names {shown_list(known)}" if known else ", because X has no column names"
            raise ValueError(f"inputs[{name!r}] has the column {shown(wrong[0])}: expected {expected}")
        places = np.array(indices)
    if not len(places):
        raise ValueError(f"inputs[{name!r}] has columns={shown(columns)}, which selects no column: expected {expected}")
    return places.astype(np.intp)
