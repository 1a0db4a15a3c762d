"""The bytes that a packed file may unpack to: max(LEAST, RATIO p) for p packed bytes.

A file of a few kilobytes can unpack to terabytes, while text and numbers pack to about a tenth of their size. Whatever
exceeds the limit is refused before it is in memory. Users who trust such a file can unpack it first.
"""

from __future__ import annotations

import gzip
import io
from typing import BinaryIO

from kernelcrf.formats.records import FormatError

LEAST = 1 << 28
RATIO = 100


def allowed(packed: int) -> int:
    """Return the number of bytes that so many packed bytes may unpack to."""
    return max(LEAST, RATIO * packed)


class Gunzipped:
    """The unpacked bytes of a gzipped stream, within the limit for what has been read of it."""

    def __init__(self, packed: BinaryIO, name: str) -> None:
        self._packed, self._name, self._n_unpacked = _Counted(packed), name, 0
        self._file = gzip.GzipFile(fileobj=self._packed, mode="rb")

    def read1(self, size: int) -> bytes:
        """Return at most `size` further bytes, none at the end."""
        chunk = self._file.read1(size)
        self._n_unpacked += len(chunk)
        if self._n_unpacked > allowed(self._packed.n):
            raise FormatError(
                f"{self._name}: {self._packed.n:,} packed bytes unpack to more than {allowed(self._packed.n):,}: "
                "gunzip the file first if you trust it"
            )
        return chunk


class _Counted(io.RawIOBase):
    """A stream that counts the bytes that were read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.n = file, 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._file.read(size)
        self.n += len(chunk)
        return chunk
