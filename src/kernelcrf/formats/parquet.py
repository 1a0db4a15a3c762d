"""Parquet: a row a sequence, whose columns are lists, as `objects` says. Features are lists of names, or maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Any

from kernelcrf.formats.faithful import check_same, feature_counts
from kernelcrf.formats.objects import KEYS, object_of, record_of
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import STDIN, PathLike, display_name

ROWS = 1024


def read(path: PathLike) -> Iterator[list[Record]]:
    """Batches of records."""
    pa, pq = arrow()
    name, numbers = display_name(path), count()
    if name == display_name(STDIN):
        raise FormatError(f"{name}: a Parquet file is not read from its beginning to its end: name the file")
    with open(path, "rb") as source:
        try:
            with pq.ParquetFile(source) as file:
                present = [key for key in KEYS if key in file.schema_arrow.names]
                for batch in file.iter_batches(batch_size=ROWS, columns=present):
                    objects = (_named(found) for found in batch.to_pylist())
                    yield [record_of(found, f"{name}, row {next(numbers)}") for found in objects]
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{name}: expected a Parquet file ({_one_line(error)})") from None


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
    try:
        table = pa.table(
            {
                key: pa.array(
                    [one.get(key) for one in objects], types.get(key) if schema is None else schema.field(key).type
                )
                for key in names
            }
        )
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise FormatError(
            f"{records[0].place}: sequences whose entries differ in type, or integers beyond 64 bits, cannot be one "
            f"Parquet file ({_one_line(error)}): write .jsonl"
        ) from None
    for record, one, again in zip(records, objects, table.to_pylist(), strict=True):
        if not one.keys() <= set(names):
            raise FormatError(
                f"{record.place}: the sequence has {', '.join(sorted(one.keys() - set(names)))}, which the first "
                f"{ROWS:,} sequences of the file do not have: write .jsonl"
            )
        check_same(record, record_of(_named(again), record.place), "Parquet")
    return table


def arrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet, where they are installed."""
    try:
        import pyarrow as pa
        import pyarrow.fs
        import pyarrow.parquet as pq
    except ImportError:
        raise FormatError("Parquet files need pyarrow, which is not installed: pip install pyarrow") from None
    return pa, pq


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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
