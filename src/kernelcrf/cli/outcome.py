"""The end of a command: at most one line on standard error, and an exit code that scripts can rely on.

0      done
1      a file, a model or a value is wrong; the message names it, and its line if there is one
2      wrong usage
130    interrupted (SIGINT); files are unchanged
141    the reader of the output has closed it
143    ended (SIGTERM); files are unchanged
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec

import typer

from kernelcrf.terminal import printable

P = ParamSpec("P")

WRONG, INTERRUPTED, CLOSED = 1, 128 + 2, 128 + 13


def command(body: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command, so that errors, warnings and interrupts end it as the head of this module describes."""

    @wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        # Text is UTF-8 in every locale.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            for silent in (DeprecationWarning, ResourceWarning):
                warnings.simplefilter("ignore", silent)
            warnings.showwarning = _warn
            try:
                body(*args, **kwargs)
                sys.stdout.flush()
            except KeyboardInterrupt:
                _end("interrupted", INTERRUPTED)
            except BrokenPipeError:
                _forget_output()
                raise typer.Exit(CLOSED) from None
            except OSError as error:
                # Errors about files have a file name; an error without one is about standard output.
                name = error.filename2 or error.filename or "standard output"
                if name == "standard output":
                    _forget_output()
                _end(f"{name}: {error.strerror}" if error.strerror else str(error), WRONG)
            except (ValueError, TypeError) as error:
                _end(str(error), WRONG)

    return run


def _forget_output() -> None:
    """Discard the rest of the output, which cannot be written; else the interpreter reports an error at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def echo(line: str = "") -> None:
    """Print a line, with control characters escaped: labels and file names must not control the terminal."""
    typer.echo(printable(line))


def _end(message: str, code: int) -> NoReturn:
    typer.echo(printable(f"error: {' '.join(message.split())}"), err=True)
    raise typer.Exit(code)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(printable(f"warning: {' '.join(str(message).split())}"), err=True)
