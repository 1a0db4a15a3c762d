"""Run a command and exit with one of the codes below. An error is printed as one line on standard error.

0      the command succeeded
1      a file, a model or a value is wrong; the message names it, and the line of the file if there is one
2      the options or arguments are wrong
130    the command was interrupted (SIGINT); files are unchanged
141    the program that reads the output has closed the pipe
143    the command was terminated (SIGTERM); files are unchanged
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import NoReturn

import typer

from kernelcrf.terminal import printable

WRONG, INTERRUPTED, CLOSED = 1, 128 + 2, 128 + 13


def run_by(module: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for functions that declare the options of a command and have no body.

    The command runs the function of the same name in `kernelcrf.cli.<module>`. This module is imported when the command
    runs, so that --help is fast. Errors and warnings are printed as one line each on standard error.
    """

    def decorate(declared: Callable[..., None]) -> Callable[..., None]:
        @wraps(declared)
        def run(**options: object) -> None:
            _run(lambda: getattr(import_module(f"kernelcrf.cli.{module}"), declared.__name__)(**options))

        return run

    return decorate


def _run(body: Callable[[], None]) -> None:
    # Text is UTF-8 in every locale.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for silent in (DeprecationWarning, ResourceWarning):
            warnings.simplefilter("ignore", silent)
        # Files of vectors have no column names, but a model may have been fitted to data frames in Python.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.showwarning = _warn
        try:
            body()
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


def _forget_output() -> None:
    """Discard output that can no longer be written; otherwise the interpreter reports an error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def echo(line: str = "") -> None:
    """Print a line with control characters escaped, so that labels and file names cannot control the terminal."""
    typer.echo(printable(line))


def _end(message: str, code: int) -> NoReturn:
    typer.echo(printable(f"error: {' '.join(message.split())}"), err=True)
    raise typer.Exit(code)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(printable(f"warning: {' '.join(str(message).split())}"), err=True)
