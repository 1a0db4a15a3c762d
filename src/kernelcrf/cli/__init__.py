"""The command `kernelcrf`: fit, tag, evaluate, inspect, report and convert, for those who live in a shell."""

from __future__ import annotations

import signal
import sys
from threading import Timer, main_thread
from typing import Any, NoReturn

ENDED = 128 + signal.SIGTERM
INTERRUPTED = 128 + signal.SIGINT

_received: list[int] = []


def main() -> None:
    """Run the command with the arguments of the process."""
    # From the first moment on: the modules below take a second to load, and signals come then as well.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)
    sys.unraisablehook = _send_again
    try:
        from kernelcrf.cli.app import app

        app(prog_name="kernelcrf")
    except BaseException as error:
        # Whatever a signal has become on its way: extension modules make an ImportError of it.
        if _received and not isinstance(error, SystemExit):
            _end_by(_received[0])
        if isinstance(error, ModuleNotFoundError) and error.name in ("typer", "rich"):
            name = error.name
            sys.exit(f"error: the command line needs {name}, which is not installed: pip install 'kernelcrf[cli]'")
        raise
    finally:
        # The work is done or undone: a signal that comes while the interpreter ends changes nothing of it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _unwind(number: int, frame: Any) -> NoReturn:
    """Let a signal unwind the program, so that no partial file stays behind."""
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(ENDED)


def _send_again(lost: Any) -> None:
    """A signal that came while a destructor or a callback ran, which cannot raise, comes a moment later once more."""
    if _received and isinstance(lost.exc_value, (KeyboardInterrupt, SystemExit)):
        Timer(0.02, _to_main_thread, (_received.pop(),)).start()
    else:
        sys.__unraisablehook__(lost)


def _to_main_thread(number: int) -> None:
    """To wake it from a system call as well, where the system can."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


def _end_by(number: int) -> NoReturn:
    if number == signal.SIGTERM:
        sys.exit(ENDED)
    sys.stderr.write("error: interrupted\n")
    sys.exit(INTERRUPTED)
