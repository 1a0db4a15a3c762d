"""The columns and pages of a Parquet file as its footer and page headers describe them, and what they unpack to.

    FileMetaData   {2 [SchemaElement], 4 [RowGroup {1 [ColumnChunk {3 ColumnMetaData}]}]}
    SchemaElement  {1 physical type, 2 length of a value, 4 name, 5 number of children}
    ColumnMetaData {4 codec, 5 number of values, 7 packed size, 9 data offset, 11 dictionary offset}
    PageHeader     {1 kind, 2 unpacked size, 3 packed size, 5, 7 or 8 header of the kind}, of data, dictionary, data v2
    header         {1 number of values, 2 encoding, of data v2 4}

These are structs in Thrift's compact protocol. Arrow decodes them too, but asking it about a damaged footer can end the
process, and it makes as many values as the page headers state, whatever the footer says. Runs and dictionaries turn a
kilobyte into gigabytes, which the sizes of the compression do not reveal: a column of n strings takes at most

    n length(longest entry of the dictionary) + unpacked bytes of the pages.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import BinaryIO, NamedTuple, TypeVar

from kernelcrf.formats.arrow import arrow
from kernelcrf.formats.streams import allowed

T = TypeVar("T")

BYTE_ARRAY = 6
# Bytes of a value by its physical type: BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, and an offset for BYTE_ARRAY.
WIDTHS = (1, 4, 8, 12, 4, 8, 4)
CODECS = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
# The bytes that a string and a number take as Python objects in a list.
STRING, NUMBER = 64, 32
# Types of Thrift, and the bytes of those whose size is fixed: two booleans, a byte, a floating-point number.
TRUE, FALSE, BINARY, LIST, SET, STRUCT = 1, 2, 8, 9, 10, 12
FIXED = {TRUE: 1, FALSE: 1, 3: 1, 7: 8}
DEEPEST = 16
# A page header may hold statistics of long strings.
LONGEST_HEADER = 1 << 24


class Leaf(NamedTuple):
    """A column of values, the bytes of a value, and the top-level column that it is part of."""

    column: str
    is_string: bool
    width: int


class Chunk(NamedTuple):
    """The values of a leaf in a row group: its codec, number of values, and place in the file."""

    leaf: Leaf
    codec: str
    n_values: int
    start: int
    packed: int


class Page(NamedTuple):
    """A page as its header describes it; `content` is where the page itself begins."""

    kind: int
    content: int
    packed: int
    unpacked: int
    n_values: int
    encoding: int


class Footer(NamedTuple):
    """The top-level columns of a file, and the chunks of all leaves in each row group."""

    columns: tuple[str, ...]
    groups: tuple[tuple[Chunk, ...], ...]


# Each part of a file that a worker reads asks for the footer of the file again.
@lru_cache(maxsize=4)
def read_footer(data: bytes) -> Footer:
    """Return the content of a footer; raise ValueError if it is inconsistent."""
    found = read_struct(io.BytesIO(data), len(data))
    schema = iter(_field(found, 2, list))
    columns, leaves = list[str](), list[Leaf]()
    for _ in range(_field(next(schema, None), 5, int)):
        element = next(schema, None)
        columns.append(_field(element, 4, bytes).decode("utf-8", "replace"))
        leaves += _leaves(element, schema, columns[-1])
    groups = [_field(group, 1, list) for group in _field(found, 4, list)]
    if next(schema, None) is not None or any(len(group) != len(leaves) for group in groups):
        raise ValueError("the schema and the row groups have different columns")
    return Footer(tuple(columns), tuple(tuple(map(_chunk, leaves, group)) for group in groups))


def _leaves(element: object, schema: Iterator[object], column: str) -> Iterator[Leaf]:
    """Yield the leaves of an element; its children follow in the schema."""
    n_children = _field(element, 5, int, 0)
    for _ in range(n_children):
        yield from _leaves(next(schema, None), schema, column)
    if n_children <= 0:
        kind = _field(element, 1, int)
        width = WIDTHS[kind] if 0 <= kind < len(WIDTHS) else max(0, _field(element, 2, int, 0))
        yield Leaf(column, kind == BYTE_ARRAY, width)


def _chunk(leaf: Leaf, column: object) -> Chunk:
    found = _field(column, 3, dict)
    codec, start, packed = _field(found, 4, int), _field(found, 9, int), _field(found, 7, int)
    dictionary = _field(found, 11, int, 0)
    start = dictionary if 0 < dictionary < start else start
    if start < 0 or packed < 0:
        raise ValueError("a column has a place below 0")
    return Chunk(leaf, CODECS[codec] if 0 <= codec < len(CODECS) else "", _field(found, 5, int), start, packed)


def unpacked_size(file: BinaryIO, chunk: Chunk, as_objects: bool) -> int:
    """Bound the bytes that a column of a row group takes in memory, as Arrow's arrays or as Python objects."""
    found = list(pages(file, chunk))
    content, n_values = sum(page.unpacked for page in found), sum(page.n_values for page in found)
    width = max(chunk.leaf.width, (STRING if chunk.leaf.is_string else NUMBER) if as_objects else 0)
    if chunk.leaf.is_string:
        n_built = sum(page.n_values for page in found if page.kind != DICTIONARY and page.encoding != PLAIN)
        # The longest string is not longer than all of them together, so most dictionaries need not be read.
        if n_built * content > allowed(0):
            content += n_built * _longest(file, found, chunk.codec)
    return n_values * width + content


def _longest(file: BinaryIO, found: Sequence[Page], codec: str) -> int:
    """Return the length of the longest string that values may refer to, or an upper bound."""
    dictionaries = [page for page in found if page.kind == DICTIONARY]
    others = {page.encoding for page in found if page.kind != DICTIONARY}
    bound = max(page.unpacked for page in found)
    # Only a dictionary can be read; other encodings build strings from the beginnings of others.
    if len(dictionaries) != 1 or others - {PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY} or bound > allowed(0):
        return bound
    file.seek(dictionaries[0].content)
    data = file.read(dictionaries[0].packed)
    if codec in ("snappy", "gzip", "brotli", "zstd"):
        data = arrow()[0].decompress(data, dictionaries[0].unpacked, codec, asbytes=True)
    elif codec != "none":
        return bound
    place = longest = 0
    while place + 4 <= len(data):
        (length,) = struct.unpack_from("<I", data, place)
        longest, place = max(longest, length), place + 4 + length
    return min(longest, bound)


def pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a chunk of an open file."""
    place, end, seen = chunk.start, chunk.start + chunk.packed, 0
    while place < end:
        file.seek(place)
        try:
            page = _page(file)
        except ValueError:
            # Some writers leave padding after the last page.
            if seen >= chunk.n_values:
                return
            raise
        place = page.content + page.packed
        if min(page.packed, page.unpacked, page.n_values) < 0 or place > end:
            raise ValueError("a page states sizes that its column does not have")
        seen += page.n_values if page.kind != DICTIONARY else 0
        yield page


def _page(file: BinaryIO) -> Page:
    header = read_struct(file, LONGEST_HEADER)
    kind, n_values, encoding = _field(header, 1, int), 0, 0
    if kind in (DATA, DICTIONARY, DATA_V2):
        own = _field(header, {DATA: 5, DICTIONARY: 7, DATA_V2: 8}[kind], dict)
        n_values, encoding = _field(own, 1, int), _field(own, 4 if kind == DATA_V2 else 2, int)
    return Page(kind, file.tell(), _field(header, 3, int), _field(header, 2, int), n_values, encoding)


def _field(struct: object, number: int, kind: type[T], default: T | None = None) -> T:
    found = struct.get(number, default) if isinstance(struct, dict) else None
    if not isinstance(found, kind):
        raise ValueError(f"the field {number} is missing or of another type")
    return found


def read_struct(file: BinaryIO, most: int) -> dict[int, object]:
    """Return the fields, by number, of the struct at the place of a file; it has at most `most` bytes.

    Values are integers, booleans, bytes, lists and dicts; other numbers are left as bytes.
    """
    return _StructReader(file, most).struct(DEEPEST)


class _StructReader:
    def __init__(self, file: BinaryIO, most: int) -> None:
        self.file, self.left = file, most

    def struct(self, depth: int) -> dict[int, object]:
        found: dict[int, object] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            found[field] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> object:
        if depth == 0:
            raise ValueError("structs and lists are nested too deeply")
        if 4 <= kind <= 6:
            return self.integer()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth - 1)
        if kind in (LIST, SET):
            size, kind = divmod(self.byte(), 16)
            return [self.value(kind, depth - 1) for _ in range(self.varint() if size == 15 else size)]
        if kind in FIXED:
            return self.take(FIXED[kind])
        raise ValueError(f"a value has the unknown type {kind}")

    def integer(self) -> int:
        found = self.varint()
        return found >> 1 ^ -(found & 1)

    def varint(self) -> int:
        found = shift = 0
        while (byte := self.byte()) > 127:
            found |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
        return found | byte << shift

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        self.left -= size
        found = self.file.read(size) if self.left >= 0 else b""
        if len(found) < size:
            raise ValueError("the bytes end inside of a struct")
        return found
