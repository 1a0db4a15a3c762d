"""Convert feature dicts to a sparse matrix, as scikit-learn's `DictVectorizer` and `FeatureHasher` do.

An item is a pair (name, value) of a token. With a fitted vocabulary, each item is looked up directly. To make a
vocabulary, or to hash names, the distinct items are collected first: the same items occur in many tokens, and each
distinct item is named or hashed only once.

A token is a mapping from names to values, or a list, tuple or set of feature names, which all have the value 1. In a
mapping, the type of the value decides how the item `name: value` changes the columns of the token's row:

    "the"            add 1 to the column `name:the`
    2.5 or True      add 2.5, or 1, to the column `name`
    ["a", "b"]       add 1 to each of the columns `name:a` and `name:b`; a tuple or a set has the same effect
    {"k": value}     do the same as for the item `name:k: value`

CRFsuite gives columns the same names, so that its models and ours can be converted to each other. Model files of
earlier versions have "=" in the place of ":", and so does the name that `FeatureHasher` hashes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count, repeat
from numbers import Real
from operator import methodcaller
from typing import TypeAlias

import numpy as np
from sklearn.feature_extraction import DictVectorizer, FeatureHasher

from kernelcrf.arrays import Flags, Floats, Ints, Labels, UserData
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.name_table import NameTable
from kernelcrf.validation import Constraint, either, is_whole, nothing, shown

SEPARATOR, HASHED_SEPARATOR = ":", "="
COLLECTIONS = (list, tuple, set, frozenset)
PLAIN = (str, int, float, bool)

Item: TypeAlias = tuple[str, UserData]
Vectorizer: TypeAlias = DictVectorizer | FeatureHasher
Place: TypeAlias = Callable[[int], str]


@dataclass(frozen=True, eq=False)
class NamedTokens:
    """Tokens that are lists of feature names, stored as indices into a list of distinct names.

    Each feature has the value 1.

    names : the distinct feature names.
    ids : the indices into `names` of all tokens, one token after the other.
    offsets : token t has the names with the indices ids[offsets[t]:offsets[t+1]].
    """

    names: Sequence[str]
    ids: Labels
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1


Tokens: TypeAlias = Sequence[UserData] | NamedTokens


def keep_tokens(tokens: Tokens, kept: Flags) -> Tokens:
    """Return the tokens whose flag in `kept` is true, and drop feature names that these tokens do not have."""
    if not isinstance(tokens, NamedTokens):
        return list(compress(tokens, kept.tolist()))
    counts = np.diff(tokens.offsets)
    used, ids = np.unique(tokens.ids[np.repeat(kept, counts)], return_inverse=True)
    names = [tokens.names[number] for number in used.tolist()]
    return NamedTokens(names, ids.astype(np.int32), Chains.from_lengths(counts[kept]).offsets)


HASH_FEATURES = either(
    Constraint(
        "a power of two below 2**31 such as 2**18",
        lambda value: is_whole(value) and 0 < value < 2**31 and int(value).bit_count() == 1,
    ),
    nothing,
    advice="None keeps a vocabulary",
)


def new_vectorizer(hash_features: int | None) -> Vectorizer:
    """Return an unfitted vectoriser, which converts feature dicts to rows of numbers.

    hash_features : the number of columns to which names are hashed; None means a vocabulary with one column per name.
    """
    HASH_FEATURES.check("hash_features", hash_features)
    if hash_features is None:
        return DictVectorizer(separator=SEPARATOR, sparse=True)
    return FeatureHasher(n_features=int(hash_features), input_type="dict")


def vectorize(tokens: Tokens, vectorizer: Vectorizer, *, fit: bool, place: Place | None = None) -> Entries:
    """Return the feature matrix of the tokens, one row per token.

    fit : whether to make the vocabulary from these tokens; otherwise features outside the vocabulary are left out.
    place : a function that returns the place of token t for error messages, such as "sequence 3, token 1".
    """
    hashes = isinstance(vectorizer, FeatureHasher)
    if not (hashes or fit or isinstance(tokens, NamedTokens)):
        entries = _look_up(tokens, vectorizer)
        if entries is not None:
            return entries
    items, ids, offsets = _distinct_items(tokens, HASHED_SEPARATOR if hashes else vectorizer.separator, place)
    columns, values = _hash_items(items, vectorizer) if hashes else _name_items(items, vectorizer, fit)
    return Entries(columns[ids], values[ids], offsets, n_columns(vectorizer))


def n_columns(vectorizer: Vectorizer) -> int:
    """Return the number of columns of the matrices that the vectoriser makes."""
    return int(vectorizer.n_features) if isinstance(vectorizer, FeatureHasher) else len(vectorizer.feature_names_)


def restore_vectorizer(names: Sequence[str], separator: str = SEPARATOR) -> DictVectorizer:
    """Return a fitted `DictVectorizer` whose columns have the given names."""
    return _set_names(DictVectorizer(separator=separator, sparse=True), names)


def _set_names(vectorizer: DictVectorizer, names: Sequence[str]) -> DictVectorizer:
    vectorizer.feature_names_ = list(names)
    vectorizer.table_ = NameTable(vectorizer.feature_names_)
    vectorizer.vocabulary_ = {name: column for column, name in enumerate(names)}
    return vectorizer


def _look_up(tokens: Sequence[UserData], vectorizer: DictVectorizer) -> Entries | None:
    """Return the feature matrix if all tokens are lists of names, or all are dicts of strings; otherwise None."""
    # Only built-in functions look features up, because a Python loop would double the time.
    kinds = set(map(type, tokens))
    if kinds <= set(COLLECTIONS):
        names: Iterable[UserData] = chain.from_iterable(tokens)
    elif kinds == {dict}:
        names = map(vectorizer.separator.join, chain.from_iterable(map(dict.items, tokens)))
    else:
        return None
    offsets = _offsets(tokens)
    try:
        # `join` raises a TypeError if a name or a value is not a string. Bytes have the same hashes as strings.
        if kinds != {dict}:
            deque(map("".join, tokens), maxlen=0)
        columns = vectorizer.table_.find(names, int(offsets[-1]))
    except TypeError:
        return None
    if columns is None:
        return None
    ones = np.empty(len(columns))
    ones.fill(1)
    return Entries(columns, ones, offsets, len(vectorizer.feature_names_))


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
        if not any(_is_nested(value) for _, value in items):
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
    """Return the items with numbers as floats; raise for the first item whose name or value is not allowed."""
    checked = []
    for k, item in enumerate(items):
        try:
            checked.append(_check_item(item))
        except (TypeError, ValueError):
            t = int(np.searchsorted(offsets, np.argmax(ids == k), side="right")) - 1
            _check_item(item, _where(t, place))
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


def _is_nested(value: UserData) -> bool:
    """Return whether a value is a mapping, or a collection of strings."""
    # Comparing the type is fast, and settles most values; isinstance with Mapping is slow.
    if type(value) in PLAIN:
        return False
    strings = isinstance(value, COLLECTIONS) and all(isinstance(name, str) for name in value)
    return strings or isinstance(value, Mapping)


def _is_vector(value: UserData) -> bool:
    return type(value) not in PLAIN and (isinstance(value, COLLECTIONS) or np.ndim(value) > 0)


def flat_items(token: UserData, separator: str = SEPARATOR, prefix: str = "", where: str = "") -> list[Item]:
    """Return the pairs (name, value) of a token; a pair in a nested dict has a name such as "outer:inner".

    separator : the text between the names of nested dicts.
    where : the place of the token for error messages, such as " in sequence 3, token 1".
    """
    if isinstance(token, COLLECTIONS):
        return [(prefix + _check_name(name, where), 1) for name in token]
    if not isinstance(token, Mapping):
        raise TypeError(
            f"X has the token {shown(token)} of type {type(token).__name__} among feature dicts{where}: expected a "
            "dict from names to values, or a list of feature names"
        )
    items: list[Item] = []
    for name, value in token.items():
        full = prefix + _check_name(name, where)
        if _is_nested(value):
            items.extend(flat_items(value, separator, full + separator, where))
        elif _is_vector(value):
            raise _refuse_value(full, value, where)
        else:
            items.append((full, value))
    return items


def _check_name(name: UserData, where: str = "") -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"X has the feature name {shown(name)} of type {type(name).__name__}{where}: expected a string; use "
            "str(name)"
        )
    return name


def _check_item(item: Item, where: str = "") -> Item:
    name, value = item
    _check_name(name, where)
    if isinstance(value, str):
        return item
    if isinstance(value, Real | np.bool_):
        if not np.isfinite(float(value)):
            raise ValueError(
                f"X has the value {value} for feature {shown(name)}{where}: expected finite numbers; "
                + ("leave out a feature whose value is unknown" if value != value else "remove or clip infinite values")
            )
        return name, float(value)
    raise _refuse_value(name, value, where)


def _refuse_value(name: str, value: UserData, where: str) -> TypeError:
    remedy = "leave out a feature that has no value"
    if _is_vector(value):
        remedy = (
            f"turn a vector into one feature per entry, such as {shown(name + '[0]')}: 0.5, or pass arrays of numbers "
            "instead of feature dicts"
        )
    return TypeError(
        f"X has the value {shown(value)} of type {type(value).__name__} for feature {shown(name)}{where}: expected a "
        f"string, a number, a boolean, a list or set of strings, or a nested dict; {remedy}"
    )
