"""A digest of a fitted model that tells whether two models predict the same.

It covers everything that a model file holds except the records of how the fit went: fitting again with the same data
and parameters gives the same digest.
"""

from __future__ import annotations

import json
import secrets
from hashlib import blake2b

import numpy as np

from kernelcrf.models.base import FittedModel

RECORDS = ("certificate", "n_iter", "laplace", "gap_curve", "objective_curve")


def model_digest(model: FittedModel, decoding: str) -> str:
    """Return the digest of a model and a rule of decoding, or a new one each time if no file can hold the model."""
    try:
        config, arrays = model.to_arrays()
    except TypeError:
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    found = blake2b(json.dumps([config, decoding], sort_keys=True).encode(), digest_size=16)
    for name in sorted(set(arrays) - set(RECORDS)):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()
