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

from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import STDIN, PathLike, display_name
from kernelcrf.formats.unpacking import load_arrays

CSR = ("data", "indices", "indptr", "shape")


def read(path: PathLike) -> Iterator[list[Record]]:
    """All records, of kind "vectors", in one batch."""
    name = display_name(path)
    if os.fspath(path) == STDIN:
        raise FormatError(f"{name}: an .npz file is not read from its beginning to its end: name the file")
    try:
        found = load_arrays(path)
    except ValueError as error:
        raise FormatError(f"{name}: expected an .npz file of plain arrays ({error})") from None
    X, lengths = _inputs(found, name), found.get("lengths")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise FormatError(f"{name}: expected an array lengths (m,) of integers above 0, got the arrays {sorted(found)}")
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
        X = sp.csr_array(sp.vstack([record.x for record in records]))
        found |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    else:
        found["X"] = np.concatenate([record.x for record in records])
    for key, entry in (("y", "labels"), ("tokens", "tokens")):
        values = [getattr(record, entry) for record in records]
        if all(value is not None for value in values):
            found[key] = _array([one for value in values for one in value], records[0].place)
    if any(record.weight != 1.0 for record in records):
        found["weight"] = np.array([record.weight for record in records])
    np.savez_compressed(file, **found)


def _inputs(found: dict[str, Any], name: str) -> Any:
    if all(key in found for key in CSR):
        try:
            parts = (found["data"], found["indices"], found["indptr"])
            X: Any = sp.csr_array(parts, shape=tuple(found["shape"].tolist()))
            X.check_format()
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"{name}: expected the parts of a CSR matrix ({error})") from None
    else:
        X = found.get("X")
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        raise FormatError(
            f"{name}: expected an array X (N, d) of numbers, or {', '.join(CSR)} of a CSR matrix, got {sorted(found)}"
        )
    return X


def _checked(array: Any, key: str, length: int, kinds: str, name: str) -> Any:
    if array.shape != (length,) or array.dtype.kind not in kinds:
        expected = "numbers" if kinds == "biuf" else "numbers or strings"
        raise FormatError(
            f"{name}: {key} has shape {array.shape} and type {array.dtype}: expected ({length},) {expected}"
        )
    return array


def _array(values: list[Any], place: str) -> Any:
    if len(set(map(type, values))) > 1 or not isinstance(values[0], str | int | float | np.generic):
        raise FormatError(
            f"{place}: labels of several types, or missing ones, cannot be an array: write .jsonl; -1 is a missing "
            "label among integers"
        )
    return np.array(values)
