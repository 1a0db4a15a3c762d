"""Read and write the text model files of Wapiti.

A file has these parts. A name is written as a netstring: the number of its bytes, a colon, the name, a comma.

    #mdl#TYPE#N               the type of the model (2 for a conditional random field), and the number of weights
    #rdr#P/COLUMNS/AUTO       the number of patterns, the last column that they read, 1 if Wapiti adds u to features
                              itself, and P lines with one pattern each
    #qrk#N                    the number of labels, and N lines with one label each
    #qrk#N                    the number of observations, and N lines with one observation each
    INDEX=WEIGHT              one line per weight that is not zero, as a hexadecimal float

An observation is the name of a feature. If it begins with u or *, it has one weight per label. If it begins with b or
*, it has one weight per pair of labels, [from, to]. The weights of all observations are numbered in this order.

`read_model` checks each number before it uses it, and needs memory for a small multiple of the size of the file. Bytes
that are not UTF-8 become lone surrogates, so that they are written as they were read.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelcrf.arrays import Floats, Ints
from kernelcrf.persistence import ModelFileError, PathLike, named_errors, whole_file
from kernelcrf.validation import shown

MARK, SUFFIX = b"#mdl#", ".wapiti"
CHAIN = 2
TOKEN_KINDS, STEP_KINDS = "u*", "b*"
HEADER = re.compile(rb"#mdl#(\d{1,9})#(\d{1,15})\n")
READER = re.compile(rb"#rdr#(\d{1,9})/(\d{1,9})/([01])\n")
NAMES = re.compile(rb"#qrk#(\d{1,15})\n")
LENGTH = re.compile(rb"(\d{1,9}):")
WEIGHT = re.compile(rb"(\d{1,18})=(-?0x[01](?:\.[0-9a-f]{1,13})?p[+-]\d{1,4})\n")
DAMAGED = "Copy the file again, or train the model again"


@dataclass(frozen=True, eq=False)
class WapitiModel:
    """The content of a model file of Wapiti.

    labels, observations : their names; observations begin with u, b or *.
    places : the numbers of the weights that are not zero, in increasing order.
    weights : these weights.
    patterns : the patterns, which make observations of text.
    n_columns, adds_u : two entries of the file about text: the last column of the patterns, and whether Wapiti puts the
        letter u before features.
    """

    labels: list[str]
    observations: list[str]
    places: Ints
    weights: Floats
    patterns: list[str]
    n_columns: int = 0
    adds_u: bool = False

    @property
    def starts(self) -> Ints:
        """Return the number of the first weight of each observation, and the number of all weights at the end."""
        return first_weights(self.observations, len(self.labels))


def first_weights(observations: Sequence[str], n_labels: int) -> Ints:
    """Return the number of the first weight of each observation, and the number of all weights at the end."""
    n = {"u": n_labels, "b": n_labels**2, "*": n_labels + n_labels**2}
    return np.cumsum([0, *(n[name[0]] for name in observations)], dtype=np.int64)


def begins_like_wapiti(path: PathLike) -> bool:
    """Return whether the first bytes of a file are those of a model file of Wapiti."""
    with named_errors(path), open(path, "rb") as file:
        return file.read(len(MARK)) == MARK


def read_model(source: PathLike | bytes) -> WapitiModel:
    """Read a model file of Wapiti from a path, or from its bytes; raise ModelFileError if it is damaged."""
    try:
        return _Parser(source if isinstance(source, bytes) else _content(source)).model()
    except ModelFileError as error:
        name = "source" if isinstance(source, bytes) else os.fspath(source)
        raise ModelFileError(f"{name}: not a model file of Wapiti, or a damaged one ({error}). {DAMAGED}") from None


def write_model(model: WapitiModel, path: PathLike) -> None:
    """Write a model file that Wapiti reads; a file that exists at `path` is replaced when the new one is complete."""
    content = model_bytes(model)
    with whole_file(path) as file:
        file.write(content)


def model_bytes(model: WapitiModel) -> bytes:
    """Return the content of the file that `write_model` writes."""
    lines = [b"#mdl#%d#%d\n" % (CHAIN, len(model.weights))]
    lines.append(b"#rdr#%d/%d/%d\n" % (len(model.patterns), model.n_columns, model.adds_u))
    lines += _netstrings(model.patterns)
    for names in (model.labels, model.observations):
        lines.append(b"#qrk#%d\n" % len(names))
        lines += _netstrings(names)
    weights = zip(model.places.tolist(), model.weights.tolist(), strict=True)
    lines += [b"%d=%s\n" % (place, _hexadecimal(weight)) for place, weight in weights]
    return b"".join(lines)


class _Parser:
    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def model(self) -> WapitiModel:
        kind, n_weights = self._numbers(HEADER, "the first line", "#mdl#2# and the number of weights")
        if kind != CHAIN:
            raise ModelFileError(f"the model is of type {kind}: expected type {CHAIN}, a conditional random field")
        n_patterns, n_columns, adds_u = self._numbers(READER, "the reader", "a line such as #rdr#4/0/0")
        patterns = self._texts(n_patterns, "patterns")
        labels, observations = map(self._names, ("labels", "observations"))
        for names, what in ((labels, "labels"), (observations, "observations")):
            if not names or len(set(names)) < len(names):
                raise ModelFileError(f"there are no {what}, or two with the same name: expected different names")
        wrong = next((name for name in observations if name[:1] not in set(TOKEN_KINDS + STEP_KINDS)), None)
        if wrong is not None:
            raise ModelFileError(f"the observation {shown(wrong)} does not begin with u, b or *: expected one of these")
        places, weights = self._weights(n_weights)
        # Numbers are compared as Python integers, which do not overflow.
        L, kinds = len(labels), "".join(name[0] for name in observations)
        n = L * (len(kinds) - kinds.count("b")) + L * L * (len(kinds) - kinds.count("u"))
        if n >= 2**62 or (len(places) and places[-1] >= n) or (np.diff(places) <= 0).any():
            raise ModelFileError(f"the numbers of weights are not increasing, or not below {n:,}: expected both")
        return WapitiModel(labels, observations, places, weights, patterns, n_columns, bool(adds_u))

    def _numbers(self, pattern: re.Pattern[bytes], what: str, expected: str) -> list[int]:
        match = pattern.match(self.content, self.at)
        if match is None:
            raise ModelFileError(f"{what} is missing at byte {self.at:,}: expected {expected}")
        self.at = match.end()
        return list(map(int, match.groups()))

    def _names(self, what: str) -> list[str]:
        (n,) = self._numbers(NAMES, f"the list of {what}", "a line such as #qrk#4")
        return self._texts(n, what)

    def _texts(self, n: int, what: str) -> list[str]:
        texts = []
        for _ in range(n):
            (length,) = self._numbers(LENGTH, f"the next of {n:,} {what}", "the number of its bytes and a colon")
            end = self.at + length
            text = self.content[self.at : end]
            if self.content[end : end + 2] != b",\n" or b"\0" in text:
                raise ModelFileError(f"one of the {what} has a wrong length, or a NUL: expected a comma after its end")
            texts.append(text.decode("utf-8", "surrogateescape"))
            self.at = end + 2
        return texts

    def _weights(self, n: int) -> tuple[Ints, Floats]:
        # Each weight takes at least six bytes, so that a wrong number claims no memory.
        if n > (len(self.content) - self.at) // 6 + 1:
            raise ModelFileError(f"the first line says {n:,} weights, but the file ends before: expected all of them")
        places, weights = np.empty(n, np.int64), np.empty(n)
        for i in range(n):
            match = WEIGHT.match(self.content, self.at)
            if match is None:
                raise ModelFileError(f"weight {i:,} is not valid at byte {self.at:,}: expected a line such as 3=0x1p+0")
            places[i], self.at = int(match[1]), match.end()
            try:
                weights[i] = float.fromhex(match[2].decode())
            except OverflowError:
                raise ModelFileError(f"weight {i:,} is not finite: expected a finite number") from None
        if self.at != len(self.content):
            raise ModelFileError(f"the file goes on after its {n:,} weights: expected its end")
        return places, weights


def _content(path: PathLike) -> bytes:
    if not Path(path).is_file():
        raise ModelFileError(f"{path} is a folder or a device: expected a model file of Wapiti")
    with named_errors(path), open(path, "rb") as file:
        head = file.read(len(MARK))
        # A large file of another kind is not read to its end.
        if head != MARK:
            raise ModelFileError(f"the file begins with {head!r}: expected {MARK!r}")
        return head + file.read()


def _netstrings(texts: Iterable[str]) -> list[bytes]:
    encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
    return [b"%d:%s,\n" % (len(text), text) for text in encoded]


def _hexadecimal(weight: float) -> bytes:
    """Return a weight as the format %a of C writes it, without zeros at the end of its digits."""
    if not math.isfinite(weight):
        raise ValueError(f"a weight is {weight}: expected finite weights")
    digits, exponent = weight.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}p{exponent}".encode()
