"""Interruption: signals, full disks, read-only folders.

A failure is: a file that is neither the old model nor the new one, a partial file that stays behind, an exit code or a
message other than the documented one, a trace of Python's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import common
from common import Trial


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    yield from ()


if __name__ == "__main__":
    common.run(__doc__ or "", __file__, trials)
