"""Read candidates: each token of a sequence has its own list of possible labels, and each candidate has features.

A sequence is a list with one entry per token: the candidates of this token, in any form that a sequence of ChainCRF may
have, such as an array with one row per candidate, or a list of feature dicts. With several inputs, a sequence is a
mapping from names to such lists. An input of steps has, for each token but the first, an array with the axes
[candidate of the token before, candidate of the token, feature].

The rows of features of all candidates are one matrix. Tokens differ in their numbers of candidates, so that an index
says where the rows of each token are: entry [t, c] is the row of candidate c, or -1 if token t has no such candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Config, Flags, Inputs, Ints, Labels, UserData, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import is_missing_value, read_labels, read_list
from kernelcrf.readers.reader_extension import extend_reader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.chain_names import STEPS, TOKENS
from kernelcrf.validation import is_whole, shown, shown_list

OWNER = "CandidateCRF"
MISSING = -1


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """The features of candidates, or of pairs of candidates, of some tokens.

    rows : the features, one row per candidate or pair of all tokens.
    index : (N, V), the row of each candidate of each token; -1 for candidates that a token does not have.
    """

    rows: Inputs
    index: Ints

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of tokens, and the number of features of a candidate."""
        return len(self.index), int(self.rows.shape[1])

    def __getitem__(self, tokens: Any) -> CandidateRows:
        return replace(self, index=self.index[tokens])

    def used(self) -> tuple[Inputs, Ints]:
        """Return the rows of these tokens, and the index of each candidate among them."""
        taken, index = np.unique(self.index, return_inverse=True)
        kept, index = taken[taken >= 0], index.reshape(self.index.shape)
        return self.rows[kept], index - int(len(kept) < len(taken))


class CandidateData(NamedTuple):
    """Sequences that were read: the features of each input, the sequences, and the number of candidates per token."""

    inputs: dict[str, CandidateRows]
    chains: Chains
    counts: Ints

    @property
    def most(self) -> int:
        """Return the largest number of candidates of a token."""
        return int(self.counts.max(initial=1))

    @property
    def present(self) -> Flags:
        """Return an array (N, most), True if a token has a candidate with this number."""
        return np.arange(self.most) < self.counts[:, None]


@dataclass(frozen=True, eq=False)
class CandidateReader:
    """Converts sequences of candidates to matrices.

    readers : a dict from names of inputs to readers of their features.
    scores : a dict from names of inputs to "tokens" or "steps", what they score.
    entries : a dict from names of inputs to the entries of sequences that they read; None if sequences are no mappings.
    """

    readers: Mapping[str, SequenceReader]
    scores: Mapping[str, str]
    entries: Mapping[str, str] | None = None

    @classmethod
    def fit(
        cls, X: UserData, scores: Mapping[str, str], entries: Mapping[str, str] | None, weights: Array | None = None
    ) -> tuple[CandidateReader, CandidateData]:
        """Return a reader for sequences like X, and the sequences; features of weight 0 are not learned."""
        return cls({}, scores, entries).extend(X, weights)

    def read(self, X: UserData) -> CandidateData:
        """Return the sequences X, with the features that `fit` has seen."""
        return self._read(X, None, learns=False)[1]

    def extend(self, X: UserData, weights: Array | None = None) -> tuple[CandidateReader, CandidateData]:
        """Return a reader that also knows the names of the features of X, and the sequences."""
        return self._read(X, weights, learns=True)

    def names_of(self, name: str) -> list[str] | None:
        """Return the names of the features of an input, or None if they have no names."""
        return self.readers[name].feature_names

    def is_sparse(self, name: str) -> bool:
        """Return whether the features of an input are sparse."""
        return self.readers[name].is_sparse(name)

    def width(self, name: str) -> int:
        """Return the number of features of an input."""
        return self.readers[name].n_features

    @property
    def n_features(self) -> int:
        """Return the number of features of all inputs."""
        return sum(reader.n_features for reader in self.readers.values())

    @property
    def column_names(self) -> Array | None:
        """Return the names of the columns of data frames if there is one input, else None."""
        return next(iter(self.readers.values())).column_names if len(self.readers) == 1 else None

    def _read(self, X: UserData, weights: Array | None, *, learns: bool) -> tuple[CandidateReader, CandidateData]:
        sequences = read_list(X, "X")
        of_tokens = [name for name, kind in self.scores.items() if kind == TOKENS]
        parts = {name: [self._entry(x, i, name) for i, x in enumerate(sequences)] for name in of_tokens}
        lengths = [len(part) for part in parts[of_tokens[0]]]
        chains = Chains.from_lengths(lengths)
        readers, inputs, counts = dict[str, SequenceReader](), dict[str, CandidateRows](), np.empty(0, np.int64)
        kept = None if weights is None else np.repeat(np.asarray(weights) > 0, lengths).astype(float)
        for name in of_tokens:
            if (other := [len(part) for part in parts[name]]) != lengths:
                i = next(i for i, (a, b) in enumerate(zip(other, lengths, strict=True)) if a != b)
                raise ValueError(
                    f"the input {shown(name)} of X[{i}] has {other[i]} tokens and {shown(of_tokens[0])} has "
                    f"{lengths[i]}: expected the same number"
                )
            lists = [candidates for part in parts[name] for candidates in part]
            readers[name], rows, cut = self._rows(name, lists, kept, learns=learns)
            if not len(inputs):
                counts = cut.lengths
            self._check_counts(chains, counts, cut.lengths, name)
            inputs[name] = CandidateRows(rows, _index(cut.offsets[:-1], counts))
        for name in self.scores.keys() - set(of_tokens):
            tables = [self._steps(x, i, name, chains, counts) for i, x in enumerate(sequences)]
            flat = [table.reshape(-1, table.shape[2]) for part in tables for table in part]
            widths = {table.shape[1] for table in flat}
            if len(widths) > 1:
                raise ValueError(
                    f"the steps of input {shown(name)} have {shown_list(sorted(widths))} features: expected the same "
                    "number for all steps"
                )
            if not flat and learns and name not in self.readers:
                raise ValueError(
                    f"the input {shown(name)} scores steps, but no sequence of X has two tokens: expected at least one "
                    "step; leave the input out"
                )
            flat = flat or [np.zeros((0, self.width(name)))]
            readers[name], rows, _ = self._rows(name, flat, None, learns=learns)
            inputs[name] = CandidateRows(rows, _step_index(chains, counts))
        found = replace(self, readers={name: readers[name] for name in self.scores})
        return found, CandidateData({name: inputs[name] for name in self.scores}, chains, counts)

    def _rows(
        self, name: str, lists: list[UserData], weights: Array | None, *, learns: bool
    ) -> tuple[SequenceReader, Inputs, Chains]:
        """Return a reader of features, the rows of all candidates, and the range of the rows of each list."""
        known = self.readers.get(name)
        if known is None:
            reader, rows, chains = SequenceReader.fit(lists, None, None, weights, owner=OWNER)
            return reader, rows, chains
        if learns:
            return extend_reader(known, lists, None, weights)
        return known, *known.read(lists)

    def _entry(self, x: UserData, i: int, name: str) -> list[UserData]:
        """Return what an input reads from sequence i, as a list with one entry per token or step."""
        if self.entries is None:
            if isinstance(x, Mapping):
                raise TypeError(
                    f"X[{i}] is a mapping: expected a list with the candidates of each token, or `inputs` with the "
                    "names of entries"
                )
            return list(read_list(x, f"X[{i}]", "a list with the candidates of each token"))
        entry = self.entries[name]
        if not isinstance(x, Mapping) or entry not in x:
            raise ValueError(
                f"X[{i}] has no entry {shown(entry)}: expected a mapping with this entry, which the input "
                f"{shown(name)} reads; add the entry, or set `of` of the input"
            )
        return list(read_list(x[entry], f"X[{i}][{entry!r}]", "a list with one entry per token"))

    def _steps(self, x: UserData, i: int, name: str, chains: Chains, counts: Ints) -> list[Array]:
        """Return the features of the steps of sequence i as arrays; raise if their shapes do not fit the candidates."""
        tables = [np.asarray(table) for table in self._entry(x, i, name)]
        low, high = chains.offsets[i : i + 2]
        if len(tables) != max(high - low - 1, 0):
            raise ValueError(
                f"X[{i}] has {len(tables)} steps in the input {shown(name)}: expected {max(high - low - 1, 0)}, one "
                f"for each of its {high - low} tokens but the first"
            )
        for t, table in enumerate(tables, low + 1):
            expected = int(counts[t - 1]), int(counts[t])
            if table.ndim != 3 or table.shape[:2] != expected:
                raise ValueError(
                    f"step {t - low - 1} of the input {shown(name)} of X[{i}] has shape {table.shape}: expected "
                    f"({expected[0]}, {expected[1]}, n_features), one vector for each pair of candidates"
                )
        return tables

    @staticmethod
    def _check_counts(chains: Chains, counts: Ints, others: Ints, name: str) -> None:
        if (empty := np.flatnonzero(others == 0)).size:
            raise ValueError(f"{chains.place(int(empty[0]))} of X has no candidates: expected at least one per token")
        if (counts != others).any():
            t = int(np.argmax(counts != others))
            raise ValueError(
                f"{chains.place(t)} has {others[t]} candidates in the input {shown(name)} and {counts[t]} in another "
                "input: expected the same number"
            )

    def read_labels(self, y: UserData, data: CandidateData) -> Labels:
        """Return the number of the right candidate of each token; -1 if it is not known."""
        sequences = read_list(y, "y", "a list with the numbers of the right candidates of each sequence")
        lengths = data.chains.lengths
        if len(sequences) != len(lengths):
            raise ValueError(f"y has {len(sequences)} sequences and X has {len(lengths)}: expected the same number")
        labels = np.empty(data.chains.n_nodes, np.int32)
        for i, one in enumerate(sequences):
            given, low = read_labels(one, f"y[{i}]"), data.chains.offsets[i]
            if len(given) != lengths[i]:
                raise ValueError(f"y[{i}] has {len(given)} labels and X[{i}] has {lengths[i]} tokens: expected as many")
            for t, label in enumerate(given, low):
                missing = is_missing_value(label) or (is_whole(label) and label == MISSING)
                if not missing and not (is_whole(label) and 0 <= label < data.counts[t]):
                    raise ValueError(
                        f"y has {shown(label)} at {data.chains.place(t)}: expected the number of a candidate, from 0 "
                        f"to {data.counts[t] - 1}, or None if it is not known"
                    )
                labels[t] = MISSING if missing else label
        return labels

    def to_config(self) -> Config:
        """Return the reader as a dict for JSON; `from_config` reads it."""
        return {
            "inputs": {name: reader.to_config() for name, reader in self.readers.items()},
            "scores": dict(self.scores),
            "entries": None if self.entries is None else dict(self.entries),
        }

    @classmethod
    def from_config(cls, config: Config) -> CandidateReader:
        """Return the reader whose `to_config` returned `config`; raise if its parts do not belong together."""
        readers = {name: SequenceReader.from_config(one, OWNER) for name, one in config["inputs"].items()}
        scores, entries = dict(config["scores"]), config["entries"]
        named = entries is None or (set(entries) == set(scores) and all(isinstance(e, str) for e in entries.values()))
        if set(readers) != set(scores) or not named or not set(scores.values()) <= {TOKENS, STEPS}:
            raise ValueError(f"the inputs are {shown_list(readers)}: expected what each of them reads and scores")
        if TOKENS not in scores.values():
            raise ValueError("no input scores candidates of tokens: expected at least one")
        return cls(readers, scores, entries)


def _index(starts: Ints, counts: Ints) -> Ints:
    """Return the rows of the candidates of each token, given the first row and the number of rows of each token."""
    places = np.arange(int(counts.max(initial=1)))
    return np.where(places < counts[:, None], starts[:, None] + places, -1)


def _step_index(chains: Chains, counts: Ints) -> Ints:
    """Return the rows of the pairs of candidates at each token: (N, most^2), and -1 for pairs that do not occur."""
    N, most = len(counts), int(counts.max(initial=1))
    before = np.append(0, counts[:-1])
    before[np.asarray(chains.first_nodes, np.intp)] = 0
    sizes = before * counts
    starts = np.cumsum(sizes) - sizes
    a, b = np.arange(most)[:, None], np.arange(most)
    rows = starts[:, None, None] + a * counts[:, None, None] + b
    present = (a < before[:, None, None]) & (b < counts[:, None, None])
    return np.where(present, rows, -1).reshape(N, most * most)


def with_zero_row(F: Inputs) -> Inputs:
    """Return the features with a last row of zeros, for candidates that a token does not have."""
    if is_sparse(F):
        return sp.csr_array(sp.vstack([F, sp.csr_array((1, F.shape[1]), dtype=F.dtype)], format="csr"))
    return np.concatenate([F, np.zeros((1, F.shape[1]), F.dtype)])
