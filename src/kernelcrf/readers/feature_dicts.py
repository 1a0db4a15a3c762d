"""Convert feature dicts to a sparse matrix, as scikit-learn's `DictVectorizer` and `FeatureHasher` do.

An item is a pair (name, value) of a token. With a vocabulary, each item is looked up directly. To learn a vocabulary,
or to hash names, the distinct items are collected first: the same items occur in many tokens, and each distinct item is
named or hashed only once.

`feature_items` says which columns the items of a token belong to.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count
from operator import methodcaller
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from kernelcrf.arrays import Flags, Floats, Ints, Labels, UserData
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.feature_items import (
    COLLECTIONS,
    HASH_FEATURES,
    HASHED_SEPARATOR,
    SEPARATOR,
    Item,
    check_item,
    check_name,
    collect_items,
    flat_items,
    is_nested,
)
from kernelcrf.readers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from sklearn.feature_extraction import FeatureHasher

Vectorizer: TypeAlias = "Vocabulary | FeatureHasher"
Place: TypeAlias = Callable[[int], str]
Checked = TypeVar("Checked")


@dataclass(frozen=True, eq=False)
class NamedTokens:
    """Tokens that are lists of feature names, with each name stored as an index into a list of distinct names.

    Each feature has the value 1.

    names : the distinct feature names.
    ids : for each feature name of each token, its index in `names`; one token follows the other.
    offsets : token t has the names with the indices ids[offsets[t]:offsets[t+1]].
    """

    names: Sequence[str]
    ids: Labels
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1


Tokens: TypeAlias = Sequence[UserData] | NamedTokens

KINDS_OF_NAMES = set(COLLECTIONS)


def keep_tokens(tokens: Tokens, kept: Flags) -> Tokens:
    """Return the tokens whose flag in `kept` is true, and drop feature names that these tokens do not have."""
    if not isinstance(tokens, NamedTokens):
        return list(compress(tokens, kept.tolist()))
    counts = np.diff(tokens.offsets)
    used, ids = np.unique(tokens.ids[np.repeat(kept, counts)], return_inverse=True)
    names = [tokens.names[number] for number in used.tolist()]
    return NamedTokens(names, ids.astype(np.int32), Chains.from_lengths(counts[kept]).offsets)


def new_hasher(hash_features: int) -> FeatureHasher:
    """Return an object that hashes names to the given number of columns."""
    from sklearn.feature_extraction import FeatureHasher

    HASH_FEATURES.check("hash_features", hash_features)
    return FeatureHasher(n_features=int(hash_features), input_type="dict")


def learn(
    tokens: Tokens, separator: str = SEPARATOR, place: Place | None = None, kept: Flags | None = None
) -> tuple[Vocabulary, Entries]:
    """Return the vocabulary of the tokens, with names in sorted order, and their feature matrix, one row per token.

    separator : the text between the name and the value of a feature whose value is a string.
    place : a function that returns the place of token t for error messages, such as "sequence 3, token 1".
    kept : flags of the tokens whose names are learned; None means all tokens.
    """
    if kept is not None and not kept.all():
        at = np.flatnonzero(kept).tolist()
        place_of_kept = None if place is None else lambda t: place(at[t])
        vocabulary, _ = learn(keep_tokens(tokens, kept), separator, place_of_kept)
        return vocabulary, vectorize(tokens, vocabulary, place)
    names, values, ids, offsets = _distinct_names(tokens, separator, place)
    distinct, columns = list[str](), np.empty(len(names), np.int32)
    for k in sorted(range(len(names)), key=names.__getitem__):
        if not distinct or names[k] != distinct[-1]:
            distinct.append(names[k])
        columns[k] = len(distinct) - 1
    return Vocabulary(distinct, separator), _entries(columns, values, ids, offsets, len(distinct))


def vectorize(tokens: Tokens, vectorizer: Vectorizer, place: Place | None = None) -> Entries:
    """Return the feature matrix of the tokens, one row per token; features outside the vocabulary are left out.

    place : a function that returns the place of token t for error messages, such as "sequence 3, token 1".
    """
    if isinstance(vectorizer, Vocabulary):
        entries = None if isinstance(tokens, NamedTokens) else look_up(tokens, vectorizer, zeros=True)
        if entries is not None:
            return entries
        names, values, ids, offsets = _distinct_names(tokens, vectorizer.separator, place)
        columns = vectorizer.find(names, len(names))
    else:
        items, ids, offsets = _distinct_items(tokens, HASHED_SEPARATOR, place)
        columns, values = _hash_items(items, vectorizer)
    return _entries(columns, values, ids, offsets, n_columns(vectorizer))


def _entries(columns: Labels, values: Floats | None, ids: Labels, offsets: Ints, d: int) -> Entries:
    """Return the matrix of tokens whose items have the given columns and values; without values, all of them are 1."""
    return Entries(columns[ids], np.ones(len(ids)) if values is None else values[ids], offsets, d)


def n_columns(vectorizer: Vectorizer) -> int:
    """Return the number of columns of the matrices that the vectoriser makes."""
    return len(vectorizer) if isinstance(vectorizer, Vocabulary) else int(vectorizer.n_features)


def look_up(tokens: Sequence[UserData], vocabulary: Vocabulary, *, zeros: bool) -> Entries | None:
    """Compute the feature matrix of the tokens in a fast way; return None if only `vectorize` can compute it.

    The fast way needs tokens that are all collections of names, or all dicts. The values in these dicts must be
    strings, finite numbers, booleans or dicts.

    zeros : whether to keep numbers and booleans that are 0; their entries do not change scores.
    """
    kinds = set(map(type, tokens))
    if tokens and kinds <= KINDS_OF_NAMES:
        return _find_names(tokens, chain.from_iterable(tokens), vocabulary)
    if kinds != {dict}:
        return None
    # Built-in functions take half of the time of a Python loop, but `join` needs strings.
    strings = map(vocabulary.separator.join, chain.from_iterable(map(dict.items, tokens)))
    return _find_names(tokens, strings, vocabulary) or _collect(tokens, vocabulary, zeros)


def _find_names(tokens: Sequence[UserData], names: Iterable[str], vocabulary: Vocabulary) -> Entries | None:
    """Return a matrix with the value 1 for each name of each token, or None if only `vectorize` can compute it.

    names : the names of all tokens, one token after the other.
    """
    offsets = _offsets(tokens)
    try:
        if type(tokens[0]) is not dict:
            # `join` raises a TypeError if a name is not a string. Bytes have the same hashes as strings.
            deque(map("".join, tokens), maxlen=0)
        columns = vocabulary.find(names, int(offsets[-1]))
    except TypeError:
        return None
    ones = np.empty(len(columns))
    ones.fill(1)
    return Entries(columns, ones, offsets, len(vocabulary))


def _collect(tokens: Sequence[Mapping[str, UserData]], vocabulary: Vocabulary, zeros: bool) -> Entries | None:
    """Compute the feature matrix of ordinary feature dicts; return None if only `vectorize` can compute it."""
    names, values, ends = list[str](), list[float](), [0]
    try:
        for token in tokens:
            collect_items(token, vocabulary.separator, names, values, zeros=zeros)
            ends.append(len(names))
    except TypeError:
        return None
    columns = vocabulary.find(names, len(names))
    return Entries(columns, np.array(values, np.float64), np.array(ends), len(vocabulary))


def _distinct_names(
    tokens: Tokens, separator: str, place: Place | None
) -> tuple[Sequence[str], Floats | None, Labels, Ints]:
    """Return the names and the values of the distinct items of the tokens, and the `ids` and `offsets` of the tokens.

    The values are None if all of them are 1. Two items may have the same name. `_distinct_items` explains the rest.
    """
    tokens = _as_named(tokens)
    if isinstance(tokens, NamedTokens):
        _check_each(check_name, tokens.names, tokens.ids, tokens.offsets, place)
        return tokens.names, None, tokens.ids, tokens.offsets
    items, ids, offsets = _distinct_items(tokens, separator, place)
    names = [f"{name}{separator}{value}" if isinstance(value, str) else name for name, value in items]
    values = [1.0 if isinstance(value, str) else value for _, value in items]
    return names, np.array(values, np.float64), ids, offsets


def _hash_items(items: Sequence[Item], vectorizer: FeatureHasher) -> tuple[Labels, Floats]:
    """Return the column of each item, and its value times the sign of its hash; the column is -1 if the value is 0."""
    columns, values = np.full(len(items), -1, np.int32), np.zeros(len(items))
    if items:
        M = vectorizer.transform([{name: value} for name, value in items])
        known = np.diff(M.indptr) > 0
        columns[known], values[known] = M.indices, M.data
    return columns, values


def _distinct_items(tokens: Tokens, separator: str, place: Place | None) -> tuple[list[Item], Labels, Ints]:
    """Return the distinct items in order of appearance, with the arrays `ids` and `offsets`.

    Token t has the items with the indices ids[offsets[t]:offsets[t+1]], and place(t) is its place for error messages.
    The separator stands between the names of nested dicts.
    """
    tokens = _as_named(tokens)
    if isinstance(tokens, NamedTokens):
        ones = [(name, 1.0) for name in tokens.names]
        return _check_each(check_item, ones, tokens.ids, tokens.offsets, place), tokens.ids, tokens.offsets
    try:
        items, ids, offsets = _number_items(tokens, methodcaller("items"))
    except (TypeError, AttributeError):
        pass  # A value cannot be hashed, or a token is not a mapping: `flat_items` reads it, or raises.
    else:
        if not any(is_nested(value) for _, value in items):
            return _check_each(check_item, items, ids, offsets, place), ids, offsets
    flat = []
    for t, token in enumerate(tokens):
        try:
            flat.append(flat_items(token, separator))
        except TypeError:
            flat_items(token, separator, where=_where(t, place))
            raise
    items, ids, offsets = _number_items(flat, iter)
    return _check_each(check_item, items, ids, offsets, place), ids, offsets


def _as_named(tokens: Tokens) -> Tokens:
    """Return `NamedTokens` if all tokens are collections of names, and the tokens themselves otherwise."""
    if isinstance(tokens, NamedTokens) or not all(isinstance(token, COLLECTIONS) for token in tokens):
        return tokens
    return NamedTokens(*_number_items(tokens, iter))


def _check_each(
    check: Callable[..., Checked], items: Sequence[UserData], ids: Labels, offsets: Ints, place: Place | None
) -> list[Checked]:
    """Return what `check` returns for each item; raise with the place of an item that is not allowed."""
    checked = []
    for k, item in enumerate(items):
        try:
            checked.append(check(item))
        except (TypeError, ValueError):
            t = int(np.searchsorted(offsets, np.argmax(ids == k), side="right")) - 1
            check(item, _where(t, place))
            raise
    return checked


def _where(t: int, place: Place | None) -> str:
    return "" if place is None else f" in {place(t)}"


def _number_items(
    tokens: Sequence[UserData], items_of: Callable[[UserData], Iterable[UserData]]
) -> tuple[list[UserData], Labels, Ints]:
    number: defaultdict[UserData, int] = defaultdict(count().__next__)
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(map(items_of, tokens))), np.int32)
    return list(number), ids, _offsets(tokens)


def _offsets(tokens: Sequence[UserData]) -> Ints:
    return np.fromiter(accumulate(map(len, tokens), initial=0), np.int64, len(tokens) + 1)
