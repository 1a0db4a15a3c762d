"""Digests of labelled sequences, which let a checkpoint recognise the data that it was computed on.

Every sequence has four digests: of its inputs, of its allowed labels, of its weight, and of all three together. Each
digest is four words of 64 bits, and the words are summed over all sequences. Like the objective, the sums do not depend
on the order of the sequences or on how the data are divided into parts. Sequences that are empty or have weight 0 do
not count. The data are read once and not copied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Inputs, NamedInputs, is_sparse
from kernelcrf.graphs.structure import Legal

Words = npt.NDArray[np.uint64]

KINDS = ("inputs", "labels", "weights", "sequences")
SIZE = 32


def digest_words(
    X: Any,
    offsets: Array,
    labels: Array,
    allowed: Array | None,
    weights: Array | None,
    others: Sequence[Array | None] = (),
) -> Words:
    """Return digests that are summed over all sequences: one row per entry of KINDS, with four words each.

    The rows are the digests of inputs, labels, weights, and all three together.

    X : the inputs of all tokens: a matrix, or several matrices as `NamedInputs`.
    offsets : the index of the first token of each sequence, followed by the number of all tokens.
    allowed : flags that say which labels each token may have; `labels` is used only if `allowed` is None.
    others : further arrays with one row per token, which are part of the labels; None stands for no array.
    """
    matrices = list(X.matrices.values()) if isinstance(X, NamedInputs) else [X]
    matrices = [one if is_sparse(one) else np.asarray(one) for one in matrices]
    known, single = labels, np.ones(len(labels), bool)
    if allowed is not None:
        # A token with one label has the same digest whether or not other tokens may have several labels.
        single = allowed.sum(axis=1) == 1
        known = np.where(single, allowed.argmax(axis=1), -1)
    known = np.ascontiguousarray(known, np.int32)
    head = ", ".join(f"{one.dtype.str} {one.shape[1]}" for one in matrices).encode()
    digests: list[bytes] = []
    for i, (low, high) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        weight = 1.0 if weights is None else float(weights[i])
        if low == high or weight == 0:
            continue
        inputs = blake2b(head, digest_size=SIZE)
        for part in chain.from_iterable(_parts(one, low, high) for one in matrices):
            inputs.update(np.ascontiguousarray(part).data)
        targets = blake2b(known[low:high].data, digest_size=SIZE)
        if allowed is not None and not single[low:high].all():
            targets.update(np.ascontiguousarray(allowed[low:high]).data)
        for one in others:
            targets.update(b"" if one is None else np.ascontiguousarray(one[low:high]).data)
        three = inputs.digest(), targets.digest(), blake2b(np.float64(weight).tobytes(), digest_size=SIZE).digest()
        digests += [*three, blake2b(b"".join(three), digest_size=SIZE).digest()]
    words = np.frombuffer(b"".join(digests), np.dtype("<u8")).reshape(-1, len(KINDS), SIZE // 8)
    return np.asarray(words.sum(axis=0, dtype=np.uint64))


def digest_texts(words: Words, legal: Legal | None) -> dict[str, Any]:
    """Return a dict with the digests from `digest_words` as hexadecimal strings, and a digest of the constraints."""
    texts = {kind: row.astype("<u8").tobytes().hex() for kind, row in zip(KINDS, words, strict=True)}
    constraints = None if legal is None else digest_value([legal.steps, legal.first, legal.last])
    return {**texts, "constraints": constraints}


def digest_value(value: Any) -> str:
    """Return a short digest of a value that consists of small arrays and of values that JSON can store."""
    return blake2b(json.dumps(value, sort_keys=True, default=_as_json).encode(), digest_size=12).hexdigest()


def digest_array(array: Inputs) -> str:
    """Return a digest of the type, shape and bytes of a dense or CSR array."""
    parts = [array.data, array.indices, array.indptr] if is_sparse(array) else [np.asarray(array)]
    digest = blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _as_json(value: Any) -> Any:
    """Convert a NumPy array or number to plain Python values, and any other object to the string `repr(value)`."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


def _parts(X: Any, low: int, high: int) -> list[Array]:
    """Return the arrays that store the rows low to high - 1 of X: one array if X is dense, three if X is CSR."""
    if not is_sparse(X):
        return [X[low:high]]
    begin, end = X.indptr[low], X.indptr[high]
    # The same data may have indices of different types.
    return [
        np.diff(X.indptr[low : high + 1]).astype(np.int64),
        X.indices[begin:end].astype(np.int64),
        X.data[begin:end],
    ]
