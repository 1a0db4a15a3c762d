"""Read what a model file says about the inputs of sequences: their kinds, their columns, and what each input reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..arrays import Array, Places, UserData
from ..persistence.checks import read_count
from ..persistence.error import ModelFileError
from ..persistence.long_lists import Texts
from ..validation import is_whole, shown
from .feature_items import HASH_FEATURES
from .stored_values import names_from_config, string_names

Kind: TypeAlias = Literal["dense", "sparse", "dicts"]

WORDS: dict[Kind, str] = {"dense": "arrays of numbers", "sparse": "sparse matrices", "dicts": "feature dicts"}
SEVERAL = "several"


class StoredColumns(NamedTuple):
    """The columns of one kind of sequences, such as arrays or feature dicts, as a model file stores them.

    names : the names of the columns. None if there are no names, if feature names are hashed, or if `texts` is given.
    separator : for feature dicts, the text between a feature and its value in the name of a column.
    texts : for feature dicts, the names of the columns as stored bytes, not yet checked for duplicates; otherwise None.
    """

    kind: Kind
    n_features: int
    names: Array | None
    separator: str = ""
    texts: Texts | None = None


class Columns(Protocol):
    """Protocol of objects that describe columns, such as `StoredColumns` and `SequenceReader`."""

    @property
    def kind(self) -> Kind:
        """Return the kind of sequences."""

    @property
    def n_features(self) -> int:
        """Return the number of columns."""


class Source(NamedTuple):
    """The part of each sequence that one input reads: an entry, or some columns of this entry.

    entry : the name of the entry, or None if sequences are not mappings.
    columns : indices of columns, or None for all columns.
    """

    entry: str | None
    columns: Places | None


def columns_from_config(config: Mapping[str, UserData]) -> StoredColumns:
    """Return the columns of sequences that `config`, a part of a model file, describes; raise if it is inconsistent."""
    kind, n_features = config["kind"], read_count(config, "n_features", 1)
    if kind not in WORDS:
        raise ModelFileError(
            f"the model file has sequences of the kind {shown(kind)}: expected one of {', '.join(WORDS)}. The file "
            "may be damaged: use another copy of it"
        )
    texts, separator = config.get("feature_names"), config.get("separator")
    if isinstance(texts, Texts):
        if kind == "dicts" and isinstance(separator, str) and len(texts) == n_features:
            return StoredColumns(kind, n_features, None, separator, texts)
        config = {**config, "feature_names": list(texts)}
    names = names_from_config(config, n_features)
    if kind != "dicts" or names is None:
        if kind == "dicts":
            HASH_FEATURES.check("hash_features", n_features)
        return StoredColumns(kind, n_features, names)
    if not isinstance(separator, str) or string_names(names) is None or len(set(names)) != n_features:
        raise ModelFileError(
            f"the model file has feature_names={shown(names)} and separator={shown(separator)}: expected {n_features} "
            "distinct names, and a separator that is a string. The file may be damaged: use another copy of it"
        )
    return StoredColumns(kind, n_features, names, separator)


def sources_from_config(config: Mapping[str, UserData], entries: Mapping[str | None, Columns]) -> dict[str, Source]:
    """Return a dict from inputs to the entry and the columns that each reads; raise if `config` is inconsistent.

    entries : a dict from the entries of a sequence to their columns; if sequences are not mappings, the only key is
        None.
    """
    sources = {}
    for name, entry, columns in config["sources"]:
        width = entries[entry].n_features
        fits = columns is None or (
            isinstance(columns, list) and columns and all(is_whole(c) and 0 <= c < width for c in columns)
        )
        if not fits or (columns is not None and entries[entry].kind == "dicts") or not isinstance(name, str):
            raise ModelFileError(
                f"the model file has the columns {shown(columns)} for the input {shown(name)}: expected a list of "
                f"integers from 0 to {width - 1}, or null. The file may be damaged: use another copy of it"
            )
        sources[name] = Source(entry, None if columns is None else np.array(columns, np.intp))
    names = [entry for entry in entries if entry is not None]
    if not sources or (None in entries and names) or not all(isinstance(entry, str) for entry in names):
        raise ModelFileError(
            f"the model file has the entries {shown(list(entries))} of sequences: expected strings, or null as the "
            "only entry. The file may be damaged: use another copy of it"
        )
    return sources
