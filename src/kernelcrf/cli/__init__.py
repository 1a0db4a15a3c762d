"""Run the shell command `kernelcrf`, with the subcommands fit, tag, evaluate, inspect, report, compile and convert."""

from __future__ import annotations

import signal
import sys
from threading import Timer, main_thread
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_received: list[int] = []


def main() -> None:
    """Run the shell command `kernelcrf` with the command-line arguments of this process."""
    # Handlers are set first, because a signal may arrive while the modules are loaded, which takes a second.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)
    sys.unraisablehook = _send_again
    try:
        from kernelcrf.cli.app import app

        app(prog_name="kernelcrf")
    except BaseException as error:
        # The error may be caused by a signal: extension modules turn its exception into an ImportError.
        if _received and not isinstance(error, SystemExit):
            if _received[0] == signal.SIGINT:
                sys.stderr.write("error: interrupted\n")
            sys.exit(128 + _received[0])
        if isinstance(error, ModuleNotFoundError) and error.name == "typer":
            sys.exit("error: the command line needs typer, which is not installed: pip install 'kernelcrf[cli]'")
        raise
    finally:
        # All files are complete or removed, so signals can be ignored while the interpreter ends.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _unwind(number: int, frame: object) -> NoReturn:
    """Raise an exception for a signal, so that cleanup code runs and no partial file remains."""
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _send_again(lost: UnraisableHookArgs) -> None:
    """Send a signal again if Python discarded the exception that `_unwind` raised for this signal.

    Python discards exceptions that are raised in destructors and in some callbacks.
    """
    if _received and isinstance(lost.exc_value, (KeyboardInterrupt, SystemExit)):
        Timer(0.02, _to_main_thread, (_received.pop(),)).start()
    else:
        sys.__unraisablehook__(lost)


def _to_main_thread(number: int) -> None:
    """Send a signal to the main thread. On POSIX, the signal also interrupts a blocking system call of that thread."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)
