"""Read sequences: convert the tokens of all sequences to one matrix with one row per token.

The rows of each sequence are given by an object of type `Chains`. X has one of these kinds:

    "dense"     a list of arrays with one row per token; float32 stays float32, integers and booleans become float64
    "sparse"    a list of SciPy matrices with one row per token
    "dicts"     a list of lists of tokens; each token is a feature dict, or a list of feature names

Data of each kind may also be flat: X then contains the tokens of all sequences one after the other, and `lengths=` has
the number of tokens of each sequence. Any container that `kernelcrf.readers.containers` reads is accepted, and a
sequence may be empty. `read` accepts only data of the same kind and with the same columns as the data passed to `fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from numbers import Number

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, DType, Flags, Inputs, UserData, advise_finite, as_writable, is_sparse
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.columns import match_columns, names_as_text, names_to_config, read_columns
from kernelcrf.readers.containers import is_collection, is_frame, read_container, read_lengths, read_matrices
from kernelcrf.readers.feature_dicts import NamedTokens
from kernelcrf.readers.feature_items import COLLECTIONS
from kernelcrf.readers.stored_inputs import WORDS, Kind, columns_from_config
from kernelcrf.readers.vocabulary import Vocabulary
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown

OWNER = "ChainCRF"
NOT_STRINGS = (
    'expected the token\'s features; write a dict such as {"word": "the", "upper": False}, or a list of feature names '
    'such as ["word:the"]'
)


@dataclass(frozen=True)
class SequenceReader:
    """Reads sequences of the same kind and with the same columns as the sequences passed to `fit`.

    kind : "dense", "sparse" or "dicts".
    vectorizer : converts feature dicts to rows of numbers; None for other kinds.
    column_names : the names of the columns if `fit` was given data frames; otherwise None.
    owner : the name of the estimator, for error messages.
    """

    kind: Kind
    n_features: int
    vectorizer: feature_dicts.Vectorizer | None = None
    column_names: Array | None = None
    owner: str = OWNER

    @classmethod
    def fit(
        cls,
        X: UserData,
        lengths: UserData = None,
        hash_features: int | None = None,
        sample_weight: UserData = None,
        first: int = 0,
        owner: str = OWNER,
    ) -> tuple[SequenceReader, Inputs, Chains]:
        """Return three values: a reader for sequences like X, the tokens of X as a matrix, and the `Chains` of X.

        The `Chains` say which rows of the matrix belong to each sequence.

        sample_weight : one weight per sequence; names in a sequence of weight 0 are not added to the vocabulary.
        first : the number of the first sequence in the user's data, for error messages.
        """
        parts, chains, kind = open_sequences(X, lengths, first)
        names = None
        if chains.n_samples == 0:
            raise ValueError("X has no sequences: expected at least one sequence")
        if kind is None or chains.n_nodes == 0:
            raise ValueError(f"X has {chains.n_samples} sequence(s) and no token: expected at least one token to fit")
        if kind == "dicts":
            tokens = all_tokens(parts)
            vectorizer: feature_dicts.Vectorizer | None
            if hash_features is not None:
                vectorizer = feature_dicts.new_hasher(hash_features)
                entries = feature_dicts.vectorize(tokens, vectorizer, chains.place)
            else:
                kept = weighted_tokens(chains, sample_weight)
                vectorizer, entries = feature_dicts.learn(tokens, place=chains.place, kept=kept)
            flat = entries.to_csr(reuse=True)
        elif hash_features is not None:
            raise ValueError(
                f"hash_features={shown(hash_features)} needs feature dicts, but X has {WORDS[kind]}: "
                "pass hash_features=None"
            )
        else:
            place = _placing(chains, lengths)
            parts, names = read_columns(owner, parts, place)
            vectorizer, flat = None, _stack(parts, chains, place, names)
        if flat.shape[1] == 0:
            raise ValueError(f"X has 0 feature(s) (shape={flat.shape}) while a minimum of 1 is required.")
        return cls(kind, flat.shape[1], vectorizer, names, owner), flat, chains

    def read(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[Inputs, Chains]:
        """Return the tokens of X as a dense or CSR matrix, and the `Chains` with the rows of each sequence.

        Features that `fit` did not see are left out.
        """
        flat, chains = self.read_entries(X, lengths, first)
        return (flat.to_csr() if isinstance(flat, Entries) else flat), chains

    def read_entries(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[Inputs | Entries, Chains]:
        """Return the same as `read`, but with feature dicts as sparse rows of the type `Entries`.

        Making `Entries` is faster than making a CSR matrix. If `lengths` is given, X may already be of this type.
        """
        if lengths is None and type(X) is list and len(X) == 1:
            entries = self.look_up(X[0], zeros=True)
            if entries is not None:
                return entries, _number_chains([len(X[0])], first)
            if self._is_readable(X[0]):
                return X[0], _number_chains([len(X[0])], first)
        parts, chains, kind = open_sequences(X, lengths, first)
        if kind is None or chains.n_nodes == 0:
            none = np.empty((0, self.n_features))
            return (none if self.kind == "dense" else sp.csr_array(none)), chains
        if kind != self.kind:
            raise TypeError(
                f"X has {WORDS[kind]}, but fit was given {WORDS[self.kind]}: expected {WORDS[self.kind]}; "
                f"{_advise(kind, self.kind)}"
            )
        if isinstance(X, Entries):
            flat: Inputs | Entries = X
        elif self.vectorizer is not None:
            flat = feature_dicts.vectorize(all_tokens(parts), self.vectorizer, chains.place)
        else:
            place = _placing(chains, lengths)
            parts = match_columns(self.owner, parts, place, self.column_names)
            flat = _stack(parts, chains, place, self.column_names)
        if flat.shape[1] != self.n_features:
            raise ValueError(
                f"X has {flat.shape[1]} features, but {self.owner} is expecting {self.n_features} features as input, "
                "the same columns as in fit"
            )
        return flat, chains

    def _is_readable(self, x: UserData) -> bool:
        """Return whether a sequence is an array of finite numbers that needs no conversion, and has no column names."""
        is_array = self.kind == "dense" and self.column_names is None and type(x) is np.ndarray and x.ndim == 2
        if (
            not is_array
            or x.dtype != np.float64
            or x.shape[1] != self.n_features
            or not x.flags.writeable
            or not x.size
        ):
            return False
        return bool(np.isfinite(x.min()) and np.isfinite(x.max()))

    def look_up(self, x: UserData, *, zeros: bool) -> Entries | None:
        """Compute the features of one sequence in a fast way; return None if only `read_entries` can compute them.

        The fast way needs a vocabulary, and an ordinary list of feature dicts or of lists of feature names.

        zeros : whether to keep features whose value is 0; they do not change scores.
        """
        if type(x) is not list or not isinstance(self.vectorizer, Vocabulary):
            return None
        return feature_dicts.look_up(x, self.vectorizer, zeros=zeros)

    def width(self, name: str) -> int:
        """Return the number of columns. There is only one input, so `name` is ignored."""
        return self.n_features

    def is_sparse(self, name: str) -> bool:
        """Return whether the rows are sparse."""
        return self.kind != "dense"

    def names_of(self, name: str) -> list[str] | None:
        """Return the names of the columns, or None if they have no names."""
        return self.feature_names

    @property
    def vocabulary(self) -> Mapping[str, int] | None:
        """Return a mapping from feature names to columns, or None if there is no vocabulary."""
        return self.vectorizer.columns if isinstance(self.vectorizer, Vocabulary) else None

    @property
    def has_vocabulary(self) -> bool:
        """Return whether there are columns for the feature names of the training data."""
        return isinstance(self.vectorizer, Vocabulary)

    @property
    def feature_names(self) -> list[str] | None:
        """Return the column names as text, from the vocabulary or from data frames; None if columns have no names."""
        if isinstance(self.vectorizer, Vocabulary):
            return list(self.vectorizer.names)
        return names_as_text(self.column_names)

    def to_config(self) -> dict[str, object]:
        """Return the reader as a dict that can be written as JSON; `from_config` reads this dict."""
        config: dict[str, object] = {"kind": self.kind, "n_features": self.n_features}
        if self.column_names is not None:
            config["feature_names"] = names_to_config(self.column_names)
        if isinstance(self.vectorizer, Vocabulary):
            config |= {"feature_names": list(self.vectorizer.names), "separator": self.vectorizer.separator}
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, UserData], owner: str = OWNER) -> SequenceReader:
        """Return the reader whose `to_config` returned `config`; raise if the values in `config` are inconsistent."""
        kind, n_features, names, separator, _ = columns_from_config(config)
        if kind != "dicts":
            return cls(kind, n_features, None, names, owner)
        if names is None:
            return cls(kind, n_features, feature_dicts.new_hasher(n_features), owner=owner)
        vectorizer = Vocabulary(names.tolist(), separator)
        return cls(kind, n_features, vectorizer, owner=owner)


def weighted_tokens(chains: Chains, sample_weight: UserData) -> Flags | None:
    """Return flags of the tokens of sequences whose weight is above 0, or None if there are no weights."""
    weights = read_weights(sample_weight, chains.n_samples, "sequence", part=True)
    return None if weights is None else np.repeat(weights > 0, chains.lengths)


def open_sequences(
    X: UserData, lengths: UserData = None, first: int = 0
) -> tuple[Sequence[UserData], Chains, Kind | None]:
    """Return the sequences as a list, the `Chains` with their lengths, and their kind.

    The kind is "dense", "sparse" or "dicts", or None if there are no tokens. If `lengths` is given, X contains the
    tokens of all sequences, and the list has X as its only entry. Error messages number the sequences from `first` on.
    """
    if lengths is not None:
        if not isinstance(X, NamedTokens | Entries):
            X = read_container(X, "X", "the tokens of all sequences one after the other, because lengths= is given")
        sizes = read_lengths(lengths)
        n_nodes = X.shape[0] if hasattr(X, "shape") else len(X)
        if sizes.sum() != n_nodes:
            raise ValueError(
                f"lengths sums to {sizes.sum()} and X has {n_nodes} tokens: expected equal numbers, because with "
                "lengths= X holds the tokens of all sequences; omit lengths= if X is a list of sequences"
            )
        return [X], _number_chains(sizes, first), _find_kind(X, "X") if n_nodes else None
    if isinstance(X, NamedTokens | Entries):
        raise ValueError(
            f"X is of type {type(X).__name__}, which contains the tokens of all sequences: expected lengths= as well, "
            "with the number of tokens of each sequence"
        )
    opened = read_container(X, "X", "a list of sequences, or flat tokens with lengths=")
    dimensions = 1 if type(opened) is list else opened.ndim if isinstance(opened, np.ndarray) else 2
    if dimensions not in (1, 3) and not (dimensions == 2 and _holds_tokens(opened)):
        raise ValueError(
            f"X is one {type(X).__name__} of {dimensions} dimensions, shape {opened.shape}: expected a list of "
            "sequences; pass [X] if X is a single sequence, or lengths= to cut it into several"
            + ("; kernelcrf.from_frame cuts a data frame by a column" if is_frame(opened) else "")
        )
    sequences = [_open(x, first + i) for i, x in enumerate(opened)]
    kinds = [_find_kind(sequence, f"X[{first + i}]") for i, sequence in enumerate(sequences)]
    seen = [kind for kind in dict.fromkeys(kinds) if kind is not None]
    if len(seen) > 1:
        one, other, *_ = seen
        raise TypeError(
            f"X[{first + kinds.index(one)}] has {WORDS[one]} and X[{first + kinds.index(other)}] has {WORDS[other]}: "
            f"expected one kind for all sequences; {_advise(other, one)}"
        )
    counts = [sequence.shape[0] if hasattr(sequence, "shape") else len(sequence) for sequence in sequences]
    return sequences, _number_chains(counts, first), seen[0] if seen else None


def _find_kind(sequence: UserData, name: str) -> Kind | None:
    """Return the kind of a sequence ("dense", "sparse" or "dicts"), or None if the sequence has no tokens.

    Raise if `sequence` is not a sequence of tokens; `name` is its name in the error message.
    """
    # Comparing the type is fast, and settles most sequences; isinstance with Mapping and Number is slow.
    first = sequence[0] if type(sequence) is list and sequence else None
    plain = (type(first) is dict and first) or (type(first) is list and first and type(first[0]) is str)
    if plain or isinstance(sequence, NamedTokens | Entries):
        return "dicts"
    if isinstance(sequence, np.ndarray) and sequence.ndim == 0:
        sequence = sequence.item()
    if isinstance(sequence, np.ndarray) and sequence.dtype != object and sequence.dtype.kind not in "US":
        return "dense" if sequence.shape[0] or sequence.ndim > 1 else None
    if is_sparse(sequence):
        return "sparse"
    if isinstance(sequence, Mapping):
        raise TypeError(
            f"{name} is a feature dict: expected a sequence of tokens; pass lengths= with a flat list of dicts, or [X] "
            "for a single sequence"
        )
    if isinstance(sequence, str | bytes):
        raise TypeError(f"{name} is the string {shown(sequence)}: {NOT_STRINGS}")
    if isinstance(sequence, Number):
        raise ValueError(
            f"{name} is the number {shown(sequence)}: expected a sequence of tokens, such as an array with one row per "
            "token. Reshape your data: pass [X.reshape(-1, 1)] if X is a single sequence with one number per token"
        )
    if is_frame(sequence):
        return "dense"
    filled = (token for token in sequence if is_sparse(token) or not (isinstance(token, Sized) and len(token) == 0))
    token = next(filled, None)
    if token is None:
        return "dicts" if len(sequence) else None
    if is_sparse(token):
        return "sparse"
    if isinstance(token, Mapping) or (isinstance(token, COLLECTIONS) and isinstance(next(iter(token)), str)):
        return "dicts"
    if isinstance(token, list | tuple) and any(isinstance(value, Mapping) for value in token):
        raise TypeError(
            f"{name} has a list of feature dicts in the place of a token: expected feature dicts. Remove one list "
            "around them"
        )
    if isinstance(token, str | bytes):
        raise TypeError(f"{name} has the string {shown(token)} as a token: {NOT_STRINGS}")
    return "dense"


def _advise(passed: Kind, expected: Kind) -> str:
    """Return advice for error messages: how to convert sequences of the kind `passed` to the kind `expected`."""
    if expected == "dicts":
        return 'to pass numbers, make a dict such as {"x0": 1.5} for each token'
    if passed == "dicts":
        return "sklearn.feature_extraction.DictVectorizer converts dicts to matrices"
    return f"{'scipy.sparse.csr_array(x)' if expected == 'sparse' else 'x.toarray()'} converts a sequence x"


def _open(x: UserData, number: int) -> UserData:
    """Convert a sequence to a list, an array, a sparse matrix or a frame; return x itself if it is not a container."""
    # Most sequences are lists or arrays of floats, and there may be millions of them.
    if type(x) is list or (type(x) is np.ndarray and x.dtype.kind == "f") or not is_collection(x):
        return x
    return read_container(x, f"X[{number}]")


def _number_chains(sizes: Sequence[int] | Array, first: int) -> Chains:
    chains = Chains.from_lengths(sizes)
    return Chains(chains.offsets, np.arange(first, first + len(sizes))) if first else chains


def _placing(chains: Chains, lengths: UserData) -> Callable[[int], str]:
    """Return a function that maps the index of a sequence to its name in error messages.

    The name is "X[i]" for sequence i, or "X" if `lengths` is given.
    """
    return lambda i: f"X[{chains.number(i)}]" if lengths is None else "X"


def _holds_tokens(table: UserData) -> bool:
    """Return whether the entries of a NumPy array are tokens: feature dicts, or lists of feature names.

    NumPy makes such an array from a list of sequences of equal length.
    """
    held = isinstance(table, np.ndarray) and table.dtype == object and table.size
    return bool(held and isinstance(table.flat[0], (Mapping, *COLLECTIONS)))


def all_tokens(parts: Sequence[UserData]) -> list[UserData] | NamedTokens:
    """Return the tokens of all sequences one after the other."""
    return parts[0] if isinstance(parts[0], NamedTokens) else list(chain.from_iterable(parts))


def _stack(parts: Sequence[UserData], chains: Chains, place: Callable[[int], str], names: Array | None) -> Inputs:
    """Stack sequences into one matrix; raise if they differ in their number of columns or have NaN or infinity.

    place : a function that returns the name of sequence i in error messages.
    names : the column names for error messages, or None.
    """
    forms = {_form(part) for part in parts}
    if len(forms) > 1 or None in forms:
        parts = read_matrices({place(i): part for i, part in enumerate(parts)})
    if is_sparse(parts[0]):
        flat: Inputs = sp.csr_array(sp.vstack(parts, format="csr"))
        flat.sum_duplicates()
    else:
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
    _check_finite(flat, chains, names)
    return as_writable(flat)


def _form(part: UserData) -> tuple[DType, int] | None:
    """Return the dtype and the number of columns of a 2-D array of floats; return None for anything else."""
    if type(part) is np.ndarray and part.ndim == 2 and part.dtype in (np.float32, np.float64):
        return part.dtype, part.shape[1]
    return None


def _check_finite(flat: Inputs, chains: Chains, names: Array | None) -> None:
    values = flat.data if is_sparse(flat) else flat
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    wrong = ~np.isfinite(values)
    rows, columns = (flat.tocoo().row[wrong], flat.indices[wrong]) if is_sparse(flat) else np.nonzero(wrong)
    value, j = values[wrong][0], columns[0]
    column = f"feature {j}" if names is None or j >= len(names) else f"column {names[j]!r}"
    raise ValueError(
        f"X has the value {'NaN' if np.isnan(value) else value} in {chains.place(rows[0])}, {column}: expected finite "
        f"numbers; {advise_finite(value)}"
    )
