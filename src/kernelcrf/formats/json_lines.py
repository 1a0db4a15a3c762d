"""JSON lines: an object a line, as `objects` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

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
                found = json.loads(line)
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
        lines.write(json.dumps(object_of(record), ensure_ascii=False) + "\n")
