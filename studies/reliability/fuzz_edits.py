"""Edit the JSON and the tensors of a model, as bytes choose."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf.persistence import read

# Replacements of a JSON value or of an entry of a tensor.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 2**31, 2**63, 10**30, 0.0, -1.0, 0.5, 1e308, 5e-324, float("nan")),
    *(float("inf"), "", "a", "rbf", "linear", "poly", "chi2", "dicts", "sparse", "whitened", "primal", "RBF", "matrix"),
    *([], {}, [0], [None], ["a", "a"], [[1.0]], {"class": "Kernel", "parameters": {}}),
    *({"class": "RBF", "parameters": {"length_scale": "a"}}, {"class": "Exponentiation", "parameters": {}}),
    *({"class": "PairwiseKernel", "parameters": {"metric": "precomputed"}}, "O", "U", "i", "f", "b", "édition"),
)


def edit_value(config: Any, left: Iterator[int]) -> None:
    """Walk into the tree as the bytes say, and replace or remove a value there."""
    while True:
        keys = list(config) if isinstance(config, dict) else list(range(len(config)))
        if not keys:
            return
        key = keys[next(left, 0) % len(keys)]
        if isinstance(config[key], dict | list) and config[key] and next(left, 0) % 8:
            config = config[key]
            continue
        choice = next(left, 0)
        if choice == 255:
            del config[key]
        else:
            config[key] = copy.deepcopy(VALUES[choice % len(VALUES)])
        return


def edit_tensor(arrays: dict[str, Any], left: Iterator[int]) -> None:
    """Change the shape, the type or the entries of a tensor, or remove it."""
    if not arrays:
        return
    name = sorted(arrays)[next(left, 0) % len(arrays)]
    array, choice = arrays[name], next(left, 0) % 10
    if choice == 0:
        del arrays[name]
    elif choice == 1:
        arrays[name] = array.ravel()
    elif choice == 2:
        arrays[name] = array[: next(left, 0) % (len(array) + 1)] if array.ndim else array
    elif choice == 3:
        arrays[name] = np.repeat(array, 2, axis=0) if array.ndim else array
    elif choice == 4:
        arrays[name] = array.astype(("f4", "f8", "i4", "i8", "?")[next(left, 0) % 5])
    elif choice == 5:
        arrays[name] = np.zeros_like(array)
    elif choice == 6:
        arrays[name] = array.T.copy()
    elif choice == 7:
        other = sorted(arrays)[next(left, 0) % len(arrays)]
        arrays[name], arrays[other] = arrays[other], arrays[name]
    elif array.size:
        value = VALUES[next(left, 0) % len(VALUES)]
        if isinstance(value, int | float):
            changed = array.copy()
            with np.errstate(all="ignore"):
                changed.flat[next(left, 0) % array.size] = np.float64(value).astype(array.dtype)
            arrays[name] = changed


@cache
def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and the arrays of a model file."""
    return read(path)[:2]


@cache
def scratch() -> str:
    """Return the path of a file, in memory if the system has such."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return os.path.join(tempfile.mkdtemp(prefix="kernelcrf-fuzz-", dir=folder), "file")
