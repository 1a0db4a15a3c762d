"""Compilation of the numerical loops of inference: serial, with fused products.

Parallelism is the engine's (threads over ranges of sequences), never a kernel's own. Multiplications and
additions may be fused, sums are never reordered: a result depends on the machine, not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelcrf.engines import compiled as numba_loops

FASTMATH = {"contract"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for the types of its first call."""
    return numba_loops.compiled(function, fastmath=FASTMATH)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Inline a function into each compiled function that calls it, for work that is done once per token."""
    return numba_loops.compiled(function, inline="always", fastmath=FASTMATH)
