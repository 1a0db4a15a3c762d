"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]


@contextmanager
def whole_file(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file to write to, which takes its name once all of it is on disk; an error leaves the old file.

    The name appears by a rename, so that readers see the old file or the new one, and two writers never mix. Errors of
    the disk name the file that the caller asked for.
    """
    target = Path(os.path.realpath(path))
    check_target(path)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(partial, target.stat().st_mode & 0o777)
        os.replace(partial, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def check_target(path: PathLike) -> None:
    """Raise if no file can be written there, so that an hour of fitting does not end with this error."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of the file to write does not exist", str(path))
    if target.exists() and not target.is_file():
        # A device would be replaced by a file: /dev/null would fill the disk.
        raise OSError(errno.EINVAL, "this is a folder or a device; name a file to write", str(path))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "its folder is read-only; name a file in a writable folder", str(path))
