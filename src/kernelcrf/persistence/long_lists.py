"""Store the long lists of a JSON value in arrays, so that the header of a model file stays short.

`pack` replaces each list of at least LONG strings, integers or floats by a mark, and stores its entries in an array.
`unpack` restores the lists. A list of lists is packed too if the inner lists have the same length. Objects with many
keys, and long lists of objects with the same keys, are first converted to lists of keys and lists of values. A long
string is stored like a list with one entry. The arrays are

    config.text, config.lengths    the UTF-8 bytes of all packed strings, and the number of bytes of each string
    config.integers                all packed integers
    config.floats                  all packed floats

The mark `{MARK: [kind, n]}` stands for a list of n entries, and `{MARK: [kind, n, m]}` for n lists of m entries each.
The entries of all lists follow one another in the arrays, in the order of the marks. Each entry is used exactly once,
so that the unpacked lists cannot need much more memory than the arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array, Ints

LONG = 64
LONG_STRING = 1024
MARK = "packed"
STRINGS_AT_ONCE = 4096
ARRAYS = {"config.text": np.uint8, "config.lengths": np.int64, "config.integers": np.int64, "config.floats": np.float64}
KINDS = {str: "text", int: "integers", float: "floats"}


def pack(config: object) -> tuple[Any, dict[str, Array]]:
    """Replace the long lists in a JSON value by marks; return the new value, and arrays with the entries."""
    packer = _Packer()
    return packer.pack(config), packer.arrays()


class Texts(Sequence[str]):
    """A list of strings that are stored as bytes. Reading a string that is not UTF-8 raises ValueError.

    text : the bytes of all strings, one string after the other.
    bounds : string i begins at bounds[i] and ends before bounds[i + 1].
    """

    def __init__(self, text: Array, bounds: Ints) -> None:
        self._text, self._bounds = text, bounds

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return list(self)[i]
        i = range(len(self))[i]
        return next(iter(Texts(self._text, self._bounds[i : i + 2])))

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), STRINGS_AT_ONCE):
            bounds = self._bounds[first : first + STRINGS_AT_ONCE + 1]
            blob, ends = self._text[bounds[0] : bounds[-1]].tobytes(), (bounds - bounds[0]).tolist()
            if blob.isascii():
                text = blob.decode("ascii")
                yield from [text[a:b] for a, b in pairwise(ends)]
            else:
                yield from [blob[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(ends)]


def unpack(config: object, arrays: Mapping[str, Array], *, texts: Callable[[Texts], Sequence[str]] = list) -> Any:
    """Undo `pack`: return the JSON value with its long lists; raise ValueError if marks and arrays do not match.

    texts : a function that converts each long list of strings from a `Texts` object to another sequence.
    """
    reader = _Reader(arrays, texts)
    value = reader.unpack(config)
    reader.check_end()
    return value


def listed(value: Any) -> Any:
    """Return a JSON value in which each `Texts` is replaced by a list."""
    if isinstance(value, dict):
        return {name: listed(one) for name, one in value.items()}
    return list(map(listed, value)) if isinstance(value, list | Texts) else value


class _Packer:
    """An object that replaces the long lists of a JSON value by marks, and collects the entries of these lists."""

    def __init__(self) -> None:
        self._text: list[bytes] = []
        self._numbers: dict[str, list[float]] = {"integers": [], "floats": []}

    def pack(self, value: object) -> object:
        if isinstance(value, Mapping):
            return self._pack_object({_json_key(key): one for key, one in value.items()})
        if isinstance(value, str) and len(value) >= LONG_STRING:
            self._take([value], "text")
            return {MARK: ["string"]}
        if not isinstance(value, list | tuple):
            return value
        return (self._pack_long(value) if len(value) >= LONG else None) or [self.pack(one) for one in value]

    def arrays(self) -> dict[str, Array]:
        lists: dict[str, Sequence[float] | Array] = {
            "config.text": np.frombuffer(b"".join(self._text), np.uint8),
            "config.lengths": list(map(len, self._text)),
            **{f"config.{kind}": numbers for kind, numbers in self._numbers.items()},
        }
        return {name: np.asarray(entries, ARRAYS[name]) for name, entries in lists.items() if len(entries)}

    def _pack_object(self, value: dict[str, object]) -> object:
        # An object that contains MARK itself must be unpacked to the same object.
        if len(value) < LONG and MARK not in value:
            return {name: self.pack(one) for name, one in value.items()}
        return {MARK: ["object"], "keys": self._take(list(value), "text"), "values": self.pack(list(value.values()))}

    def _pack_long(self, value: Sequence[object]) -> object:
        """Collect the entries of a long list and return its mark, or None if no array can store the entries."""
        if kind := _kind(value):
            return self._take(value, kind)
        first = value[0]
        if isinstance(first, list | tuple):
            if {len(row) if isinstance(row, list | tuple) else -1 for row in value} != {len(first)} or not first:
                return None
            flat = [one for row in value if isinstance(row, list | tuple) for one in row]
            return self._take(flat, kind, len(first)) if (kind := _kind(flat)) else None
        if isinstance(first, dict) and first and all(isinstance(key, str) for key in first):
            rows = [one for one in value if isinstance(one, dict) and one.keys() == first.keys()]
            if len(rows) == len(value):
                columns = [self.pack([one[key] for one in rows]) for key in first]
                return {MARK: ["objects"], "keys": list(first), "columns": columns}
        return None

    def _take(self, flat: Sequence[Any], kind: str, *width: int) -> object:
        if kind == "text":
            # Python and JSON allow half of a surrogate pair as a character.
            self._text += [one.encode("utf-8", "surrogatepass") for one in flat]
        else:
            self._numbers[kind].extend(flat)
        return {MARK: [kind, len(flat) // (width[0] if width else 1), *width]}


class _Reader:
    """An object that replaces the marks in a JSON value by lists, whose entries it takes from the arrays in order."""

    def __init__(self, arrays: Mapping[str, Array], texts: Callable[[Texts], Sequence[str]]) -> None:
        self._texts = texts
        self._arrays = {name: arrays.get(name, np.empty(0, dtype)) for name, dtype in ARRAYS.items()}
        for name, array in self._arrays.items():
            if array.ndim != 1 or array.dtype != ARRAYS[name]:
                raise ValueError(
                    f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected one dimension and type "
                    f"{np.dtype(ARRAYS[name])}"
                )
        text, lengths = self._arrays["config.text"], self._arrays["config.lengths"]
        # Each length is checked, because the sum of wrong lengths may overflow.
        right = not len(lengths) or (lengths.min() >= 0 and lengths.max() <= len(text))
        self._bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._bounds[1:])
        if not right or self._bounds[-1] != len(text):
            raise ValueError(
                "the lengths in tensor 'config.lengths' do not add up to the size of tensor 'config.text': expected "
                f"lengths >= 0 whose sum is {len(text)}"
            )
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
        """Raise if the arrays have entries that belong to no list."""
        there = {"text": "config.lengths", "integers": "config.integers", "floats": "config.floats"}
        if any(self._used[kind] != len(self._arrays[name]) for kind, name in there.items()):
            raise ValueError(
                "the tensors of long lists have more entries than these lists: expected the same number of entries"
            )

    def _list(self, kind: str, n: int, width: int | None = None) -> Sequence[Any]:
        # Empty lists would take memory that the size of the arrays does not bound.
        if not all(type(one) is int and one > 0 for one in (n, 1 if width is None else width)):
            raise ValueError(
                f"a list of the file has the length {n!r} and the width {width!r}: expected integers above 0"
            )
        entries = self._entries(kind, n * (width or 1))
        if width is None and isinstance(entries, Texts):
            return self._texts(entries)
        flat = list(entries)
        return flat if width is None else [flat[start : start + width] for start in range(0, len(flat), width)]

    def _entries(self, kind: str, n: int) -> Sequence[Any]:
        start, stop = self._used[kind], self._used[kind] + n
        array = self._arrays["config.lengths" if kind == "text" else f"config.{kind}"]
        if stop > len(array):
            raise ValueError(
                f"a stored list needs {n} entries, but its tensor has only {len(array) - start} left: expected a "
                "tensor with the entries of all lists"
            )
        self._used[kind] = stop
        if kind == "text":
            return Texts(self._arrays["config.text"], self._bounds[start : stop + 1])
        return list(array[start:stop].tolist())


def _kind(values: Sequence[Any]) -> str | None:
    """Return the kind of array ("text", "integers" or "floats") that can store the values unchanged, or None."""
    types = set(map(type, values))
    for plain, kind in KINDS.items():
        # JSON also stores objects of subclasses, such as numpy.float64, as plain values.
        if bool not in types and all(issubclass(kind_of_entry, plain) for kind_of_entry in types):
            return kind if plain is not int or (min(values) >= -(2**63) and max(values) < 2**63) else None
    return None


def _json_key(key: object) -> str:
    return key if type(key) is str else next(iter(json.loads(json.dumps({key: None}))))
