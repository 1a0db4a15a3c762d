"""Read labelled sequences for a fit: their inputs, labels, weights, constraints and base scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.fitting.corpus import Corpus
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.readers.base_scores import read_base_scores
from kernelcrf.readers.constraints import check_legal, legal_labelings
from kernelcrf.readers.containers import read_groups
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.reader_extension import extend_reader
from kernelcrf.readers.sequences import OWNER, SequenceReader
from kernelcrf.readers.soft_labels import SoftLabels, check_soft_labels
from kernelcrf.readers.weights import TokenWeights, read_weights, weigh_samples


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled sequences, in this process or on a cluster, with objects that read new data in the same format.

    reader : the reader of inputs.
    labels : the reader of labels.
    legal : constraints on labellings, or None.
    data : the labelled sequences.
    by_scale : a function from the name of an input to the value of gamma="scale" for this input.
    n_tokens : the number of tokens in this process.
    """

    reader: SequenceReader | InputsReader
    labels: LabelReader
    legal: Legal | None
    data: Corpus
    by_scale: Callable[[str], float]
    n_tokens: int = 0


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
    inputs: Mapping[str, tuple[str | None, UserData]] | None = None,
    earlier: tuple[SequenceReader | InputsReader, LabelReader] | None = None,
    read_tokens: Callable[..., list[UserData]] = flat_labels,
    fit_labels: Callable[[list[UserData], UserData], LabelReader] = LabelReader.fit,
    extend_labels: Callable[[LabelReader, list[UserData], UserData], LabelReader] = LabelReader.extend,
    prior: tuple[SequenceReader | InputsReader, LabelReader] | None = None,
    base_scores: UserData = None,
    owner: str = OWNER,
    learns_names: bool = True,
    groups: UserData = None,
    by_token: bool = True,
) -> TrainingData:
    """Read the sequences X and their labels y, and leave out sequences of weight 0.

    inputs : a dict from the name of each input to a pair (entry, columns): what the input reads, as in
        `InputsReader.fit`. None if there is one input without a name.
    earlier : for a warm start, the readers of inputs and of labels that an earlier fit has used, otherwise None. New
        feature names are added to the reader of inputs.
    read_tokens : a function that returns the labels of all tokens in y.
    fit_labels : a function that makes a reader of labels from these labels.
    extend_labels : a function that adds these labels to a reader of labels.
    prior : the readers of inputs and of labels of the model that is the prior, or None. New feature names and labels
        are added to these readers. With a prior, the sequences may have no tokens.
    base_scores : fixed scores, which are added to the learned scores; `read_base_scores` reads them.
    owner : the name of the estimator, for error messages.
    learns_names : whether new feature names are added to the readers of `earlier` or `prior`.
    groups : the group of each sequence, or None; sequences of a group are held out together.
    by_token : whether y may have probabilities of labels, and `sample_weight` one weight per token.
    """
    before = None if (readers := earlier or prior) is None else readers[1]

    def fit_reader(weights: UserData) -> tuple[SequenceReader | InputsReader, Any, Chains]:
        if (known := prior or earlier) is not None:
            before = known[0]
            if not learns_names:
                return before, *before.read(X, lengths)
            extend = before.extend if isinstance(before, InputsReader) else partial(extend_reader, before)
            return extend(X, lengths, weights)
        if inputs is None:
            return SequenceReader.fit(X, lengths, hash_features, weights, owner=owner)
        return InputsReader.fit(X, inputs, lengths, hash_features, weights, owner)

    flat = lengths is not None
    of_tokens = TokenWeights.read(sample_weight, lengths, part=prior is not None) if by_token else None
    if of_tokens is not None:
        sample_weight = of_tokens.of_sequences
    reader, rows, chains = fit_reader(sample_weight)
    soft_labels = SoftLabels.read(y, chains, flat=flat) if by_token else None
    tokens = read_tokens(y, chains, flat=flat) if soft_labels is None else []
    known = tokens if soft_labels is None else soft_labels.labels(classes if before is None else before.classes)
    if earlier is not None:
        labels = earlier[1]
    else:
        labels = fit_labels(known, classes) if prior is None else extend_labels(prior[1], known, classes)
    legal = None if constraints is None else legal_labelings(constraints, labels.classes)
    given = read_weights(sample_weight, chains.n_samples, "sequence", part=prior is not None)
    soft, allowed = None, None
    if soft_labels is None:
        indices, allowed = labels.encode(tokens, chains)
    else:
        soft = soft_labels.columns(labels.classes, classes)
        indices = np.asarray(soft.argmax(axis=1), np.int32)
    if soft is not None:
        check_soft_labels(legal, chains, soft)
    elif legal is not None:
        check_legal(legal, chains, indices, labels.classes)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "sequence", soft=soft)
    left_out = 0 if weights is None else int((weights == 0).sum())
    if reader.has_vocabulary and left_out > (0 if given is None else (given == 0).sum()):
        # Sequences of weight 0 by class_weight must not add feature names to the vocabulary.
        reader, rows, _ = fit_reader(weights)
    base = read_base_scores(base_scores, chains, len(labels.classes), flat=flat)
    numbers = None if groups is None else read_groups(groups, chains.n_samples)
    every = LabelledSequences(
        rows, chains, indices, len(labels.classes), allowed, weights, legal, base, groups=numbers, soft=soft
    )
    data = every.only_weighted()
    if prior is None and not data.chains.n_nodes:
        raise ValueError(
            "sample_weight and class_weight give every token the weight 0: expected at least one sequence that "
            "has tokens and a weight above 0"
        )

    def by_scale(name: str) -> float:
        return gamma_by_scale(data.rows(name), names=reader.names_of(name))

    weighted = data
    if of_tokens is not None:
        every_weight = of_tokens.tokens(chains)
        if soft is not None:
            raise ValueError(
                "sample_weight has weights of tokens, which cannot be combined with soft labels: pass one weight per "
                "sequence, or change the probabilities of the tokens"
            )
        kept = slice(None) if weights is None else np.repeat(weights > 0, chains.lengths)
        weighted = data.with_token_weights(every_weight[kept])
    return TrainingData(reader, labels, legal, weighted, by_scale, data.chains.n_nodes)
