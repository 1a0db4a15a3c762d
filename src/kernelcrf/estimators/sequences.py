"""Sequences as users hand them in, stored flat: inputs (N, d) and the `Chains` that say which rows are whose.

X is one of

    a list of (T_i, d) arrays               kind "dense"; float32 stays float32, integers and booleans become float64
    a list of (T_i, d) SciPy matrices       kind "sparse"
    a list of lists of feature dicts        kind "dicts"; each token a dict, or a list of feature names

or the flat form of any of them, all tokens one after the other, with `lengths=` (T_1, ..., T_m), in any container that
`containers` reads. A sequence may be empty. What `fit` saw decides what `read` takes: the same kind, the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from numbers import Number
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer

from kernelcrf.basis.entries import Entries
from kernelcrf.estimators import feature_dicts
from kernelcrf.estimators.containers import is_collection, is_frame, read_container, read_lengths, read_list
from kernelcrf.estimators.matrices import read_matrix
from kernelcrf.estimators.weights import counted_samples
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import Inputs, as_writable, is_sparse
from kernelcrf.validation import shown

Kind: TypeAlias = Literal["dense", "sparse", "dicts"]
Lengths: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]

FLOATS = frozenset(map(np.dtype, (np.float32, np.float64)))
WORDS: dict[Kind, str] = {"dense": "arrays of numbers", "sparse": "sparse matrices", "dicts": "feature dicts"}


@dataclass(frozen=True)
class SequenceReader:
    """Reads sequences of the kind and the columns that `fit` saw; `vectorizer` is that of feature dicts."""

    kind: Kind
    n_features: int
    vectorizer: feature_dicts.Vectorizer | None = None

    @classmethod
    def fit(
        cls,
        X: Any,
        lengths: Lengths | None = None,
        hash_features: int | None = None,
        sample_weight: Any = None,
        first: int = 0,
    ) -> tuple[SequenceReader, Inputs, Chains]:
        """A reader of sequences like X, with X itself: (N, d) dense or CSR, and its chains.

        hash_features : 2**k columns by hashing the names of feature dicts; None keeps a vocabulary of them.
        sample_weight : (m,) or None; a sequence of weight 0 adds no name to the vocabulary.
        first : the number of the first sequence in the user's data, for messages.
        """
        parts, chains, kind = _parts(X, lengths, first)
        if chains.n_samples == 0:
            raise ValueError("X has no sequences: expected at least one")
        if kind is None or chains.n_nodes == 0:
            raise ValueError(f"X has {chains.n_samples} sequence(s) and no token: expected at least one token to fit")
        if kind == "dicts":
            vectorizer, tokens = feature_dicts.new_vectorizer(hash_features), _tokens(parts)
            counted = counted_samples(sample_weight, chains.n_samples, "sequence")
            if counted is None:
                flat = feature_dicts.vectorize(tokens, vectorizer, fit=True).to_csr()
            else:
                own = feature_dicts.only(tokens, np.repeat(counted, chains.lengths))
                feature_dicts.vectorize(own, vectorizer, fit=True)
                flat = feature_dicts.vectorize(tokens, vectorizer, fit=False).to_csr()
        elif hash_features is not None:
            raise ValueError(
                f"hash_features={shown(hash_features)} goes with feature dicts, and X has {WORDS[kind]}: drop it"
            )
        else:
            vectorizer, flat = None, _stacked(parts, chains, lengths is None)
        if flat.shape[1] == 0:
            raise ValueError(f"X has 0 feature(s) (shape={flat.shape}) while a minimum of 1 is required.")
        return cls(kind, flat.shape[1], vectorizer), flat, chains

    def read(self, X: Any, lengths: Lengths | None = None, first: int = 0) -> tuple[Inputs, Chains]:
        """X as (N, d), dense or CSR, and its chains; features of dicts that `fit` did not see are left out.

        first : the number of the first sequence in the user's data, for messages.
        """
        flat, chains = self.read_entries(X, lengths, first)
        return (flat.to_csr() if isinstance(flat, Entries) else flat), chains

    def read_entries(self, X: Any, lengths: Lengths | None = None, first: int = 0) -> tuple[Inputs | Entries, Chains]:
        """The same with feature dicts as the entries they come to, which are enough for a product.

        X may be such entries itself, with lengths: features that were looked up in the reader's vocabulary beforehand.
        """
        if isinstance(X, Entries):
            return self._checked_entries(X, lengths)
        parts, chains, kind = _parts(X, lengths, first)
        if kind is None or chains.n_nodes == 0:
            none = np.empty((0, self.n_features))
            return (none if self.kind == "dense" else sp.csr_array(none)), chains
        if kind != self.kind:
            raise TypeError(
                f"X has {WORDS[kind]}, and fit saw {WORDS[self.kind]}: expected {WORDS[self.kind]}; "
                f"{_way_out(kind, self.kind)}"
            )
        if self.vectorizer is not None:
            return feature_dicts.vectorize(_tokens(parts), self.vectorizer, fit=False), chains
        flat = _stacked(parts, chains, lengths is None)
        if flat.shape[1] != self.n_features:
            raise ValueError(
                f"X has {flat.shape[1]} features, but ChainCRF is expecting {self.n_features} features as input: "
                "the columns that fit saw"
            )
        return flat, chains

    def _checked_entries(self, X: Entries, lengths: Lengths | None) -> tuple[Entries, Chains]:
        if self.kind != "dicts" or X.d != self.n_features or lengths is None:
            raise ValueError(
                f"X has entries of {X.d} columns, lengths={shown(lengths)}: expected a reader of feature dicts with as "
                f"many columns, which has {self.n_features} of {WORDS[self.kind]}, and the lengths of the sequences"
            )
        chains = Chains.from_lengths(read_lengths(lengths))
        if chains.n_nodes != X.shape[0]:
            raise ValueError(f"lengths sums to {chains.n_nodes} and X has {X.shape[0]} tokens: expected the same")
        return X, chains

    @property
    def vocabulary(self) -> Mapping[str, int] | None:
        """The columns by name, where feature dicts gave them a vocabulary."""
        return self.vectorizer.vocabulary_ if isinstance(self.vectorizer, DictVectorizer) else None

    @property
    def feature_names(self) -> list[str] | None:
        """The columns' names, where feature dicts gave them a vocabulary."""
        return list(self.vectorizer.feature_names_) if isinstance(self.vectorizer, DictVectorizer) else None

    def to_config(self) -> dict[str, Any]:
        """The reader as JSON-able values; `from_config` reads it."""
        config: dict[str, Any] = {"kind": self.kind, "n_features": self.n_features}
        if isinstance(self.vectorizer, DictVectorizer):
            config["feature_names"] = self.feature_names
            config["separator"] = self.vectorizer.separator
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SequenceReader:
        """The reader that `to_config` described; raises where the description does not hold together."""
        kind, n_features, names = config["kind"], config["n_features"], config.get("feature_names")
        if kind not in WORDS or not isinstance(n_features, int) or n_features < 1:
            raise ValueError(
                f"config has kind={shown(kind)} and n_features={shown(n_features)}: expected one of "
                f"{', '.join(WORDS)} and a positive integer, as to_config writes them"
            )
        if kind != "dicts":
            return cls(kind, n_features)
        if names is None:
            return cls(kind, n_features, feature_dicts.new_vectorizer(n_features))
        separator: Any = config.get("separator")
        strings = isinstance(names, list) and all(isinstance(name, str) for name in [*names, separator])
        if not strings or len(set(names)) != len(names) or len(names) != n_features:
            raise ValueError(
                f"config has feature_names that are not {n_features} distinct strings with a separator: expected them "
                "as to_config writes them"
            )
        return cls(kind, n_features, feature_dicts.restored(names, separator))


def kind_of(X: Any, lengths: Lengths | None = None, first: int = 0) -> tuple[Kind | None, Chains]:
    """The kind of sequences, None where they have no tokens, and their chains."""
    _, chains, kind = _parts(X, lengths, first)
    return kind, chains


def _parts(X: Any, lengths: Lengths | None, first: int = 0) -> tuple[Sequence[Any], Chains, Kind | None]:
    """The sequences, or the one flat run of tokens where lengths are given; their chains and kind."""
    if isinstance(X, feature_dicts.NamedTokens):
        if lengths is None:
            raise ValueError("X has tokens with features by name, one after the other: expected lengths= with them")
        return [X], _numbered(read_lengths(lengths), first), "dicts" if len(X) else None
    if lengths is not None:
        return _flat_parts(X, lengths, first)
    expected = "a list of sequences, or flat tokens with lengths="
    opened = read_container(X, "X", expected)
    dimensions = (
        np.ndim(opened) if isinstance(opened, np.ndarray) else 2 if is_sparse(opened) or is_frame(opened) else 1
    )
    if dimensions not in (1, 3) and not (dimensions == 2 and _holds_tokens(opened)):
        raise ValueError(
            f"X is one {type(X).__name__} of {dimensions} dimensions, shape {opened.shape}: expected a list of (T, d) "
            "arrays; [X] is a single sequence, lengths= cuts it into several"
        )
    X = [_opened(x, first + i) for i, x in enumerate(read_list(opened, "X"))]
    kinds = [_kind(sequence, f"X[{first + i}]") for i, sequence in enumerate(X)]
    seen = [kind for kind in dict.fromkeys(kinds) if kind is not None]
    if len(seen) > 1:
        (one, i), (other, j), *_ = [(kind, first + kinds.index(kind)) for kind in seen]
        raise TypeError(
            f"X[{i}] has {WORDS[one]} and X[{j}] has {WORDS[other]}: expected one kind for all sequences; "
            + _way_out(other, one)
        )
    sizes = [sequence.shape[0] if is_sparse(sequence) else len(sequence) for sequence in X]
    return X, _numbered(sizes, first), next(iter(seen), None)


def _opened(x: Any, number: int) -> Any:
    """A sequence as a list, an array, a sparse matrix or a frame; what is no container is named by `_kind`."""
    # Most sequences are lists or arrays of floats, and there may be millions of them.
    if type(x) is list or (type(x) is np.ndarray and x.dtype.kind == "f") or not is_collection(x):
        return x
    return read_container(x, f"X[{number}]")


def _flat_parts(X: Any, lengths: Lengths, first: int) -> tuple[Sequence[Any], Chains, Kind | None]:
    X = read_container(X, "X", "all tokens one after the other, as lengths= is given")
    sizes = read_lengths(lengths)
    n_nodes = X.shape[0] if hasattr(X, "shape") else len(X)
    if sizes.sum() != n_nodes:
        raise ValueError(
            f"lengths sums to {sizes.sum()} and X has {n_nodes} tokens: expected the same; X is flat where lengths "
            "are given, all tokens one after the other; drop lengths= for a list of sequences"
        )
    return [X], _numbered(sizes, first), _kind(X, "X") if n_nodes else None


def _numbered(sizes: Lengths, first: int) -> Chains:
    """Chains of these sizes, numbered from `first` on."""
    chains = Chains.from_lengths(sizes)
    return Chains(chains.offsets, np.arange(first, first + len(sizes))) if first else chains


def _holds_tokens(table: Any) -> bool:
    """Whether a (m, T) array holds feature dicts, or lists of names: NumPy makes one of sequences of one length."""
    held = isinstance(table, np.ndarray) and table.dtype == object and table.size
    return bool(held and isinstance(table.flat[0], (Mapping, *feature_dicts.COLLECTIONS)))


def _kind(sequence: Any, name: str) -> Kind | None:
    """The kind of one sequence, None where it has no tokens."""
    # Asking for types first spares most sequences the slow questions whether they are a Mapping or a Number.
    first = sequence[0] if type(sequence) is list and sequence else None
    if (type(first) is dict and first) or (type(first) is list and first and type(first[0]) is str):
        return "dicts"
    if isinstance(sequence, np.ndarray) and sequence.ndim == 0:
        sequence = sequence.item()
    if isinstance(sequence, np.ndarray) and sequence.dtype != object and sequence.dtype.kind not in "US":
        return "dense" if sequence.shape[0] or sequence.ndim > 1 else None
    if is_sparse(sequence):
        return "sparse"
    if isinstance(sequence, Mapping):
        raise TypeError(
            f"{name} is a feature dict where a sequence of tokens is expected: "
            "a flat list of dicts goes with lengths=, [X] is a single sequence"
        )
    if isinstance(sequence, str | bytes):
        raise TypeError(_strings(f"{name} is the string {shown(sequence)}"))
    if isinstance(sequence, Number):
        raise ValueError(
            f"{name} is the number {shown(sequence)}: expected a sequence of tokens, such as a (T, d) array. "
            "Reshape your data: [X.reshape(-1, 1)] is a single sequence with one number a token"
        )
    if is_frame(sequence):
        return "dense"
    token = next(
        (token for token in sequence if is_sparse(token) or not (isinstance(token, Sized) and len(token) == 0)), None
    )
    if token is None:
        return "dicts" if len(sequence) else None
    if is_sparse(token):
        return "sparse"
    if isinstance(token, Mapping) or (
        isinstance(token, feature_dicts.COLLECTIONS) and isinstance(next(iter(token)), str)
    ):
        return "dicts"
    if isinstance(token, str | bytes):
        raise TypeError(_strings(f"{name} has the string {shown(token)} as a token"))
    return "dense"


def _strings(what: str) -> str:
    return (
        f"{what}: expected the token's features; "
        'write a dict such as {"word": "the", "upper": False}, or a list of feature names such as ["word=the"]'
    )


def _way_out(came: str, expected: str) -> str:
    if came == "dense" and expected == "sparse":
        return "scipy.sparse.csr_array(x) makes one of each array"
    if came == "sparse" and expected == "dense":
        return "x.toarray() makes one of each matrix"
    if expected == "dicts":
        return 'a dict such as {"x0": 1.5} for each token carries numbers too'
    return "sklearn.feature_extraction.DictVectorizer makes matrices of dicts"


def _tokens(parts: Sequence[Any]) -> list[Any] | feature_dicts.NamedTokens:
    if len(parts) == 1 and isinstance(parts[0], feature_dicts.NamedTokens):
        return parts[0]
    return list(chain.from_iterable(parts))


def _stacked(parts: Sequence[Any], chains: Chains, cut: bool) -> Inputs:
    """The sequences under each other as (N, d), checked; there is at least one token."""
    if len({_form(part) for part in parts}) == 1 and _form(parts[0]) is not None:
        flat: Inputs = as_writable(parts[0]) if len(parts) == 1 else np.concatenate(parts)
        _check_finite(flat, chains)
        return flat
    names = [f"X[{chains.number(i)}]" if cut else "X" for i in range(len(parts))]
    filled = [(name, part) for name, part in zip(names, parts, strict=True) if is_sparse(part) or len(part)]
    arrays = [read_matrix(part, name) for name, part in filled]
    width = arrays[0].shape[1]
    for (name, _), array in zip(filled, arrays, strict=True):
        if array.shape[1] != width:
            raise ValueError(
                f"{name} has {array.shape[1]} features and {filled[0][0]} has {width}: "
                "expected the same number in every sequence"
            )
    if is_sparse(arrays[0]):
        flat = sp.csr_array(sp.vstack(arrays, format="csr"))
        if not flat.has_canonical_format:
            flat = flat.copy()
            flat.sum_duplicates()
    else:
        flat = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    _check_finite(flat, chains)
    return as_writable(flat)


def _form(part: Any) -> tuple[np.dtype[Any], int] | None:
    """The dtype and the width of a (T, d) array of floats, None of anything else."""
    if type(part) is np.ndarray and part.ndim == 2 and part.dtype in FLOATS:
        return part.dtype, part.shape[1]
    return None


def _check_finite(flat: Inputs, chains: Chains) -> None:
    values = flat.data if is_sparse(flat) else flat
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    place = np.argwhere(~np.isfinite(values))[0]
    row = int(np.searchsorted(flat.indptr, place[0], side="right")) - 1 if is_sparse(flat) else int(place[0])
    column = int(flat.indices[place[0]]) if is_sparse(flat) else int(place[1])
    value = "NaN" if np.isnan(values[tuple(place)]) else values[tuple(place)]
    raise ValueError(
        f"X has the value {value} in {chains.place(row)}, feature {column}: expected finite numbers; "
        "sklearn.impute.SimpleImputer fills in missing ones"
    )
