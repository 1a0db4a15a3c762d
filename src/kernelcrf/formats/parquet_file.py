"""A Parquet file that is checked before Arrow unpacks it: p packed bytes become at most `streams.allowed(p)`.

Only the types of the Parquet schema count. The Arrow schema that some writers add may ask for lists of fixed size,
whose missing entries take memory that no page accounts for.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet_pages import Footer, read_footer, unpacked_size
from kernelcrf.formats.records import FormatError
from kernelcrf.formats.streams import allowed

MAGIC = b"PAR1"
ARROW_SCHEMA = b"ARROW:schema", b"arrow-schema"


@dataclass(frozen=True)
class ParquetSource:
    """An open Parquet file, its size, and what Arrow and its footer say about it; messages begin with its name."""

    file: BinaryIO
    size: int
    arrow: ArrowObject
    footer: Footer
    name: str

    def read(self, groups: Sequence[int], columns: Sequence[str], objects: Iterable[str] = ()) -> ArrowObject:
        """Return columns of some row groups as a table.

        objects : the columns that become Python objects, which take more memory.
        """
        with arrow_errors(self.name):
            self._check(groups, columns, objects)
            return self.arrow.read_row_groups(list(groups), list(columns))

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[ArrowObject]:
        """Yield record batches of at most `n_rows` rows, which are to become Python objects."""
        with arrow_errors(self.name):
            self._check(range(len(self.footer.groups)), columns, columns)
            yield from self.arrow.iter_batches(batch_size=n_rows, columns=list(columns))

    def _check(self, groups: Iterable[int], columns: Sequence[str], objects: Iterable[str]) -> None:
        """Raise if these columns would unpack to more than their packed size allows."""
        names, objects = self.footer.columns, set(objects)
        if twice := next((name for name in columns if names.count(name) > 1), None):
            raise FormatError(f"{self.name}: two columns have the name {twice!r}: expected one")
        packed = unpacked = 0
        for group in groups:
            for chunk in self.footer.groups[group]:
                if chunk.leaf.column in columns:
                    packed += chunk.packed
                    unpacked += unpacked_size(self.file, chunk, chunk.leaf.column in objects)
            # Row groups may share bytes of the file.
            packed = min(packed, self.size)
            if unpacked > allowed(packed):
                raise FormatError(
                    f"{self.name}: {packed:,} packed bytes unpack to {unpacked:,}: expected at most "
                    f"{allowed(packed):,}; if you trust the file, write it again with use_dictionary=False, "
                    "compression='none'"
                )


@contextmanager
def open_parquet(path: str, filesystem: ArrowObject = None, name: str | None = None) -> Iterator[ParquetSource]:
    """Open a Parquet file of an Arrow filesystem; None is the local one."""
    name = path if name is None else name
    with arrow_errors(name):
        native = (arrow()[0].fs.LocalFileSystem() if filesystem is None else filesystem).open_input_file(path)
    with io.BufferedReader(native) as file:
        with arrow_errors(name):
            source = _source(native, file, name)
        yield source


def _source(native: ArrowObject, file: BinaryIO, name: str) -> ParquetSource:
    pa, pq = arrow()
    size = native.size()
    tail = bytes(native.read_at(8, size - 8)) if size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 12:
        raise FormatError(f"{name}: expected a Parquet file, and it does not end as one: it may be cut short")
    data = bytes(native.read_at(length, size - 8 - length)).replace(*ARROW_SCHEMA)
    footer = read_footer(data)
    if any(chunk.start + chunk.packed > size for group in footer.groups for chunk in group):
        raise FormatError(f"{name}: a column lies beyond the end of the file: expected a complete Parquet file")
    # No list of the footer has more entries than the footer has bytes.
    limits = {"thrift_container_size_limit": max(1, length), "thrift_string_size_limit": max(1, length)}
    metadata = pq.ParquetFile(pa.BufferReader(MAGIC + data + tail), **limits).metadata
    # Threads and reading ahead would hold several row groups at a time.
    opened = pq.ParquetFile(native, metadata=metadata, pre_buffer=False)
    return ParquetSource(file, size, opened, footer, name)
