"""How numerical loops are compiled: serial, GIL released, cached on disk.

Parallelism is the engine's (threads over ranges of sequences), never a kernel's own. Multiplications and
additions may be fused, sums are never reordered: a result depends on the machine, not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract"}}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled for the types of its first call."""
    loop: Callable[..., Any] = numba.njit(function, **OPTIONS)
    return loop


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, made part of each compiled function that calls it: for what runs once a token."""
    loop: Callable[..., Any] = numba.njit(function, inline="always", **OPTIONS)
    return loop
