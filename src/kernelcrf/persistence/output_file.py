"""Write a file as a whole or not at all, through a temporary file in the same folder, or to a URL through fsspec.

The name of the temporary file has a digest of the name of the target and a random part. It is short, so that a target
may have the longest name that the file system allows. A file for a URL is written on this machine first, then uploaded
with the ending PARTIAL, and renamed. A writer locks its temporary file. A lock ends with its process,
even if the process is killed, so that the next writer of the same target can remove abandoned temporary files.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from .error import ModelFileError

if sys.platform != "win32":
    import fcntl

PathLike: TypeAlias = str | os.PathLike[str]
# The errors of a folder that is read-only; /proc and its folders say ENOENT.
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
# Windows cannot rename an open file, so a complete file is not open for a moment.
LEAST_AGE = 60.0
# The ending of a file that is being uploaded.
PARTIAL = ".partial"


@contextmanager
def whole_file(path: PathLike) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; when the `with` block ends, the temporary file replaces the file `path`.

    After an error, `path` is unchanged. Other processes always see a complete file, either the old or the new one, even
    if two processes write to `path` at once. Errors of the operating system name `path`, not the temporary file.
    If `path` is a URL, the file is uploaded when it is complete.
    """
    if (remote := find_remote(path)) is not None:
        files, inside = remote
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "file"
            with open(local, "wb") as upload:
                yield upload
            files.put_file(str(local), f"{inside}{PARTIAL}")
        files.mv(f"{inside}{PARTIAL}", inside)
        return
    with _temporary_file(path) as (file, target):
        yield file
        file.flush()
        os.fsync(file.fileno())
        if sys.platform == "win32":
            file.close()
        os.replace(file.name, target)


def check_target(path: PathLike) -> None:
    """Raise OSError if no file can be written to `path`; call this function before a long fit that will be saved there.

    The function opens a temporary file as `whole_file` does, and removes it. It also removes abandoned temporary files
    of `path`. A URL is not checked.
    """
    if find_remote(path) is None:
        with _temporary_file(path):
            pass


def find_remote(path: PathLike) -> tuple[Any, str] | None:
    """Return the fsspec file system of a URL, and the path there; return None if `path` is a path on this machine."""
    text = os.fspath(path)
    if "://" not in text:
        return None
    try:
        # Most users have no URLs, and need no fsspec.
        url_to_fs = import_module("fsspec.core").url_to_fs
    except ImportError:
        raise ImportError(
            f"{text!r} is a URL, which needs fsspec, but fsspec is not installed: run pip install 'kernelcrf[dask]', "
            "or pass the path of a file"
        ) from None
    files, inside = url_to_fs(text)
    return files, str(inside)


def open_binary(path: PathLike) -> io.BufferedReader:
    """Open a file, or a URL that fsspec supports, for reading from its beginning to its end."""
    if (remote := find_remote(path)) is None:
        return open(path, "rb")
    files, inside = remote
    return io.BufferedReader(files.open(inside, "rb"))


@contextmanager
def local_copy(path: PathLike) -> Iterator[PathLike]:
    """Return a context manager for the path of a file on this machine that has the content of the file `path`.

    It is `path` itself, unless `path` is a URL. Errors about the content then name the URL.
    """
    remote = find_remote(path)
    if remote is None:
        yield path
        return
    files, inside = remote
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, inside.rsplit("/", 1)[-1] or "file")
        files.get_file(inside, copy)
        try:
            yield copy
        except ModelFileError as error:
            raise ModelFileError(str(error).replace(copy, os.fspath(path))) from None


@contextmanager
def named_errors(path: PathLike) -> Iterator[None]:
    """Add `path` to errors of the operating system that name no file, such as those of a read or a write."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


@contextmanager
def _temporary_file(path: PathLike) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a temporary file for `path`, and remove it at the end; yield a pair of this file and the target of `path`.

    The target is `path` with all links resolved.
    """
    target = Path(os.path.realpath(path))
    # They load a library of many megabytes, which who only reads files does not need.
    import secrets
    from hashlib import blake2b

    prefix = f".kernelcrf-{blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}-"
    partial = target.parent / f"{prefix}{secrets.token_hex(8)}.partial"
    try:
        _check_file(path, target)
        _sweep(target.parent, prefix)
        with _open_locked(partial) as file:
            # A disk without permissions refuses to change them.
            with suppress(FileNotFoundError, PermissionError):
                os.chmod(partial, target.stat().st_mode & 0o777)
            yield file, target
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial), str(target)):
            raise
        said = error.strerror
        if error.errno in READ_ONLY and error.filename == str(partial) and error.filename2 is None:
            said = "the folder of this file is read-only; choose another folder"
        raise OSError(error.errno, said, os.fspath(path)) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _check_file(path: PathLike, target: Path) -> None:
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of this file does not exist; create it first", str(path))
    with suppress(FileNotFoundError):
        os.stat(target)  # raises if the name is too long
    # A device must not be replaced by a file: writes to /dev/null would then fill the disk. If standard output is a
    # pipe, /dev/stdout exists, but its target, such as /proc/7/fd/pipe:[9], does not.
    if any(map(os.path.exists, (path, target))) and not target.is_file():
        raise OSError(errno.EINVAL, "this is a folder, a device or a pipe; pass the path of a file", str(path))


@contextmanager
def _open_locked(partial: Path) -> Iterator[BinaryIO]:
    while True:
        with open(partial, "xb") as file:
            if sys.platform != "win32":
                # Some network drives have no locks. Nobody can lock the file there, so nobody takes it for abandoned.
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
            # Another writer may have taken the file for abandoned before it was locked.
            if partial.exists():
                yield file
                return


def _sweep(folder: Path, prefix: str) -> None:
    """Remove the temporary files whose names begin with `prefix`, unless a process is writing them."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix):
                _remove_abandoned(folder / name)


def _remove_abandoned(partial: Path) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            # Removing an open file fails.
            if time.time() - partial.stat().st_mtime > LEAST_AGE:
                partial.unlink()
        else:
            with open(partial, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                partial.unlink()
