"""Sequences as users hand them in, stored flat: inputs (N, d) and the `Chains` that say which rows belong to which.

The kinds of sequences are listed in `sequence_kinds`. What `fit` saw decides what `read` accepts: the same kind and the
same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer

from kernelcrf.arrays import DType, Inputs, UserData, as_writable, is_sparse
from kernelcrf.basis.entries import Entries
from kernelcrf.graphs.structure import Chains
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.containers import read_lengths
from kernelcrf.readers.matrices import read_matrix
from kernelcrf.readers.sequence_kinds import WORDS, Kind, advise, open_sequences
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown

FLOATS = frozenset(map(np.dtype, (np.float32, np.float64)))


@dataclass(frozen=True)
class SequenceReader:
    """Reads sequences of the kind and the columns that `fit` saw; `vectorizer` is that of feature dicts."""

    kind: Kind
    n_features: int
    vectorizer: feature_dicts.Vectorizer | None = None

    @classmethod
    def fit(
        cls,
        X: UserData,
        lengths: UserData = None,
        hash_features: int | None = None,
        sample_weight: UserData = None,
        first: int = 0,
    ) -> tuple[SequenceReader, Inputs, Chains]:
        """Return a reader of sequences like X, and X itself: (N, d) dense or CSR, and its chains.

        hash_features : 2**k columns by hashing the names of feature dicts; None keeps a vocabulary of them.
        sample_weight : (m,) or None; a sequence of weight 0 adds no name to the vocabulary.
        first : the number of the first sequence in the user's data, for messages.
        """
        parts, chains, kind = open_sequences(X, lengths, first)
        if chains.n_samples == 0:
            raise ValueError("X has no sequences: expected at least one")
        if kind is None or chains.n_nodes == 0:
            raise ValueError(f"X has {chains.n_samples} sequence(s) and no token: expected at least one token to fit")
        if kind == "dicts":
            vectorizer, tokens = feature_dicts.new_vectorizer(hash_features), _tokens(parts)
            weights = read_weights(sample_weight, chains.n_samples, "sequence", part=True)
            if weights is not None and not weights.all():
                own = feature_dicts.keep_tokens(tokens, np.repeat(weights > 0, chains.lengths))
                feature_dicts.vectorize(own, vectorizer, fit=True)
            flat = feature_dicts.vectorize(tokens, vectorizer, fit=weights is None or bool(weights.all())).to_csr()
        elif hash_features is not None:
            raise ValueError(
                f"hash_features={shown(hash_features)} goes with feature dicts, and X has {WORDS[kind]}: drop it"
            )
        else:
            vectorizer, flat = None, _stack(parts, chains, lengths is None)
        if flat.shape[1] == 0:
            raise ValueError(f"X has 0 feature(s) (shape={flat.shape}) while a minimum of 1 is required.")
        return cls(kind, flat.shape[1], vectorizer), flat, chains

    def read(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[Inputs, Chains]:
        """Return X as (N, d), dense or CSR, and its chains; features of dicts that `fit` did not see are left out.

        first : the number of the first sequence in the user's data, for messages.
        """
        flat, chains = self.read_entries(X, lengths, first)
        return (flat.to_csr() if isinstance(flat, Entries) else flat), chains

    def read_entries(self, X: UserData, lengths: UserData = None, first: int = 0) -> tuple[Inputs | Entries, Chains]:
        """Return the same with feature dicts as Entries, which are enough for a product.

        X may be Entries itself, with lengths: features that were looked up in the reader's vocabulary beforehand.
        """
        if isinstance(X, Entries):
            return self._check_entries(X, lengths)
        parts, chains, kind = open_sequences(X, lengths, first)
        if kind is None or chains.n_nodes == 0:
            none = np.empty((0, self.n_features))
            return (none if self.kind == "dense" else sp.csr_array(none)), chains
        if kind != self.kind:
            raise TypeError(
                f"X has {WORDS[kind]}, and fit saw {WORDS[self.kind]}: expected {WORDS[self.kind]}; "
                f"{advise(kind, self.kind)}"
            )
        if self.vectorizer is not None:
            return feature_dicts.vectorize(_tokens(parts), self.vectorizer, fit=False), chains
        flat = _stack(parts, chains, lengths is None)
        if flat.shape[1] != self.n_features:
            raise ValueError(
                f"X has {flat.shape[1]} features, but ChainCRF is expecting {self.n_features} features as input: "
                "the columns that fit saw"
            )
        return flat, chains

    def _check_entries(self, X: Entries, lengths: UserData) -> tuple[Entries, Chains]:
        if self.kind != "dicts" or X.d != self.n_features or lengths is None:
            raise ValueError(
                f"X has entries of {X.d} columns, and lengths={shown(lengths)}: expected entries of the "
                f"{self.n_features} columns of a reader of feature dicts, and lengths"
            )
        chains = Chains.from_lengths(read_lengths(lengths))
        if chains.n_nodes != X.shape[0]:
            raise ValueError(f"lengths sums to {chains.n_nodes} and X has {X.shape[0]} tokens: expected the same")
        return X, chains

    @property
    def vocabulary(self) -> Mapping[str, int] | None:
        """Return the columns by name, or None without a vocabulary of feature dicts."""
        return self.vectorizer.vocabulary_ if isinstance(self.vectorizer, DictVectorizer) else None

    @property
    def feature_names(self) -> list[str] | None:
        """Return the names of the columns, or None without a vocabulary of feature dicts."""
        return list(self.vectorizer.feature_names_) if isinstance(self.vectorizer, DictVectorizer) else None

    def to_config(self) -> dict[str, object]:
        """Return the reader as JSON-able values, which `from_config` reads."""
        config: dict[str, object] = {"kind": self.kind, "n_features": self.n_features}
        if isinstance(self.vectorizer, DictVectorizer):
            config |= {"feature_names": self.feature_names, "separator": self.vectorizer.separator}
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> SequenceReader:
        """Return the reader that `to_config` described, or raise if the description is inconsistent."""
        kind, n_features, names = config["kind"], read_count(config, "n_features", 1), config.get("feature_names")
        if kind not in WORDS:
            raise ModelFileError(f"kind is {shown(kind)}: expected one of {', '.join(WORDS)}")
        if kind != "dicts":
            return cls(kind, n_features)
        if names is None:
            return cls(kind, n_features, feature_dicts.new_vectorizer(n_features))
        separator = config["separator"]
        strings = isinstance(names, list) and all(isinstance(name, str) for name in [*names, separator])
        if not strings or len(set(names)) != len(names) or len(names) != n_features:
            raise ModelFileError(
                f"feature_names is {shown(names)}: expected {n_features} distinct strings, and a separator"
            )
        return cls(kind, n_features, feature_dicts.restore_vectorizer(names, separator))


def _tokens(parts: Sequence[UserData]) -> list[UserData] | feature_dicts.NamedTokens:
    if len(parts) == 1 and isinstance(parts[0], feature_dicts.NamedTokens):
        return parts[0]
    return list(chain.from_iterable(parts))


def _stack(parts: Sequence[UserData], chains: Chains, cut: bool) -> Inputs:
    """Return the sequences under each other as (N, d), checked; there is at least one token."""
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


def _form(part: UserData) -> tuple[DType, int] | None:
    """Return the dtype and the width of a (T, d) array of floats, and None for anything else."""
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
