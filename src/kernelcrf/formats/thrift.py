"""Structs in Thrift's compact protocol, which the footer and the page headers of Parquet files use.

Arrow decodes them too, but asking it about a damaged footer can end the process.
"""

from __future__ import annotations

DEEPEST = 16
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


class ThriftError(ValueError):
    """Raised if bytes are not a struct; `is_cut` says whether they end too early."""

    def __init__(self, message: str, *, is_cut: bool = False) -> None:
        super().__init__(message)
        self.is_cut = is_cut


def read_struct(data: bytes) -> tuple[dict[int, object], int]:
    """Return the fields of the struct at the beginning, by number, and the number of bytes that it takes.

    Values are integers, booleans, bytes, lists and dicts; floating-point numbers are skipped.
    """
    reader = _Reader(data)
    try:
        return reader.struct(DEEPEST), reader.place
    except IndexError:
        raise ThriftError("the bytes end inside of a struct", is_cut=True) from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def struct(self, depth: int) -> dict[int, object]:
        if depth == 0:
            raise ThriftError("structs are nested too deeply")
        found: dict[int, object] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            found[field] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> object:
        if 4 <= kind <= 6:
            return self.integer()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth - 1)
        if kind in (LIST, SET):
            return self.entries(depth - 1)
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind == DOUBLE:
            self.take(8)
            return None
        raise ThriftError(f"a value has the unknown type {kind}")

    def entries(self, depth: int) -> list[object]:
        if depth == 0:
            raise ThriftError("lists are nested too deeply")
        head = self.byte()
        size, kind = head >> 4, head & 15
        size = self.varint() if size == 15 else size
        if size > len(self.data) - self.place:
            raise IndexError
        return [self.value(kind, depth) for _ in range(size)]

    def take(self, size: int) -> bytes:
        found = self.data[self.place : self.place + size]
        if len(found) < size:
            raise IndexError
        self.place += size
        return found

    def byte(self) -> int:
        found = self.data[self.place]
        self.place += 1
        return found

    def varint(self) -> int:
        found = shift = 0
        while (byte := self.byte()) > 127:
            found |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ThriftError("a number has more than 64 bits")
        return found | byte << shift

    def integer(self) -> int:
        found = self.varint()
        return found >> 1 ^ -(found & 1)
