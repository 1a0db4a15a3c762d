"""CRFsuite's text format: one token per line, with its label and its attributes separated by tabs.

An empty line ends a sequence. An attribute is written as `name` or `name:value`; in names and labels, colons and
backslashes are escaped by a backslash. If the first line of a sequence is `@weight:2.5`, the sequence has the weight
2.5. A sequence is unlabelled if all its labels are empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TextIO

from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.round_trip import HOLDS_ALL, TextLabels, exact, feature_counts, is_line
from kernelcrf.formats.streams import MARK, display_name, paragraphs
from kernelcrf.persistence import PathLike
from kernelcrf.readers.feature_items import SEPARATOR, flat_items
from kernelcrf.validation import shown

FORMAT = "CRFsuite's format"
WEIGHT = "@weight:"
FIELD = re.compile(r"((?:[^:\\]|\\.)*)(?::(.*))?", re.DOTALL)
ESCAPED = re.compile(r"\\(.)")
SPECIAL = re.compile(r"([:\\])")


def read(path: PathLike) -> Iterator[list[Record]]:
    """Yield lists of records.

    The input of a token is a list of attribute names, or a dict from names to values if an attribute has a value.
    """
    name = display_name(path)
    for batch in paragraphs(path):
        records = []
        for number, lines in batch:
            weight = 1.0
            if lines[0].startswith(WEIGHT):
                text, place = lines[0].removeprefix(WEIGHT), f"{name}, line {number}"
                if (weight := _number(text, place)) < 0:
                    raise FormatError(f"{place}: the weight is {text}: expected a number >= 0")
                number, lines = number + 1, lines[1:]
            pairs = [_token(line, name, number + t) for t, line in enumerate(lines)]
            if pairs:
                labels, tokens = map(list, zip(*pairs, strict=True))
                place, known = f"{name}, line {number}", labels if any(labels) else None
                records.append(Record("features", tokens, known, None, place, None, weight))
        yield records


def write(lines: TextIO, records: Iterable[Record]) -> None:
    """Write records with features as their input to an open text file.

    Tokens of unlabelled sequences get an empty label. The words in `record.tokens` are not written, because CRFsuite's
    format cannot store them.
    """
    labels, begun = TextLabels(FORMAT), False
    for record in records:
        known = labels.texts(record)
        if known is not None and not any(known):
            raise FormatError(f"{record.place}: all labels are empty, which means no labels in {FORMAT}: {HOLDS_ALL}")
        made = [] if record.weight == 1.0 else [f"{WEIGHT}{float(record.weight)!r}"]
        for label, token in zip(known or [""] * len(record), record.x, strict=True):
            fields = [_escape(label), *(_attribute(*item, record.place) for item in flat_items(token))]
            made.append("\t".join(fields))
            if not _is_read_as(made[-1], label, token, record.place) or (not begun and made[0].startswith(MARK)):
                raise FormatError(
                    f"{record.place}: the label and attributes {shown(fields)} cannot be written as a line: expected "
                    f"text that is not empty, without tabs and line ends; {HOLDS_ALL}"
                )
            begun = True
        lines.write("\n".join([*made, "", ""]))


def _is_read_as(line: str, label: str, token: object, place: str) -> bool:
    if not is_line(line):
        return False
    label_read, attributes = _token(line, "", 0)
    return label_read == label and feature_counts(attributes, place) == feature_counts(token, place)


def _token(line: str, name: str, number: int) -> tuple[str, list[str] | dict[str, float]]:
    label, *fields = line.split("\t")
    if ":" not in line and "\\" not in line:
        return label, fields
    place = f"{name}, line {number}"
    pairs = [_parse(field, place) for field in fields]
    if all(value is None for _, value in pairs):
        return _parse(label, place)[0], [attribute for attribute, _ in pairs]
    sums: dict[str, float] = {}
    for attribute, value in pairs:
        sums[attribute] = sums.get(attribute, 0.0) + (1.0 if value is None else value)
    return _parse(label, place)[0], sums


def _parse(field: str, place: str) -> tuple[str, float | None]:
    match = FIELD.fullmatch(field)
    if match is None:
        raise FormatError(f"{place}: {field!r} ends in a single backslash: expected a character after it")
    return ESCAPED.sub(r"\1", match[1]), None if match[2] is None else _number(match[2], place)


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(f"{place}: got {text!r} after a colon: expected a finite number; in names, write \\: for :")
    return value


def _escape(name: str) -> str:
    return SPECIAL.sub(r"\\\1", name)


def _attribute(name: str, value: object, place: str) -> str:
    if isinstance(value, str):
        return _escape(f"{name}{SEPARATOR}{value}")
    return _escape(name) if value == 1 else f"{_escape(name)}:{exact(value, place)!r}"
