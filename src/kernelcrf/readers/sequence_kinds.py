"""The three kinds of sequences that users hand in, and how X is cut into sequences.

X is one of

    a list of (T_i, d) arrays               "dense"; float32 stays float32, integers and booleans become float64
    a list of (T_i, d) SciPy matrices       "sparse"
    a list of lists of feature dicts        "dicts"; each token is a dict, or a list of feature names

or the flat form of any of them, all tokens one after the other, with `lengths=` (T_1, ..., T_m). Any container
that `containers` reads will do, and a sequence may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from numbers import Number
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import UserData, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import is_collection, is_frame, read_container, read_lengths, read_list
from kernelcrf.readers.feature_dicts import COLLECTIONS, NamedTokens
from kernelcrf.validation import shown

Kind: TypeAlias = Literal["dense", "sparse", "dicts"]

WORDS: dict[Kind, str] = {"dense": "arrays of numbers", "sparse": "sparse matrices", "dicts": "feature dicts"}


def open_sequences(
    X: UserData, lengths: UserData = None, first: int = 0
) -> tuple[Sequence[UserData], Chains, Kind | None]:
    """Return the sequences, or the one flat run of tokens if lengths are given; their chains; and their kind.

    The kind is None if there are no tokens. The first sequence has the number `first` in error messages.
    """
    if lengths is not None:
        if not isinstance(X, NamedTokens):
            X = read_container(X, "X", "all tokens one after the other, as with lengths=")
        sizes = read_lengths(lengths)
        n_nodes = X.shape[0] if hasattr(X, "shape") else len(X)
        if sizes.sum() != n_nodes:
            raise ValueError(
                f"lengths sums to {sizes.sum()} and X has {n_nodes} tokens: expected the same; with lengths=, X has "
                "all tokens one after the other; drop lengths= for a list of sequences"
            )
        return [X], _number_chains(sizes, first), find_kind(X, "X") if n_nodes else None
    if isinstance(X, NamedTokens):
        raise ValueError("X has tokens with features by name, one after the other: expected lengths= with them")
    opened = read_container(X, "X", "a list of sequences, or flat tokens with lengths=")
    dimensions = opened.ndim if isinstance(opened, np.ndarray) else 2 if is_sparse(opened) or is_frame(opened) else 1
    if dimensions not in (1, 3) and not (dimensions == 2 and _holds_tokens(opened)):
        raise ValueError(
            f"X is one {type(X).__name__} of {dimensions} dimensions, shape {opened.shape}: expected a list of (T, d) "
            "arrays; [X] is a single sequence, lengths= cuts it into several"
        )
    sequences = [_open(x, first + i) for i, x in enumerate(read_list(opened, "X"))]
    kinds = [find_kind(sequence, f"X[{first + i}]") for i, sequence in enumerate(sequences)]
    seen = [kind for kind in dict.fromkeys(kinds) if kind is not None]
    if len(seen) > 1:
        one, other, *_ = seen
        raise TypeError(
            f"X[{first + kinds.index(one)}] has {WORDS[one]} and X[{first + kinds.index(other)}] has {WORDS[other]}: "
            f"expected one kind for all sequences; {advise(other, one)}"
        )
    counts = [sequence.shape[0] if is_sparse(sequence) else len(sequence) for sequence in sequences]
    return sequences, _number_chains(np.array(counts, np.int64), first), seen[0] if seen else None


def find_kind(sequence: UserData, name: str) -> Kind | None:
    """Return the kind of one sequence, None if it has no tokens; raise if it is not a sequence of tokens."""
    # Asking for types first spares most sequences the slow questions whether they are a Mapping or a Number.
    first = sequence[0] if type(sequence) is list and sequence else None
    if (type(first) is dict and first) or (type(first) is list and first and type(first[0]) is str):
        return "dicts"
    if isinstance(sequence, NamedTokens):
        return "dicts"
    if isinstance(sequence, np.ndarray) and sequence.ndim == 0:
        sequence = sequence.item()
    if isinstance(sequence, np.ndarray) and sequence.dtype != object and sequence.dtype.kind not in "US":
        return "dense" if sequence.shape[0] or sequence.ndim > 1 else None
    if is_sparse(sequence):
        return "sparse"
    if isinstance(sequence, Mapping):
        raise TypeError(
            f"{name} is a feature dict: expected a sequence of tokens; pass lengths= with a flat list of dicts, or [X] "
            "for a single sequence"
        )
    if isinstance(sequence, str | bytes):
        raise TypeError(_refuse_string(f"{name} is the string {shown(sequence)}"))
    if isinstance(sequence, Number):
        raise ValueError(
            f"{name} is the number {shown(sequence)}: expected a sequence of tokens, such as a (T, d) array. "
            "Reshape your data: [X.reshape(-1, 1)] is a single sequence with one number per token"
        )
    if is_frame(sequence):
        return "dense"
    filled = (token for token in sequence if is_sparse(token) or not (isinstance(token, Sized) and len(token) == 0))
    token = next(filled, None)
    if token is None:
        return "dicts" if len(sequence) else None
    if is_sparse(token):
        return "sparse"
    if isinstance(token, Mapping) or (isinstance(token, COLLECTIONS) and isinstance(next(iter(token)), str)):
        return "dicts"
    if isinstance(token, str | bytes):
        raise TypeError(_refuse_string(f"{name} has the string {shown(token)} as a token"))
    return "dense"


def advise(passed: Kind, expected: Kind) -> str:
    """Return how to make sequences of the expected kind from those that were passed."""
    if expected == "dicts":
        return 'a dict such as {"x0": 1.5} for each token carries numbers too'
    if passed == "dicts":
        return "sklearn.feature_extraction.DictVectorizer makes matrices of dicts"
    return f"{'scipy.sparse.csr_array(x)' if expected == 'sparse' else 'x.toarray()'} converts each sequence"


def _open(x: UserData, number: int) -> UserData:
    """Return a sequence as a list, an array, a sparse matrix or a frame; `find_kind` refuses what is no container."""
    # Most sequences are lists or arrays of floats, and there may be millions of them.
    if type(x) is list or (type(x) is np.ndarray and x.dtype.kind == "f") or not is_collection(x):
        return x
    return read_container(x, f"X[{number}]")


def _number_chains(sizes: npt.NDArray[np.int64], first: int) -> Chains:
    chains = Chains.from_lengths(sizes)
    return Chains(chains.offsets, np.arange(first, first + len(sizes))) if first else chains


def _holds_tokens(table: UserData) -> bool:
    """Return whether a (m, T) array holds feature dicts or lists of names, as NumPy makes of equally long sequences."""
    held = isinstance(table, np.ndarray) and table.dtype == object and table.size
    return bool(held and isinstance(table.flat[0], (Mapping, *COLLECTIONS)))


def _refuse_string(what: str) -> str:
    return (
        f"{what}: expected the token's features; "
        'write a dict such as {"word": "the", "upper": False}, or a list of feature names such as ["word=the"]'
    )
