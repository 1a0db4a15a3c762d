"""A summary of each part of the data, whose sum says how to read all parts alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import is_sparse
from kernelcrf.distributed.sources import RawSequences
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.containers import is_missing_value
from kernelcrf.readers.labels import SETS, distinct_labels, flat_labels
from kernelcrf.readers.sequences import WORDS, Kind, SequenceReader, open_sequences
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown

SPARSE_BYTES = 24


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSummary:
    """The size of some parts, the kind and the columns of their inputs, and their labels.

    sequences, tokens : numbers of each part; tokens count only if the weight of their sequence is not 0.
    failed : whether each part could not be read.
    ends : names of the first and of the last sequence, if a sequence may have been cut between two parts.
    counted : sequences whose weight is not 0.
    kind, n_features : None if there are no tokens; n_features is None for feature dicts.
    n_values : the number of stored entries.
    labels : all labels, by appearance.
    counts : how often each label occurs in sequences whose weight is not 0.
    names : feature names, if they make a vocabulary.
    """

    sequences: tuple[int, ...]
    tokens: tuple[int, ...] = (0,)
    failed: tuple[bool, ...] = (False,)
    ends: tuple[object, object] | None = None
    counted: int = 0
    kind: Kind | None = None
    n_features: int | None = None
    n_values: int = 0
    itemsize: int = 0
    labels: dict[Hashable, None] = field(default_factory=dict)
    counts: Counter[Hashable] = field(default_factory=Counter)
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, part: RawSequences, hash_features: int | None) -> DataSummary:
        """Summarise one part; one that cannot be read has failed.

        `check_part` raises the error later, when the numbers of its sequences in the user's data are known.
        """
        try:
            return cls.check_part(part, hash_features, 0)
        except (ValueError, TypeError):
            return cls(sequences=(len(part),), failed=(True,), ends=part.ends)

    @classmethod
    def check_part(cls, part: RawSequences, hash_features: int | None, first: int) -> DataSummary:
        """Summarise a part whose first sequence has the number `first` in the user's data; raise if it is wrong."""
        if part.y is None:
            raise ValueError("y is missing in a part of the data: expected labels for all sequences")
        if not len(part):
            return cls(sequences=(0,), ends=part.ends)
        _, chains, kind = open_sequences(part.X, part.lengths, first)
        weights = read_weights(part.weights, len(part), "sequence", first=first, part=True)
        kept = np.ones(len(part), bool) if weights is None else weights > 0
        flat_y = part.lengths is not None
        nodes = np.repeat(kept, chains.lengths)
        known = cls(
            sequences=(len(part),),
            tokens=(int(nodes.sum()),),
            ends=part.ends,
            counted=int(kept.sum()),
            kind=kind,
            labels=dict.fromkeys(distinct_labels(part.y, chains, flat=flat_y)),
        )
        if kind is None or chains.n_nodes == 0 or (kind == "dicts" and not nodes.any()):
            return known
        labels = compress(flat_labels(part.y, chains, flat=flat_y), nodes.tolist())
        counts = Counter(label for label in labels if not (isinstance(label, SETS) or is_missing_value(label)))
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
            names=frozenset(reader.feature_names or ()),
        )

    def __add__(self, other: DataSummary) -> DataSummary:
        if self.ends and other.ends and self.ends[1] == other.ends[0]:
            raise ValueError(
                f"sequence {shown(self.ends[1])} goes on from one part into the next: expected parts with whole "
                "sequences; write the file anew with all rows of a sequence in one file"
            )
        if self.kind and other.kind and self.kind != other.kind:
            raise _different(WORDS[self.kind], WORDS[other.kind])
        if self.n_features and other.n_features and self.n_features != other.n_features:
            raise _different(f"{self.n_features} features", f"{other.n_features} features")
        return DataSummary(
            sequences=self.sequences + other.sequences,
            tokens=self.tokens + other.tokens,
            failed=self.failed + other.failed,
            ends=(self.ends[0], other.ends[1]) if self.ends and other.ends else self.ends or other.ends,
            counted=self.counted + other.counted,
            kind=self.kind or other.kind,
            n_features=self.n_features or other.n_features,
            n_values=self.n_values + other.n_values,
            itemsize=max(self.itemsize, other.itemsize),
            labels=self.labels | other.labels,
            counts=self.counts + other.counts,
            names=self.names | other.names,
        )

    def check_tokens(self, weight: str) -> None:
        """Raise if no token is left to fit; `weight` names the weights that may have left sequences out."""
        if self.counted == 0 and any(self.sequences):
            raise ValueError(f"{weight} leaves no sequence with a weight above zero: expected at least one")
        if not any(self.tokens):
            raise ValueError(
                f"X has {sum(self.sequences)} sequence(s), {self.counted} of them with a weight above zero, and no "
                "token in these: expected at least one token to fit"
            )

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The number of sequences before each part."""
        return np.concatenate([[0], np.cumsum(self.sequences)])[:-1]

    @property
    def is_sparse(self) -> bool:
        """Return whether the inputs will be CSR."""
        return self.kind != "dense"

    def n_bytes(self, n_components: int) -> int:
        """Return the bytes of the inputs, and of `n_components` features per token beside them."""
        stored = SPARSE_BYTES * self.n_values if self.is_sparse else self.itemsize * self.n_values
        return stored + max(self.itemsize, 4) * n_components * sum(self.tokens)

    def reader(self, hash_features: int | None) -> SequenceReader:
        """Return the reader of the inputs of all parts."""
        if self.kind is None or self.kind != "dicts":
            return SequenceReader(self.kind or "dense", int(self.n_features or 0))
        if hash_features is not None:
            vectorizer = feature_dicts.new_vectorizer(hash_features)
        else:
            vectorizer = feature_dicts.restore_vectorizer(sorted(self.names))
        return SequenceReader("dicts", feature_dicts.n_columns(vectorizer), vectorizer)


def _different(here: str, there: str) -> ValueError:
    return ValueError(f"X has {here} in one part and {there} in another: expected the same in all")
