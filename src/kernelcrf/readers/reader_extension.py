"""Read sequences with the reader of an earlier model, and add feature names that the earlier model does not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernelcrf.arrays import Inputs, UserData
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers import feature_dicts
from kernelcrf.readers.sequences import SequenceReader, all_tokens, open_sequences, weighted_tokens
from kernelcrf.readers.vocabulary import Vocabulary


def extend_reader(
    reader: SequenceReader, X: UserData, lengths: UserData = None, sample_weight: UserData = None
) -> tuple[SequenceReader, Inputs, Chains]:
    """Return three values: a reader that also knows the feature names of X, the tokens of X, and their `Chains`.

    Old names keep their columns, and new names get the columns after them. If the reader has no vocabulary, it is
    returned unchanged.

    sample_weight : one weight per sequence; names in a sequence of weight 0 are not added to the vocabulary.
    """
    parts, chains, kind = open_sequences(X, lengths)
    kept = weighted_tokens(chains, sample_weight)
    known = reader.vectorizer if kind == "dicts" else None
    if not isinstance(known, Vocabulary) or chains.n_nodes == 0 or (kept is not None and not kept.any()):
        flat, chains = reader.read(X, lengths)
        return reader, flat, chains
    tokens = all_tokens(parts)
    added, _ = feature_dicts.learn(tokens, known.separator, chains.place, kept)
    reader = add_names(reader, added.names)
    return reader, feature_dicts.vectorize(tokens, reader.vectorizer, chains.place).to_csr(), chains


def add_names(reader: SequenceReader, names: Iterable[str]) -> SequenceReader:
    """Return a reader whose vocabulary also has the given names, in columns after those of the old names.

    If the reader has no vocabulary, it is returned unchanged.
    """
    if not isinstance(known := reader.vectorizer, Vocabulary):
        return reader
    names = list(names)
    added = [name for name, column in zip(names, known.find(names, len(names)).tolist(), strict=True) if column < 0]
    if not added:
        return reader
    vocabulary = Vocabulary([*known.names, *added], known.separator)
    return replace(reader, n_features=len(vocabulary), vectorizer=vocabulary)
