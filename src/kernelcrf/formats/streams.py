"""Read text in batches of whole lines from a file, a gzipped file or standard input.

Only one batch is in memory at a time. From a pipe, a batch contains the lines that have arrived, so that a sentence can
be tagged before the next one arrives. A line, or all lines of one sequence, may have at most LONGEST bytes.

In all formats, a compressed file may unpack to at most RATIO times its size, or LEAST bytes if that is more. Ordinary
files unpack to about ten times their size, but a malicious file of kilobytes may unpack to terabytes.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import BinaryIO

from kernelcrf.formats.records import FormatError
from kernelcrf.persistence import PathLike, named_errors, open_binary
from kernelcrf.terminal import printable

STDIN = "-"
CHUNK = 1 << 16
LONGEST = 1 << 29
# The lines of a sequence above which empty lines are probably missing; a sentence has a few hundred tokens at most.
MANY_LINES = 2000
LEAST = 1 << 28
RATIO = 100
MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"


def display_name(path: PathLike) -> str:
    """Return the name of the file or stream for messages, without control characters."""
    return "standard input" if os.fspath(path) == STDIN else printable(os.fspath(path))


def allowed(packed: int) -> int:
    """Return the largest number of bytes that `packed` compressed bytes may unpack to."""
    return max(LEAST, RATIO * packed)


def line_batches(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yield batches of lines as pairs: the number of the first line, and the list of lines without line ends."""
    name, number, pieces, length = display_name(path), 1, list[bytes](), 0
    try:
        for chunk in _chunks(path):
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
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{name}, line {number}: expected a complete gzip file ({error})") from None
    if rest := b"".join(pieces):
        yield number, _decode(rest, name, number)


def paragraphs(path: PathLike, blanks: str = " ") -> Iterator[list[tuple[int, list[str]]]]:
    """Yield lists of paragraphs; a paragraph is a pair of the number of its first line and the list of its lines.

    A blank line ends a paragraph. Warn once if a paragraph has more than MANY_LINES lines.

    blanks : the characters that a blank line may have.
    """
    run: list[str] = []
    length, warned = 0, False
    for number, lines in line_batches(path):
        batch: list[tuple[int, list[str]]] = []
        for line in lines:
            if line and line.strip(blanks):
                run.append(line)
                length += len(line)
            elif run:
                batch.append((number - len(run), run))
                run, length = [], 0
            number += 1
        _check_length(length, display_name(path), number - len(run), "sequence")
        warned = warned or _warn_of_long(batch, path)
        if batch:
            yield batch
    if run:
        batch = [(number - len(run), run)]
        warned or _warn_of_long(batch, path)
        yield batch


def _warn_of_long(batch: list[tuple[int, list[str]]], path: PathLike) -> bool:
    """Warn of the first paragraph with more than MANY_LINES lines; return whether there is one."""
    for number, lines in batch:
        if len(lines) > MANY_LINES:
            warnings.warn(
                f"{display_name(path)}, line {number}: the sequence has {len(lines):,} lines: if they are several "
                "sentences, put an empty line after each; if they are one sequence, ignore this warning",
                stacklevel=2,
            )
            return True
    return False


def _chunks(path: PathLike) -> Iterator[bytes]:
    """Yield bytes as they arrive; unpack them if the file name ends in .gz or if standard input is gzipped."""
    from_stdin = os.fspath(path) == STDIN
    with named_errors(display_name(path)), nullcontext(_buffered_stdin()) if from_stdin else open_binary(path) as file:
        is_packed = file.peek(2)[:2] == GZIP_MAGIC if from_stdin else os.fspath(path).endswith(".gz")
        yield from _unpack(file, display_name(path)) if is_packed else iter(partial(file.read1, CHUNK), b"")


def _buffered_stdin() -> io.BufferedReader:
    stream = sys.stdin.buffer
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[arg-type]


def _unpack(file: BinaryIO, name: str) -> Iterator[bytes]:
    packed, n_unpacked = _Counted(file), 0
    unpacked = gzip.GzipFile(fileobj=packed, mode="rb")
    while chunk := unpacked.read1(CHUNK):
        n_unpacked += len(chunk)
        if n_unpacked > allowed(packed.n):
            raise FormatError(
                f"{name}: {packed.n:,} packed bytes unpack to more than {allowed(packed.n):,} bytes, the limit; if you "
                "trust the file, gunzip it first"
            )
        yield chunk


class _Counted(io.RawIOBase):
    """A stream that counts, in its attribute `n`, the bytes that were read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.n = file, 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._file.read(size)
        self.n += len(chunk)
        return chunk


def _check_length(length: int, name: str, number: int, what: str) -> None:
    if length > LONGEST:
        end = "a newline before that" if what == "line" else "an empty line after each sequence"
        raise FormatError(f"{name}, line {number}: a {what} has more than {LONGEST:,} bytes: expected {end}")


def _advice(block: bytes, number: int) -> str:
    """Return how to convert a file that is not UTF-8; block, number : its bytes and the number of their first line."""
    wide = number == 1 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return f"convert it with iconv -f {'UTF-16' if wide else 'LATIN1'} -t UTF-8" + (
        "" if wide else ", or with -f and the encoding that it has"
    )


def _decode(block: bytes, name: str, number: int) -> list[str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + block.count(b"\n", 0, error.start)
        column = error.start - block.rfind(b"\n", 0, error.start)
        is_gzip = number == 1 and block.startswith(GZIP_MAGIC)
        raise FormatError(
            f"{name}, line {line}: expected UTF-8 text, got 0x{block[error.start]:02x} at byte {column} of the line; "
            + ("add .gz to the name, because the file is compressed" if is_gzip else _advice(block, number))
        ) from None
    if number == 1:
        text = text.removeprefix(MARK)
    lines = text.split("\n")
    if "\r" not in text:
        return lines
    lines = [line.removesuffix("\r") for line in lines]
    doubled = next((k for k, line in enumerate(lines, number) if line.endswith("\r")), None)
    if doubled is not None:
        raise FormatError(
            f"{name}, line {doubled}: the line ends with two carriage returns: expected at most one; "
            "remove them all with tr -d '\\r'"
        )
    for line_number, one in enumerate(lines, number):
        if "\r" in one:
            raise FormatError(
                f"{name}, line {line_number}: the line has a carriage return before its end: expected lines that end "
                "with a newline, or with a carriage return and a newline; convert the file with mac2unix"
            )
    return lines
