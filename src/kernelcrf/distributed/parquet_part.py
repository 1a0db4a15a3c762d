"""Read some row groups of a Parquet file into flat NumPy arrays of tokens, with the lengths of the sequences.

If each row is a sequence, the columns are

    features or vectors    for each token, a list of feature names or a list of numbers
    labels                 one label per token
    weight                 a number

If each row is a token, one more column has the name of its sequence: neighbouring rows with the same name are one
sequence. Each row then has one list in `features` or `vectors`, and one label in `labels`. There are no weights.

Arrow replaces feature names and labels by numbers, as most Parquet files store them, so that each distinct name becomes
a Python string only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array
from kernelcrf.distributed.sources import RawSequences
from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet import open_parquet
from kernelcrf.formats.records import FormatError
from kernelcrf.readers.feature_dicts import NamedTokens
from kernelcrf.readers.stored_values import object_array
from kernelcrf.validation import shown_list

INPUTS = ("features", "vectors")
WEIGHT = "weight"


@dataclass(frozen=True)
class ParquetPart:
    """An object that reads some row groups of a Parquet file when it is called without arguments.

    groups : the indices of the row groups.
    labels : the name of the column with labels, or None to read no labels.
    sequence : the name of the column that names the sequence of each token, or None if each row is a sequence.
    """

    filesystem: ArrowObject
    path: str
    groups: tuple[int, ...]
    labels: str | None
    sequence: str | None

    def __call__(self) -> RawSequences:
        """Read the row groups, and return their sequences."""
        with open_parquet(self.path, self.filesystem, encoded=("features", self.labels or "")) as file:
            columns = file.footer.columns
            names = [name for name in INPUTS if name in columns]
            if len(names) != 1:
                raise self._wrong_columns(columns, f"one of {' and '.join(INPUTS)}")
            for column, holds in ((self.labels, "the labels"), (self.sequence, "the names of sequences")):
                if column is not None and column not in columns:
                    raise self._wrong_columns(columns, f"{column!r} with {holds}")
            wanted = [name for name in (*names, self.labels, self.sequence, WEIGHT) if name in columns]
            table = file.read(self.groups, wanted, [name for name in wanted if name in (self.labels, self.sequence)])
        with arrow_errors(self.path, f"sequences in the columns {shown_list(wanted)}"):
            inputs, ends, weights = _join_chunks(table.column(names[0])), None, None
            if self.sequence is None:
                lengths, inputs = self._flatten(inputs)
                weights = table.column(WEIGHT).to_numpy() if WEIGHT in wanted else None
            else:
                if table.column(self.sequence).null_count:
                    raise FormatError(
                        f"{self.path}: the column {self.sequence!r} has nulls: expected the name of a sequence in "
                        "each row. Fill in the names"
                    )
                lengths, ends = _find_runs(table.column(self.sequence).to_numpy())
            X = self._read_vectors(inputs) if names == ["vectors"] else self._read_names(inputs)
            y = None if self.labels is None else self._read_labels(table.column(self.labels), lengths)
            return RawSequences(X, y, weights, lengths, ends)

    def columns(self, names: Sequence[str]) -> dict[str, ArrowObject]:
        """Return the named columns of the row groups as Arrow arrays."""
        with open_parquet(self.path, self.filesystem) as file:
            if missing := [name for name in names if name not in file.footer.columns]:
                raise self._wrong_columns(file.footer.columns, f"{missing[0]!r} to keep")
            table = file.read(self.groups, names)
        return {name: table.column(name) for name in names}

    def _read_names(self, tokens: ArrowObject) -> NamedTokens:
        """Encode tokens that are lists of feature names: store each distinct name once, and refer to it by an index."""
        counts, names = self._flatten(tokens)
        encoded = names if arrow()[0].types.is_dictionary(names.type) else names.dictionary_encode()
        # Arrow does not compare the numbers in a file with the size of the dictionary.
        encoded.validate(full=True)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return NamedTokens(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int32), offsets)

    def _read_vectors(self, tokens: ArrowObject) -> Array:
        """Return the tokens as the rows of one array; each token must be a list of numbers, all of the same length."""
        counts, numbers = self._flatten(tokens)
        if len(widths := set(counts.tolist())) > 1:
            raise FormatError(
                f"{self.path}: token vectors have lengths {sorted(widths)[:5]}: expected equal lengths. Store "
                "vectors of the same length for all tokens"
            )
        return np.asarray(numbers.to_numpy(zero_copy_only=False).reshape(len(counts), max(widths, default=0)))

    def _read_labels(self, column: ArrowObject, lengths: npt.NDArray[np.int64]) -> list[object]:
        """Return the labels of all tokens as one list."""
        if self.sequence is not None:
            return _to_list(_join_chunks(column))
        counts, values = self._flatten(_join_chunks(column))
        if not np.array_equal(counts, lengths):
            row = int(np.flatnonzero(counts != lengths)[0])
            raise FormatError(
                f"{self.path}: row {row} has {counts[row]} labels and {lengths[row]} tokens: expected one label per "
                "token"
            )
        return _to_list(values)

    def _flatten(self, array: ArrowObject) -> tuple[npt.NDArray[np.int64], ArrowObject]:
        """Return the lengths of the lists in an array of lists, and the entries of all lists as one array."""
        types = arrow()[0].types
        kind = array.type.value_type if types.is_dictionary(array.type) else array.type
        if not any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
            raise FormatError(
                f"{self.path}: a column has values of type {kind}: expected lists. Store a list of features per "
                "token, and a list of labels per sequence"
            )
        if array.null_count:
            raise FormatError(
                f"{self.path}: a column of type {array.type} has null values: expected lists. Store an empty list "
                "instead of null"
            )
        return np.asarray(array.value_lengths(), np.int64), array.flatten()

    def _wrong_columns(self, columns: Sequence[str], expected: str) -> FormatError:
        return FormatError(f"{self.path}: the columns are {shown_list(columns)}: expected {expected}")


def _join_chunks(column: ArrowObject) -> ArrowObject:
    """Return the chunks of a column as one array."""
    array = column.combine_chunks()
    return array if not hasattr(array, "chunks") else arrow()[0].concat_arrays(array.chunks)


def _to_list(values: ArrowObject) -> list[object]:
    """Return the values of an Arrow array as Python objects; equal texts of a dictionary become one object."""
    if not arrow()[0].types.is_dictionary(values.type):
        return list(values.to_pylist())
    values.validate(full=True)
    distinct = object_array([*values.dictionary.to_pylist(), None])
    return list(distinct[values.indices.fill_null(len(distinct) - 1).to_numpy()])


def _find_runs(names: Array) -> tuple[npt.NDArray[np.int64], tuple[object, object] | None]:
    """Return the lengths of runs of equal names, and the pair (first name, last name).

    The pair is None if there are no names.
    """
    if not len(names):
        return np.zeros(0, np.int64), None
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    lengths = np.diff(np.append(starts, len(names))).astype(np.int64)
    return lengths, (names[0], names[-1])
