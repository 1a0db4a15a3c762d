"""Compute an upper bound of the memory that a Parquet file needs, before Arrow unpacks the file.

The bound is computed from the footer and the page headers, which are structs in Thrift's compact protocol. These are
the fields that are read. Each has a number before its name; [T] is a list of structs T.

    FileMetaData          2 [SchemaElement], 4 [RowGroup]
    SchemaElement         1 physical type, 2 length of a value, 4 name, 5 number of children
    RowGroup              1 [ColumnChunk]
    ColumnChunk           3 ColumnMetaData
    ColumnMetaData        4 codec, 5 number of values, 7 packed size, 9 data offset, 11 dictionary offset
    PageHeader            1 kind, 2 unpacked size, 3 packed size, and one of
                          5 DataPageHeader, 7 DictionaryPageHeader, 8 DataPageHeaderV2
    DataPageHeader        1 number of values, 2 encoding
    DictionaryPageHeader  1 number of values, 2 encoding
    DataPageHeaderV2      1 number of values, 4 encoding

Arrow also decodes these structs, but a damaged footer can crash Arrow, and Arrow creates as many values as the page
headers claim, even if the footer claims fewer. Run-length and dictionary encoding can turn a kilobyte into gigabytes,
far more than the unpacked size in the headers. A column of n strings needs at most n times the length of the longest
string in its dictionary, plus the unpacked size of its pages.
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
# Bytes per value of BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE and BYTE_ARRAY (its offset).
WIDTHS = (1, 4, 8, 12, 4, 8, 4)
CODECS = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
# Bytes that a string and a number take as Python objects in a list.
STRING, NUMBER = 64, 32
# Type numbers of Thrift, and the bytes of the types of fixed size: two booleans, a byte, a floating-point number.
TRUE, FALSE, BINARY, LIST, SET, STRUCT = 1, 2, 8, 9, 10, 12
FIXED = {TRUE: 1, FALSE: 1, 3: 1, 7: 8}
DEEPEST = 16
# A page header may hold statistics of long strings.
LONGEST_HEADER = 1 << 24


class Chunk(NamedTuple):
    """The values of one leaf in one row group of a Parquet file; a leaf is a column of the schema without children.

    column : the name of the top-level column that contains the leaf.
    is_string : whether the values are strings.
    width : the number of bytes per value; for strings, the number of bytes per offset.
    codec : the name of the compression; empty if it is unknown.
    n_values : the number of values.
    start, packed : the position of the chunk in the file, and its size in bytes before unpacking.
    """

    column: str
    is_string: bool
    width: int
    codec: str
    n_values: int
    start: int
    packed: int


class Page(NamedTuple):
    """The header of one page of a chunk; `content` is the position in the file at which the data of the page begin."""

    kind: int
    content: int
    packed: int
    unpacked: int
    n_values: int
    encoding: int


class Footer(NamedTuple):
    """The footer of a Parquet file.

    columns : the names of the top-level columns.
    groups : the chunks of each row group, one chunk per leaf of the schema.
    """

    columns: tuple[str, ...]
    groups: tuple[tuple[Chunk, ...], ...]


# A worker that reads several parts of a file asks for its footer each time.
@lru_cache(maxsize=4)
def read_footer(data: bytes) -> Footer:
    """Parse the footer of a Parquet file; raise ValueError if the footer is inconsistent."""
    footer = StructReader(io.BytesIO(data), len(data)).struct()
    schema = iter(_field(footer, 2, list))
    columns, leaves = list[str](), list[tuple[str, bool, int]]()
    for _ in range(_field(next(schema, None), 5, int)):
        element = next(schema, None)
        columns.append(_field(element, 4, bytes).decode("utf-8", "replace"))
        leaves += _leaves(element, schema, columns[-1])
    groups = [_field(group, 1, list) for group in _field(footer, 4, list)]
    if next(schema, None) is not None or any(len(group) != len(leaves) for group in groups):
        raise ValueError("the footer is inconsistent: the schema and the row groups have different columns")
    return Footer(tuple(columns), tuple(tuple(map(_chunk, leaves, group)) for group in groups))


def _leaves(element: object, schema: Iterator[object], column: str) -> Iterator[tuple[str, bool, int]]:
    """Yield the fields `column`, `is_string` and `width` of `Chunk` for each leaf below a schema element.

    An element without children is a leaf itself. The descendants of an element are the next elements of `schema`.
    """
    n_children = _field(element, 5, int, 0)
    for _ in range(n_children):
        yield from _leaves(next(schema, None), schema, column)
    if n_children <= 0:
        kind = _field(element, 1, int)
        width = WIDTHS[kind] if 0 <= kind < len(WIDTHS) else max(0, _field(element, 2, int, 0))
        yield column, kind == BYTE_ARRAY, width


def _chunk(leaf: tuple[str, bool, int], column: object) -> Chunk:
    metadata = _field(column, 3, dict)
    codec, start, packed = _field(metadata, 4, int), _field(metadata, 9, int), _field(metadata, 7, int)
    dictionary = _field(metadata, 11, int, 0)
    start = dictionary if 0 < dictionary < start else start
    if start < 0 or packed < 0:
        raise ValueError(
            "the footer is damaged: a column has a negative position or size. Use another copy of the file"
        )
    return Chunk(*leaf, CODECS[codec] if 0 <= codec < len(CODECS) else "", _field(metadata, 5, int), start, packed)


def unpacked_size(file: BinaryIO, chunk: Chunk, as_objects: bool) -> int:
    """Return an upper bound of the bytes that a chunk takes in memory, as an Arrow array or as Python objects."""
    headers = list(pages(file, chunk))
    content, n_values = sum(page.unpacked for page in headers), sum(page.n_values for page in headers)
    width = max(chunk.width, (STRING if chunk.is_string else NUMBER) if as_objects else 0)
    if chunk.is_string:
        n_built = sum(page.n_values for page in headers if page.kind != DICTIONARY and page.encoding != PLAIN)
        # No string is longer than the whole content, so most dictionaries need not be read.
        if n_built * content > allowed(0):
            content += n_built * _longest(file, headers, chunk.codec)
    return n_values * width + content


def _longest(file: BinaryIO, headers: Sequence[Page], codec: str) -> int:
    """Return the length of the longest string in the dictionary page of a chunk, or an upper bound of this length.

    headers : the page headers of the chunk.
    """
    dictionaries = [page for page in headers if page.kind == DICTIONARY]
    others = {page.encoding for page in headers if page.kind != DICTIONARY}
    bound = max(page.unpacked for page in headers)
    # Other encodings than these build strings from parts of earlier strings.
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
    """Yield the page headers of a chunk; raise ValueError if a size in a header is negative or too large."""
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
            raise ValueError("a page header is damaged: its sizes are negative or exceed the size of the column")
        seen += page.n_values if page.kind != DICTIONARY else 0
        yield page


def _page(file: BinaryIO) -> Page:
    header = StructReader(file, LONGEST_HEADER).struct()
    kind, n_values, encoding = _field(header, 1, int), 0, 0
    if kind in (DATA, DICTIONARY, DATA_V2):
        page_header = _field(header, {DATA: 5, DICTIONARY: 7, DATA_V2: 8}[kind], dict)
        n_values, encoding = _field(page_header, 1, int), _field(page_header, 4 if kind == DATA_V2 else 2, int)
    return Page(kind, file.tell(), _field(header, 3, int), _field(header, 2, int), n_values, encoding)


def _field(struct: object, number: int, kind: type[T], default: T | None = None) -> T:
    value = struct.get(number, default) if isinstance(struct, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f"the footer or a page header is damaged: field {number} is missing or has the wrong type")
    return value


class StructReader:
    """Reads one struct in Thrift's compact protocol; the struct begins at the current position of a file.

    most : the largest number of bytes that the struct may have.
    """

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._left = file, most

    def struct(self, depth: int = DEEPEST) -> dict[int, object]:
        """Read a struct, and return a dict from field numbers to values; floating-point numbers are left as bytes.

        depth : how deeply structs and lists may be nested.
        """
        fields: dict[int, object] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[field] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> object:
        if depth == 0:
            raise ValueError("the footer or a page header is damaged: structs and lists are nested too deeply")
        if 4 <= kind <= 6:
            return self._integer()
        if kind == BINARY:
            return self._take(self._varint())
        if kind == STRUCT:
            return self.struct(depth - 1)
        if kind in (LIST, SET):
            size, kind = divmod(self._byte(), 16)
            return [self._value(kind, depth - 1) for _ in range(self._varint() if size == 15 else size)]
        if kind in FIXED:
            return self._take(FIXED[kind])
        raise ValueError(f"the footer or a page header is damaged: it has a value of the unknown type {kind}")

    def _integer(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) > 127:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("the footer or a page header is damaged: a number has more than 64 bits")
        return number | byte << shift

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        self._left -= size
        content = self._file.read(size) if self._left >= 0 else b""
        if len(content) < size:
            raise ValueError("the footer or a page header is damaged: it ends too early. Use another copy of the file")
        return content
