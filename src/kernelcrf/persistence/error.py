"""The error of files that are not valid."""

from __future__ import annotations


class ModelFileError(ValueError):
    """Raised if a file is not a model file of this library, or if the file is damaged.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf import ModelFileError, load
    >>> _ = Path("notes.txt").write_text("no model")
    >>> try:
    ...     load("notes.txt")
    ... except ModelFileError as error:
    ...     print(str(error)[:45])
    notes.txt: not a model file that this version
    """


# The errors that the content of a file causes if the file is not valid.
CONTENT_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
