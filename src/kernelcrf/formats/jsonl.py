"""JSON lines: each line is a JSON object that describes one sequence; `kernelcrf.formats.records` lists its entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TextIO

from kernelcrf.formats.records import KEYS, FormatError, Record, object_of, record_of
from kernelcrf.formats.round_trip import check_same
from kernelcrf.formats.streams import display_name, line_batches
from kernelcrf.persistence import PathLike


def read(path: PathLike) -> Iterator[list[Record]]:
    """Yield lists of records, one record per line; skip blank lines."""
    name = display_name(path)
    for first, lines in line_batches(path):
        batch = []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            place = f"{name}, line {number}"
            try:
                entries = json.loads(line, object_pairs_hook=_make_object)
                if "\\u" in line:
                    json.dumps(entries, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise FormatError(
                    f"{place}: a string has half of a surrogate pair (\\ud800 to \\udfff): expected valid Unicode"
                ) from None
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{place}: expected a JSON object ({error})") from None
            batch.append(record_of(entries, place, raw=entries))
        yield batch


def write(lines: TextIO, records: Iterable[Record]) -> None:
    """Write records to an open text file, one line per record."""
    for record in records:
        try:
            others = {k: v for k, v in record.raw.items() if k not in KEYS} if isinstance(record.raw, dict) else {}
            line = json.dumps(others | object_of(record), ensure_ascii=False)
            line.encode()
        except (TypeError, ValueError) as error:
            raise FormatError(f"{record.place}: expected values that JSON can store ({error})") from None
        check_same(record, record_of(json.loads(line), record.place), "JSON")
        lines.write(line + "\n")


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Convert the pairs of a JSON object to a dict; raise if a name occurs twice."""
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} occurs more than once in a JSON object: expected distinct names")
    return entries
