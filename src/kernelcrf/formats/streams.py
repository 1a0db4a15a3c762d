"""Text by batches of whole lines, from a file, a gzipped file or standard input.

A batch is what one read of the source completes. From a pipe that is what has come by then, so a reader may answer each
sentence as soon as it is there, and many at once where many are waiting; memory holds a batch, never the stream. A line
or a run of lines has at most LONGEST bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from kernelcrf.formats.records import FormatError
from kernelcrf.formats.unpacking import Gunzipped
from kernelcrf.terminal import printable

PathLike: TypeAlias = str | os.PathLike[str]

STDIN = "-"
CHUNK = 1 << 16
LONGEST = 1 << 29
MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"


def display_name(path: PathLike) -> str:
    """Return the name of the source in messages, in one line."""
    return "standard input" if os.fspath(path) == STDIN else printable(os.fspath(path))


@contextmanager
def opened(path: PathLike) -> Iterator[Any]:
    """The bytes of a source, unpacked where its name ends in .gz; standard input where its first bytes say so."""
    if os.fspath(path) == STDIN:
        stream: Any = sys.stdin.buffer
        stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
        yield Gunzipped(stream, display_name(path)) if stream.peek(2)[:2] == GZIP_MAGIC else stream
        return
    with open(path, "rb") as file:
        yield Gunzipped(file, display_name(path)) if os.fspath(path).endswith(".gz") else file


def line_batches(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line, and lines without their ends (newline, or carriage return and newline)."""
    name, number, pieces, length = display_name(path), 1, list[bytes](), 0
    with opened(path) as file:
        while chunk := _chunk(file, name, number):
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines = _decoded(b"".join([*pieces, head]), name, number)
                yield number, lines
                number += len(lines)
                pieces, length = [tail], len(tail)
            else:
                pieces.append(tail)
                length += len(tail)
                _check_length(length, name, number, "line")
    if rest := b"".join(pieces):
        yield number, _decoded(rest, name, number)


def paragraphs(path: PathLike) -> Iterator[list[tuple[int, list[str]]]]:
    """Batches of runs of lines, each with the number of its first; an empty line, or one of blanks, ends a run."""
    run: list[str] = []
    length = 0
    for number, lines in line_batches(path):
        batch: list[tuple[int, list[str]]] = []
        for line in lines:
            if line and line.strip(" "):
                run.append(line)
                length += len(line)
            elif run:
                batch.append((number - len(run), run))
                run, length = [], 0
            number += 1
        _check_length(length, display_name(path), number - len(run), "sequence")
        if batch:
            yield batch
    if run:
        yield [(number - len(run), run)]


def _check_length(length: int, name: str, number: int, what: str) -> None:
    if length > LONGEST:
        raise FormatError(
            f"{name}, line {number}: a {what} of more than {LONGEST:,} bytes: expected "
            + ("a newline" if what == "line" else "an empty line after each sequence")
        )


def _chunk(file: Any, name: str, number: int) -> bytes:
    try:
        return bytes(file.read1(CHUNK))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{name}, line {number}: expected a whole gzip file ({error})") from None


def _decoded(block: bytes, name: str, number: int) -> list[str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + block.count(b"\n", 0, error.start)
        column = error.start - block.rfind(b"\n", 0, error.start)
        raise FormatError(
            f"{name}, line {line}: expected UTF-8 text, got the byte 0x{block[error.start]:02x} at byte {column}; "
            "iconv -t UTF-8 converts other encodings"
        ) from None
    if number == 1:
        text = text.removeprefix(MARK)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
