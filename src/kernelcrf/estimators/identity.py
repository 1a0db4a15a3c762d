"""A digest of a fitted model that tells whether two models predict the same.

It covers everything that `save` writes except the records of how the fit went (its curves, with their seconds, and its
certificate) and the settings of where it ran: fitting again with the same data and parameters gives the same digest.
"""

from __future__ import annotations

import json
import secrets
from hashlib import blake2b
from typing import Any

import numpy as np

RECORDS = ("certificate", "n_iter", "laplace", "gap_curve", "objective_curve")
SETTINGS_OF_THE_RUN = ("engine", "checkpoint", "n_jobs", "verbose")


def model_digest(model: Any) -> str:
    """Return the digest of a model; one that no file can hold gets a new one each time, for it cannot be compared."""
    try:
        config, arrays = model._state()
    except (AttributeError, TypeError, NotImplementedError):
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    parameters = {name: one for name, one in config.get("parameters", {}).items() if name not in SETTINGS_OF_THE_RUN}
    found = blake2b(json.dumps({**config, "parameters": parameters}, sort_keys=True).encode(), digest_size=16)
    for name in sorted(set(arrays) - set(RECORDS)):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()
