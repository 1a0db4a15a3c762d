"""Read and write files of labelled sequences in any format of the registry.

The file extension, with or without ".gz" after it, determines the format; the path "-" means standard input or output.
A path may also be a URL that fsspec supports, such as s3://bucket/train.jsonl.
Text is read in batches, so that a stream of any length needs little memory. Errors name the file and the line.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import PurePath
from types import ModuleType

from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.registry import FORMATS
from kernelcrf.formats.streams import STDIN, display_name
from kernelcrf.persistence import PathLike, whole_file
from kernelcrf.validation import PATH, shown

# Files that commands write, which users may pass in the place of the data by mistake.
OUTPUTS = {".kcrf": "model", ".crfsuite": "model", ".html": "report"}
# The format of standard input and output, which have no extension.
STREAM_FORMAT = "columns"


def format_of(path: PathLike, format: str | None = None) -> str:
    """Return `format` if it is given; otherwise choose the format by the file extension, or "columns" for the path "-".

    Examples
    --------
    >>> from kernelcrf.formats import format_of
    >>> format_of("train.jsonl.gz"), format_of("-"), format_of("data.bin", "npz")
    ('jsonl', 'columns', 'npz')
    """
    PATH.check("path", path)
    if os.path.isdir(path):
        raise FormatError(f"{display_name(path)}: this is a folder: expected a file")
    if format is not None:
        if not isinstance(format, str) or format not in FORMATS:
            raise FormatError(f"format={shown(format)}: expected one of {', '.join(FORMATS)}")
        return format
    if os.fspath(path) == STDIN:
        return STREAM_FORMAT
    extension = PurePath(os.fspath(path).removesuffix(".gz")).suffix.lower()
    names = {extension: name for name, format in FORMATS.items() for extension in format.extensions}
    if extension in OUTPUTS:
        kind = OUTPUTS[extension]
        raise FormatError(
            f"{display_name(path)}: the extension {extension!r} is that of a {kind}: expected data, with one of the "
            f"extensions {', '.join(names)}; check that data and {kind} are not swapped"
        )
    if extension not in names:
        raise FormatError(
            f"{display_name(path)}: the extension {extension!r} is not known: expected one of {', '.join(names)}; or "
            f"pass the format, one of {', '.join(FORMATS)}"
        )
    return names[extension]


def read_batches(
    path: PathLike, format: str | None = None, *, n_columns: int | None = None, labels: bool = True
) -> Iterator[list[Record]]:
    r"""Read a file, a URL or a stream in batches, and yield each batch as a list of `Record`, one record per sequence.

    Raise FormatError if the file has no sequence. The arguments `n_columns` and `labels` apply only to column files,
    and `labels` also to CoNLL-U files.

    n_columns : the number of cells that are the input of a token. If a line has one more cell, this cell is the label.
        None means all cells of a line except the last; if `labels` is False, None means all cells.
    labels : whether the last cell of a line, or the UPOS of CoNLL-U, is the label; ignored if `n_columns` is given.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf.formats import read_batches
    >>> _ = Path("train.txt").write_text("The DT B-NP\ndog NN I-NP\n\nIt PRP B-NP\n")
    >>> sum(len(batch) for batch in read_batches("train.txt"))
    2
    """
    name = format_of(path, format)
    if FORMATS[name].is_binary and os.fspath(path) == STDIN:
        raise FormatError(
            f"{display_name(path)}: a {FORMATS[name].extensions[0]} file cannot be read from a stream: pass the name "
            "of a file"
        )
    options: dict[str, object] = {"labels": labels or n_columns is not None, "n_columns": n_columns}
    first: Record | None = None
    batches = _module(name).read(path, **{option: options[option] for option in FORMATS[name].read_options})
    for batch in batches if format is None else _check_format(batches, path, name):
        for record in batch:
            first = first or record
            if (record.kind, record.width) != (first.kind, first.width):
                raise FormatError(
                    f"{record.place}: the tokens of this sequence have {_input_kind(record)}, but in the first "
                    f"sequence they have {_input_kind(first)}: expected the same in the whole file"
                )
        if batch:
            yield batch
    if first is None:
        raise FormatError(f"{display_name(path)}: the file has no sequences: expected at least one")


def _module(name: str) -> ModuleType:
    """Return the module that reads and writes a format."""
    return import_module(f"kernelcrf.formats.{name}")


def _input_kind(record: Record) -> str:
    return f"{record.kind} with {record.width} entries" if record.width else record.kind


def _check_format(batches: Iterator[list[Record]], path: PathLike, name: str) -> Iterator[list[Record]]:
    """Yield the batches; if the first one cannot be read, the error says that the format `name` may be wrong."""
    try:
        first = next(batches, None)
    except FormatError as error:
        raise FormatError(
            f"{error}; the file was read as {name}: check that the file has this format, or do not pass the format"
        ) from None
    if first is not None:
        yield first
        yield from batches


def read(
    path: PathLike, format: str | None = None, *, n_columns: int | None = None, labels: bool = True
) -> Iterator[Record]:
    r"""Yield the sequences of a file one by one, each as a `Record`; `read_batches` explains the arguments.

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
    r"""Write records to a file, or to standard output if `path` is "-"; if writing fails, no partial file is left.

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
    extension = FORMATS[name].extensions[0]
    if not FORMATS[name].is_written:
        raise FormatError(
            f"{display_name(path)}: {extension} files are read, but not written: write a column file, with "
            "an extension such as .conll, or a .jsonl file"
        )
    module, records = _module(name), _check_kinds(records, FORMATS[name].kind, extension)
    if os.fspath(path) == STDIN:
        if FORMATS[name].is_binary:
            raise FormatError(f"standard output: {name} files cannot be written to a stream: pass the name of a file")
        module.write(sys.stdout, records)
        return
    with whole_file(path) as file:
        if FORMATS[name].is_binary:
            module.write(file, records)
            return
        # The header contains no time, so that equal records give equal files.
        is_packed = os.fspath(path).endswith(".gz")
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if is_packed else nullcontext(file) as packed:
            text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
            module.write(text, records)
            text.detach()


def _check_kinds(records: Iterable[Record], kind: str | None, extension: str) -> Iterator[Record]:
    """Yield the records; raise if the format cannot store the kind of input that a record has."""
    for record in records:
        if kind is not None and record.kind != kind:
            raise FormatError(
                f"{record.place}: the input of the sequence is {record.kind}, but {extension} files can only store "
                f"{kind}: write a .jsonl file, or turn text into features with templates"
            )
        yield record
