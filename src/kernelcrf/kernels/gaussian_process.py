"""Kernels of `sklearn.gaussian_process` as input kernels: which are admitted, and their plain description.

A kernel object is a tree: sums, products and powers over leaves with numbers. Its description is the same
tree in JSON-able values, `{"class": name, "parameters": {...}}`; reading one back looks classes up in
scikit-learn's module and nowhere else.
"""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process import kernels as gp

from kernelcrf.arrays import Config
from kernelcrf.validation import shown


def check(kernel: gp.Kernel, argument: str = "kernel") -> None:
    """Raise if a kernel is not a function of two inputs."""
    if any(isinstance(part, gp.WhiteKernel) for part in (kernel, *kernel.get_params().values())):
        raise ValueError(
            f"{argument}={shown(kernel)} contains a WhiteKernel, which is noise and not a function of two inputs: "
            "leave it out; the prior variance C plays its part"
        )


def to_config(kernel: gp.Kernel) -> Config:
    """Return the tree of `kernel` in JSON-able values."""
    if getattr(gp, type(kernel).__name__, None) is not type(kernel):
        raise TypeError(
            f"kernel={shown(kernel)} is not a class of sklearn.gaussian_process.kernels and cannot be written to "
            "a file: build it from those classes, or pass it again when loading"
        )
    return {
        "class": type(kernel).__name__,
        "parameters": {name: _plain(value) for name, value in kernel.get_params(deep=False).items()},
    }


def _plain(value: object) -> object:
    if isinstance(value, gp.Kernel):
        return to_config(value)
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"kernel parameter {value!r} cannot be written to a file: expected numbers, strings or kernels")


def from_config(config: Config) -> gp.Kernel:
    """Return the kernel that `to_config` described."""
    kind = getattr(gp, str(config["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, gp.Kernel)):
        raise ValueError(f"kernel class {config['class']!r}: expected a kernel of sklearn.gaussian_process.kernels")
    return kind(**{name: _rebuilt(value) for name, value in config["parameters"].items()})


def _rebuilt(value: object) -> object:
    if isinstance(value, dict):
        return from_config(value)
    if isinstance(value, list):
        return [_rebuilt(item) for item in value]
    return value
