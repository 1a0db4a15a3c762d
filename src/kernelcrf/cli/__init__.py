"""The command `kernelcrf`: fit, tag, evaluate, inspect, report and convert, for those who live in a shell."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn

ENDED = 128 + signal.SIGTERM
INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command with the arguments of the process."""
    # From the first moment on: the modules below take a second to load, and signals come then as well.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from kernelcrf.cli.app import app

        app(prog_name="kernelcrf")
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs {error.name}, which is not installed: pip install 'kernelcrf[cli]'")
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(INTERRUPTED)
    finally:
        # The work is done or undone: a signal that comes while the interpreter ends changes nothing of it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: Any) -> NoReturn:
    """Let SIGTERM unwind the program, so that no partial file stays behind."""
    raise SystemExit(ENDED)
