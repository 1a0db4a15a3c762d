"""Convert feature dicts to a sparse matrix, as scikit-learn's `DictVectorizer` and `FeatureHasher` do.

An item is a pair (name, value) of a token. With a fitted vocabulary, each item is looked up directly. To make a
vocabulary, or to hash names, the distinct items are collected first: the same items occur in many tokens, and each
distinct item is named or hashed only once.

`feature_items` says which columns the items of a token belong to.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count, repeat
from operator import methodcaller
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

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
    collect_items,
    flat_items,
    is_nested,
)
from kernelcrf.readers.name_table import NameTable

if TYPE_CHECKING:
    from sklearn.feature_extraction import DictVectorizer, FeatureHasher

Vectorizer: TypeAlias = "DictVectorizer | FeatureHasher"
Place: TypeAlias = Callable[[int], str]


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


def new_vectorizer(hash_features: int | None) -> Vectorizer:
    """Return an unfitted vectoriser, which converts feature dicts to rows of numbers.

    hash_features : the number of columns to which names are hashed; None means a vocabulary with one column per name.
    """
    from sklearn.feature_extraction import FeatureHasher

    HASH_FEATURES.check("hash_features", hash_features)
    if hash_features is None:
        return new_vocabulary(SEPARATOR)
    return FeatureHasher(n_features=int(hash_features), input_type="dict")


def new_vocabulary(separator: str) -> DictVectorizer:
    """Return an unfitted `DictVectorizer`, which makes a vocabulary with one column per name."""
    from sklearn.feature_extraction import DictVectorizer

    return DictVectorizer(separator=separator, sparse=True)


def has_vocabulary(vectorizer: Vectorizer | None) -> TypeGuard[DictVectorizer]:
    """Return True if the vectoriser has one column per name, and False if it hashes names or is None."""
    return hasattr(vectorizer, "separator")


def vectorize(tokens: Tokens, vectorizer: Vectorizer, *, fit: bool, place: Place | None = None) -> Entries:
    """Return the feature matrix of the tokens, one row per token.

    fit : whether to make the vocabulary from these tokens; otherwise features outside the vocabulary are left out.
    place : a function that returns the place of token t for error messages, such as "sequence 3, token 1".
    """
    hashes = not has_vocabulary(vectorizer)
    if not (hashes or fit or isinstance(tokens, NamedTokens)):
        entries = look_up(tokens, vectorizer, zeros=True)
        if entries is not None:
            return entries
    items, ids, offsets = _distinct_items(tokens, HASHED_SEPARATOR if hashes else vectorizer.separator, place)
    columns, values = _hash_items(items, vectorizer) if hashes else _name_items(items, vectorizer, fit)
    return Entries(columns[ids], values[ids], offsets, n_columns(vectorizer))


def n_columns(vectorizer: Vectorizer) -> int:
    """Return the number of columns of the matrices that the vectoriser makes."""
    return len(vectorizer.feature_names_) if has_vocabulary(vectorizer) else int(vectorizer.n_features)


def restore_vectorizer(names: Sequence[str], separator: str = SEPARATOR) -> DictVectorizer:
    """Return a fitted `DictVectorizer` whose columns have the given names."""
    return _set_names(new_vocabulary(separator), names)


def _set_names(vectorizer: DictVectorizer, names: Sequence[str]) -> DictVectorizer:
    vectorizer.feature_names_ = list(names)
    vectorizer.table_ = NameTable(vectorizer.feature_names_)
    vectorizer.vocabulary_ = {name: column for column, name in enumerate(names)}
    return vectorizer


def look_up(tokens: Sequence[UserData], vectorizer: DictVectorizer, *, zeros: bool) -> Entries | None:
    """Compute the feature matrix of the tokens in a fast way; return None if only `vectorize` can compute it.

    The fast way needs tokens that are all collections of names, or all dicts. The values in these dicts must be
    strings, finite numbers, booleans or dicts.

    zeros : whether to keep numbers and booleans that are 0; their entries do not change scores.
    """
    kinds = set(map(type, tokens))
    if tokens and kinds <= KINDS_OF_NAMES:
        return _find_names(tokens, chain.from_iterable(tokens), vectorizer)
    if kinds != {dict}:
        return None
    # Built-in functions take half of the time of a Python loop, but `join` needs strings.
    strings = map(vectorizer.separator.join, chain.from_iterable(map(dict.items, tokens)))
    return _find_names(tokens, strings, vectorizer) or _collect(tokens, vectorizer, zeros)


def _find_names(tokens: Sequence[UserData], names: Iterable[str], vectorizer: DictVectorizer) -> Entries | None:
    """Return a matrix with the value 1 for each name of each token, or None if only `vectorize` can compute it.

    names : the names of all tokens, one token after the other.
    """
    offsets = _offsets(tokens)
    try:
        if type(tokens[0]) is not dict:
            # `join` raises a TypeError if a name is not a string. Bytes have the same hashes as strings.
            deque(map("".join, tokens), maxlen=0)
        columns = vectorizer.table_.find(names, int(offsets[-1]))
    except TypeError:
        return None
    if columns is None:
        return None
    ones = np.empty(len(columns))
    ones.fill(1)
    return Entries(columns, ones, offsets, len(vectorizer.feature_names_))


def _collect(tokens: Sequence[Mapping[str, UserData]], vectorizer: DictVectorizer, zeros: bool) -> Entries | None:
    """Compute the feature matrix of ordinary feature dicts; return None if only `vectorize` can compute it."""
    names, values, ends = list[str](), list[float](), [0]
    try:
        for token in tokens:
            collect_items(token, vectorizer.separator, names, values, zeros=zeros)
            ends.append(len(names))
    except TypeError:
        return None
    columns = vectorizer.table_.find(names, len(names))
    if columns is None:
        return None
    return Entries(columns, np.array(values, np.float64), np.array(ends), len(vectorizer.feature_names_))


def _name_items(items: Sequence[Item], vectorizer: DictVectorizer, fit: bool) -> tuple[Labels, Floats]:
    """Return the column and the value of each item; the column is -1 if the vocabulary does not contain the item.

    If `fit` is True, the vocabulary is first made from these items.
    """
    between = vectorizer.separator
    names = [f"{name}{between}{value}" if isinstance(value, str) else name for name, value in items]
    values = [1.0 if isinstance(value, str) else value for _, value in items]
    if fit:
        _set_names(vectorizer, sorted(set(names)))
    columns = np.fromiter(map(vectorizer.vocabulary_.get, names, repeat(-1)), np.int32, len(names))
    return columns, np.array(values, np.float64)


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
    if not isinstance(tokens, NamedTokens) and all(isinstance(token, COLLECTIONS) for token in tokens):
        tokens = NamedTokens(*_number_items(tokens, iter))
    if isinstance(tokens, NamedTokens):
        named = [(name, 1.0) for name in tokens.names]
        return _check_items(named, tokens.ids, tokens.offsets, place), tokens.ids, tokens.offsets
    try:
        items, ids, offsets = _number_items(tokens, methodcaller("items"))
    except (TypeError, AttributeError):
        pass  # A value cannot be hashed, or a token is not a mapping: `flat_items` reads it, or raises.
    else:
        if not any(is_nested(value) for _, value in items):
            return _check_items(items, ids, offsets, place), ids, offsets
    flat = []
    for t, token in enumerate(tokens):
        try:
            flat.append(flat_items(token, separator))
        except TypeError:
            flat_items(token, separator, where=_where(t, place))
            raise
    items, ids, offsets = _number_items(flat, iter)
    return _check_items(items, ids, offsets, place), ids, offsets


def _check_items(items: Sequence[Item], ids: Labels, offsets: Ints, place: Place | None) -> list[Item]:
    """Return the items with numbers converted to floats; raise if the name or the value of an item is not allowed."""
    checked = []
    for k, item in enumerate(items):
        try:
            checked.append(check_item(item))
        except (TypeError, ValueError):
            t = int(np.searchsorted(offsets, np.argmax(ids == k), side="right")) - 1
            check_item(item, _where(t, place))
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
