"""Columns of Arrow tables as NumPy arrays: sequences one after the other, with their lengths.

Names are never made into Python strings one by one: Arrow numbers the distinct ones of a part, and only these are
looked up or hashed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators.feature_dicts import NamedTokens
from kernelcrf.formats.arrow import arrow
from kernelcrf.formats.records import FormatError


def whole(column: Any) -> Any:
    """A column as one array."""
    found = column.combine_chunks()
    return found if not hasattr(found, "chunks") else arrow()[0].concat_arrays(found.chunks)


def unnested(array: Any, path: str) -> tuple[npt.NDArray[np.int64], Any]:
    """The lengths of the rows of an array of lists, and their entries one after the other."""
    pa, _ = arrow()
    if not _is_list(pa, array.type):
        raise FormatError(f"{path}: a column is of type {array.type}: expected lists, an entry a token")
    if array.null_count:
        raise FormatError(f"{path}: a column of type {array.type} has rows without a value: expected a list in each")
    return np.asarray(array.value_lengths(), np.int64), array.flatten()


def _is_list(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def named(tokens: Any, path: str) -> NamedTokens:
    """Return tokens that are lists of feature names, the names numbered."""
    counts, names = unnested(tokens, path)
    encoded = names.dictionary_encode()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return NamedTokens(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int32), offsets)


def vectors(tokens: Any, path: str) -> npt.NDArray[np.floating[Any]]:
    """Return tokens that are lists of equally many numbers, as rows."""
    counts, numbers = unnested(tokens, path)
    if len(set(counts.tolist())) > 1:
        raise FormatError(f"{path}: vectors have {sorted(set(counts.tolist()))[:5]} numbers: expected the same in all")
    return np.asarray(numbers.to_numpy(zero_copy_only=False).reshape(len(counts), -1))


def runs_of(names: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], tuple[Any, Any] | None]:
    """Lengths of runs of equal names, and the first and the last of these."""
    if not len(names):
        return np.zeros(0, np.int64), None
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    lengths = np.diff(np.append(starts, len(names))).astype(np.int64)
    return lengths, (names[0], names[-1])
