"""Columns of Arrow tables as NumPy arrays: sequences one after the other, with their lengths.

Arrow numbers the distinct feature names of a part, and only these become Python strings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array
from kernelcrf.formats.arrow import ArrowObject, arrow
from kernelcrf.formats.records import FormatError
from kernelcrf.readers.feature_dicts import NamedTokens


def join_chunks(column: ArrowObject) -> ArrowObject:
    """Return a column as one array."""
    found = column.combine_chunks()
    return found if not hasattr(found, "chunks") else arrow()[0].concat_arrays(found.chunks)


def flatten_lists(array: ArrowObject, path: str) -> tuple[npt.NDArray[np.int64], ArrowObject]:
    """Return the lengths of the rows of an array of lists, and all entries one after the other."""
    pa, _ = arrow()
    if not _is_list(pa, array.type):
        raise FormatError(f"{path}: a column is of type {array.type}: expected lists with one entry per token")
    if array.null_count:
        raise FormatError(f"{path}: a column of type {array.type} has empty rows: expected a list in each row")
    return np.asarray(array.value_lengths(), np.int64), array.flatten()


def _is_list(pa: ArrowObject, kind: ArrowObject) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def number_names(tokens: ArrowObject, path: str) -> NamedTokens:
    """Return tokens that are lists of feature names, the names numbered."""
    counts, names = flatten_lists(tokens, path)
    encoded = names.dictionary_encode()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return NamedTokens(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int32), offsets)


def stack_vectors(tokens: ArrowObject, path: str) -> Array:
    """Return tokens that are lists of equally many numbers, as rows."""
    counts, numbers = flatten_lists(tokens, path)
    if len(set(counts.tolist())) > 1:
        raise FormatError(f"{path}: vectors have {sorted(set(counts.tolist()))[:5]} numbers: expected one width")
    return np.asarray(numbers.to_numpy(zero_copy_only=False).reshape(len(counts), -1))


def find_runs(names: Array) -> tuple[npt.NDArray[np.int64], tuple[object, object] | None]:
    """Return the lengths of runs of equal names, and the first and the last name."""
    if not len(names):
        return np.zeros(0, np.int64), None
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    lengths = np.diff(np.append(starts, len(names))).astype(np.int64)
    return lengths, (names[0], names[-1])
