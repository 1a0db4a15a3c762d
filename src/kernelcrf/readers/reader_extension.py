"""Read sequences with the reader of an earlier model, and add feature names that the earlier model does not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from kernelcrf.arrays import Inputs, UserData
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.sequences import SequenceReader, all_tokens, open_sequences
from kernelcrf.readers.weights import read_weights


def extend_reader(
    reader: SequenceReader, X: UserData, lengths: UserData = None, sample_weight: UserData = None
) -> tuple[SequenceReader, Inputs, Chains]:
    """Return three values: a reader that also knows the feature names of X, the tokens of X, and their `Chains`.

    Old names keep their columns, and new names get the columns after them. If the reader has no vocabulary, it is
    returned unchanged.

    sample_weight : one weight per sequence; names in a sequence of weight 0 are not added to the vocabulary.
    """
    parts, chains, kind = open_sequences(X, lengths)
    weights = read_weights(sample_weight, chains.n_samples, "sequence", part=True)
    kept = np.repeat(np.ones(chains.n_samples, bool) if weights is None else weights > 0, chains.lengths)
    if not feature_dicts.has_vocabulary(reader.vectorizer) or kind != "dicts" or not kept.any():
        flat, chains = reader.read(X, lengths)
        return reader, flat, chains
    tokens, at, separator = all_tokens(parts), np.flatnonzero(kept), reader.vectorizer.separator
    kept_tokens = tokens if kept.all() else feature_dicts.keep_tokens(tokens, kept)
    vectorizer = feature_dicts.new_vocabulary(separator)
    feature_dicts.vectorize(kept_tokens, vectorizer, fit=True, place=lambda t: chains.place(at[t]))
    reader = add_names(reader, vectorizer.feature_names_)
    flat = feature_dicts.vectorize(tokens, reader.vectorizer, fit=False, place=chains.place).to_csr()
    return reader, flat, chains


def add_names(reader: SequenceReader, names: Iterable[str]) -> SequenceReader:
    """Return a reader whose vocabulary also has the given names, in columns after those of the old names.

    If the reader has no vocabulary, it is returned unchanged.
    """
    if not feature_dicts.has_vocabulary(reader.vectorizer):
        return reader
    known, old = reader.vectorizer.vocabulary_, reader.vectorizer.feature_names_
    if not (added := [name for name in names if name not in known]):
        return reader
    vectorizer = feature_dicts.restore_vectorizer([*old, *added], reader.vectorizer.separator)
    return replace(reader, n_features=len(old) + len(added), vectorizer=vectorizer)
