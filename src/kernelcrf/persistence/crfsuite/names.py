"""Read and write lists of names in the model files of CRFsuite: chunks "CQDB" with a hash table from names to ids.

A chunk has five parts. All numbers are unsigned, with 32 bits and the lowest byte first, and positions count from the
beginning of the chunk.

    header            the letters CQDB, the size of the chunk, flags (0), a fixed number that tells the order of the
                      bytes, the number n of names, the position of the last part (0 if n = 0)
    tables            the position and the number of slots of each of the TABLES hash tables (0 and 0 if it is empty)
    records           for each name: its id, the number of its bytes including a final NUL, and these bytes
    slots             for each table: pairs of a hash and the position of a record (0 if the slot is empty)
    positions         the position of the record of each id

The hash h of a name is Jenkins' lookup3 of its bytes, including the NUL. The name belongs to table h mod TABLES. Names
are added in order of their ids, each to the first free slot. In a table with s slots, the search for a free slot begins
at slot (h >> 8) mod s, and continues at slot 0 after the last slot. A table has twice as many slots as names.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Ints
from kernelcrf.engines.compiled import compiled
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.crfsuite.checked_bytes import NUMBER, CheckedBytes

HEADER = struct.Struct("<4s5I")
MARK, BYTE_ORDER = b"CQDB", 0x62445371
TABLES = 256
FIRST_RECORD = HEADER.size + 8 * TABLES
BITS = 0xFFFFFFFF


def read_names(file: CheckedBytes, start: int, n: int, what: str) -> list[bytes]:
    """Return the `n` names of the chunk that begins at byte `start`, in order of their ids.

    `what` is "labels" or "attributes", for error messages.
    """
    mark, size, _, order, n_found, positions = HEADER.unpack(file.part(start, HEADER.size, f"the {what}").data)
    if mark != MARK or order != BYTE_ORDER or n_found != n:
        raise ModelFileError(
            f"the list of {what} begins with {mark!r} and {order:#x}, and has {n_found:,} names: expected {MARK!r}, "
            f"{BYTE_ORDER:#x} and {n:,} names"
        )
    chunk = file.part(start, size, f"the list of {what}")
    places = chunk.numbers(positions, n, f"the positions of {what}")
    ids = chunk.numbers_at(places, f"the positions of {what}")
    lengths = chunk.numbers_at(places + 4, f"the positions of {what}")
    begins, ends = places + 8, places + 8 + lengths
    by_place = np.argsort(places)
    # Records that do not overlap cannot need more memory than the file.
    bounds = np.append(places[by_place][1:], size)
    if (ids != np.arange(n)).any() or (lengths < 1).any() or (n and (ends[by_place] > bounds).any()):
        raise ModelFileError(
            f"the list of {what} has ids other than 0 to {n - 1:,} in order, or wrong lengths of names: expected these "
            "ids, and lengths >= 1 for which names do not overlap"
        )
    text = chunk.data
    names = [text[a:b] for a, b in zip(begins.tolist(), (ends - 1).tolist(), strict=True)]
    if np.frombuffer(text, np.uint8)[ends - 1].any() or b"\0" in b"".join(names):
        raise ModelFileError(f"a NUL is missing or misplaced in the {what}: expected one at the end of each name")
    if len(set(names)) < n:
        raise ModelFileError(f"two {what} have the same name: expected different names")
    _check_tables(chunk, places, _hash(names), what)
    return names


def names_chunk(names: Sequence[bytes]) -> bytes:
    """Return the chunk of a list of names; the id of a name is its place in the list."""
    n = len(names)
    lengths = np.fromiter(map(len, names), np.int64, n) + 1
    places = FIRST_RECORD + np.cumsum(lengths + 8) - lengths - 8
    end = FIRST_RECORD + int(lengths.sum()) + 8 * n
    heads = np.stack((np.arange(n), lengths), axis=1).astype(NUMBER)
    records = np.empty(end - FIRST_RECORD, np.uint8)
    of_head = np.zeros(len(records), np.bool_)
    of_head[(places - FIRST_RECORD)[:, None] + np.arange(8)] = True
    records[of_head] = heads.view(np.uint8).ravel()
    records[~of_head] = _text(names)

    hashes = _hash(names)
    slots = 2 * np.bincount(hashes % TABLES, minlength=TABLES)
    starts = np.cumsum(slots) - slots
    buckets = np.zeros((2 * n, 2), np.int64)
    _fill(hashes, places, starts, slots, buckets)
    tables = np.stack((np.where(slots > 0, end + 8 * starts, 0), slots), axis=1)
    positions = end + 16 * n if n else 0
    parts: list[Array] = [tables.astype(NUMBER), records, buckets.astype(NUMBER), places.astype(NUMBER)]
    size = HEADER.size + sum(part.nbytes for part in parts)
    # Sizes that need more than 32 bits are refused once the size of the whole file is known.
    header = HEADER.pack(MARK, size & BITS, 0, BYTE_ORDER, n, positions & BITS)
    return b"".join([header, *(part.tobytes() for part in parts)])


def _check_tables(chunk: CheckedBytes, places: Ints, hashes: Ints, what: str) -> None:
    """Raise unless the hash tables lead to the names at `places`, which have the given hashes."""
    n = len(places)
    tables = chunk.numbers(HEADER.size, 2 * TABLES, f"the hash tables of {what}").reshape(TABLES, 2)
    slots = tables[:, 1]
    lost = ModelFileError(f"the hash tables of {what} do not lead to their names: expected one slot per name")
    if slots.sum() != 2 * n:
        raise lost
    read = [chunk.numbers(place, 2 * size, f"a hash table of {what}") for place, size in tables.tolist() if size]
    hash_of, place_of = np.concatenate([np.empty(0, np.int64), *read]).reshape(2 * n, 2).T
    table, used = np.repeat(np.arange(TABLES), slots), place_of > 0
    if (2 * np.bincount(table[used], minlength=TABLES) != slots).any():
        raise lost
    by_place, by_slot = np.argsort(places), np.argsort(place_of[used])
    stored, known = hash_of[used][by_slot], hashes[by_place]
    if (place_of[used][by_slot] != places[by_place]).any() or (stored != known).any():
        raise lost
    # CRFsuite gives up at the first empty slot, so there must be none between a name and its first choice.
    slot = np.arange(2 * n)
    first, size = np.repeat(np.cumsum(slots) - slots, slots), np.repeat(slots, slots)
    empty = np.maximum.accumulate(np.where(used, -1, slot))
    empty = np.where(empty >= first, empty, empty[first + size - 1] - size)
    steps = (slot - first - (hash_of >> 8)) % np.maximum(size, 1)
    if (used & ((steps >= slot - empty) | (hash_of % TABLES != table))).any():
        raise lost


def _text(names: Sequence[bytes]) -> Array:
    """Return the bytes of all names, with a NUL after each."""
    return np.frombuffer(bytearray(b"\0".join([*names, b""])), np.uint8) if names else np.empty(0, np.uint8)


def _hash(names: Sequence[bytes]) -> Ints:
    ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)) + 1)
    hashes = np.empty(len(names), np.int64)
    _lookup3(_text(names), ends, hashes)
    return hashes


@compiled
def _rotated(x: Any, k: Any) -> Any:
    return ((x << k) | (x >> (32 - k))) & BITS


@compiled
def _mixed(x: Any, y: Any, k: Any) -> Any:
    return (x ^ y) - _rotated(y, k) & BITS


@compiled
def _lookup3(text: Any, ends: Any, hashes: Any) -> None:
    """Write the hash of each key text[ends[i - 1]:ends[i]] to `hashes`; lookup3 is by Bob Jenkins, public domain."""
    start = 0
    for i in range(len(ends)):
        end = ends[i]
        a = b = c = (0xDEADBEEF + end - start) & BITS
        while True:
            for j in range(start, min(start + 12, end)):
                byte = int(text[j]) << 8 * ((j - start) % 4)
                if j < start + 4:
                    a = (a + byte) & BITS
                elif j < start + 8:
                    b = (b + byte) & BITS
                else:
                    c = (c + byte) & BITS
            if end - start <= 12:
                break
            start += 12
            a, c = ((a - c) & BITS) ^ _rotated(c, 4), (c + b) & BITS
            b, a = ((b - a) & BITS) ^ _rotated(a, 6), (a + c) & BITS
            c, b = ((c - b) & BITS) ^ _rotated(b, 8), (b + a) & BITS
            a, c = ((a - c) & BITS) ^ _rotated(c, 16), (c + b) & BITS
            b, a = ((b - a) & BITS) ^ _rotated(a, 19), (a + c) & BITS
            c, b = ((c - b) & BITS) ^ _rotated(b, 4), (b + a) & BITS
        c = _mixed(c, b, 14)
        a = _mixed(a, c, 11)
        b = _mixed(b, a, 25)
        c = _mixed(c, b, 16)
        a = _mixed(a, c, 4)
        b = _mixed(b, a, 14)
        hashes[i] = _mixed(c, b, 24)
        start = end


@compiled
def _fill(hashes: Any, places: Any, starts: Any, slots: Any, buckets: Any) -> None:
    """Put each name into the first free slot of its hash table."""
    for i in range(len(hashes)):
        table = hashes[i] % 256
        start, size = starts[table], slots[table]
        slot = (hashes[i] >> 8) % size
        while buckets[start + slot, 1]:
            slot = (slot + 1) % size
        buckets[start + slot, 0], buckets[start + slot, 1] = hashes[i], places[i]
