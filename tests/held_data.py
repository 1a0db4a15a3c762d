"""Containers in which users hold data: each holds the entries of a list, in its order."""

import array
import collections
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp

from kernelcrf.readers.containers import Ragged


class Own(collections.abc.Sequence):
    """A sequence of somebody's own."""

    def __init__(self, values):
        self.values = list(values)

    def __getitem__(self, i):
        return self.values[i]

    def __len__(self):
        return len(self.values)


class ArrayLike:
    """What NumPy can read, and nothing else."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def objects(values):
    """A (m,) array of objects."""
    array_ = np.empty(len(values), object)
    for i, value in enumerate(values):
        array_[i] = value
    return array_


def shuffled(values):
    """A Series whose index is another order of its places."""
    series = pd.Series(objects(list(values)), index=np.random.default_rng(len(values)).permutation(len(values)))
    return series.infer_objects()


# Containers of m things of any kind.
OUTER = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "UserList": collections.UserList,
    "values of a dict": lambda values: dict(enumerate(values)).values(),
    "objects": objects,
    "Series": lambda values: pd.Series(objects(list(values))),
    "shuffled Series": shuffled,
    "Series with equal keys": lambda values: pd.Series(objects(list(values)), index=[0] * len(values)),
    "Series by name": lambda values: pd.Series(objects(list(values)), index=list("zyxwvutsrqponm")[: len(values)]),
    "Series backwards": lambda values: pd.Series(objects(list(values))[::-1], index=range(len(values)))[::-1],
    "Ragged": Ragged,
    "own sequence": Own,
}
# Containers of the numbers (T, d) of a sequence, or of rows.
TABLES = {
    "array": np.array,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "matrix": lambda x: x.view(np.matrix),
    "nothing masked": lambda x: np.ma.masked_array(x, np.zeros(x.shape, bool)),
    "objects": lambda x: x.astype(object),
    "memoryview": lambda x: memoryview(np.ascontiguousarray(x)),
    "array-like": ArrayLike,
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "deque of lists": lambda x: collections.deque(x.tolist()),
    "list of arrays": list,
    "list of Series": lambda x: [shuffled(row) for row in x],
    "list of array.array": lambda x: [array.array("d", row) for row in x],
    "list of deques": lambda x: [collections.deque(row) for row in x.tolist()],
    "own sequences": lambda x: Own([Own(row) for row in x.tolist()]),
    "objects of arrays": lambda x: objects(list(x)),
    "Series of lists": lambda x: shuffled(x.tolist()),
    "DataFrame": lambda x: pd.DataFrame(x, index=np.random.default_rng(0).permutation(len(x))),
    "DataFrame of Float64": lambda x: pd.DataFrame(x).astype("Float64"),
    "polars": lambda x: pl.DataFrame(x, schema=list("abcdefgh")[: x.shape[1]]),
    "polars Series": lambda x: pl.Series(x.tolist(), dtype=pl.List(pl.Float64)),
    "Arrow": lambda x: pa.array(x.tolist()),
}
# Containers of labels, which are integers.
LABELS = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "array": np.array,
    "int8": lambda y: np.array(y, np.int8),
    "objects": objects,
    "nothing masked": lambda y: np.ma.masked_array(y, [False] * len(y)),
    "shuffled Series": shuffled,
    "Series with equal keys": lambda y: pd.Series(y, index=[0] * len(y)),
    "Series of Int64": lambda y: pd.Series(y, dtype="Int64"),
    "Categorical": pd.Categorical,
    "pandas array": pd.array,
    "Index": pd.Index,
    "polars": pl.Series,
    "Arrow": pa.array,
    "array.array": lambda y: array.array("l", y),
    "memoryview": lambda y: memoryview(np.array(y)),
    "array-like": ArrayLike,
    "own sequence": Own,
}
# Containers of weights.
WEIGHTS = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "array": np.array,
    "objects": objects,
    "shuffled Series": shuffled,
    "Series of Float64": lambda w: pd.Series(w, dtype="Float64"),
    "polars": pl.Series,
    "Arrow": pa.array,
    "array.array": lambda w: array.array("d", w),
    "memoryview": lambda w: memoryview(np.array(w)),
    "array-like": ArrayLike,
    "nothing masked": lambda w: np.ma.masked_array(w, [False] * len(w)),
}
SPARSE = {
    name: getattr(sp, name)
    for array_ in ("csr_array", "csc_array", "coo_array", "lil_array", "dok_array", "bsr_array", "dia_array")
    for name in (array_, array_.replace("array", "matrix"))
} | {"list of rows": lambda x: [sp.csr_array(row[None]) for row in x]}
# Containers of the feature dicts of a sequence.
TOKENS = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "objects": objects,
    "shuffled Series": shuffled,
    "own sequence": Own,
    "ordered": lambda tokens: [collections.OrderedDict(token) for token in tokens],
    "read-only": lambda tokens: [types.MappingProxyType(token) for token in tokens],
    "UserDict": lambda tokens: [collections.UserDict(token) for token in tokens],
}


def refused(values):
    """What holds no list of values, by name: things without an order, or that can be read only once."""
    values = list(values)
    return {
        "generator": lambda: (value for value in values),
        "iterator": lambda: iter(values),
        "map": lambda: map(str, values),
        "zip": lambda: zip(values, strict=True),
        "dict": lambda: dict(enumerate(values)),
        "set": lambda: set(range(len(values))),
        "frozenset": lambda: frozenset(range(len(values))),
        "keys": lambda: dict(enumerate(values)).keys(),
        "string": lambda: "x" * len(values),
        "bytes": lambda: b"x" * len(values),
        "number": lambda: 3.5,
        "boolean": lambda: True,
        "object": object,
        "class": lambda: list,
        "function": lambda: len,
        "scalar array": lambda: np.array(1.0),
    }
