"""Read and write model files, which are safetensors files with arrays as tensors and all other values as JSON.

Model files contain no executable code. Before `read` loads an array, it checks the size of the header, the version of
the format, and the types and sizes of the tensors. Callers check the values of the arrays with the module `checks`.

In version 1 of the format, all JSON is in the header. Since version 2, long lists such as feature names are stored as
tensors (see `long_lists`). Since version 3, the models of all estimators have the same form: lists of
terms, label kernels and feature maps, and one vector of weights; `models.conversion` converts earlier versions to this
form. The header may have at most HEADER bytes, because JSON needs up to thirty times its size in memory. The size of
the file limits the memory that its model may take (see `budget`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..arrays import Array, DType
from .budget import Budget, size_for
from .error import ModelFileError
from .long_lists import ARRAYS, Texts, pack, unpack
from .output_file import PathLike, named_errors, whole_file

FORMAT, VERSION = "kernelcrf", 3
READ_VERSIONS = (1, 2, 3)
HEADER = 1 << 24
# The first byte of a pickle of protocol 2 or later.
PICKLE = b"\x80"
CRFSUITE = b"lCRF"
# The bytes that a tensor takes in the header besides its name: type, shape and position.
ENTRY = 160
# A tensor of zeros, which makes the file of a model as large as the claims of the model.
ROOM_TENSOR = "room"
TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "BOOL": "?", "U8": "u1"}
# The name of the weights of all terms; they alone may have 16 bits.
WEIGHTS = "theta"
TYPES_OF_WEIGHTS = {**TYPES, "F16": "<f2"}


class Content(NamedTuple):
    """The JSON object and the arrays of a model file, and the memory that they may claim."""

    config: dict[str, Any]
    arrays: dict[str, Array]
    budget: Budget


def write(path: PathLike, config: Mapping[str, object], arrays: Mapping[str, Array], *, answer_bytes: int = 0) -> None:
    """Write a model file; a file that exists at `path` is replaced when the new file is complete.

    answer_bytes : the number of bytes of memory that the first prediction of the model needs.
    """
    packed, long_lists = pack(config)
    header = json.dumps({"format": FORMAT, "version": VERSION, **packed})
    contiguous = {name: np.ascontiguousarray(array) for name, array in {**arrays, **long_lists}.items()}
    if (missing := size_for(answer_bytes) - sum(array.nbytes for array in contiguous.values())) > 0:
        contiguous[ROOM_TENSOR] = np.zeros(missing, np.uint8)
    # Some versions of safetensors write longer headers than they can read.
    if (size := len(json.dumps(header)) + sum(len(name) + ENTRY for name in contiguous)) > HEADER:
        parts = {name: len(json.dumps(part)) for name, part in packed.items()}
        largest = max(parts, key=lambda name: parts[name])
        raise ValueError(
            f"{path}: the header would have {size:,} bytes, {parts[largest]:,} of them for {largest!r}: expected at "
            f"most {HEADER:,}. Shorten {largest!r}, or convert it to lists of strings or numbers, which are not stored "
            "in the header"
        )
    with whole_file(path) as file:
        file.write(save(contiguous, metadata={"config": header}))


def read(path: PathLike, *, texts: Callable[[Texts], Sequence[str]] = list) -> Content:
    """Return the content of a model file; raise ModelFileError if the file is not valid.

    texts : a function that gets each long list of strings, as a `Texts` object, and returns the sequence to use.
    """
    size = Path(path).stat().st_size
    if not Path(path).is_file():
        raise ModelFileError(f"{path} is a folder or a device: expected a model file")
    try:
        with named_errors(path), open(path, "rb") as head:
            start = head.read(8)
        if (n_header := int.from_bytes(start, "little")) > HEADER:
            if start[:1] == PICKLE:
                raise ModelFileError(
                    "the file looks like a pickle, which can contain code. Load a pickle with joblib.load if you trust "
                    "it, and call save of the estimator"
                )
            if start[:4] == CRFSUITE:
                raise ModelFileError(
                    "the file is a model of CRFsuite. Open it with kernelcrf.load or with python-crfsuite"
                )
            raise ModelFileError(f"the header has {n_header:,} bytes: expected at most {HEADER:,}")
        tensors: dict[str, tuple[DType, list[int]]] = {}
        with safe_open(path, framework="numpy") as checked:
            config = _read_config(checked.metadata())
            for name in checked.keys():  # noqa: SIM118
                tensor = checked.get_slice(name)
                dtype, shape = tensor.get_dtype(), tensor.get_shape()
                types = TYPES_OF_WEIGHTS if name == WEIGHTS else TYPES
                if dtype not in types or math.prod(shape) * np.dtype(types[dtype]).itemsize > size:
                    raise ModelFileError(
                        f"tensor {name!r} has type {dtype} and shape {shape}: expected one of the types "
                        f"{', '.join(types)}, and a tensor that is not larger than the file"
                    )
                if name != ROOM_TENSOR:
                    tensors[name] = np.dtype(types[dtype]), shape
        with named_errors(path), open(path, "rb") as file:
            arrays = _read_tensors(file, tensors)
        if config["version"] > 1:
            config = unpack(config, {name: arrays.pop(name) for name in tensors if name in ARRAYS}, texts=texts)
        return Content(config, arrays, Budget(size))
    except MemoryError as error:
        raise ModelFileError(
            f"{path}: there is not enough memory to read this file of {size:,} bytes ({error}): free memory, or read "
            "it on another machine"
        ) from None
    except (SafetensorError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ModelFileError(
            f"{path}: not a model file that this version can read ({error}): expected a file that save has written"
        ) from None


def begins_like_model(path: PathLike) -> bool:
    """Return whether the first bytes of a file are those of a model file of this library."""
    with named_errors(path), open(path, "rb") as file:
        head = file.read(64)
    return head[8:9] == b"{" and FORMAT.encode() in head


def _read_tensors(file: BinaryIO, tensors: Mapping[str, tuple[DType, list[int]]]) -> dict[str, Array]:
    """Return the tensors with these types and shapes.

    The function of safetensors for this purpose would hold each tensor in memory twice.
    """
    n_header = int.from_bytes(file.read(8), "little")
    header, arrays = json.loads(file.read(n_header)), {}
    for name, (dtype, shape) in tensors.items():
        file.seek(8 + n_header + header[name]["data_offsets"][0])
        array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
        arrays[name] = array.astype(dtype.newbyteorder("="), copy=False)
    return arrays


def _read_config(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    config = json.loads((metadata or {}).get("config", "null"))
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError("the file has no kernelcrf model: expected a file that was written by save")
    if config.get("version") not in READ_VERSIONS:
        known = " or ".join(map(str, READ_VERSIONS))
        raise ModelFileError(f"the format version is {config.get('version')!r}, expected {known}: upgrade kernelcrf")
    return config
