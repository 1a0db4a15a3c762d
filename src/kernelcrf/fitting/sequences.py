"""Labelled sequences in this process, read with what each of them counts for.

The place of a landmark that is an input is that of its first token. A centre has that of the input nearest to it in the
kernel's own metric,

    |k_b - k_x|^2 = k(b, b) - 2 k(b, x) + k(x, x),

which for rbf and other kernels with k(x, x) = 1 is the input of the largest k(b, x).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Flags, Floats, Inputs, Labels, Places, UserData
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.features import Features
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import CliqueFeatures, Corpus, LocalCorpus, input_of
from kernelcrf.fitting.digest import Words, digest_legal, digest_texts, digest_words
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.readers.constraints import check_legal, legal_labelings
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.weights import read_weights, weigh_samples
from kernelcrf.terms import Term


@dataclass(frozen=True, eq=False)
class LabelledSequences(LocalCorpus):
    """Labelled sequences: inputs X (N, d) of all tokens, labels (N,) below n_labels.

    allowed : (N, L), the labels that each token may have, or None where all labels are observed.
    weights : (m,), what each sequence counts for, or None.
    legal : what labelings may be, or None for any.
    """

    X: Any
    chains: Chains
    labels: Labels
    n_labels: int
    allowed: Flags | None = None
    weights: Floats | None = None
    legal: Legal | None = None

    def only_weighted(self) -> LabelledSequences:
        """Return the sequences that do not count for 0; they keep their numbers."""
        if self.weights is None or self.weights.all():
            return self
        kept = self.weights > 0
        nodes = np.repeat(kept, self.chains.lengths)
        labels = self.labels[nodes]
        allowed = None if self.allowed is None or (labels >= 0).all() else self.allowed[nodes]
        weights = self.weights[kept]
        return replace(
            self, X=self.X[nodes], chains=self.chains.only(kept), labels=labels, allowed=allowed, weights=weights
        )

    def rows(self, name: str) -> Inputs:
        """Return the inputs of all tokens."""
        return self.X

    def digest_words(self) -> Words:
        """Return the digests of the inputs, the labels, the weights and the three together; those of parts add up."""
        return digest_words(self.X, self.chains.offsets, self.labels, self.allowed, self.weights)

    def partition(self, tokens: Mapping[str, TokenFeatures]) -> ChainPartition:
        """With features of the templates that have inputs."""
        return ChainPartition(self.chains, self.n_labels, self.labels, tokens, self.allowed, self.weights, self.legal)

    def places(self, nodes: Places) -> Places:
        """(n, 2): sequence, counted over all of the data, and token of each of these tokens."""
        sequences = np.searchsorted(self.chains.offsets, nodes, side="right") - 1
        own = sequences if self.chains.numbers is None else self.chains.numbers[sequences]
        places = np.column_stack((own, nodes - self.chains.offsets[sequences]))
        return np.asarray(places, np.intp)

    def digest(self) -> dict[str, Any]:
        """Return digests of the inputs, the labels, the weights, the three together and the constraints."""
        return {**digest_texts(self.digest_words()), "constraints": digest_legal(self.legal)}

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[ChainPartition]:
        """Return as many partitions as threads may share."""
        rows = {name: own.rows for name, own in features.items() if isinstance(own, CliqueFeatures)}
        return self.partition(rows).cut()

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        """Return sequence and token (n, 2) of each landmark, or of the input nearest to it; None without landmarks."""
        if features.basis is None:
            return None
        found, indices = self.found(term), features.basis.indices
        if indices is None:
            indices = nearest(input_of(term)[1], features.basis.landmarks, found.inputs, engine)[0]
        return self.places(found.first[indices])


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled sequences, here or on a cluster, and the readers that read new sequences alike.

    legal : the labellings that are allowed, or None for all.
    by_scale : computes gamma="scale" of the inputs.
    """

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    data: Corpus
    by_scale: Callable[[], float]


def read_training_data(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    lengths: UserData,
    *,
    hash_features: int | None,
    classes: UserData,
    class_weight: UserData,
    constraints: UserData,
    earlier: tuple[SequenceReader, LabelReader] | None = None,
) -> TrainingData:
    """Return the sequences X with their labels y, without those that count for 0.

    earlier : the readers of an earlier fit, if this one goes on from there.
    """
    if earlier is None:
        reader, inputs, chains = SequenceReader.fit(X, lengths, hash_features, sample_weight)
        tokens = flat_labels(y, chains, flat=lengths is not None)
        labels = LabelReader.fit(tokens, classes)
    else:
        reader, labels = earlier
        inputs, chains = reader.read(X, lengths)
        tokens = flat_labels(y, chains, flat=lengths is not None)
    legal = None if constraints is None else legal_labelings(constraints, labels.classes)
    given = read_weights(sample_weight, chains.n_samples, "sequence")
    indices, allowed = labels.encode(tokens, chains)
    if legal is not None:
        check_legal(legal, chains, indices, labels.classes)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "sequence")
    left_out = 0 if weights is None else int((weights == 0).sum())
    if earlier is None and reader.vocabulary is not None and left_out > (0 if given is None else (given == 0).sum()):
        # Sequences that class_weight leaves out add no name to the vocabulary.
        reader, inputs, _ = SequenceReader.fit(X, lengths, hash_features, weights)
    every = LabelledSequences(inputs, chains, indices, len(labels.classes), allowed, weights, legal)
    data = every.only_weighted()
    if not data.chains.n_nodes:
        raise ValueError(
            "sample_weight and class_weight leave no sequence that has a token: expected one with a weight above zero"
        )
    return TrainingData(reader, labels, legal, data, partial(gamma_by_scale, data.X))


def nearest(
    kernel: InputKernel, landmarks: Inputs, X: Inputs, engine: LocalEngine
) -> tuple[Places, npt.NDArray[np.floating]]:
    """(n,) the row of X nearest to each landmark, the first of several; and |k_b - k_x|^2 - k(b, b) there."""

    def nearest_of(rows: slice) -> tuple[Places, npt.NDArray[np.floating]]:
        D = kernel.gram(X[rows], landmarks)
        D *= -2
        D += kernel.diagonal(X[rows])[:, None]
        own = D.argmin(axis=0)
        return rows.start + own, D[own, np.arange(D.shape[1])]

    found = engine.map(nearest_of, row_blocks(X.shape[0]))
    rows, distances = (np.stack(parts) for parts in zip(*found, strict=True))
    term, every = distances.argmin(axis=0), np.arange(distances.shape[1])
    return rows[term, every], distances[term, every]
