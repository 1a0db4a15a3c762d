"""Read numbers from bytes that may be damaged; each position is checked before it is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, DType, Ints
from kernelcrf.persistence import ModelFileError

NUMBER = np.dtype("<u4")


@dataclass(frozen=True)
class CheckedBytes:
    """The bytes of a file, or of a part of a file; `what` is the name of these bytes in error messages."""

    data: bytes
    what: str

    def __len__(self) -> int:
        return len(self.data)

    def part(self, start: int, size: int, what: str) -> CheckedBytes:
        """Return the `size` bytes from `start` on; raise if there are fewer bytes."""
        self._check(start, size, what)
        return CheckedBytes(self.data[start : start + size], what)

    def rows(self, start: int, n: int, dtype: DType, what: str) -> Array:
        """Return `n` rows of the type `dtype` from byte `start` on, as a read-only view."""
        self._check(start, n * dtype.itemsize, what)
        return np.frombuffer(self.data, dtype, n, start) if n else np.empty(0, dtype)

    def numbers(self, start: int, n: int, what: str) -> Ints:
        """Return `n` unsigned 32-bit numbers from byte `start` on."""
        return self.rows(start, n, NUMBER, what).astype(np.int64)

    def numbers_at(self, places: Ints, what: str) -> Ints:
        """Return the unsigned 32-bit numbers at the byte positions `places`."""
        if len(places) and (places.min() < 0 or places.max() + NUMBER.itemsize > len(self)):
            last = len(self) - 1
            raise ModelFileError(f"{what} have positions outside {self.what}: expected positions from 0 to {last:,}")
        raw = np.frombuffer(self.data, np.uint8)
        return sum((raw[places + i].astype(np.int64) << 8 * i for i in range(4)), np.zeros(len(places), np.int64))

    def _check(self, start: int, size: int, what: str) -> None:
        if start + size > len(self):
            raise ModelFileError(
                f"{what} should be bytes {start:,} to {start + size:,} of {self.what}, which has only {len(self):,} "
                "bytes"
            )
