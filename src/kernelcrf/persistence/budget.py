"""Limit the memory that a model may take, in `load` and in its first prediction, by the size of its file.

A few bytes can claim a large model: a thousand labels have a million transitions, even if the file stores none of them.
A model may therefore take FACTOR times the size of its file, and ROOM bytes more. The content of the file itself, as
arrays and Python objects, counts as CONTENT times the size of the file; all other memory is charged to a `Budget`.

If a model needs more memory than the limit, `write` adds zeros to its file, so that `read` accepts the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from .error import ModelFileError

FACTOR, CONTENT, ROOM = 20, 10, 50_000_000


@dataclass
class Budget:
    """The number of bytes that the content of a file may still claim.

    size : the size of the file in bytes.
    """

    size: int

    def __post_init__(self) -> None:
        self.left = (FACTOR - CONTENT) * self.size + ROOM

    def charge(self, claim: str, n_bytes: int) -> None:
        """Subtract `n_bytes` from the number of bytes that are left; raise ModelFileError if fewer bytes are left.

        claim : the name of what takes the memory, for the error message.
        """
        if n_bytes > self.left:
            raise ModelFileError(
                f"{claim} would take {n_bytes:,} bytes of memory, and a file of {self.size:,} bytes may claim at most "
                f"{self.left:,}: expected a file whose content justifies its claims. The file is damaged, or was not "
                "written by this library: use a copy from a source that you trust"
            )
        self.left -= n_bytes


def size_for(n_bytes: int) -> int:
    """Return the size of the smallest file whose content may claim `n_bytes` of memory."""
    return max(0, -((ROOM - n_bytes) // (FACTOR - CONTENT)))
