"""The threads of BLAS in this process."""

from __future__ import annotations

from functools import cache

from threadpoolctl import ThreadpoolController


def blas_threads() -> list[int]:
    """Return the threads of each BLAS library."""
    return [one["num_threads"] for one in _libraries().info()]


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS libraries of this process, which take milliseconds to find."""
    return ThreadpoolController().select(user_api="blas")
