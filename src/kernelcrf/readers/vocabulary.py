"""Find the columns of feature names by the hashes of the names.

Python computes 64 bits of SipHash for each string. The table stores the hash and the column of each name side by side
in one array, and looks up all names of a sentence in one compiled loop. A dict takes several times as long, because it
also reads the string and the number of each entry, which are scattered in memory; and it takes five times the memory.

A name that is not in the table is found by mistake if its hash is equal to the hash of another name. With a million
names in the table, the probability is 5e-14.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Ints, Labels
from kernelcrf.engines.compiled import compiled
from kernelcrf.readers.feature_items import SEPARATOR


class Vocabulary:
    """The columns of distinct feature names: name i has the column i.

    Python hashes strings differently in each process. Copies and pickles therefore contain only the names.

    separator : the text between the name and the value of a feature whose value is a string.
    """

    def __init__(self, names: Sequence[str] = (), separator: str = SEPARATOR) -> None:
        self.names = names
        self.separator = separator

    def __len__(self) -> int:
        return len(self.names)

    def find(self, names: Iterable[str], n: int) -> Labels:
        """Return the column of each of the n names, or -1 for a name without a column."""
        if self._slots is None:
            return np.fromiter((self.columns.get(name, -1) for name in names), np.int32, n)
        columns = np.empty(n, np.int32)
        _find(np.fromiter(map(hash, names), np.int64, n), self._slots, columns)
        return columns

    @cached_property
    def columns(self) -> dict[str, int]:
        """Return a dict from names to columns."""
        return {name: column for column, name in enumerate(self.names)}

    @cached_property
    def _slots(self) -> Ints | None:
        """Return one row per slot with a hash and a column, or with the column -1 if the slot is empty.

        Return None if the table cannot be used: Python's hashes are too short, or two names have the same hash.
        """
        slots = np.full((1 << (len(self.names) * 3 // 2).bit_length(), 2), -1, np.int64)
        hashes = np.fromiter(map(hash, self.names), np.int64, len(self.names))
        return slots if sys.hash_info.width == 64 and _fill(hashes, slots) else None

    def __getstate__(self) -> dict[str, object]:
        return {"names": self.names, "separator": self.separator}


@compiled
def _fill(hashes: Ints, slots: Array) -> bool:
    """Write hashes and columns to empty slots; return whether all hashes are distinct."""
    last = len(slots) - 1
    for column in range(len(hashes)):
        i = hashes[column] & last
        while slots[i, 1] >= 0:
            if slots[i, 0] == hashes[column]:
                return False
            i = (i + 1) & last
        slots[i, 0], slots[i, 1] = hashes[column], column
    return True


@compiled
def _find(hashes: Ints, slots: Ints, columns: Labels) -> None:
    last = len(slots) - 1
    for e in range(len(hashes)):
        i = hashes[e] & last
        while slots[i, 1] >= 0 and slots[i, 0] != hashes[e]:
            i = (i + 1) & last
        columns[e] = slots[i, 1]
