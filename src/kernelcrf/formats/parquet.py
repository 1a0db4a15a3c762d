"""Parquet: a row a sequence, whose columns are lists, as `objects` says. Features are lists of names, or maps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Any

from kernelcrf.formats.arrow import arrow, arrow_errors
from kernelcrf.formats.faithful import check_same, feature_counts
from kernelcrf.formats.objects import KEYS, object_of, record_of
from kernelcrf.formats.parquet_file import open_parquet
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import STDIN, PathLike, display_name
from kernelcrf.validation import shown_list

ROWS = 1024


def read(path: PathLike) -> Iterator[list[Record]]:
    """Batches of records."""
    name, numbers = display_name(path), count()
    if name == display_name(STDIN):
        raise FormatError(f"{name}: a Parquet file is not read from its beginning to its end: name the file")
    with open_parquet(os.path.abspath(path), name=name) as source:
        present = [key for key in KEYS if key in source.columns]
        if not any(key in present for key in KEYS[:3]):
            raise FormatError(
                f"{name}: the columns are {shown_list(source.columns)}: expected tokens, features or vectors"
            )
        for batch in source.batches(present, ROWS):
            with arrow_errors(name, "lists of strings and numbers, and maps or structs for features"):
                objects = [_named(found) for found in batch.to_pylist()]
            yield [record_of(found, f"{name}, row {next(numbers)}") for found in objects]


def write(file: Any, records: Iterable[Record]) -> None:
    """Write records to an open binary file; the first of them say which columns there are and of what type."""
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


def _table(pa: Any, records: list[Record], schema: Any) -> Any:
    """Return the records as a table, once it says what they do."""
    tokens = [token for record in records if record.kind == "features" for token in record.x]
    named = all(isinstance(token, list) for token in tokens)
    if schema is not None and "features" in schema.names:
        named = not pa.types.is_map(schema.field("features").type.value_type)
    objects = [_plain(record, named) for record in records]
    present = [key for key in KEYS if any(key in one for one in objects)]
    names = present if schema is None else schema.names
    types = {} if named else {"features": pa.list_(pa.map_(pa.string(), pa.float64()))}
    wanted = "sequences whose entries have one type, and integers of 64 bits, to write as Parquet; write .jsonl"
    with arrow_errors(records[0].place, wanted):
        table = pa.table(
            {
                key: pa.array(
                    [one.get(key) for one in objects], types.get(key) if schema is None else schema.field(key).type
                )
                for key in names
            }
        )
    for record, one, again in zip(records, objects, table.to_pylist(), strict=True):
        if not one.keys() <= set(names):
            raise FormatError(
                f"{record.place}: the sequence has {', '.join(sorted(one.keys() - set(names)))}, which the first "
                f"{ROWS:,} sequences of the file do not have: write .jsonl"
            )
        check_same(record, record_of(_named(again), record.place), "Parquet")
    return table


def _named(found: dict[str, Any]) -> dict[str, Any]:
    """Maps come as lists of pairs, and absent fields of structs as None."""
    features = found.get("features")
    if not isinstance(features, list):
        return found
    return {**found, "features": [_token(token) for token in features]}


def _token(token: Any) -> Any:
    if isinstance(token, dict):
        return {name: value for name, value in token.items() if value is not None}
    return dict(token) if isinstance(token, list) and token and isinstance(token[0], tuple) else token


def _plain(record: Record, named: bool) -> dict[str, Any]:
    """Return the entries of a row; features are lists of names, or pairs, which are read back as a map is."""
    found = object_of(record)
    if record.kind == "features" and not named:
        # A struct would have a field for each name of all tokens.
        found["features"] = [list(feature_counts(token, record.place).items()) for token in record.x]
    return found
