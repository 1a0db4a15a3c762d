"""The memory that this process may use: that of the machine, or less if the process is in a container with a limit."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Where Linux says how much memory a container may use, in versions 2 and 1 of control groups.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit() -> int | None:
    """Return the memory that this process may use in bytes, or None if it cannot be found out."""
    limits = [limit for path in LIMITS if (limit := _read(path)) is not None]
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((limit for limit in limits if limit > 0), default=None)


def _read(path: str) -> int | None:
    """Return the number in a file, or None if there is no such file or it has another content, such as "max"."""
    with suppress(OSError, ValueError):
        return int(Path(path).read_text())
    return None
