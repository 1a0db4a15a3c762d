"""Arrow, which is loaded when a Parquet file is read or written, and its errors, which do not name the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelcrf.formats.records import FormatError, one_line


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet; raise FormatError if they are not installed."""
    try:
        import pyarrow as pa
        import pyarrow.fs
        import pyarrow.parquet as pq
    except ImportError:
        raise FormatError("Parquet files need pyarrow, which is not installed: pip install pyarrow") from None
    return pa, pq


@contextmanager
def arrow_errors(name: str, expected: str = "a Parquet file that is whole") -> Iterator[None]:
    """Turn Arrow's errors inside into errors that name the file: a FormatError, or the OSError of the system.

    A damaged file makes Arrow raise ArrowInvalid, OSError, NotImplementedError, UnicodeDecodeError and others.
    """
    try:
        yield
    except FormatError:
        raise
    except OSError as error:
        if error.errno is None:
            raise _named(name, expected, error) from None
        raise OSError(error.errno, os.strerror(error.errno), name) from None
    except MemoryError:
        raise MemoryError(f"{name}: there is not enough memory to read it: expected smaller row groups") from None
    except (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, RecursionError) as error:
        raise _named(name, expected, error) from None
    except Exception as error:
        if not isinstance(error, arrow()[0].ArrowException):
            raise
        raise _named(name, expected, error) from None


def _named(name: str, expected: str, error: Exception) -> FormatError:
    return FormatError(f"{name}: expected {expected} ({one_line(error)})")
