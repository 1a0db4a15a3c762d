"""How a command ends: one line on standard error, and an exit code that scripts can rely on.

0      done
1      a file, a model or a value is not what was expected; the message names it, with the line where there is one
2      wrong usage
130    interrupted (SIGINT); files are as they were before
141    whoever read the output has closed it
143    ended (SIGTERM); files are as they were before
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec

import typer

from kernelcrf.terminal import printable

P = ParamSpec("P")

WRONG, INTERRUPTED, CLOSED = 1, 128 + 2, 128 + 13


def command(body: Callable[P, None]) -> Callable[P, None]:
    """The body of a command, with the ends above."""

    @wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        # Text is UTF-8 whatever the locale says.
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
                # Files are named by those who open them: what has no name is where the answer goes.
                name = error.filename2 or error.filename or "standard output"
                if name == "standard output":
                    _forget_output()
                _end(f"{name}: {error.strerror}" if error.strerror else str(error), WRONG)
            except (ValueError, TypeError) as error:
                _end(str(error), WRONG)

    return run


def _forget_output() -> None:
    """What is left in the buffer has nowhere to go; without this the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def echo(line: str = "") -> None:
    """Print a line of text; what labels, features and names of files hold cannot act on the terminal."""
    typer.echo(printable(line))


def _end(message: str, code: int) -> NoReturn:
    typer.echo(printable(f"error: {' '.join(message.split())}"), err=True)
    raise typer.Exit(code)


def _warn(message: Any, *_: Any, **__: Any) -> None:
    typer.echo(printable(f"warning: {' '.join(str(message).split())}"), err=True)
