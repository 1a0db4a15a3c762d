"""Compile functions with Numba, so that they release the GIL, and store the machine code on disk if possible.

Numba stores code next to the source, in a cache folder of the user, or in NUMBA_CACHE_DIR. If it can write to none of
these folders, as in a container with a read-only file system, Numba refuses to compile. If the disk is full, Numba
raises an error after the compilation. In both cases, this module compiles without storing, and each process compiles
again.

A compiled function runs in a single thread. The compiler is not allowed to fuse or reorder products and sums. Otherwise
results would depend on which functions it inlines, and could differ between stored and newly compiled code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numba

LOG = logging.getLogger(__name__)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return the function compiled by Numba with these `options`, or unchanged if NUMBA_DISABLE_JIT is set."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        loop: Callable[..., Any] = numba.njit(function, cache=True, **options)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        _log_once()
        loop = numba.njit(function, **options)
    # Numba has no public name for the cache of a compiled function; a plain function has no cache.
    if (store := vars(loop).get("_cache")) is not None:
        _ignore_write_errors(store)
    return loop


inlined = partial(compiled, inline="always")
"""Compile a function that is called once per token: its code is copied into the functions that call it."""


def _ignore_write_errors(store: Any) -> None:
    keep = store.save_overload

    def try_to_keep(signature: Any, code: Any) -> None:
        try:
            keep(signature, code)
        except OSError:
            _log_once()

    store.save_overload = try_to_keep


@cache
def _log_once() -> None:
    LOG.info("compiled code cannot be stored, so each process compiles again: set NUMBA_CACHE_DIR to a writable folder")
