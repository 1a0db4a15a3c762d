"""What must be known of all parts before any is read: kind, width, labels and names, which are sums over parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators import feature_dicts
from kernelcrf.estimators.containers import is_missing_value
from kernelcrf.estimators.labels import SETS, flat_labels, shown_labels
from kernelcrf.estimators.parts import Sequences
from kernelcrf.estimators.sequences import WORDS, Kind, SequenceReader, kind_of
from kernelcrf.estimators.weights import checked_weights
from kernelcrf.kernels.inputs import is_sparse
from kernelcrf.validation import shown

SPARSE_BYTES = 24


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

    tokens : of each part, in sequences that count for anything.
    counted : sequences that count for anything.
    failed : whether each part could not be read.
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
    counted: int = 0
    failed: tuple[bool, ...] = (False,)

    @classmethod
    def of(cls, part: Sequences, hash_features: int | None, moments: bool) -> Survey:
        """Survey one part; `moments` are those of its inputs, if they are needed.

        What is wrong with a part can be told by the numbers of sequences in the user's data once all parts are
        counted: `check_part` raises it then.
        """
        try:
            return cls.check_part(part, hash_features, moments, 0)
        except (ValueError, TypeError):
            return cls(
                (len(part),), (0,), None, None, 0, 0, {}, Counter(), frozenset(), None, part.ends, failed=(True,)
            )

    @classmethod
    def check_part(cls, part: Sequences, hash_features: int | None, moments: bool, first: int) -> Survey:
        """Survey a part whose first sequence has the number `first` in the user's data, or raise what is wrong."""
        if part.y is None:
            raise ValueError("y is missing in a part of the data: expected labels for all sequences")
        if not len(part):
            return cls((0,), (0,), None, None, 0, 0, {}, Counter(), frozenset(), None, part.ends)
        kind, chains = kind_of(part.X, part.lengths, first)
        kept = np.ones(len(part), bool)
        if part.weights is not None:
            kept = checked_weights(part.weights, len(part), "sequence", first=first, part=True) > 0
        flat_y = part.lengths is not None
        seen = dict.fromkeys(shown_labels(part.y, chains, flat=flat_y))
        nodes = np.repeat(kept, chains.lengths)
        size = (len(part),), (int(nodes.sum()),)
        rest = part.ends, int(kept.sum())
        if kind is None or chains.n_nodes == 0:
            return cls(*size, None, None, 0, 0, {}, Counter(), frozenset(), None, *rest)
        labels = compress(flat_labels(part.y, chains, flat=flat_y), nodes.tolist())
        counts = Counter(label for label in labels if not (isinstance(label, SETS) or is_missing_value(label)))
        n_features, names, itemsize, found = None, frozenset[str](), 8, None
        if kind == "dicts" and hash_features is not None and not moments:
            named = isinstance(part.X, feature_dicts.NamedTokens)
            n_values = len(part.X.ids) if named else sum(len(token) for sequence in part.X for token in sequence)
        else:
            reader, flat, _ = SequenceReader.fit(part.X, part.lengths, hash_features, part.weights, first)
            flat = flat if kept.all() else flat[nodes]
            n_features = None if kind == "dicts" else reader.n_features
            names = frozenset(reader.feature_names or ())
            n_values, itemsize = int(flat.nnz if is_sparse(flat) else flat.size), flat.dtype.itemsize
            found = Moments.of(flat) if moments else None
        return cls(*size, kind, n_features, n_values, itemsize, seen, counts, names, found, *rest)

    def __add__(self, other: Survey) -> Survey:
        if self.ends and other.ends and self.ends[1] == other.ends[0]:
            raise ValueError(
                f"sequence {shown(self.ends[1])} goes on from one part into the next: expected parts with whole "
                "sequences; write the file anew with all rows of a sequence in one file"
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
            self.counted + other.counted,
            self.failed + other.failed,
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
                f"X has {sum(self.sequences)} sequence(s), {self.counted} of them with a sample_weight above zero, and "
                "no token in these: expected at least one token to fit"
            )
        if self.kind != "dicts":
            return SequenceReader(self.kind, int(self.n_features or 0))
        if hash_features is not None:
            vectorizer = feature_dicts.new_vectorizer(hash_features)
        else:
            vectorizer = feature_dicts.restored(sorted(self.names), feature_dicts.SEPARATOR)
        return SequenceReader("dicts", feature_dicts.n_columns(vectorizer), vectorizer)
