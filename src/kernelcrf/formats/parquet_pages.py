"""The columns of a Parquet file as its footer describes them, and their pages as the page headers do.

    FileMetaData   {2 [SchemaElement], 4 [RowGroup {1 [ColumnChunk {3 ColumnMetaData}]}]}
    SchemaElement  {1 physical type, 2 length of a value, 4 name, 5 number of children}
    ColumnMetaData {4 codec, 5 number of values, 7 packed size, 9 data offset, 11 dictionary offset}
    PageHeader     {1 kind, 2 unpacked size, 3 packed size, 5, 7 or 8 header of the kind}, of data, dictionary, data v2
    header         {1 number of values, 2 encoding, of data v2 4}

The footer gives the number of values of a column, but Arrow makes as many as the page headers state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from kernelcrf.formats.thrift import ThriftError, read_struct

ReadAt = Callable[[int, int], bytes]
T = TypeVar("T")

BYTE_ARRAY = 6
# Bytes of a value by its physical type: BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, and an offset for BYTE_ARRAY.
WIDTHS = (1, 4, 8, 12, 4, 8, 4)
CODECS = ("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
# The sizes of the first and of the last read of a header, which may hold statistics of long strings.
HEAD, LONGEST = 1 << 9, 1 << 24


@dataclass(frozen=True)
class Leaf:
    """A column of values, and the top-level column that it is part of."""

    column: str
    is_string: bool
    width: int


@dataclass(frozen=True)
class Chunk:
    """The values of a leaf in a row group: its codec, number of values, and place in the file."""

    codec: str
    n_values: int
    start: int
    packed: int


@dataclass(frozen=True)
class Page:
    """A page as its header describes it; `content` is where the page itself begins."""

    kind: int
    content: int
    packed: int
    unpacked: int
    n_values: int
    encoding: int


@dataclass(frozen=True)
class Footer:
    """The leaves of a file, and one chunk for each of them in each row group."""

    columns: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    groups: tuple[tuple[Chunk, ...], ...]


# Each part of a file that a worker reads asks for the footer of the file again.
@lru_cache(maxsize=4)
def read_footer(data: bytes) -> Footer:
    """Return the content of a footer; raise ThriftError if it is inconsistent."""
    found, _ = read_struct(data)
    columns, leaves = _leaves(_field(found, 2, list))
    groups = tuple(
        tuple(_chunk(_field(one, 3, dict)) for one in _field(group, 1, list)) for group in _field(found, 4, list)
    )
    if any(len(group) != len(leaves) for group in groups):
        raise ThriftError("a row group has other columns than the schema")
    return Footer(columns, leaves, groups)


def pages(read_at: ReadAt, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a chunk; `read_at(size, place)` returns bytes, fewer at the end of the file."""
    place, end, seen = chunk.start, chunk.start + chunk.packed, 0
    while place < end:
        try:
            page = _page(read_at, place)
        except ThriftError:
            # Some writers leave padding after the last page.
            if seen >= chunk.n_values:
                return
            raise
        if min(page.packed, page.unpacked, page.n_values) < 0 or page.content + page.packed > end:
            raise ThriftError("a page states sizes that its column does not have")
        yield page
        seen += page.n_values if page.kind != DICTIONARY else 0
        place = page.content + page.packed


def _leaves(schema: Sequence[Mapping[int, object]]) -> tuple[tuple[str, ...], tuple[Leaf, ...]]:
    """Return the names of top-level columns, and the leaves in order; the schema lists parents before children."""
    columns: list[str] = []
    leaves: list[Leaf] = []
    open_groups = [_field(schema[0], 5, int) if schema else 0]
    for element in schema[1:]:
        while open_groups and open_groups[-1] == 0:
            open_groups.pop()
        if not open_groups:
            raise ThriftError("the schema has more columns than it says")
        open_groups[-1] -= 1
        if len(open_groups) == 1:
            columns.append(_field(element, 4, bytes).decode("utf-8", "replace"))
        if (children := _field(element, 5, int, 0)) > 0:
            open_groups.append(children)
            continue
        kind = _field(element, 1, int)
        width = WIDTHS[kind] if 0 <= kind < len(WIDTHS) else max(0, _field(element, 2, int, 0))
        leaves.append(Leaf(columns[-1], kind == BYTE_ARRAY, width))
    return tuple(columns), tuple(leaves)


def _chunk(found: Mapping[int, object]) -> Chunk:
    codec, start = _field(found, 4, int), _field(found, 9, int)
    dictionary, packed = _field(found, 11, int, 0), _field(found, 7, int)
    start = dictionary if 0 < dictionary < start else start
    if start < 0 or packed < 0:
        raise ThriftError("a column has a place below 0")
    return Chunk(CODECS[codec] if 0 <= codec < len(CODECS) else "", _field(found, 5, int), start, packed)


def _page(read_at: ReadAt, place: int) -> Page:
    size = HEAD
    while True:
        data = read_at(size, place)
        try:
            header, length = read_struct(data)
            break
        except ThriftError as error:
            if not error.is_cut or len(data) < size or size >= LONGEST:
                raise
            size *= 8
    kind = _field(header, 1, int)
    n_values = encoding = 0
    if kind in (DATA, DICTIONARY, DATA_V2):
        own = _field(header, {DATA: 5, DICTIONARY: 7, DATA_V2: 8}[kind], dict)
        n_values, encoding = _field(own, 1, int), _field(own, 4 if kind == DATA_V2 else 2, int)
    return Page(kind, place + length, _field(header, 3, int), _field(header, 2, int), n_values, encoding)


def _field(struct: object, number: int, kind: type[T], default: T | None = None) -> T:
    found = struct.get(number, default) if isinstance(struct, dict) else None
    if not isinstance(found, kind):
        raise ThriftError(f"the field {number} is missing or of another type")
    return found
