"""Concurrency: many threads, many processes, long runs.

A failure is: an answer that differs from that of one thread, a hang, a crash, more threads than were allowed, or memory
that grows with the number of fits and predictions.
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
