"""Compile functions with Numba, so that they release the GIL, and store the machine code on disk if possible.

Three folders can store code: the folder NUMBA_CACHE_DIR if it is set, `__pycache__` beside the source, and the cache
folder of the user. A function uses the first of them that can be written to, or that already contains code of this
function. Stored code is therefore used even if its folder is read-only, for example in a container image. If there is
no such folder, or the disk is full, each process compiles again, and a warning says so.

Stored code is used as long as the source of the function, and of all functions that it calls, is the same.

A compiled function runs in a single thread. The compiler is not allowed to fuse or reorder products and sums. Otherwise
results would depend on which functions it inlines, and could differ between stored and newly compiled code.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.misc.appdirs import AppDirs

# No loop is passed to code in C, so Numba need not compile functions that such code could call.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return the function compiled by Numba with these `options`, or unchanged if NUMBA_DISABLE_JIT is set."""
    loop: Callable[..., Any] = numba.njit(function, **OPTIONS, **options)
    if loop is not function:
        vars(loop)["_cache"] = StoredCode(function)
    return loop


inlined = partial(compiled, forceinline=True)
"""Compile a function that is called once per token: its code is copied into the functions that call it."""


class Folder(_CacheLocator):
    """The folder of the compiled code of a function, and the state of the source files that this code comes from."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self._function, self._path = function, path

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> Folder | None:
        """Return the first folder that can be written to or contains code of the function; None if there is none.

        source : the path of the file of the function.
        """
        beside = os.path.dirname(os.path.abspath(source))
        shared = cls.get_suitable_cache_subpath(source)  # type: ignore[no-untyped-call]
        of_user = AppDirs("numba", False).user_cache_dir  # type: ignore[no-untyped-call]
        folders = [os.path.join(beside, "__pycache__"), os.path.join(of_user, shared)]
        if given := getattr(numba.config, "CACHE_DIR", ""):
            folders.insert(0, os.path.join(given, shared))
        name = f"{Path(source).stem}.{function.__qualname__}-".replace("<", "").replace(">", "")
        return next((cls(function, path) for path in folders if _can_write(path) or _has_index(path, name)), None)

    def ensure_cache_path(self) -> None:
        """Create the folder; raise OSError if it cannot be written to."""
        os.makedirs(self._path, exist_ok=True)
        if not _can_write(self._path):
            raise PermissionError(f"the folder {self._path} cannot be written to")

    def get_cache_path(self) -> str:
        """Return the path of the folder."""
        return self._path

    def get_source_stamp(self) -> str:
        """Return a digest of the source files of the function, and of all compiled functions that it may call."""
        digest = hashlib.sha256()
        for path in sorted(_sources(self._function, {})):
            digest.update(_digest(path))
        return digest.hexdigest()

    def get_disambiguator(self) -> str:
        """Return the number of the line at which the function starts."""
        return str(self._function.__code__.co_firstlineno)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [Folder]  # noqa: RUF012


class StoredCode(FunctionCache):
    """Compiled code of one function, stored in a folder. If it cannot be stored, each process compiles it again."""

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any]) -> None:
        self._has_folder = True
        try:
            super().__init__(function)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            self._has_folder = False

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the stored code for these types of arguments, or None if the function must be compiled for them."""
        code = super().load_overload(signature, target) if self._has_folder else None  # type: ignore[no-untyped-call]
        if code is None:
            _announce()
        return code

    def save_overload(self, signature: Any, code: Any) -> None:
        """Store newly compiled code, or warn that it cannot be stored."""
        try:
            if not self._has_folder:
                raise PermissionError("none of the folders for compiled code can be written to")
            super().save_overload(signature, code)  # type: ignore[no-untyped-call]
        except OSError as error:
            _warn(str(error))


@cache
def _announce() -> None:
    """Say on stderr that the first function of this process is being compiled."""
    sys.stderr.write("kernelcrf compiles its loops for this machine, once, which takes up to a minute.\n")
    sys.stderr.flush()


@cache
def _warn(reason: str) -> None:
    warnings.warn(
        f"compiled code cannot be stored ({reason}), so each process compiles it again: run `python -m kernelcrf "
        "compile` once as a user who can write to the folder of the package, or set NUMBA_CACHE_DIR to a folder that "
        "can be written to",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _can_write(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


@cache
def _names_in(path: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(path))
    except OSError:
        return ()


def _has_index(path: str, name: str) -> bool:
    """Return whether a folder contains stored code of a function, in files whose names start with `name`."""
    return any(file.startswith(name) and file.endswith(".nbi") for file in _names_in(path))


@cache
def _digest(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


def _sources(function: Callable[..., Any], known: dict[str, None]) -> dict[str, None]:
    """Add the source files of a function, and of all compiled functions that it may call, to `known`; return `known`.

    The files are the keys of this dict, so that each file is visited once and their order is fixed.
    """
    path = function.__code__.co_filename
    if path not in known:
        known[path] = None
        for value in list(function.__globals__.values()):
            # Loops of another module are also called by its name, as in `tangents.forward`.
            is_module = isinstance(value, ModuleType) and value.__name__.startswith("kernelcrf.")
            for used in list(vars(value).values()) if is_module else [value]:
                if isinstance(called := getattr(used, "py_func", None), FunctionType):
                    _sources(called, known)
    return known
