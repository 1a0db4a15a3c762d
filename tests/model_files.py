"""Model files that are damaged, or well-formed and untrue."""

import json

from safetensors import safe_open
from safetensors.numpy import save_file


def damaged(blob, rng):
    """A file cut short, with bits flipped in its front half, with a run of noise, or with another header length."""
    result = bytearray(blob)
    kind = rng.integers(4)
    if kind == 0:
        return bytes(result[: rng.integers(len(blob))])
    if kind == 1:
        for place in rng.integers(len(blob) // 2, size=rng.integers(1, 9)):
            result[place] ^= 1 << rng.integers(8)
    elif kind == 2:
        place, length = rng.integers(len(blob)), rng.integers(1, 64)
        result[place : place + length] = rng.bytes(length)
    else:
        result[:8] = rng.bytes(8)
    return bytes(result)


def rewritten(path, change_config=None, change_arrays=None):
    """The file with its header or its tensors changed, and all else well-formed."""
    with safe_open(path, framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    config = change_config(config) if change_config else config
    arrays = change_arrays(arrays) if change_arrays else arrays
    save_file(arrays, path, metadata={"config": json.dumps(config)})
