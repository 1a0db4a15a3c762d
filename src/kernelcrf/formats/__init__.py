"""Labelled sequences in files: column files, JSON lines, CRFsuite's text format, Parquet and .npz.

The extension of a name says its format, that of `name.txt.gz` too; "-" is standard input. Reading goes by batches, so
that a stream of any length is read in bounded memory; errors name the file and the line.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import PurePath

from kernelcrf.formats.records import FormatError, Kind, Record
from kernelcrf.formats.streams import STDIN, PathLike, display_name
from kernelcrf.formats.templates import TemplateError, Templates, default_templates
from kernelcrf.persistence import whole_file
from kernelcrf.validation import PATH, shown

EXTENSIONS: Mapping[str, tuple[str, ...]] = {
    "columns": (".txt", ".conll", ".tsv", ".iob", ".iob2", ".bio", ".data"),
    "jsonl": (".jsonl", ".ndjson"),
    "crfsuite": (".crfsuite", ".crfs"),
    "parquet": (".parquet",),
    "npz": (".npz",),
}
MODULES = {"columns": "columns", "jsonl": "json_lines", "crfsuite": "crfsuite", "parquet": "parquet", "npz": "arrays"}
BINARY = ("parquet", "npz")


def format_of(path: PathLike, format: str | None = None) -> str:
    """The name of the format: the one given, or that of the extension; column files from standard input.

    Examples
    --------
    >>> from kernelcrf.formats import format_of
    >>> format_of("train.jsonl.gz"), format_of("-"), format_of("data.bin", "npz")
    ('jsonl', 'columns', 'npz')
    """
    PATH.check("path", path)
    if format is not None:
        if not isinstance(format, str) or format not in EXTENSIONS:
            raise FormatError(f"format={shown(format)}: expected one of {', '.join(EXTENSIONS)}")
        return format
    if os.fspath(path) == STDIN:
        return "columns"
    extension = PurePath(os.fspath(path).removesuffix(".gz")).suffix.lower()
    for name, extensions in EXTENSIONS.items():
        if extension in extensions:
            return name
    known = ", ".join(extension for extensions in EXTENSIONS.values() for extension in extensions)
    raise FormatError(
        f"{display_name(path)}: the extension {extension!r} is of no known format: expected one of {known}, or the "
        f"format by name: {', '.join(EXTENSIONS)}"
    )


def read_batches(
    path: PathLike, format: str | None = None, *, n_columns: int | None = None, labels: bool = True
) -> Iterator[list[Record]]:
    r"""Batches of records, each what one read of the source brought; raises where the source has no sequence.

    n_columns, labels : of column files alone: how many cells describe a token, a further one being its label. None is
        all but the last, or all where `labels` is False.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf.formats import read_batches
    >>> _ = Path("train.txt").write_text("The DT B-NP\ndog NN I-NP\n\nIt PRP B-NP\n")
    >>> sum(len(batch) for batch in read_batches("train.txt"))
    2
    """
    name = format_of(path, format)
    options = {"n_columns": n_columns, "labels": labels} if name == "columns" else {}
    empty, width = True, None
    for batch in import_module(f"{__name__}.{MODULES[name]}").read(path, **options):
        for record in batch:
            width = _check_alike(record, width)
        if batch:
            empty = False
            yield batch
    if empty:
        raise FormatError(f"{display_name(path)}: no sequence in it: expected at least one")


def read(
    path: PathLike, format: str | None = None, *, n_columns: int | None = None, labels: bool = True
) -> Iterator[Record]:
    r"""The records one after the other; see `read_batches`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf.formats import read
    >>> _ = Path("train.txt").write_text("The DT B-NP\ndog NN I-NP\n\nIt PRP B-NP\n")
    >>> [(record.x, record.labels) for record in read("train.txt")]
    [([['The', 'DT'], ['dog', 'NN']], ['B-NP', 'I-NP']), ([['It', 'PRP']], ['B-NP'])]
    """
    for batch in read_batches(path, format, n_columns=n_columns, labels=labels):
        yield from batch


def write(path: PathLike, records: Iterable[Record], format: str | None = None) -> None:
    r"""Write records to a file, which appears whole or not at all, or to standard output, "-".

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf.formats import read, write
    >>> _ = Path("train.txt").write_text("The DT B-NP\ndog NN I-NP\n")
    >>> write("train.jsonl", read("train.txt"))
    >>> print(Path("train.jsonl").read_text().strip())
    {"tokens": [["The", "DT"], ["dog", "NN"]], "labels": ["B-NP", "I-NP"]}
    """
    name = format_of(path, format)
    module = import_module(f"{__name__}.{MODULES[name]}")
    if os.fspath(path) == STDIN:
        if name in BINARY:
            raise FormatError(f"standard output: {name} files are not written to a stream: name a file")
        module.write(sys.stdout, records)
        return
    with whole_file(path) as file:
        if name in BINARY:
            module.write(file, records)
            return
        # No time in the header: equal records make equal files.
        packed = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if os.fspath(path).endswith(".gz") else None
        text = io.TextIOWrapper(file if packed is None else packed, encoding="utf-8", newline="\n")
        module.write(text, records)
        text.flush()
        text.detach()
        if packed is not None:
            packed.close()


def _check_alike(record: Record, before: tuple[Kind, int] | None) -> tuple[Kind, int]:
    """The kind of a record, and how many cells or numbers a token has: what all records of a file share."""
    width = len(record.x[0]) if record.kind == "text" else record.x.shape[1] if record.kind == "vectors" else 0
    if before is not None and before != (record.kind, width):
        raise FormatError(
            f"{record.place}: {record.kind} of {width} entries a token after {before[0]} of {before[1]}: expected one "
            "kind and one width in a file"
        )
    return record.kind, width


__all__ = [
    "EXTENSIONS",
    "FormatError",
    "Record",
    "TemplateError",
    "Templates",
    "default_templates",
    "format_of",
    "read",
    "read_batches",
    "write",
]
