"""Labelled sequences of a fit: inputs, labels, which labellings are legal, and what each sequence counts for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Flags, Floats, Inputs, Labels, UserData
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.readers.constraints import check_legal, legal_labelings
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.readers.weights import read_weights, weigh_samples


@dataclass(frozen=True, eq=False)
class TokenLabels:
    """Labels of the tokens of sequences.

    indices : (N,), into the classes, -1 where a label is missing or one of a set.
    allowed : (N, L), the labels that each token may have, or None if all labels are known.
    weights : (m,), what each sequence counts for, or None if every one counts for one.
    """

    indices: Labels
    allowed: Flags | None
    weights: Floats | None

    @classmethod
    def read(
        cls,
        y: UserData,
        chains: Chains,
        labels: LabelReader,
        legal: Legal | None,
        sample_weight: Floats | None,
        class_weight: UserData,
        *,
        flat: bool,
        part: bool = False,
    ) -> TokenLabels:
        """Return the labels y of sequences; raise if they are not legal.

        sample_weight : what `read_weights` returned.
        flat : whether y holds the labels of all tokens one after the other.
        part : whether these are a part of the data, whose sequences may all count for 0.
        """
        indices, allowed = labels.encode(y, chains, flat=flat)
        if legal is not None:
            check_legal(legal, chains, indices, labels.classes)
        weights = weigh_samples(
            sample_weight, class_weight, chains.lengths, indices, labels.classes, "sequence", part=part
        )
        return cls(indices, allowed, weights)

    def drop_weightless(self, X: Inputs, chains: Chains) -> tuple[Inputs, Chains, TokenLabels]:
        """Return inputs, chains and labels without the sequences that count for 0; the others keep their numbers."""
        if self.weights is None or self.weights.all():
            return X, chains, self
        kept = self.weights > 0
        nodes = np.repeat(kept, chains.lengths)
        indices = self.indices[nodes]
        allowed = None if self.allowed is None or (indices >= 0).all() else self.allowed[nodes]
        return X[nodes], chains.only(kept), TokenLabels(indices, allowed, self.weights[kept])


@dataclass(frozen=True, eq=False)
class TrainingSequences:
    """Sequences of a fit in this process that count for anything, and the readers that know such sequences again."""

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    X: Inputs
    chains: Chains
    tokens: TokenLabels

    @property
    def gamma(self) -> float:
        """Return gamma="scale" of the inputs."""
        return gamma_by_scale(self.X)


def read_training(
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
) -> TrainingSequences:
    """Return the sequences X with their labels y, without those that count for 0.

    earlier : the readers of an earlier fit, if this one goes on from there.
    """
    flat = lengths is not None
    if earlier is None:
        reader, inputs, chains = SequenceReader.fit(X, lengths, hash_features, sample_weight)
        labels = LabelReader.fit(y, chains, classes, flat=flat)
    else:
        reader, labels = earlier
        inputs, chains = reader.read(X, lengths)
    legal = None if constraints is None else legal_labelings(constraints, labels.classes)
    given = read_weights(sample_weight, chains.n_samples, "sequence")
    tokens = TokenLabels.read(y, chains, labels, legal, given, class_weight, flat=flat)
    left_out = 0 if tokens.weights is None else int((tokens.weights == 0).sum())
    if earlier is None and reader.vocabulary is not None and left_out > (0 if given is None else (given == 0).sum()):
        # Sequences that class_weight leaves out add no name to the vocabulary.
        reader, inputs, _ = SequenceReader.fit(X, lengths, hash_features, tokens.weights)
    inputs, chains, tokens = tokens.drop_weightless(inputs, chains)
    if not chains.n_nodes:
        raise ValueError(
            "sample_weight and class_weight leave no sequence that has a token: expected one with a weight above zero"
        )
    return TrainingSequences(reader, labels, legal, inputs, chains, tokens)
