"""Write odd but well-formed Parquet files: bytes choose columns, types, values and how they are written."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("tokens", "features", "vectors", "labels", "weight", "other", "tokens.list", "")
STRINGS = ("a", "", "w=b", "é\U0001f600", "x\0y", "\r\n", "[1]", "n" * 300, "nan")
FLOATS = (0.0, 1.0, -1.5, 1e308, 5e-324, float("nan"), float("inf"), -0.0)
INTEGERS = (0, 1, -1, 7, 127)
MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
# Types, each with the choice of a value by a byte.
LEAVES: tuple[tuple[Any, Callable[[int], Any]], ...] = (
    *((kind, lambda k: STRINGS[k % len(STRINGS)]) for kind in (pa.string(), pa.string(), pa.large_string())),
    *((kind, lambda k: FLOATS[k % len(FLOATS)]) for kind in (pa.float64(), pa.float64(), pa.float32())),
    *((kind, lambda k: INTEGERS[k % len(INTEGERS)]) for kind in (pa.int64(), pa.int8(), pa.int32())),
    (pa.uint64(), lambda k: (0, 1, 2**63, 2**64 - 1)[k % 4]),
    (pa.int64(), lambda k: (2**62, -(2**63), 2**53 + 1)[k % 3]),
    (pa.float16(), lambda k: FLOATS[k % 3]),
    (pa.bool_(), lambda k: bool(k % 2)),
    (pa.null(), lambda k: None),
    (pa.binary(), lambda k: (b"a", b"\xff\xfe", b"")[k % 3]),
    (pa.binary(3), lambda k: (b"abc", b"\xff\xfe\x00")[k % 2]),
    (pa.timestamp("ns"), lambda k: k * 10**15 + k),
    (pa.timestamp("us", "Europe/Berlin"), lambda k: MOMENT),
    (pa.timestamp("s"), lambda k: (0, 2**60, -(2**60))[k % 3]),
    (pa.date32(), lambda k: (0, 2**31 - 1, -(2**31))[k % 3]),
    (pa.time64("ns"), lambda k: k),
    (pa.duration("s"), lambda k: (0, 1, 2**60)[k % 3]),
    (pa.decimal128(38, 2), lambda k: decimal.Decimal((0, 1, 10**30)[k % 3])),
    (pa.dictionary(pa.int8(), pa.string()), lambda k: STRINGS[k % len(STRINGS)]),
)
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def odd_parquet(data: bytes) -> bytes | None:
    """Return the bytes of a file, None if Arrow cannot write what was chosen."""
    left = iter(data)
    n_rows, names, arrays = next(left, 1) % 6, list[str](), list[Any]()
    try:
        for _ in range(1 + next(left, 0) % 4):
            names.append(NAMES[next(left, 0) % len(NAMES)])
            kind, value = _type(left, next(left, 0) % 4)
            arrays.append(pa.array([value() for _ in range(n_rows)], kind))
        file = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays(arrays, names),
            file,
            row_group_size=1 + next(left, 3) % 4,
            compression=COMPRESSIONS[next(left, 0) % len(COMPRESSIONS)],
            use_dictionary=bool(next(left, 1) % 2),
            data_page_version=("1.0", "2.0")[next(left, 0) % 2],
            store_schema=bool(next(left, 1) % 4),
        )
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
        return None
    return file.getvalue()


def _type(left: Iterator[int], depth: int) -> tuple[Any, Callable[[], Any]]:
    """Return a type, and a call that returns the next value of it."""
    if depth == 0:
        kind, chosen = LEAVES[next(left, 0) % len(LEAVES)]
        return kind, lambda: None if (k := next(left, 0)) == 255 else chosen(k)
    choice = next(left, 0) % 8
    inner, value = _type(left, depth - 1)

    def listed() -> Any:
        return None if (k := next(left, 1)) == 255 else [value() for _ in range(k % 4)]

    if choice < 4:
        return pa.list_(inner), listed
    if choice == 4:
        return pa.large_list(inner), listed
    if choice == 5:
        return pa.list_(inner, 2), lambda: None if next(left, 1) == 255 else [value(), value()]
    if choice == 6:
        return pa.map_(pa.string(), inner), lambda: [(STRINGS[next(left, 0) % 4], value())]
    return pa.struct([("a", inner), ("b", pa.string())]), lambda: {"a": value(), "b": "x"}
