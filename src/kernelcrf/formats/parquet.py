"""Parquet: one row per sequence, one column per entry of an object. Features are lists of names, or maps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import BinaryIO

from kernelcrf.formats.arrow import ArrowObject, arrow, arrow_errors
from kernelcrf.formats.parquet_file import open_parquet
from kernelcrf.formats.records import KEYS, FormatError, Record, object_of, record_of
from kernelcrf.formats.round_trip import check_same, feature_counts
from kernelcrf.formats.streams import display_name
from kernelcrf.persistence import PathLike
from kernelcrf.validation import shown_list

ROWS = 1024


def read(path: PathLike) -> Iterator[list[Record]]:
    """Yield batches of records."""
    name, numbers = display_name(path), count()
    with open_parquet(os.path.abspath(path), name=name) as source:
        present = [key for key in KEYS if key in source.footer.columns]
        if not any(key in present for key in KEYS[:3]):
            raise FormatError(
                f"{name}: the columns are {shown_list(source.footer.columns)}: expected tokens, features or vectors"
            )
        for batch in source.batches(present, ROWS):
            with arrow_errors(name, "lists of strings and numbers, and maps or structs for features"):
                objects = [_name_features(found) for found in batch.to_pylist()]
            yield [record_of(found, f"{name}, row {next(numbers)}") for found in objects]


def write(file: BinaryIO, records: Iterable[Record]) -> None:
    """Write records to an open binary file; the first of them decide on the columns and their types."""
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
    """Return the records as a table; raise if the table would change them."""
    named = all(isinstance(token, list) for record in records if record.kind == "features" for token in record.x)
    if schema is not None and "features" in schema.names:
        named = not pa.types.is_map(schema.field("features").type.value_type)
    objects = [object_of(record) for record in records]
    for record, one in zip(records, objects, strict=True):
        if record.kind == "features" and not named:
            # Pairs are read back as a map; a struct would have a field for each name of all tokens.
            one["features"] = [list(feature_counts(token, record.place).items()) for token in record.x]
    names = [key for key in KEYS if any(key in one for one in objects)] if schema is None else schema.names
    types = {} if named else {"features": pa.list_(pa.map_(pa.string(), pa.float64()))}
    if schema is not None:
        types = {key: schema.field(key).type for key in names}
    wanted = "sequences whose entries have one type, and integers of 64 bits, to write as Parquet; write .jsonl"
    with arrow_errors(records[0].place, wanted):
        table = pa.table({key: pa.array([one.get(key) for one in objects], types.get(key)) for key in names})
    for record, one, again in zip(records, objects, table.to_pylist(), strict=True):
        if not one.keys() <= set(names):
            raise FormatError(
                f"{record.place}: the sequence has {', '.join(sorted(one.keys() - set(names)))}, which the first "
                f"{ROWS:,} sequences of the file do not have: write .jsonl"
            )
        check_same(record, record_of(_name_features(again), record.place), "Parquet")
    return table


def _name_features(found: dict[str, object]) -> dict[str, object]:
    """Return a row whose features are dicts or lists of names; maps come as pairs, absent struct fields as None."""
    features = found.get("features")
    return found if not isinstance(features, list) else {**found, "features": [_token(token) for token in features]}


def _token(token: object) -> object:
    if isinstance(token, dict):
        return {name: value for name, value in token.items() if value is not None}
    return dict(token) if isinstance(token, list) and token and isinstance(token[0], tuple) else token
