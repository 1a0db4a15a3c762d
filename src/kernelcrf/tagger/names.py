"""The columns of feature names: a dict for a small vocabulary, and a table of hashes for a large one.

Python computes 64 bits of SipHash for each string. The table has the hashes in the order of their lowest bits, so that
a few steps, each for all names of a sentence at once, find them. It takes about 30 bytes per name, and a dict with
the names about 200. In a dict, the string and the number of an entry lie anywhere in memory, and reading them takes
longest.

As in `readers.name_table`, a name that is not in the table is found by mistake if its hash is equal to that of another
name. With a million names in the table, the probability is 5e-14. If two names of the vocabulary have equal hashes, or
hashes have fewer bits, a dict is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Protocol

import numpy as np

from ..arrays import Ints, Places

# Up to this number of names, a dict fits in the cache of a processor, and is faster.
FEW_NAMES = 2**14


class Names(Protocol):
    """Protocol of vocabularies: the column of name i is i, and that of an unknown name is the number of names."""

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""


class NameDict:
    """The columns of names as a dict."""

    def __init__(self, names: Sequence[str]) -> None:
        self._n = len(names)
        self._column_of = dict(zip(names, range(len(names)), strict=True)).get

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""
        return np.fromiter(map(self._column_of, names, repeat(self._n)), np.intp, n)


class HashTable:
    """The columns of names, which are found by their hashes.

    hashes : the hash of each name; they are distinct.
    """

    def __init__(self, hashes: Ints) -> None:
        self._last, self._mask = len(hashes), (2 << len(hashes).bit_length()) - 1
        slots = hashes & self._mask
        order = np.argsort(slots, kind="stable")
        # Slot k has the names from first[k] to first[k + 1] - 1. The last entry stands for all unknown names.
        self._first = np.zeros(self._mask + 2, np.int32)
        np.cumsum(np.bincount(slots, minlength=self._mask + 1), out=self._first[1:])
        self._columns, self._hashes = np.append(order, self._last).astype(np.int32), np.append(hashes[order], 0)

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""
        hashes = np.fromiter(map(hash, names), np.int64, n)
        slots = hashes & self._mask
        places = self._first[slots]
        left = np.flatnonzero(self._hashes[places] != hashes)
        while len(left):
            here = places[left] + 1
            inside = here < self._first[slots[left] + 1]
            places[left] = np.where(inside, here, self._last)
            left = left[inside]
            left = left[self._hashes[places[left]] != hashes[left]]
        columns: Places = self._columns[places].astype(np.intp)
        return columns


def names_of(names: Sequence[str]) -> Names:
    """Return the vocabulary of distinct names."""
    if len(names) > FEW_NAMES and sys.hash_info.width == 64:
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        ordered = np.sort(hashes)
        if (ordered[1:] != ordered[:-1]).all():
            return HashTable(hashes)
    return NameDict(names)
