"""Import pyarrow when a Parquet file is first read or written, and add the name of the file to pyarrow's errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from kernelcrf.formats.records import FormatError
from kernelcrf.validation import one_line

# A module, table, column, type or filesystem of pyarrow; pyarrow has no type annotations.
ArrowObject: TypeAlias = Any

COMPLETE = "a complete Parquet file; if the file is damaged, use another copy of it"


def arrow() -> tuple[ArrowObject, ArrowObject]:
    """Return pyarrow and pyarrow.parquet; raise FormatError if they are not installed."""
    try:
        import pyarrow as pa
        import pyarrow.fs
        import pyarrow.parquet as pq
    except ImportError:
        raise FormatError("Parquet files need pyarrow, which is not installed: run pip install pyarrow") from None
    return pa, pq


@contextmanager
def arrow_errors(name: str, expected: str = COMPLETE) -> Iterator[None]:
    """Replace errors that Arrow raises in a `with` block by errors that begin with `name`, the name of the file.

    MemoryError and errors of the operating system keep their type. Other errors become FormatError, since a damaged
    file makes Arrow raise ArrowInvalid, NotImplementedError, UnicodeDecodeError and others.

    expected : the text that a FormatError has after the word "expected".
    """
    try:
        yield
    except FormatError:
        raise
    except MemoryError:
        raise MemoryError(
            f"{name}: a row group does not fit in memory: write the file again with smaller row groups"
        ) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), name) from None
        kinds = (OSError, ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, RecursionError)
        if not isinstance(error, (*kinds, arrow()[0].ArrowException)):
            raise
        raise FormatError(f"{name}: expected {expected} ({one_line(error)})") from None
