"""Feature dicts of tokens as a sparse matrix, X = A M.

Row t of A (N, D) counts which of the D distinct (name, value) items token t carries, and row i of M (D, d) is item i
as scikit-learn's `DictVectorizer` or `FeatureHasher` reads it. Tokens repeat their items many times over, so each
item is named and hashed once.

A token is a mapping, or a list, tuple or set of feature names that each count 1. The values of a mapping are

    "the"            column `name=the` counts 1
    2.5, True        column `name` is 2.5, 1
    ["a", "b"]       columns `name=a` and `name=b` count 1 each; also a tuple or a set
    {"k": value}     the same again, with `name=k` for the name
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from numbers import Real
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer, FeatureHasher

SEPARATOR = "="
COLLECTIONS = (list, tuple, set, frozenset)
PLAIN = (str, int, float, bool)

Item: TypeAlias = tuple[str, Any]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Vectorizer: TypeAlias = DictVectorizer | FeatureHasher


def new_vectorizer(hash_features: int | None) -> Vectorizer:
    """The vectoriser of a fit: a vocabulary, or `hash_features` columns without one."""
    if hash_features is None:
        return DictVectorizer(separator=SEPARATOR, sparse=True)
    whole = isinstance(hash_features, int | np.integer) and not isinstance(hash_features, bool)
    if not whole or not 0 < hash_features < 2**31 or hash_features & (hash_features - 1):
        raise ValueError(
            f"hash_features={hash_features!r}: expected a power of two below 2**31 such as 2**18, "
            "or None to keep a vocabulary"
        )
    return FeatureHasher(n_features=int(hash_features), input_type="dict")


def vectorize(tokens: Sequence[Any], vectorizer: Vectorizer, *, fit: bool) -> sp.csr_array:
    """The (N, d) matrix of the tokens; features that a fitted vocabulary does not hold are left out."""
    items, ids, offsets = _distinct_items(tokens)
    rows = [{name: value} for name, value in map(_checked, items)]
    if not rows:
        return sp.csr_array((len(tokens), 0 if fit else n_columns(vectorizer)))
    M = vectorizer.fit_transform(rows) if fit else vectorizer.transform(rows)
    # A row of M has one entry or none, so that A M is a matter of looking up.
    known = np.diff(M.indptr) > 0
    columns, values = np.empty(len(rows), np.int32), np.zeros(len(rows))
    columns[known], values[known] = M.indices, M.data
    if not known.all():
        kept = known[ids]
        ids, offsets = ids[kept], np.append(0, np.cumsum(kept))[offsets]
    X = sp.csr_array((values[ids], columns[ids], offsets), shape=(len(tokens), M.shape[1]))
    X.sum_duplicates()
    return X


def n_columns(vectorizer: Vectorizer) -> int:
    """d, the number of columns that the vectoriser makes."""
    if isinstance(vectorizer, FeatureHasher):
        return int(vectorizer.n_features)
    return len(vectorizer.feature_names_)


def restored(names: Sequence[str], separator: str) -> DictVectorizer:
    """A fitted `DictVectorizer` of the given columns."""
    vectorizer = DictVectorizer(separator=separator, sparse=True)
    vectorizer.feature_names_ = list(names)
    vectorizer.vocabulary_ = {name: column for column, name in enumerate(vectorizer.feature_names_)}
    return vectorizer


def _distinct_items(tokens: Sequence[Any]) -> tuple[list[Item], Integers, Integers]:
    """The D distinct items by appearance; their numbers, token after token; where each token's begin, (N + 1,)."""
    if all(isinstance(token, COLLECTIONS) for token in tokens):
        names, ids, offsets = _numbered(tokens, iter)
        return [(name, 1) for name in names], ids, offsets
    try:
        items, ids, offsets = _numbered(tokens, methodcaller("items"))
    except (TypeError, AttributeError):
        pass  # a value that cannot be hashed, or a token that is no mapping: flattening reads it or names it
    else:
        if not any(_is_nested(value) for _, value in items):
            return items, ids, offsets
    return _numbered([_flat(token) for token in tokens], iter)


def _numbered(tokens: Sequence[Any], items_of: Callable[[Any], Iterable[Any]]) -> tuple[list[Any], Integers, Integers]:
    number: defaultdict[Any, int] = defaultdict(count().__next__)
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(map(items_of, tokens))), np.int32)
    offsets = np.append(0, np.cumsum(np.fromiter(map(len, tokens), np.int64, len(tokens))))
    return list(number), ids, offsets


def _is_nested(value: Any) -> bool:
    # Asking for the type first spares most values the slow question whether they are a Mapping.
    return type(value) not in PLAIN and isinstance(value, (*COLLECTIONS, Mapping))


def _flat(token: Any, prefix: str = "") -> list[Item]:
    """The items of a token, nested values written out."""
    if isinstance(token, COLLECTIONS):
        return [(prefix + _checked_name(name), 1) for name in token]
    if not isinstance(token, Mapping):
        raise TypeError(
            f"X has the token {token!r} of type {type(token).__name__} among feature dicts: expected a dict "
            "from names to values, or a list of feature names"
        )
    items: list[Item] = []
    for name, value in token.items():
        full = prefix + _checked_name(name)
        if _is_nested(value):
            items.extend(_flat(value, full + SEPARATOR))
        else:
            items.append((full, value))
    return items


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"X has the feature name {name!r} of type {type(name).__name__}: expected a string; use str(name)"
        )
    return name


def _checked(item: Item) -> Item:
    name, value = item
    _checked_name(name)
    if isinstance(value, str):
        return item
    if isinstance(value, Real | np.bool_):
        if not np.isfinite(float(value)):
            raise ValueError(f"X has the value {value} for feature {name!r}: expected finite numbers; leave it out")
        return name, float(value)
    raise TypeError(
        f"X has the value {value!r} of type {type(value).__name__} for feature {name!r}: expected a string, a number, "
        "a boolean, a list or set of strings, or a nested dict; leave the feature out where it has no value"
    )
