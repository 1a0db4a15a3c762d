"""A Parquet file that is checked before Arrow unpacks it: p packed bytes become at most `unpacking.allowed(p)`.

Runs and dictionaries turn a kilobyte into gigabytes, and neither the sizes in the footer nor those of the compression
reveal it. So the headers of all pages are read and their values counted; a column of strings takes at most

    n length(longest entry of the dictionary) + unpacked bytes of the pages.

Only the types of the Parquet schema count. The Arrow schema that some writers add may ask for lists of fixed size,
whose missing entries take memory that no page accounts for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet_pages import (
    DICTIONARY,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    Chunk,
    Footer,
    Leaf,
    Page,
    pages,
    read_footer,
)
from kernelcrf.formats.records import FormatError
from kernelcrf.formats.unpacking import allowed

MAGIC = b"PAR1"
ARROW_SCHEMA = b"ARROW:schema", b"arrow-schema"
# The bytes that a string and a number take as Python objects in a list.
STRING, NUMBER = 64, 32


@dataclass(frozen=True)
class ParquetSource:
    """An open Parquet file; messages begin with its name."""

    file: ArrowObject
    metadata: ArrowObject
    footer: Footer
    name: str

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.footer.columns)

    def read(self, groups: Sequence[int], columns: Sequence[str], objects: Iterable[str] = ()) -> ArrowObject:
        """Return columns of some row groups as a table.

        objects : the columns that become Python objects, which take more memory.
        """
        self.check(groups, columns, objects)
        with arrow_errors(self.name), self._open() as file:
            return file.read_row_groups(list(groups), list(columns))

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[ArrowObject]:
        """Yield record batches of at most `n_rows` rows, which are to become Python objects."""
        self.check(range(len(self.footer.groups)), columns, columns)
        with arrow_errors(self.name), self._open() as file:
            yield from file.iter_batches(batch_size=n_rows, columns=list(columns))

    def check(self, groups: Iterable[int], columns: Sequence[str], objects: Iterable[str] = ()) -> None:
        """Raise if these columns would unpack to more than their packed size allows."""
        names, objects = self.columns, set(objects)
        if twice := next((name for name in columns if names.count(name) > 1), None):
            raise FormatError(f"{self.name}: two columns have the name {twice!r}: expected one")
        with arrow_errors(self.name):
            packed = unpacked = 0
            for group in groups:
                for leaf, chunk in zip(self.footer.leaves, self.footer.groups[group], strict=True):
                    if leaf.column in columns:
                        packed += chunk.packed
                        unpacked += self._unpacked(leaf, chunk, leaf.column in objects)
                # Row groups may share bytes of the file.
                packed = min(packed, self.file.size())
                if unpacked > allowed(packed):
                    raise FormatError(
                        f"{self.name}: {packed:,} packed bytes unpack to {unpacked:,}: expected at most "
                        f"{allowed(packed):,}; if you trust the file, write it again with use_dictionary=False, "
                        "compression='none'"
                    )

    def _unpacked(self, leaf: Leaf, chunk: Chunk, as_objects: bool) -> int:
        """Bound the bytes that a column of a row group takes in memory."""
        found = list(pages(self._read_at, chunk))
        content, n_values = sum(page.unpacked for page in found), sum(page.n_values for page in found)
        width = max(leaf.width, (STRING if leaf.is_string else NUMBER) if as_objects else 0)
        if leaf.is_string:
            n_built = sum(page.n_values for page in found if page.kind != DICTIONARY and page.encoding != PLAIN)
            # The longest string is not longer than all of them together, so most dictionaries need not be read.
            if n_built * content > allowed(0):
                content += n_built * self._longest(found, chunk.codec)
        return n_values * width + content

    def _longest(self, found: Sequence[Page], codec: str) -> int:
        """Return the length of the longest string that values may refer to, or an upper bound."""
        dictionaries = [page for page in found if page.kind == DICTIONARY]
        others = {page.encoding for page in found if page.kind != DICTIONARY}
        bound = max(page.unpacked for page in found)
        # Only a dictionary can be read; other encodings build strings from the beginnings of others.
        if len(dictionaries) != 1 or others - {PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY} or bound > allowed(0):
            return bound
        page = dictionaries[0]
        data = self._read_at(page.packed, page.content)
        if codec in ("snappy", "gzip", "brotli", "zstd"):
            data = arrow()[0].decompress(data, page.unpacked, codec, asbytes=True)
        elif codec != "none":
            return bound
        place = longest = 0
        while place + 4 <= len(data):
            (length,) = struct.unpack_from("<I", data, place)
            longest, place = max(longest, length), place + 4 + length
        return min(longest, bound)

    def _read_at(self, size: int, place: int) -> bytes:
        return bytes(self.file.read_at(size, place))

    @contextmanager
    def _open(self) -> Iterator[ArrowObject]:
        # Threads and reading ahead would hold several row groups at a time.
        with arrow()[1].ParquetFile(self.file, metadata=self.metadata, pre_buffer=False) as file:
            yield file


@contextmanager
def open_parquet(path: str, filesystem: ArrowObject = None, name: str | None = None) -> Iterator[ParquetSource]:
    """Open a Parquet file of an Arrow filesystem; None is the local one."""
    pa, pq = arrow()
    name = path if name is None else name
    with arrow_errors(name):
        file = (pa.fs.LocalFileSystem() if filesystem is None else filesystem).open_input_file(path)
    with file:
        with arrow_errors(name):
            source = _check_source(pa, pq, file, name)
        yield source


def _check_source(pa: ArrowObject, pq: ArrowObject, file: ArrowObject, name: str) -> ParquetSource:
    size = file.size()
    tail = bytes(file.read_at(8, size - 8)) if size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 12:
        raise FormatError(f"{name}: expected a Parquet file, and it does not end as one: it may be cut short")
    data = bytes(file.read_at(length, size - 8 - length)).replace(*ARROW_SCHEMA)
    footer = read_footer(data)
    if any(chunk.start + chunk.packed > size for group in footer.groups for chunk in group):
        raise FormatError(f"{name}: a column lies beyond the end of the file: expected a complete Parquet file")
    # No list of the footer has more entries than the footer has bytes.
    limits = {"thrift_container_size_limit": max(1, length), "thrift_string_size_limit": max(1, length)}
    with pq.ParquetFile(pa.BufferReader(MAGIC + data + tail), **limits) as found:
        return ParquetSource(file, found.metadata, footer, name)
