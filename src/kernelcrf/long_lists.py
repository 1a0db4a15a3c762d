"""JSON-able values whose long lists are arrays, so that the header of a model file stays short.

A model may have millions of feature names, and a header has a limit. `pack` takes every list of at least LONG strings,
integers or floats out of a tree of values, and lists of equally long lists of them; `unpack` puts them back. Objects
with many keys, and long lists of objects with the same keys, become such lists first; a long string is a list of one.

    config.text, config.lengths    UTF-8 bytes of all packed strings, and how many bytes each string has
    config.integers                packed integers
    config.floats                  packed floats

The tree has `{MARK: [kind, n]}` in the place of a list, or `{MARK: [kind, n, m]}` for n lists of m entries. Lists are
read from the arrays one after the other, in the order of the tree: every entry is used once, so that the size of the
arrays bounds the memory of the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LONG = 64
LONG_STRING = 1024
MARK = "packed"
ARRAYS: dict[str, np.dtype[Any]] = {
    "config.text": np.dtype(np.uint8),
    "config.lengths": np.dtype(np.int64),
    "config.integers": np.dtype(np.int64),
    "config.floats": np.dtype(np.float64),
}
KINDS = {str: "text", int: "integers", float: "floats"}


def pack(config: Any) -> tuple[Any, dict[str, Array]]:
    """Return the tree without its long lists, and the arrays that hold them."""
    packer = _Packer()
    packed = packer.pack(config)
    return packed, packer.arrays()


def unpack(config: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the tree that `pack` was given; raise a ValueError if the arrays do not fit it."""
    reader = _Reader(arrays)
    found = reader.unpack(config)
    reader.check_end()
    return found


class _Packer:
    """Collects the entries of long lists."""

    def __init__(self) -> None:
        self._text: list[bytes] = []
        self._numbers: dict[str, list[Any]] = {"integers": [], "floats": []}

    def pack(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self._pack_object({_json_key(key): one for key, one in value.items()})
        if isinstance(value, str) and len(value) >= LONG_STRING:
            self._take([value])
            return {MARK: ["string"]}
        if not isinstance(value, list | tuple):
            return value
        return (self._pack_long(value) if len(value) >= LONG else None) or [self.pack(one) for one in value]

    def arrays(self) -> dict[str, Array]:
        found: dict[str, Any] = {
            "config.text": np.frombuffer(b"".join(self._text), np.uint8),
            "config.lengths": list(map(len, self._text)),
            **{f"config.{kind}": numbers for kind, numbers in self._numbers.items()},
        }
        return {name: np.asarray(own, ARRAYS[name]) for name, own in found.items() if len(own)}

    def _pack_object(self, value: dict[str, Any]) -> dict[str, Any]:
        # An object that looks like a packed one must come back as it is.
        if len(value) < LONG and MARK not in value:
            return {name: self.pack(one) for name, one in value.items()}
        return {MARK: ["object"], "keys": self._take(list(value)), "values": self.pack(list(value.values()))}

    def _pack_long(self, value: Sequence[Any]) -> dict[str, Any] | None:
        """Take a long list out, None if it is not of one kind."""
        if _kind(value) is not None:
            return self._take(value)
        first = value[0]
        if isinstance(first, list | tuple) and all(isinstance(one, list | tuple) for one in value):
            flat = [one for row in value for one in row]
            alike = bool(flat) and {len(row) for row in value} == {len(first)}
            return self._take(flat, len(first)) if alike and _kind(flat) is not None else None
        if isinstance(first, dict) and all(isinstance(one, dict) and one.keys() == first.keys() for one in value):
            if not first or not all(isinstance(key, str) for key in first):
                return None
            columns = [self.pack([one[key] for one in value]) for key in first]
            return {MARK: ["objects"], "keys": list(first), "columns": columns}
        return None

    def _take(self, flat: Sequence[Any], *width: int) -> dict[str, Any]:
        kind = _kind(flat)
        if kind == "text":
            # Half of a surrogate pair is a character to Python and to JSON.
            self._text += [one.encode("utf-8", "surrogatepass") for one in flat]
        else:
            self._numbers[str(kind)].extend(flat)
        return {MARK: [kind, len(flat) // (width[0] if width else 1), *width]}


class _Reader:
    """Hands out the entries of long lists in their order."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = {name: arrays.get(name, np.empty(0, dtype)) for name, dtype in ARRAYS.items()}
        for name, array in self._arrays.items():
            if array.ndim != 1 or array.dtype != ARRAYS[name]:
                raise ValueError(f"tensor {name!r} has type {array.dtype} and shape {array.shape}")
        text, lengths = self._arrays["config.text"], self._arrays["config.lengths"]
        # Each length by itself first: their sum may overflow.
        if len(lengths) and (lengths.min() < 0 or lengths.max() > len(text)):
            raise ValueError("tensor 'config.lengths' does not fit 'config.text'")
        self._ends = np.cumsum(lengths)
        if (int(self._ends[-1]) if len(lengths) else 0) != len(text):
            raise ValueError("tensor 'config.lengths' does not fit 'config.text'")
        self._used = dict.fromkeys(KINDS.values(), 0)

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(one) for one in value]
        if not isinstance(value, dict):
            return value
        if MARK not in value:
            return {name: self.unpack(one) for name, one in value.items()}
        kind, *shape = value[MARK]
        if kind == "string":
            return self._entries("text", 1)[0]
        if kind == "object":
            keys = self.unpack(value["keys"])
            return dict(zip(keys, self.unpack(value["values"]), strict=True))
        if kind == "objects":
            columns = [self.unpack(column) for column in value["columns"]]
            return [dict(zip(value["keys"], row, strict=True)) for row in zip(*columns, strict=True)]
        return self._list(kind, *shape)

    def check_end(self) -> None:
        """Raise if entries are left over."""
        there = {"text": "config.lengths", "integers": "config.integers", "floats": "config.floats"}
        if any(self._used[kind] != len(self._arrays[name]) for kind, name in there.items()):
            raise ValueError("tensors of long lists have more entries than their lists")

    def _list(self, kind: str, n: int, width: int | None = None) -> list[Any]:
        # Lists without entries would cost memory, and no bytes of an array.
        if not all(type(one) is int and one > 0 for one in (n, 1 if width is None else width)):
            raise ValueError(f"a packed list has the size {n!r}, {width!r}: expected integers above 0")
        flat = self._entries(kind, n * (width or 1))
        return flat if width is None else [flat[start : start + width] for start in range(0, len(flat), width)]

    def _entries(self, kind: str, n: int) -> list[Any]:
        start, stop = self._used[kind], self._used[kind] + n
        array = self._ends if kind == "text" else self._arrays[f"config.{kind}"]
        if stop > len(array):
            raise ValueError(f"a packed list has {n} entries: expected at most {len(array) - start}")
        self._used[kind] = stop
        if kind != "text":
            return list(array[start:stop].tolist())
        ends = array[start:stop].tolist()
        starts = [int(array[start - 1]) if start else 0, *ends[:-1]]
        text = self._arrays["config.text"][starts[0] : ends[-1]].tobytes()
        first = starts[0]
        return [text[a - first : b - first].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)]


def _kind(values: Sequence[Any]) -> str | None:
    """Return the kind of list that holds the values as they are, None if no kind does."""
    types = set(map(type, values))
    for plain, kind in KINDS.items():
        # JSON keeps the plain value of a subclass as well, such as numpy.float64.
        if bool not in types and all(issubclass(own, plain) for own in types):
            return kind if plain is not int or (min(values) >= -(2**63) and max(values) < 2**63) else None
    return None


def _json_key(key: Any) -> Any:
    """Return the key as JSON has it."""
    return key if type(key) is str else next(iter(json.loads(json.dumps({key: None}))))
