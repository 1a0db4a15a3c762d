"""Compare the settings of a fit with those of an earlier fit, before the fit takes over parts of the earlier one.

A fit can start from an earlier model, have its posterior as the prior, or continue from a checkpoint. Each part that a
fit takes over must be equal to the part that the fit would compute itself. A specification therefore describes a fit by
plain values that have names. The values of both fits must be equal, except for values that are listed as free. A new
parameter is not listed, so that a change of its value is refused and never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kernelcrf.arrays import Config
from kernelcrf.kernels.chain_labels import LabelStructure
from kernelcrf.kernels.inputs import InputKernel, is_process_kernel
from kernelcrf.validation import shown

ANOTHER = "object "


def differences(asked: Mapping[str, Any], earlier: Mapping[str, Any], free: Collection[str] = ()) -> list[str]:
    """Return the names of the values that differ between two specifications, except for those in `free`.

    A value of `asked` that `earlier` does not have counts as different. Values that only `earlier` has are ignored.
    """
    return [name for name, value in asked.items() if name not in free and earlier.get(name, ANOTHER) != value]


def plain_values(values: Mapping[str, Any]) -> Config:
    """Return values in the form in which a file stores them, so that they can be compared with those of a file."""
    return dict(json.loads(json.dumps(dict(values), default=_plain_value)))


def told(value: Any) -> str:
    """Return the text for a value of a specification in an error message."""
    return "another object" if isinstance(value, str) and value.startswith(ANOTHER) else shown(value)


def _plain_value(value: Any) -> Any:
    """Return a value that JSON can store in place of `value`, so that two settings can be compared.

    An object of an unknown class becomes a string with the id of the object, so that it equals no other object.
    """
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if is_process_kernel(value):
        try:
            return InputKernel(value).to_config()["kernel"]
        except TypeError:
            return f"{ANOTHER}{id(value)}"
    if isinstance(value, set | frozenset | range):
        return list(value)
    if isinstance(value, LabelStructure):
        return value.to_config()
    parameters = getattr(value, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        return repr(value)
    return f"{ANOTHER}{id(value)}"
