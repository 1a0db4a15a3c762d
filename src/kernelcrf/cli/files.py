"""The files of a command: models, labelled sequences, templates, and files to write; and `kernelcrf convert`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import UnsupportedOperation
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.basis.entries import Entries
from kernelcrf.formats import FormatError, Record, Templates, default_templates, format_of, read_batches, write
from kernelcrf.formats.streams import STDIN, display_name
from kernelcrf.formats.templates import TemplateColumns
from kernelcrf.persistence import check_target

ELSEWHERE = "the model was fitted to features or vectors made elsewhere"


@dataclass(frozen=True, eq=False)
class Model:
    """A model file: the estimator, and the templates with which it reads text, None if it has none."""

    crf: ChainCRF
    templates: Templates | None

    @classmethod
    def load(cls, path: str) -> Model:
        """Return the model of a file."""
        crf = kernelcrf.load(path)
        if not isinstance(crf, ChainCRF):
            raise kernelcrf.ModelFileError(
                f"{path}: the file holds a {type(crf).__name__}: the commands use models of sequences; pass a ChainCRF"
            )
        return cls(crf, Templates.of(crf))

    def flat_inputs(self, records: Sequence[Record]) -> tuple[list[Any] | Entries, list[int] | None]:
        """Return X of the records, with their lengths if X is flat, which is the fastest way to predict."""
        if self._columns is None or records[0].kind != "text":
            return inputs(records, self.templates), None
        _check_text(records[0], self.templates)
        return self._columns.entries([record.x for record in records]), list(map(len, records))

    @cached_property
    def _columns(self) -> TemplateColumns | None:
        vocabulary = self.crf.model_.reader.vocabulary
        return None if self.templates is None or vocabulary is None else TemplateColumns(self.templates, vocabulary)

    def batches(self, path: str, format: str | None) -> Iterable[list[Record]]:
        """Return the batches of a file that the model can read."""
        n_columns = None
        if format_of(path, format) == "columns":
            if self.templates is None:
                raise FormatError(
                    f"{display_name(path)}: column files hold text, and {ELSEWHERE}: pass .jsonl or .crfsuite with the "
                    "same features"
                )
            n_columns = self.templates.n_columns
        return read_batches(path, format, n_columns=n_columns)

    def read_labelled(self, path: str, format: str | None) -> tuple[list[Record], list[Any], list[list[object]]]:
        """Return the labelled sequences of a file, with X and y; the text of a class becomes the class."""
        records = [record for batch in self.batches(path, format) for record in batch]
        classes = {str(label): label for label in self.crf.classes_.tolist()}
        y = []
        for record in records:
            if record.labels is None:
                raise FormatError(f"{record.place}: the sequence has no labels: expected labels to compare with")
            y.append([classes.get(label, label) if isinstance(label, str) else label for label in record.labels])
        return records, inputs(records, self.templates), y


def read_templates(record: Record, path: str | None) -> Templates | None:
    """Return the templates of a file, or the default ones, for records such as this; None if they are not text."""
    if record.kind != "text":
        if path is not None:
            raise FormatError(f"{record.place}: the file has {record.kind}, and --templates need text: drop the option")
        return None
    if path is None:
        return default_templates(record.width)
    try:
        return Templates(Path(path).read_text(encoding="utf-8"), record.width, path)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: expected templates as UTF-8 text ({error})") from None


def inputs(records: Sequence[Record], templates: Templates | None) -> list[Any]:
    """Return X of the records: text through templates, features and vectors unchanged."""
    rows = [record.x for record in records]
    return _check_text(records[0], templates).features(rows) if records and records[0].kind == "text" else rows


def _check_text(record: Record, templates: Templates | None) -> Templates:
    """Return the templates if they can read records of text such as this."""
    if templates is None:
        raise FormatError(f"{record.place}: the file has text, and {ELSEWHERE}: pass the same features or vectors")
    if record.width != templates.n_columns:
        raise FormatError(
            f"{record.place}: tokens of {record.width} cells: expected {templates.n_columns}, which the templates read"
        )
    return templates


def check_apart(target: str, sources: Iterable[str | None]) -> None:
    """Raise if the file to write is one of the files to read, by whatever name or link, or cannot be written.

    "-" is standard output as a target and standard input as a source; the shell may have made both of them files.
    """
    if target != STDIN:
        check_target(target)
    own = _status(target, sys.stdout)
    for name in sources:
        other = None if name is None else _status(name, sys.stdin)
        if own is not None and other is not None and os.path.samestat(own, other):
            where = "standard output" if target == STDIN else target
            raise FormatError(
                f"{where}: this is the same file as the input {display_name(name or '')}, which would be overwritten: "
                "name another file to write"
            )


def _status(name: str, stream: TextIO) -> os.stat_result | None:
    """Return the identity of a file; None if there is no file, or if it is a terminal, a pipe or a device."""
    try:
        found = os.fstat(stream.fileno()) if name == STDIN else os.stat(name)
    except (OSError, ValueError, UnsupportedOperation):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def convert(
    source: str, target: str, from_format: str | None, to_format: str | None, templates: str | None, labels: bool
) -> None:
    """Write the sequences of a file in the format of another; text becomes features if the format needs them."""
    wanted = format_of(target, to_format)
    if templates is not None and wanted not in ("crfsuite", "jsonl", "parquet"):
        raise FormatError(f"{target}: {wanted} files hold no features, which --templates make: drop the option")
    check_apart(target, [source, templates])
    batches = read_batches(source, from_format, labels=labels)
    featured = templates is not None or wanted == "crfsuite"
    write(target, _featured(batches, templates) if featured else chain.from_iterable(batches), to_format)


def _featured(batches: Iterator[list[Record]], path: str | None) -> Iterator[Record]:
    """Yield the records with the features of templates in place of text."""
    first = next(batches)
    templates = read_templates(first[0], path)
    for batch in chain([first], batches):
        for record, x in zip(batch, inputs(batch, templates), strict=True):
            yield record if templates is None else replace(record, kind="features", x=x)
