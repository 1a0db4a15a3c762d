"""The columns of feature names: a dict for a small vocabulary, and a table of hashes for a large one.

Python computes 64 bits of SipHash for each string. The table has the hashes in increasing order. For each value of the
highest bits of a hash, it also has the place of the first hash with these bits. The columns of all names of a sentence
are therefore found together, in a few steps. The table takes about 15 bytes per name, and a dict about 200. In a dict,
the string and the number of an entry lie anywhere in memory, and reading them takes longest. The names of a file are
decoded a few at a time and are not kept.

As in `readers.vocabulary`, a name that is not in the table is found by mistake if its hash is equal to that of another
name. With a million names in the table, the probability is 5e-14. If two names of the vocabulary have equal hashes, or
hashes have fewer bits, a dict is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Protocol

import numpy as np

from ..arrays import Ints, Labels, Places
from ..persistence.error import ModelFileError

# Up to this number of names, a dict fits in the cache of a processor, and is faster.
FEW_NAMES = 2**14


class Names(Protocol):
    """Protocol of vocabularies: the column of name i is i, and the column of an unknown name is the number of names."""

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""


class NameDict:
    """A vocabulary that is stored as a dict from names to columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._n, columns = len(names), dict(zip(names, range(len(names)), strict=True))
        if len(columns) < self._n:
            raise ModelFileError(
                f"the model file has {self._n - len(columns)} duplicates in feature_names: expected {self._n} "
                "distinct strings. The file may be damaged: use another copy of it"
            )
        self._column_of = columns.get

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""
        return np.fromiter(map(self._column_of, names, repeat(self._n)), np.intp, n)


class HashTable:
    """A vocabulary that finds the columns of names by the hashes of the names.

    hashes : the distinct hashes of the names, in increasing order.
    columns : the column of the name with each hash.
    """

    def __init__(self, hashes: Ints, columns: Labels) -> None:
        bits = len(hashes).bit_length() - 1
        self._last, self._shift, self._half = len(hashes), 64 - bits, 1 << bits - 1
        # Slot k has the names from first[k] to first[k + 1] - 1. The last entry stands for all unknown names.
        self._first = np.zeros(2 * self._half + 1, np.int32)
        np.cumsum(np.bincount(self._slots(hashes), minlength=2 * self._half), out=self._first[1:])
        self._hashes = np.append(hashes, 0)
        self._columns = np.append(columns, np.int32(self._last))

    def find(self, names: Iterable[str], n: int) -> Places:
        """Return the column of each of the n names."""
        hashes = np.fromiter(map(hash, names), np.int64, n)
        slots = self._slots(hashes)
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

    def _slots(self, hashes: Ints) -> Places:
        """Return the slot of each hash: its highest bits as a number, increased so that the smallest slot is 0."""
        slots: Places = hashes >> self._shift
        slots += self._half
        return slots


def names_of(names: Sequence[str]) -> Names:
    """Return the vocabulary of names; raise ModelFileError if two names are equal."""
    if len(names) > FEW_NAMES and sys.hash_info.width == 64:
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        columns = hashes.argsort().astype(np.int32)
        hashes = hashes[columns]
        if (hashes[1:] != hashes[:-1]).all():
            return HashTable(hashes, columns)
    return NameDict(names)
