"""Text in batches of whole lines, from a file, a gzipped file or standard input.

A batch is what one read of the source completes. From a pipe that is what has arrived, so a reader can answer each
sentence at once, and many together if many are waiting. Memory holds one batch. A line, or a run of lines, has at most
LONGEST bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kernelcrf.formats.records import FormatError
from kernelcrf.formats.unpacking import Gunzipped
from kernelcrf.persistence import PathLike
from kernelcrf.terminal import printable

STDIN = "-"
CHUNK = 1 << 16
LONGEST = 1 << 29
MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"


class Source(Protocol):
    """Bytes that are read as they arrive."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...


def display_name(path: PathLike) -> str:
    """Return the name of the source for messages, in one line."""
    return "standard input" if os.fspath(path) == STDIN else printable(os.fspath(path))


@contextmanager
def open_source(path: PathLike) -> Iterator[Source]:
    """Open a source and unpack it if its name ends in .gz, or if standard input starts with gzip's bytes."""
    if os.fspath(path) == STDIN:
        stream = sys.stdin.buffer
        buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
        yield Gunzipped(buffered, display_name(path)) if buffered.peek(2)[:2] == GZIP_MAGIC else buffered
        return
    with open(path, "rb") as file:
        yield Gunzipped(file, display_name(path)) if os.fspath(path).endswith(".gz") else file


def line_batches(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line, and lines without their ends (newline, or carriage return and newline)."""
    name, number, pieces, length = display_name(path), 1, list[bytes](), 0
    with open_source(path) as file:
        while chunk := _read_chunk(file, name, number):
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines = _decode(b"".join([*pieces, head]), name, number)
                yield number, lines
                number += len(lines)
                pieces, length = [tail], len(tail)
            else:
                pieces.append(tail)
                length += len(tail)
                _check_length(length, name, number, "line")
    if rest := b"".join(pieces):
        yield number, _decode(rest, name, number)


def paragraphs(path: PathLike) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield batches of runs of lines, each with the number of its first line; an empty or blank line ends a run."""
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
        end = "a newline" if what == "line" else "an empty line after each sequence"
        raise FormatError(f"{name}, line {number}: a {what} of more than {LONGEST:,} bytes: expected {end}")


def _read_chunk(file: Source, name: str, number: int) -> bytes:
    try:
        return file.read1(CHUNK)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{name}, line {number}: expected a complete gzip file ({error})") from None


def _decode(block: bytes, name: str, number: int) -> list[str]:
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
