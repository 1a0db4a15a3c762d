""".npz files: a few arrays, in which the tokens of all sequences follow one another.

X           (N, d); or data, indices, indptr and shape of a CSR matrix, as scipy.sparse.save_npz writes them
lengths     (m,) numbers of tokens per sequence
y           (N,) labels, optional
tokens      (N,) words to show, optional
weight      (m,) weights of sequences, optional
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy

from kernelcrf.arrays import Array, Inputs, check_rows
from kernelcrf.formats.records import FormatError, Record, one_line, plain
from kernelcrf.formats.round_trip import check_same
from kernelcrf.formats.streams import allowed, display_name
from kernelcrf.persistence import PathLike
from kernelcrf.validation import shown_list

CSR = ("data", "indices", "indptr", "shape")


def load_arrays(path: PathLike) -> dict[str, Array]:
    """Return the arrays of an .npz file by name, without unpickling; raise ValueError if the file is damaged."""
    with open(path, "rb") as file:
        try:
            _check_sizes(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except Exception as error:
            # A damaged archive makes zipfile, zlib, lzma and NumPy raise a dozen kinds of errors.
            raise ValueError(str(error) or type(error).__name__) from None


def read(path: PathLike) -> Iterator[list[Record]]:
    """Yield all records, of kind "vectors", in one batch."""
    name = display_name(path)
    try:
        found = load_arrays(path)
    except ValueError as error:
        raise FormatError(f"{name}: expected an .npz file of plain arrays ({one_line(error)})") from None
    yield _records(found, name)


def _records(found: dict[str, Array], name: str) -> list[Record]:
    X, lengths = _inputs(found, name), found.get("lengths")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise FormatError(
            f"{name}: expected an array lengths (m,) of integers above 0, got the arrays {shown_list(sorted(found))}"
        )
    m, n_tokens = len(lengths), sum(lengths.tolist())
    if n_tokens != X.shape[0]:
        raise FormatError(f"{name}: the lengths sum to {n_tokens} and X has {X.shape[0]} rows: expected the same")
    for key, length, kinds in (("y", n_tokens, "biufSU"), ("tokens", n_tokens, "biufSU"), ("weight", m, "biuf")):
        if key in found and (found[key].shape != (length,) or found[key].dtype.kind not in kinds):
            raise FormatError(
                f"{name}: {key} has shape {found[key].shape} and type {found[key].dtype}: expected ({length},) "
                + ("numbers or strings" if "U" in kinds else "numbers")
            )
    weight = found.get("weight", np.ones(m))
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise FormatError(f"{name}: weight has entries that are negative or not finite: expected numbers >= 0")
    ends = np.cumsum(lengths).tolist()
    return [
        Record(
            "vectors",
            X[end - length : end],
            found["y"][end - length : end].tolist() if "y" in found else None,
            list(map(str, found["tokens"][end - length : end])) if "tokens" in found else None,
            f"{name}, sequence {i}",
            None,
            float(weight[i]),
        )
        for i, (end, length) in enumerate(zip(ends, lengths.tolist(), strict=True))
    ]


def write(file: BinaryIO, records: Iterable[Record]) -> None:
    """Write records of kind "vectors" to an open binary file."""
    records = list(records)
    widths = {record.width for record in records}
    if len(widths) > 1:
        raise FormatError(f"{records[0].place}: vectors have {sorted(widths)} entries: expected the same number in all")
    found: dict[str, Array] = {"lengths": np.array(list(map(len, records)), np.int64)}
    if any(sp.issparse(record.x) for record in records):
        X = sp.csr_array(sp.vstack([record.x for record in records]))
        found |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    else:
        found["X"] = np.concatenate([record.x for record in records])
    for key, entry in (("y", "labels"), ("tokens", "tokens")):
        missing = [record for record in records if getattr(record, entry) is None]
        if missing and len(missing) < len(records):
            raise FormatError(
                f"{missing[0].place}: the sequence has no {entry}: expected {entry} for all or for none; write .jsonl"
            )
        if not missing:
            found[key] = _array(records, entry)
    if any(record.weight != 1.0 for record in records):
        found["weight"] = np.array([record.weight for record in records])
    for record, again in zip(records, _records(found, records[0].place), strict=True):
        check_same(record, again, "an .npz file")
    np.savez_compressed(file, **found)  # type: ignore[arg-type]


def _inputs(found: dict[str, Array], name: str) -> Inputs:
    X: Inputs = found.get("X")
    if all(key in found for key in CSR):
        try:
            parts = (found["data"], found["indices"], found["indptr"])
            X = sp.csr_array(parts, shape=tuple(found["shape"].tolist()))
            check_rows(X)
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"{name}: expected the parts of a CSR matrix ({one_line(error)})") from None
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        raise FormatError(
            f"{name}: expected an array X (N, d) of numbers, or {', '.join(CSR)} of a CSR matrix, got the arrays "
            f"{shown_list(sorted(found))}"
        )
    return X


def _array(records: list[Record], entry: str) -> Array:
    """Return all labels or all tokens as one array."""
    values = [plain(one) for record in records for one in getattr(record, entry)]
    if len(set(map(type, values))) == 1 and isinstance(values[0], str | int | float):
        return np.array(values)
    raise FormatError(
        f"{records[0].place}: {entry} are missing or have several types: expected strings, integers or floats only; "
        "use -1 for a missing integer label, or write .jsonl"
    )


def _check_sizes(file: BinaryIO, packed: int) -> None:
    """Raise if the archive would unpack to too many bytes, or if an array states more bytes than are stored."""
    with zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > allowed(packed):
            raise ValueError(
                f"{packed:,} packed bytes unpack to {total:,}: expected at most {allowed(packed):,}; if you trust the "
                "file, write it with np.savez, which does not compress"
            )
        for info in archive.infolist():
            with archive.open(info) as member:
                read_head = npy.read_array_header_1_0 if npy.read_magic(member)[0] == 1 else npy.read_array_header_2_0
                shape, _, dtype = read_head(member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(f"array {info.filename!r} of shape {shape} needs more bytes than the file has for it")
