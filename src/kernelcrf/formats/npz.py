"""Read and write .npz files with the following arrays, in which the tokens of all sequences follow one another.

X           one row of numbers per token; instead of X, a CSR matrix has the arrays data, indices, indptr and shape
lengths     the number of tokens of each sequence
y           one label per token (optional)
tokens      one word per token, to be displayed (optional)
weight      one weight per sequence (optional)
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
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.round_trip import check_same
from kernelcrf.formats.streams import allowed, display_name
from kernelcrf.persistence import PathLike, local_copy
from kernelcrf.readers.labels import plain
from kernelcrf.validation import one_line, shown_list

CSR = ("data", "indices", "indptr", "shape")


def load_arrays(path: PathLike) -> dict[str, Array]:
    """Return a dict with the arrays of an .npz file; raise ValueError if the file is damaged or has pickled objects."""
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
    """Yield a single list with all records; the input of each token is a vector."""
    name = display_name(path)
    try:
        with local_copy(path) as copy:
            arrays = load_arrays(copy)
    except ValueError as error:
        raise FormatError(f"{name}: expected an .npz file of plain arrays ({one_line(error)})") from None
    yield _records(arrays, name)


def _records(arrays: dict[str, Array], name: str) -> list[Record]:
    X, lengths = _inputs(arrays, name), arrays.get("lengths")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise FormatError(
            f"{name}: the file has the arrays {shown_list(sorted(arrays))}: expected a 1-D array named lengths, with "
            "one integer above 0 per sequence"
        )
    m, n_tokens = len(lengths), sum(lengths.tolist())
    if n_tokens != X.shape[0]:
        raise FormatError(
            f"{name}: the lengths sum to {n_tokens}, but X has {X.shape[0]} rows: expected one row per token"
        )
    for key, length, kinds in (("y", n_tokens, "biufSU"), ("tokens", n_tokens, "biufSU"), ("weight", m, "biuf")):
        if key in arrays and (arrays[key].shape != (length,) or arrays[key].dtype.kind not in kinds):
            raise FormatError(
                f"{name}: {key} has shape {arrays[key].shape} and type {arrays[key].dtype}: expected shape ({length},) "
                + ("and numbers or strings" if "U" in kinds else "and numbers")
            )
    weight = arrays.get("weight", np.ones(m))
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise FormatError(f"{name}: weight has entries that are negative or not finite: expected numbers >= 0")
    texts = {key: _texts(arrays[key], f"{name}: {key}") for key in ("y", "tokens") if key in arrays}
    ends = np.cumsum(lengths).tolist()
    return [
        Record(
            "vectors",
            X[end - length : end],
            texts["y"][end - length : end].tolist() if "y" in texts else None,
            list(map(str, texts["tokens"][end - length : end])) if "tokens" in texts else None,
            f"{name}, sequence {i}",
            None,
            float(weight[i]),
        )
        for i, (end, length) in enumerate(zip(ends, lengths.tolist(), strict=True))
    ]


def write(file: BinaryIO, records: Iterable[Record]) -> None:
    """Write records with vectors as their input to an open binary file."""
    records = list(records)
    widths = {record.width for record in records}
    if len(widths) > 1:
        raise FormatError(
            f"{records[0].place}: the vectors have different lengths, {sorted(widths)}: expected the same length for "
            "all tokens of all sequences"
        )
    arrays: dict[str, Array] = {"lengths": np.array(list(map(len, records)), np.int64)}
    if any(sp.issparse(record.x) for record in records):
        X = sp.csr_array(sp.vstack([record.x for record in records]))
        arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    else:
        arrays["X"] = np.concatenate([record.x for record in records])
    for key, entry in (("y", "labels"), ("tokens", "tokens")):
        missing = [record for record in records if getattr(record, entry) is None]
        if missing and len(missing) < len(records):
            raise FormatError(
                f"{missing[0].place}: the sequence has no {entry}, and others have: expected {entry} for all "
                f"sequences or for none; a .jsonl file can have {entry} for some of them"
            )
        if not missing:
            arrays[key] = _array(records, entry)
    if any(record.weight != 1.0 for record in records):
        arrays["weight"] = np.array([record.weight for record in records])
    for record, again in zip(records, _records(arrays, records[0].place), strict=True):
        check_same(record, again, "an .npz file")
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _texts(values: Array, name: str) -> Array:
    """Decode an array of byte strings from UTF-8; return any other array unchanged."""
    try:
        return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    except UnicodeDecodeError as error:
        raise FormatError(f"{name} has byte strings that are not UTF-8 text ({error}): expected strings") from None


def _inputs(arrays: dict[str, Array], name: str) -> Inputs:
    X: Inputs = arrays.get("X")
    if all(key in arrays for key in CSR):
        try:
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            X = sp.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
            check_rows(X)
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(
                f"{name}: the arrays {', '.join(CSR)} do not form a valid CSR matrix ({one_line(error)}): expected "
                "the arrays of one CSR matrix of SciPy, and its shape"
            ) from None
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        raise FormatError(
            f"{name}: the file has the arrays {shown_list(sorted(arrays))}: expected an array X with one row of "
            f"numbers per token, or the arrays {', '.join(CSR)} of a CSR matrix"
        )
    return X


def _array(records: list[Record], entry: str) -> Array:
    """Return the attribute `entry`, "labels" or "tokens", of all records as one array."""
    values = [plain(one) for record in records for one in getattr(record, entry)]
    if len(set(map(type, values))) == 1 and isinstance(values[0], str | int | float):
        return np.array(values)
    raise FormatError(
        f"{records[0].place}: some {entry} are missing or have different types: expected only strings, only integers "
        "or only floats; use -1 for a missing integer label, or write a .jsonl file"
    )


def _check_sizes(file: BinaryIO, packed: int) -> None:
    """Raise if an .npz file of `packed` bytes unpacks to too many bytes, or if an array is too short for its shape."""
    with zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > allowed(packed):
            raise ValueError(
                f"{packed:,} packed bytes unpack to {total:,} bytes: expected at most {allowed(packed):,}; if you "
                "trust the file, write it again with np.savez, which does not compress"
            )
        for info in archive.infolist():
            with archive.open(info) as member:
                read_head = npy.read_array_header_1_0 if npy.read_magic(member)[0] == 1 else npy.read_array_header_2_0
                shape, _, dtype = read_head(member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(
                    f"the array {info.filename!r} of shape {shape} needs more bytes than the file stores for it: "
                    "expected a complete file"
                )
