"""The command `kernelcrf`: fit, tag, evaluate, inspect, report and convert, for those who live in a shell."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command with the arguments of the process."""
    try:
        from kernelcrf.cli.app import app
        from kernelcrf.cli.outcome import clean_termination
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: the command line needs {error.name}, which is not installed: pip install 'kernelcrf[cli]'")
    clean_termination()
    app(prog_name="kernelcrf")
