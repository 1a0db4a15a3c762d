"""CRFsuite's text format: a token a line, its label and its attributes apart by tabs.

An empty line ends a sequence. An attribute is `name` or `name:value`; in names and labels a backslash stands before a
colon and a backslash. A line `@weight:2.5` at the head of a sequence is what it counts for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kernelcrf.estimators.feature_dicts import SEPARATOR, flat_items
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import PathLike, display_name, paragraphs

WEIGHT = "@weight:"
FIELD = re.compile(r"((?:[^:\\]|\\.)*)(?::(.*))?", re.DOTALL)
ESCAPED = re.compile(r"\\(.)")
SPECIAL = re.compile(r"([:\\])")


def read(path: PathLike) -> Iterator[list[Record]]:
    """Batches of records of kind "features"; a token is a list of names, or a dict where one of them has a value."""
    name = display_name(path)
    for batch in paragraphs(path):
        found = []
        for number, lines in batch:
            weight = 1.0
            if lines[0].startswith(WEIGHT):
                weight = _weight(lines[0].removeprefix(WEIGHT), f"{name}, line {number}")
                number, lines = number + 1, lines[1:]
            pairs = [_token(line, name, number + t) for t, line in enumerate(lines)]
            if pairs:
                labels, tokens = map(list, zip(*pairs, strict=True))
                found.append(Record("features", tokens, labels, None, f"{name}, line {number}", None, weight))
        yield found


def write(lines: Any, records: Iterable[Record]) -> None:
    """Write records of kind "features" to an open text file; a sequence without labels has empty ones."""
    for record in records:
        if record.kind != "features":
            raise FormatError(
                f"{record.place}: CRFsuite's format holds features, and this sequence has {record.kind}: make them by "
                "templates, or write .jsonl"
            )
        if record.weight != 1.0:
            lines.write(f"{WEIGHT}{record.weight!r}\n")
        labels = [""] * len(record) if record.labels is None else record.labels
        for label, token in zip(labels, record.x, strict=True):
            if label is None or isinstance(label, set | frozenset):
                raise FormatError(f"{record.place}: CRFsuite's format has no place for the label {label!r}")
            fields = [_escaped(str(label)), *map(_attribute, flat_items(token))]
            line = "\t".join(fields)
            if any(set(field) & set("\t\n\r") for field in fields) or not line.strip(" "):
                raise FormatError(
                    f"{record.place}: the label and the attributes {fields} cannot be a line: expected one that is not "
                    "empty, without tabs, newlines and carriage returns"
                )
            lines.write(line + "\n")
        lines.write("\n")


def _token(line: str, name: str, number: int) -> tuple[str, list[str] | dict[str, float]]:
    label, *fields = line.split("\t")
    if ":" not in line and "\\" not in line:
        return label, fields
    place = f"{name}, line {number}"
    pairs = [_parsed(field, place) for field in fields]
    if all(value is None for _, value in pairs):
        return _parsed(label, place)[0], [attribute for attribute, _ in pairs]
    sums: dict[str, float] = {}
    for attribute, value in pairs:
        sums[attribute] = sums.get(attribute, 0.0) + (1.0 if value is None else value)
    return _parsed(label, place)[0], sums


def _parsed(field: str, place: str) -> tuple[str, float | None]:
    match = FIELD.fullmatch(field)
    if match is None:
        raise FormatError(f"{place}: {field!r} ends in a backslash: expected a character after it")
    value = match[2]
    return ESCAPED.sub(r"\1", match[1]), None if value is None else _number(value, place)


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(
            f"{place}: {text!r} after a colon is no number: expected a finite one; a colon in a name is written with a "
            "backslash before it"
        )
    return value


def _weight(text: str, place: str) -> float:
    weight = _number(text, place)
    if weight < 0:
        raise FormatError(f"{place}: weight is {text}: expected a number >= 0")
    return weight


def _escaped(name: str) -> str:
    return SPECIAL.sub(r"\\\1", name)


def _attribute(item: tuple[str, Any]) -> str:
    name, value = item
    if isinstance(value, str):
        return _escaped(f"{name}{SEPARATOR}{value}")
    return _escaped(name) if value == 1 else f"{_escaped(name)}:{float(value)!r}"
