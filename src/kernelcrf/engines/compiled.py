"""Loops compiled by Numba: the GIL is released, and machine code is kept on disk if possible.

Numba keeps code beside the source, in a folder of the user, or in NUMBA_CACHE_DIR. If none of them can be written, as
in a container with a read-only file system, Numba refuses to compile; if the disk is full, it raises after the work is
done. Here each process then compiles the code again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba

LOG = logging.getLogger(__name__)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function for the types of its calls, with Numba's `options`; NUMBA_DISABLE_JIT returns it as it is."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        loop: Callable[..., Any] = numba.njit(function, cache=True, **options)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        _tell()
        loop = numba.njit(function, **options)
    # Numba has no public name for the cache of a loop; a plain function has none.
    if (store := vars(loop).get("_cache")) is not None:
        _keep_where_there_is_room(store)
    return loop


def _keep_where_there_is_room(store: Any) -> None:
    keep = store.save_overload

    def try_to_keep(signature: Any, code: Any) -> None:
        try:
            keep(signature, code)
        except OSError:
            _tell()

    store.save_overload = try_to_keep


@cache
def _tell() -> None:
    LOG.info("compiled code cannot be stored, so each process compiles again: set NUMBA_CACHE_DIR to a writable folder")
