"""How much a packed file may unpack to: one of p bytes to at most max(LEAST, RATIO p).

A file of a few kilobytes can be made that unpacks to terabytes; text and arrays of numbers pack to a tenth or so. What
goes beyond the limit is refused before it is in memory. Whoever trusts such a file unpacks it beforehand.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
from typing import Any

import numpy as np
from numpy.lib import format as npy

from kernelcrf.formats.records import FormatError

LEAST = 1 << 28
RATIO = 100


def allowed(packed: int) -> int:
    """The bytes that so many packed ones may unpack to."""
    return max(LEAST, RATIO * packed)


class Gunzipped:
    """The bytes of a gzipped stream, within the limit of what has been read of it."""

    def __init__(self, packed: Any, name: str) -> None:
        self._packed, self._name, self._n_unpacked = _Counted(packed), name, 0
        self._file = gzip.GzipFile(fileobj=self._packed, mode="rb")

    def read1(self, size: int) -> bytes:
        """At most `size` further bytes; none at the end."""
        chunk: bytes = self._file.read1(size)
        self._n_unpacked += len(chunk)
        if self._n_unpacked > allowed(self._packed.n):
            raise FormatError(
                f"{self._name}: {self._packed.n:,} packed bytes unpack to more than {allowed(self._packed.n):,}: "
                "expected at most so many; gunzip it first if you trust it"
            )
        return chunk


class _Counted(io.RawIOBase):
    """A stream that knows how much of it was read."""

    def __init__(self, file: Any) -> None:
        self._file, self.n = file, 0

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._file.read(size)
        self.n += len(chunk)
        return chunk


def load_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of an .npz file without pickles, by name; a ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        try:
            _check_sizes(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except Exception as error:
            # A damaged archive makes zipfile, zlib, lzma and NumPy raise a dozen kinds of errors.
            raise ValueError(str(error) or type(error).__name__) from None


def _check_sizes(file: Any, packed: int) -> None:
    """Before an array is made: that its member holds as much as its head says, and all together are within bounds."""
    with zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > allowed(packed):
            raise ValueError(
                f"{packed:,} packed bytes unpack to {total:,}, expected at most {allowed(packed):,}: write it by "
                "np.savez, which does not pack, if you trust it"
            )
        for info in archive.infolist():
            with archive.open(info) as member:
                read_head = npy.read_array_header_1_0 if npy.read_magic(member)[0] == 1 else npy.read_array_header_2_0
                shape, _, dtype = read_head(member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(f"array {info.filename!r} of shape {shape} is larger than its file")
