"""Model files: arrays as safetensors, all else as JSON in their header; nothing on the way back is executable.

A file says its format and version. Reading checks the size of the header, and the types and sizes of tensors against
the file, before an array is read; what the arrays mean, and whether they fit together, is for the estimators to say.

Version 1 has all of the JSON in the header; from version 2 on its long lists, such as feature names, are tensors
(`long_lists`). A header has at most HEADER bytes, because JSON takes up to thirty times its size in memory.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kernelcrf.long_lists import ARRAYS, pack, unpack

Array = npt.NDArray[Any]
PathLike = str | os.PathLike[str]

FORMAT, VERSION = "kernelcrf", 2
READ_VERSIONS = (1, 2)
HEADER = 1 << 24
# What the header says of a tensor beside its name: type, shape and place.
ENTRY = 160
TYPES = {"F32": 4, "F64": 8, "I32": 4, "I64": 8, "BOOL": 1, "U8": 1}


class ModelFileError(ValueError):
    """A file that is no model of this library, or a damaged one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelcrf import ModelFileError, load
    >>> _ = Path("notes.txt").write_text("no model")
    >>> try:
    ...     load("notes.txt")
    ... except ModelFileError as error:
    ...     print(str(error)[:45])
    notes.txt: not a model file that this version
    """


def write(path: PathLike, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a model. The file appears whole or not at all."""
    check_target(path)
    packed, long_lists = pack(config)
    header = json.dumps({"format": FORMAT, "version": VERSION, **packed})
    contiguous = {name: np.ascontiguousarray(array) for name, array in {**arrays, **long_lists}.items()}
    # A version of safetensors that writes a longer header may be one that cannot read it.
    if (size := len(json.dumps(header)) + sum(len(name) + ENTRY for name in contiguous)) > HEADER:
        parts = {name: len(json.dumps(part)) for name, part in packed.items()}
        largest = max(parts, key=lambda name: parts[name])
        raise ValueError(
            f"{path}: the header would have {size:,} bytes, {parts[largest]:,} of them for {largest!r}: expected at "
            f"most {HEADER:,}; shorten it, or make it lists of strings or of numbers, which are not part of the "
            "header, and call save again: the model is unchanged"
        )
    with whole_file(path) as file:
        file.write(save(contiguous, metadata={"config": header}))


@contextmanager
def whole_file(path: PathLike) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name once all of it is on disk; an error leaves what was there before.

    The name appears by a rename, so that readers see the old file or the new one, and two writers never mix. Errors of
    the disk name the file that was asked for.
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
    """Raise where no file can be written: an hour of fitting should not end there."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of the file to write is not there", str(path))
    if target.exists() and not target.is_file():
        # A device would be replaced by a file: /dev/null would fill the disk.
        raise OSError(errno.EINVAL, "a folder or a device, where a file can be written is expected", str(path))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "its folder is read-only, and a file is put there whole", str(path))


def read(path: PathLike) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the config and the arrays of a model file."""
    size = Path(path).stat().st_size
    if not Path(path).is_file():
        raise ModelFileError(f"{path}: expected a model file, got a folder or a device")
    try:
        _check_header(path)
        with safe_open(path, framework="numpy") as file:
            config = _header(file.metadata())
            names = list(file.keys())
            _check_tensors({name: file.get_slice(name) for name in names}, size)
            arrays = {name: file.get_tensor(name) for name in names}
        if config["version"] == 1:
            return config, arrays
        long_lists = {name: arrays.pop(name) for name in names if name in ARRAYS}
        return unpack(config, long_lists), arrays
    except (SafetensorError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ModelFileError(f"{path}: not a model file that this version can read ({error})") from None


def _check_header(path: PathLike) -> None:
    """Refuse a long header before it is read: as Python values it would take many times its size in memory."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > HEADER:
        raise ModelFileError(f"the header has {size:,} bytes: expected at most {HEADER:,}")


def _header(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    config = json.loads((metadata or {}).get("config", "null"))
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError("expected a model written by kernelcrf's save")
    if config.get("version") not in READ_VERSIONS:
        known = " or ".join(map(str, READ_VERSIONS))
        raise ModelFileError(f"format version {config.get('version')!r}, expected {known}: upgrade kernelcrf")
    return config


def _check_tensors(slices: Mapping[str, Any], size: int) -> None:
    """No tensor is larger than the file that holds it, and all are of a type that models have."""
    for name, part in slices.items():
        dtype, shape = part.get_dtype(), part.get_shape()
        if dtype not in TYPES or math.prod(shape) * TYPES[dtype] > size:
            raise ModelFileError(f"tensor {name!r} of type {dtype} and shape {shape} does not belong to a model")
