""".npz files: the arrays of all sequences, one after the other.

X           (N, d); or data, indices, indptr and shape of a CSR matrix, as scipy.sparse.save_npz writes them
lengths     (m,) numbers of tokens
y           (N,) labels, where there are some
tokens      (N,) words to show, where there are some
weight      (m,), where sequences do not count the same
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf.formats.faithful import same_numbers
from kernelcrf.formats.records import FormatError, Record, one_line
from kernelcrf.formats.streams import STDIN, PathLike, display_name
from kernelcrf.formats.unpacking import load_arrays
from kernelcrf.kernels.rows import check_rows
from kernelcrf.validation import shown, shown_list

CSR = ("data", "indices", "indptr", "shape")


def read(path: PathLike) -> Iterator[list[Record]]:
    """All records, of kind "vectors", in one batch."""
    name = display_name(path)
    if os.fspath(path) == STDIN:
        raise FormatError(f"{name}: an .npz file is not read from its beginning to its end: name the file")
    try:
        found = load_arrays(path)
    except ValueError as error:
        raise FormatError(f"{name}: expected an .npz file of plain arrays ({one_line(error)})") from None
    X, lengths = _inputs(found, name), found.get("lengths")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise FormatError(
            f"{name}: expected an array lengths (m,) of integers above 0, got the arrays {shown_list(sorted(found))}"
        )
    if (n_tokens := sum(lengths.tolist())) != X.shape[0]:
        raise FormatError(f"{name}: lengths sums to {n_tokens} and X has {X.shape[0]} rows: expected the same")
    per_token = {key: _checked(found[key], key, X.shape[0], "biufSU", name) for key in ("y", "tokens") if key in found}
    weight = np.ones(len(lengths))
    if "weight" in found:
        weight = _checked(found["weight"], "weight", len(lengths), "biuf", name)
        if not (np.isfinite(weight) & (weight >= 0)).all():
            raise FormatError(f"{name}: weight has entries below 0 or not finite: expected numbers >= 0")
    ends = np.cumsum(lengths)
    slices = [slice(end - length, end) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    yield [
        Record(
            "vectors",
            X[own],
            per_token["y"][own].tolist() if "y" in per_token else None,
            list(map(str, per_token["tokens"][own])) if "tokens" in per_token else None,
            f"{name}, sequence {i}",
            None,
            float(weight[i]),
        )
        for i, own in enumerate(slices)
    ]


def write(file: Any, records: Iterable[Record]) -> None:
    """Write records of kind "vectors" to an open binary file."""
    records = list(records)
    other = next((record for record in records if record.kind != "vectors"), None)
    if other is not None:
        raise FormatError(
            f"{other.place}: .npz files hold vectors, and this sequence has {other.kind}: write .jsonl, which holds "
            "any kind"
        )
    widths = {record.x.shape[1] for record in records}
    if len(widths) > 1:
        raise FormatError(f"{records[0].place}: vectors of {sorted(widths)} numbers: expected one width")
    found: dict[str, Any] = {"lengths": np.array(list(map(len, records)), np.int64)}
    if any(sp.issparse(record.x) for record in records):
        X: Any = sp.csr_array(sp.vstack([record.x for record in records]))
        found |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    else:
        X = found["X"] = np.concatenate([record.x for record in records])
    _check_numbers(X, records)
    for key, entry in (("y", "labels"), ("tokens", "tokens")):
        values = [getattr(record, entry) for record in records]
        present = [value is not None for value in values]
        if any(present) and not all(present):
            place = records[present.index(False)].place
            raise FormatError(f"{place}: no {entry}, which other sequences have: write .jsonl, or all of them")
        if all(present):
            found[key] = _array(records, entry)
    if any(record.weight != 1.0 for record in records):
        found["weight"] = np.array([record.weight for record in records])
    np.savez_compressed(file, **found)


def _inputs(found: dict[str, Any], name: str) -> Any:
    if all(key in found for key in CSR):
        try:
            parts = (found["data"], found["indices"], found["indptr"])
            X: Any = sp.csr_array(parts, shape=tuple(found["shape"].tolist()))
            check_rows(X)
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"{name}: expected the parts of a CSR matrix ({one_line(error)})") from None
    else:
        X = found.get("X")
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        raise FormatError(
            f"{name}: expected an array X (N, d) of numbers, or {', '.join(CSR)} of a CSR matrix, got the arrays "
            f"{shown_list(sorted(found))}"
        )
    return X


def _checked(array: Any, key: str, length: int, kinds: str, name: str) -> Any:
    if array.shape != (length,) or array.dtype.kind not in kinds:
        expected = "numbers" if kinds == "biuf" else "numbers or strings"
        raise FormatError(
            f"{name}: {key} has shape {array.shape} and type {array.dtype}: expected ({length},) {expected}"
        )
    return array


def _check_numbers(X: Any, records: list[Record]) -> None:
    """Refuse integers that became other numbers when they were put beside floats."""
    end = 0
    for record in records:
        start, end = end, end + len(record)
        if record.x.dtype != X.dtype and not same_numbers(record.x, X[start:end]):
            raise FormatError(
                f"{record.place}: integers above 2^53 beside floats of other sequences cannot be one array: write "
                ".jsonl, or floats alone"
            )


def _array(records: list[Record], entry: str) -> Any:
    """Return all labels or all tokens as one array that has the same values."""
    values = [one for record in records for one in getattr(record, entry)]
    values = [one.item() if isinstance(one, np.generic) else one for one in values]
    array = None
    if len(set(map(type, values))) == 1 and isinstance(values[0], str | int | float):
        array = np.array(values)
    if array is not None and array.dtype.kind != "O" and all(map(_same, array.tolist(), values)):
        return array
    place = records[0].place
    if array is not None and array.dtype.kind != "O":
        # NumPy drops NULs at the end of a string, and rounds integers that no type of its own can hold.
        changed = next(i for i, (a, b) in enumerate(zip(array.tolist(), values, strict=True)) if not _same(a, b))
        ends = np.cumsum(list(map(len, records)))
        place = records[int(np.searchsorted(ends, changed, side="right"))].place
        place = f"{place}: {shown(values[changed])} would be read as {shown(array.tolist()[changed])}"
    raise FormatError(
        f"{place}: {entry} of several types, missing ones, strings that end in NUL and integers beyond 64 bits cannot "
        "be an array: write .jsonl; -1 is a missing label among integers"
    )


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
