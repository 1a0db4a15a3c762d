"""Loops compiled by Numba: the GIL released, the machine code kept on disk where there is a place for it.

Numba keeps code beside the source, in a folder of the user's, or in NUMBA_CACHE_DIR. Where none of them can be written,
as in a container with a read-only file system, it refuses to compile at all, and where the disk is full it raises after
the work is done: here the code is then compiled by each process anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba

LOG = logging.getLogger(__name__)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`function`, compiled for the types of its calls; itself under NUMBA_DISABLE_JIT. `options` are Numba's."""
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        loop: Callable[..., Any] = numba.njit(function, cache=True, **options)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        _tell()
        loop = numba.njit(function, **options)
    if hasattr(loop, "_cache"):
        _keep_where_there_is_room(loop)
    return loop


def _keep_where_there_is_room(loop: Any) -> None:
    keep = loop._cache.save_overload

    def try_to_keep(signature: Any, code: Any) -> None:
        try:
            keep(signature, code)
        except OSError:
            _tell()

    loop._cache.save_overload = try_to_keep


@cache
def _tell() -> None:
    LOG.info("no folder for compiled code can be written: each process compiles anew. NUMBA_CACHE_DIR can name one")
