"""JSON lines: an object a line, as `objects` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kernelcrf.formats.faithful import check_same
from kernelcrf.formats.objects import object_of, record_of
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import PathLike, display_name, line_batches


def read(path: PathLike) -> Iterator[list[Record]]:
    """Batches of records; lines of blanks count for nothing."""
    name = display_name(path)
    for first, lines in line_batches(path):
        batch = []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            place = f"{name}, line {number}"
            try:
                found = json.loads(line, object_pairs_hook=_object)
                if "\\u" in line:
                    json.dumps(found, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise FormatError(
                    f"{place}: half of a pair of surrogates (\\ud800 to \\udfff): expected characters that UTF-8 has"
                ) from None
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{place}: expected a JSON object ({error})") from None
            batch.append(record_of(found, place, raw=found))
        yield batch


def write(lines: Any, records: Iterable[Record]) -> None:
    """Write records to an open text file."""
    for record in records:
        try:
            line = json.dumps(object_of(record), ensure_ascii=False)
            line.encode()
        except (TypeError, ValueError) as error:
            raise FormatError(f"{record.place}: expected what JSON can hold ({error})") from None
        check_same(record, record_of(json.loads(line), record.place), "JSON")
        lines.write(line + "\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; JSON's own reader would keep the last of entries that have the same name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there more than once in an object")
    return found
