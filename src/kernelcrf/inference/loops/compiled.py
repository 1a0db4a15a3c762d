"""How numerical loops of inference are compiled: serial, with fused products.

Parallelism is the engine's (threads over ranges of sequences), never a kernel's own. Multiplications and
additions may be fused, sums are never reordered: a result depends on the machine, not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelcrf.engines import compiled as numba_loops

FASTMATH = {"contract"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled for the types of its first call."""
    return numba_loops.compiled(function, fastmath=FASTMATH)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, made part of each compiled function that calls it: for what runs once a token."""
    return numba_loops.compiled(function, inline="always", fastmath=FASTMATH)
