"""Read the entries of the containers that users pass, such as lists, arrays and data frames, in their order.

A pandas Series is read in the order of its rows; its index is ignored. These containers are accepted:

    lists, tuples, deques, ranges, views of a dict's values and other collections with a length and an order
    NumPy arrays, arrays of objects, np.matrix, memoryviews
    Series and Index of pandas, Series of polars, arrays of Arrow
    data frames, and SciPy's sparse matrices and arrays of any format, if a table with one row per token is expected

Iterators are refused, because they can be read only once. Sets and mappings are refused, because their order is not
the order of the data. Masked numbers are refused; a masked label counts as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import chain, pairwise
from numbers import Number
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import column_or_1d

from kernelcrf.arrays import Array, Inputs, Ints, UserData, as_inputs, is_sparse
from kernelcrf.readers.stored_values import object_array
from kernelcrf.validation import shown

T = TypeVar("T")

DATES = "mM"
LABELS = "a sequence of labels, one per token; pass lengths= if y lists the labels of all tokens"


def read_list(values: UserData, name: str, expected: str = "a list of sequences") -> list[UserData]:
    """Return the entries of a container as a list.

    name, expected : texts for error messages: the name of the container, and a description of what was expected.
    """
    values = read_container(values, name, expected)
    if is_sparse(values) or is_frame(values):
        raise TypeError(
            f"{name} is a single table of type {type(values).__name__}: expected {expected}; "
            "use kernelcrf.from_frame to cut a data frame into sequences"
        )
    if isinstance(values, np.ndarray) and values.ndim == 0:
        raise TypeError(f"{name} is a single value, {shown(values.item())}: expected {expected}")
    return list(values)


def read_container(values: UserData, name: str, expected: str = "a sequence of tokens") -> UserData:
    """Convert a container to a list, an array, a sparse matrix or a data frame; raise for any other value.

    A one-dimensional array of objects becomes a list.

    name, expected : texts for error messages: the name of the container, and a description of what was expected.
    """
    if type(values) is list:
        return values
    if isinstance(values, np.ndarray):
        return _plain_array(values, name)
    if is_sparse(values) or is_frame(values):
        return values
    if isinstance(values, memoryview):
        return np.asarray(values)
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist())
    if hasattr(values, "to_list") and hasattr(values, "__array__"):
        array = np.asarray(values)
        return list(values.to_list()) if array.dtype == object or array.dtype.kind in DATES else array
    if isinstance(values, Iterator):
        raise TypeError(
            f"{name} is an iterator of type {type(values).__name__}, which can be read only once: expected {expected}; "
            f"pass list({name})"
        )
    if isinstance(values, str | bytes | bytearray | Mapping | Set):
        raise TypeError(f"{name} is {shown(values)} of type {type(values).__name__}: expected {expected}")
    if isinstance(values, Collection):
        return list(values)
    if hasattr(values, "__array__"):
        return _plain_array(np.asarray(values), name)
    raise TypeError(f"{name} is of type {type(values).__name__}: expected {expected}")


def read_labels(labels: UserData, name: str, expected: str = LABELS) -> list[UserData]:
    """Return the list of labels of one sequence; masked labels become None, and a string is split into letters."""
    if type(labels) is list:
        return labels
    if isinstance(labels, str):
        return list(labels)
    if isinstance(labels, np.ma.MaskedArray):
        labels = _fill_masked(labels)
    if hasattr(labels, "to_list") and not is_frame(labels):
        return list(labels.to_list())
    labels = read_container(labels, name, expected)
    if is_sparse(labels):
        raise TypeError(f"{name} is a sparse matrix: expected {expected}")
    if is_frame(labels):
        labels = np.asarray(labels)
    if isinstance(labels, np.ndarray):
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = column_or_1d(labels, warn=True)
        if labels.ndim != 1:
            raise ValueError(f"{name} has shape {labels.shape}: expected a 1-D array with one label per token")
        # `tolist` would turn dates in nanoseconds into numbers.
        return list(labels) if labels.dtype.kind in DATES else list(labels.tolist())
    return list(labels)


def read_lengths(lengths: UserData) -> Ints:
    """Convert the lengths of sequences, in any container of integers >= 0, to an array."""
    expected = "a 1-D array of integers >= 0, the number of tokens of each sequence"
    values = read_container(lengths, "lengths", expected)
    sizes = np.asarray(values) if not is_sparse(values) else np.empty((0, 0))
    if sizes.dtype == object and all(isinstance(value, int | np.integer) for value in sizes.flat):
        sizes = np.asarray(sizes.tolist())
    if sizes.ndim != 1 or (sizes.size and (sizes.dtype.kind not in "iu" or (sizes < 0).any())):
        raise ValueError(f"lengths={shown(lengths)}: expected {expected}")
    return sizes.astype(np.int64)


def read_groups(groups: UserData, n_samples: int) -> Ints:
    """Return an array with one integer per sequence; sequences of the same group have the same integer.

    If `groups` is None, each sequence is a group of its own.
    """
    if groups is None:
        return np.arange(n_samples)
    values = np.asarray(read_list(groups, "groups", "one value per sequence"))
    if values.shape != (n_samples,):
        raise ValueError(f"groups has shape {values.shape}: expected ({n_samples},), one value per sequence of X")
    return np.unique(values, return_inverse=True)[1]


def read_matrix(part: UserData, name: str) -> Inputs:
    """Convert the tokens of a sequence to a matrix of numbers, dense or CSR, with one row per token."""
    opened = read_container(part, name)
    array = _stack_tokens(opened, name)
    if is_frame(opened) and array.dtype.kind not in "biufc":
        _refuse_text(array, column_names(opened), name)
    if array.ndim != 2:
        one = "use x.reshape(-1, 1) if each token is one number; pass [X] if X is a single sequence"
        raise ValueError(
            f"{name} has {array.ndim} dimension(s), shape {array.shape}: expected 2 dimensions, one row per token. "
            f"Reshape your data: {one if array.ndim == 1 else 'use x.reshape(len(x), -1)'}"
        )
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}, expected real numbers")
    # Strings that look like numbers are not converted: they may be meant as names of features.
    if array.dtype == object and not is_sparse(array) and not any(isinstance(value, str) for value in array.flat):
        try:
            known = [None if is_missing_value(value) else value for value in array.flat]
            array = np.array(known, np.float64).reshape(array.shape)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} has dtype object: expected numbers; the conversion failed with {shown(str(error))}"
            ) from None
    return as_inputs(array, name)


def read_matrices(parts: Mapping[str, UserData]) -> list[Inputs]:
    """Convert sequences to matrices, and drop empty sequences; raise if the matrices differ in their number of columns.

    parts : a dict from names, which error messages show, to sequences.
    """
    matrices = {name: read_matrix(part, name) for name, part in parts.items() if is_sparse(part) or len(part)}
    first, width = next((name, matrix.shape[1]) for name, matrix in matrices.items())
    for name, matrix in matrices.items():
        if matrix.shape[1] != width:
            raise ValueError(
                f"{name} has {matrix.shape[1]} features and {first} has {width}: expected the same number in every "
                "sequence"
            )
    return list(matrices.values())


def read_table(values: UserData, name: str) -> Array:
    """Convert a table, which has one row per sample, to an array; masked entries become None."""
    expected = "a table, one row per sample"
    if isinstance(values, np.ma.MaskedArray):
        return _fill_masked(values)
    values = read_container(values, name, expected)
    if is_sparse(values):
        raise TypeError(f"{name} is a sparse matrix: expected {expected}; pass {name}.toarray()")
    if not isinstance(values, list):
        return np.asarray(values, dtype=object if is_frame(values) else None)
    rows = [read_labels(row, f"{name}[{i}]", expected) for i, row in enumerate(values)]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            f"{name} has rows of different lengths: expected {expected}, and the same length for every row"
        )
    width = len(rows[0]) if rows else 0
    return object_array(list(chain.from_iterable(rows))).reshape(len(rows), width)


def is_frame(values: UserData) -> bool:
    """Return whether a container is a data frame of pandas, polars or another library."""
    return hasattr(values, "columns") and hasattr(values, "shape") and not isinstance(values, np.ndarray)


def column_names(frame: UserData) -> list[UserData]:
    """Return the names of the columns of a data frame."""
    # Tables of Arrow have their names in `column_names`, and the columns themselves in `columns`.
    return list(frame.column_names if hasattr(type(frame), "column_names") else frame.columns)


def to_array(table: UserData) -> Array:
    """Convert an array or a data frame to an array."""
    # pandas needs 30 times as long for np.asarray.
    return np.asarray(table.to_numpy() if hasattr(table, "to_numpy") else table)


def is_collection(value: UserData) -> bool:
    """Return whether a value may be a container rather than a number, a string or a mapping."""
    # Comparing the type is fast, and settles most values; isinstance with Mapping and Number is slow.
    return type(value) in (list, np.ndarray) or not isinstance(value, str | bytes | Mapping | Number)


def is_missing_value(label: UserData) -> bool:
    """Return whether a value is None or pandas.NA, without importing pandas."""
    return label is None or type(label).__name__ == "NAType"


class Ragged(list[T]):
    """A list with one value per sequence, such as predictions; NumPy converts it to a 1-D array of objects.

    scikit-learn joins the predictions of folds by `numpy.concatenate`, which would convert a plain list of arrays to
    a matrix, or fail if the arrays differ in length.
    """

    @classmethod
    def cut(cls, values: Array, offsets: Ints, axis: int = 0) -> Ragged[UserData]:
        """Cut an array along `axis` into sequences; sequence i has the indices offsets[i] to offsets[i+1] - 1."""
        before = (slice(None),) * axis
        return cls(values[*before, low:high] for low, high in pairwise(offsets.tolist()))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return a one-dimensional array of objects with one entry per value."""
        if copy is False:
            raise ValueError("copy=False: a list cannot be converted to an array without a copy; pass copy=None")
        array = object_array(self)
        return array if dtype is None else array.astype(dtype)


def _plain_array(values: Array, name: str) -> UserData:
    """Convert subclasses of ndarray to ndarray, and one-dimensional arrays of objects to lists."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} is a masked array with masked entries: expected an array without missing numbers; "
            "fill in the masked entries with sklearn.impute.SimpleImputer, or remove their tokens"
        )
    values = np.asarray(values)
    return values.tolist() if values.dtype == object and values.ndim == 1 else values


def _refuse_text(table: Array, names: Sequence[UserData], name: str) -> None:
    """Raise TypeError if a value in a table is not a number and not missing; the error names the value's column.

    names, name : the names of the columns, and of the table in the error message.
    """
    for column, values in zip(names, table.T.tolist() if table.dtype == object else table.T, strict=True):
        for row, value in enumerate(values):
            if not isinstance(value, Number | np.bool_) and not is_missing_value(value):
                raise TypeError(
                    f"{name} has the value {shown(value)} in column {shown(column)}, row {row}: expected numbers; "
                    "encode the column as numbers, for example with sklearn.preprocessing.OneHotEncoder for text, or "
                    "remove it"
                )


def _fill_masked(labels: UserData) -> Array:
    """Return a masked array as an array of objects, with None for each masked entry."""
    values = np.asarray(np.ma.getdata(labels))
    filled = np.empty(values.shape, object)
    filled[...] = list(values) if values.dtype.kind in DATES else values
    filled[np.ma.getmaskarray(labels)] = None
    return filled


def _stack_tokens(part: UserData, name: str) -> UserData:
    """Convert a sequence of tokens to an array or a sparse matrix with one row per token."""
    if is_sparse(part) or not isinstance(part, list):
        return part if is_sparse(part) else to_array(part)
    tokens = [read_container(x, f"{name}[{t}]") if is_collection(x) else x for t, x in enumerate(part)]
    try:
        if any(is_sparse(token) for token in tokens):
            return sp.vstack([sp.csr_array(token) for token in tokens], format="csr")
        return np.asarray(tokens)
    except ValueError:
        raise ValueError(
            f"{name} has tokens with different numbers of features: expected the same number for every token"
        ) from None
