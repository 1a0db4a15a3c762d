"""Read and write Parquet files with one row per sequence; `kernelcrf.formats.records` describes the columns.

Features are stored as lists of names, or as maps from names to values. Before Arrow unpacks a file, an upper
bound of its unpacked size is compared with the limit `streams.allowed`. Some writers add an Arrow schema to a file.
This schema is ignored, because it may declare lists of fixed size, whose missing entries need memory beyond the bound.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import BinaryIO

from kernelcrf.formats.arrow import COMPLETE, ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet_pages import Footer, read_footer, unpacked_size
from kernelcrf.formats.records import KEYS, FormatError, Record, object_of, record_of
from kernelcrf.formats.round_trip import check_same, feature_counts
from kernelcrf.formats.streams import allowed, display_name
from kernelcrf.persistence import PathLike, local_copy
from kernelcrf.validation import shown_list

MAGIC = b"PAR1"
ARROW_SCHEMA = b"ARROW:schema", b"arrow-schema"
TEXT = "BYTE_ARRAY"
ROWS = 1024


@dataclass(frozen=True)
class ParquetSource:
    """An open Parquet file: its bytes, its size, Arrow's reader, its footer, and its name in error messages."""

    file: BinaryIO
    size: int
    arrow: ArrowObject
    footer: Footer
    name: str

    def read(self, groups: Sequence[int], columns: Sequence[str], objects: Iterable[str] = ()) -> ArrowObject:
        """Return the given columns and row groups as an Arrow table; raise if the table would need too much memory.

        groups, columns : the numbers of the row groups, and the names of the columns.
        objects : the columns that the caller will convert to Python objects, which need more memory than a table.
        """
        with arrow_errors(self.name):
            self._check(groups, columns, objects)
            # Arrow cannot read lists of texts as dictionaries from several row groups at a time.
            tables = [self.arrow.read_row_group(group, list(columns)) for group in groups]
            return arrow()[0].concat_tables(tables)

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[ArrowObject]:
        """Yield Arrow record batches of at most `n_rows` rows; raise if their Python objects need too much memory."""
        with arrow_errors(self.name):
            self._check(range(len(self.footer.groups)), columns, columns)
            yield from self.arrow.iter_batches(batch_size=n_rows, columns=list(columns))

    def _check(self, groups: Iterable[int], columns: Sequence[str], objects: Iterable[str]) -> None:
        """Raise if the columns unpack to more bytes than `streams.allowed` permits for their packed size."""
        names, objects = self.footer.columns, set(objects)
        if twice := next((name for name in columns if names.count(name) > 1), None):
            raise FormatError(f"{self.name}: two columns have the name {twice!r}: expected distinct names")
        packed = unpacked = 0
        for group in groups:
            for chunk in self.footer.groups[group]:
                if chunk.column in columns:
                    packed += chunk.packed
                    unpacked += unpacked_size(self.file, chunk, chunk.column in objects)
            # In a malicious file, row groups may share bytes.
            packed = min(packed, self.size)
            if unpacked > allowed(packed):
                raise FormatError(
                    f"{self.name}: {packed:,} packed bytes unpack to {unpacked:,} bytes: expected at most "
                    f"{allowed(packed):,}; if you trust the file, write it again with use_dictionary=False, "
                    "compression='none' (pyarrow)"
                )


@contextmanager
def open_parquet(
    path: str, filesystem: ArrowObject = None, name: str | None = None, encoded: Collection[str] = ()
) -> Iterator[ParquetSource]:
    """Open a Parquet file on an Arrow filesystem, by default the local one; errors show `name` instead of `path`.

    encoded : columns whose texts are read as Arrow dictionaries, which store each distinct text once.
    """
    name = path if name is None else name
    with arrow_errors(name):
        native = (arrow()[0].fs.LocalFileSystem() if filesystem is None else filesystem).open_input_file(path)
    with io.BufferedReader(native) as file:
        with arrow_errors(name):
            source = _source(native, file, name, encoded)
        yield source


def _source(native: ArrowObject, file: BinaryIO, name: str, encoded: Collection[str]) -> ParquetSource:
    pa, pq = arrow()
    size = native.size()
    tail = bytes(native.read_at(8, size - 8)) if size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - 12:
        raise FormatError(f"{name}: the file does not end like a Parquet file: expected {COMPLETE}")
    data = bytes(native.read_at(length, size - 8 - length)).replace(*ARROW_SCHEMA)
    footer = read_footer(data)
    if any(chunk.start + chunk.packed > size for group in footer.groups for chunk in group):
        raise FormatError(f"{name}: a column extends beyond the end of the file: expected {COMPLETE}")
    # A list in the footer cannot have more entries than the footer has bytes.
    limits = {"thrift_container_size_limit": max(1, length), "thrift_string_size_limit": max(1, length)}
    metadata = pq.ParquetFile(pa.BufferReader(MAGIC + data + tail), **limits).metadata
    leaves = (metadata.schema.column(k) for k in range(len(metadata.schema)))
    texts = [leaf.path for leaf in leaves if leaf.physical_type == TEXT and leaf.path.split(".")[0] in encoded]
    # Reading ahead would keep several row groups in memory.
    opened = pq.ParquetFile(native, metadata=metadata, pre_buffer=False, read_dictionary=texts)
    return ParquetSource(file, size, opened, footer, name)


def read(path: PathLike) -> Iterator[list[Record]]:
    """Yield lists of at most ROWS records, one record per row."""
    name, numbers = display_name(path), count()
    with local_copy(path) as copy, open_parquet(os.path.abspath(copy), name=name) as source:
        present = [key for key in KEYS if key in source.footer.columns]
        if not any(key in present for key in KEYS[:3]):
            raise FormatError(
                f"{name}: the columns are {shown_list(source.footer.columns)}: expected a column named tokens, "
                "features or vectors"
            )
        for batch in source.batches(present, ROWS):
            with arrow_errors(name, "lists of strings and numbers, and maps or structs for features"):
                objects = [_name_features(row) for row in batch.to_pylist()]
            yield [record_of(entries, f"{name}, row {next(numbers)}") for entries in objects]


def write(file: BinaryIO, records: Iterable[Record]) -> None:
    """Write one row per record to an open binary file; the first ROWS records determine the columns and their types."""
    pa, pq = arrow()
    writer, left = None, iter(records)
    try:
        while batch := list(islice(left, ROWS)):
            table = _table(pa, batch, None if writer is None else writer.schema)
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _table(pa: ArrowObject, records: list[Record], schema: ArrowObject) -> ArrowObject:
    """Convert records to an Arrow table; raise if the conversion would change a value.

    schema : the Arrow schema of the table; None means that the records determine it.
    """
    named = all(isinstance(token, list) for record in records if record.kind == "features" for token in record.x)
    if schema is not None and "features" in schema.names:
        named = not pa.types.is_map(schema.field("features").type.value_type)
    objects = [object_of(record) for record in records]
    for record, one in zip(records, objects, strict=True):
        if record.kind == "features" and not named:
            # Arrow stores pairs as a map; a struct would need one field per feature name of the whole file.
            one["features"] = [list(feature_counts(token, record.place).items()) for token in record.x]
    if any("weight" in one for one in objects) or (schema is not None and "weight" in schema.names):
        objects = [{"weight": 1.0} | one for one in objects]
    names = [key for key in KEYS if any(key in one for one in objects)] if schema is None else schema.names
    types = {} if named else {"features": pa.list_(pa.map_(pa.string(), pa.float64()))}
    if schema is not None:
        types = {key: schema.field(key).type for key in names}
    wanted = "entries of one type, and integers of at most 64 bits; write a .jsonl file for other values"
    with arrow_errors(records[0].place, wanted):
        table = pa.table({key: pa.array([one.get(key) for one in objects], types.get(key)) for key in names})
    for record, one, again in zip(records, objects, table.to_pylist(), strict=True):
        if not one.keys() <= set(names):
            raise FormatError(
                f"{record.place}: the sequence has {', '.join(sorted(one.keys() - set(names)))}, but the output file "
                f"has only the columns of the first {ROWS:,} sequences: write a .jsonl file"
            )
        check_same(record, record_of(_name_features(again), record.place), "Parquet")
    return table


def _name_features(row: dict[str, object]) -> dict[str, object]:
    """Return a row with the features of each token as a dict, or as a list of names.

    Arrow returns features as lists of pairs, or as dicts in which absent features are None.
    """
    features = row.get("features")
    return row if not isinstance(features, list) else {**row, "features": [_token(token) for token in features]}


def _token(token: object) -> object:
    if isinstance(token, dict):
        return {name: value for name, value in token.items() if value is not None}
    return dict(token) if isinstance(token, list) and token and isinstance(token[0], tuple) else token
