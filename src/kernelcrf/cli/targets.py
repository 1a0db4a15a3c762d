"""Files to write, which must not be among those that a command reads."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from io import UnsupportedOperation
from typing import TextIO

from kernelcrf.formats import FormatError
from kernelcrf.formats.streams import STDIN, display_name
from kernelcrf.persistence import check_target


def check_apart(target: str, inputs: Iterable[str | None]) -> None:
    """Raise if the file to write is one of the inputs, by whatever name or link, or cannot be written.

    "-" is standard output as a target and standard input as an input; both may be files of the shell's.
    """
    if target != STDIN:
        check_target(target)
    own = _status(target, sys.stdout)
    for name in inputs:
        other = None if name is None else _status(name, sys.stdin)
        if own is not None and other is not None and os.path.samestat(own, other):
            where = "standard output" if target == STDIN else target
            raise FormatError(
                f"{where}: this is the same file as the input {display_name(name or '')}, and would overwrite it: name "
                "another file to write"
            )


def _status(name: str, stream: TextIO) -> os.stat_result | None:
    """Return what tells a file from others; None if there is no file, or if it is a terminal, a pipe or a device."""
    try:
        found = os.fstat(stream.fileno()) if name == STDIN else os.stat(name)
    except (OSError, ValueError, UnsupportedOperation):
        return None
    return found if stat.S_ISREG(found.st_mode) else None
