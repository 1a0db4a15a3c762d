"""The base class of distributions of the labels of sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernelcrf.answers.accepted_labels import PREDICATE, accepted
from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.distributions.base import Distribution, read_only
from kernelcrf.graphs.structure import Chains
from kernelcrf.models.base import rng_of
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.chain_field import ChainField
from kernelcrf.models.segments import SegmentField
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.weights import TokenWeights, score_weights
from kernelcrf.validation import SEED, SIZE, either, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SequenceDistribution(Distribution):
    """Base class of distributions of the labels of sequences.

    model : the fitted model.
    field : the scores of all labellings, with labels as indices.
    is_flat : whether X was passed with `lengths`, so that y is one list of the labels of all tokens.
    """

    model: ChainModel
    field: ChainField | SegmentField
    is_flat: bool

    @property
    def chains(self) -> Chains:
        """Return the ranges of the tokens of each sequence, as a Chains object."""
        return self.field.chains

    @property
    def n_samples(self) -> int:
        return self.chains.n_samples

    @property
    def classes(self) -> Array:
        return self.model.labels.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.chains.n_nodes, len(self.classes)

    @cached_property
    def probabilities(self) -> Array:
        return read_only(self.field.marginals())

    @cached_property
    def best(self) -> Labels:
        return read_only(self.field.best())

    def marginals(self) -> list[Array]:
        """Return one array per sequence, with one row per token: entry [t, j] is p(y_t = classes[j] | x)."""
        return Ragged.cut(self.probabilities.copy(), self.chains.offsets)

    def labelled_marginals(self) -> list[list[dict[Any, float]]]:
        """Return one list per sequence, in the format of CRFsuite: one dict per token, from labels to probabilities."""
        classes = self.classes.tolist()
        cut = Ragged.cut(self.probabilities, self.chains.offsets)
        return Ragged([dict(zip(classes, row, strict=True)) for row in p.tolist()] for p in cut)

    def read_tokens(self, y: UserData) -> list[UserData]:
        """Return the labels y of all tokens in one list."""
        return self.model.read_tokens(y, self.chains, flat=self.is_flat)

    def log_prob(self, y: UserData) -> Floats:
        return self.field.log_prob(*self.model.labels.encode(self.read_tokens(y), self.chains))

    def entropy(self) -> Floats:
        return self.field.entropy()

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> list[Array]:
        """Return labels drawn from p(y|x): one array per sequence, with one row per draw and one column per token."""
        draws = self.classes[self.field.sample(n_samples, rng_of(random_state))]
        return Ragged.cut(draws, self.chains.offsets, axis=1)

    @validated(k=either(SIZE), where=PREDICATE, max_tried=either(SIZE))
    def k_best(
        self, k: int = 1, *, where: Callable[[Array], object] | None = None, max_tried: int = 1000
    ) -> list[list[tuple[Array, float]]]:
        """Return the k likeliest labellings of each sequence with their log-probabilities, best first.

        where : a function that takes the labels of one sequence, as an array, and returns whether to accept them. The
            labellings of each sequence are tried from the likeliest on, until k of them are accepted.
        max_tried : the largest number of labellings of a sequence that `where` is called with. If too few of them are
            accepted, the list of the sequence is shorter than k, or empty.
        """
        classes = self.classes
        ranked = self.field.k_best(k) if where is None else accepted(self.field, classes, k, where, max_tried)
        return Ragged([(classes[y], log_p) for y, log_p in one] for one in ranked)

    def spans(self) -> list[list[PredictedSpan]]:
        """Return spans with their probabilities, one list per sequence."""
        raise NotImplementedError

    def span_table(self, **options: Any) -> Any:
        """Return the result of the method `spans` as a pandas.DataFrame, with one row per span.

        The columns are sequence (the index of the sequence in X), start, end, label, probability and certified. The
        last column is None unless certify=True is passed.

        options : the options of `spans`, such as threshold=0.5.
        """
        columns = ["sequence", *PredictedSpan._fields]
        rows = [(i, *span) for i, spans in enumerate(self.spans(**options)) for span in spans]
        return data_frame("span_table", "spans", rows, columns=columns)

    def _name_labels(self, indices: Labels) -> list[Array]:
        return self.model.labels.decode(indices, self.chains)


def count_right(
    distribution: SequenceDistribution,
    y: UserData,
    sample_weight: UserData = None,
    lengths: UserData = None,
    *,
    part: bool = False,
) -> tuple[float, float]:
    """Return the number of tokens whose known label is predicted right, and the number of tokens with a known label.

    Tokens count with their weights.

    y : the labels of the sequences.
    sample_weight : one weight per sequence, or a list of arrays with one weight per token.
    lengths : the lengths of the sequences, if X and y were passed with them.
    part : whether these sequences are a part of the data, so that there need be no label to count.
    """
    predicted, tokens = distribution.decode_indices(), distribution.read_tokens(y)
    right, known = distribution.model.labels.compare(predicted, tokens)
    if part and not known.any():
        return 0.0, 0.0
    of_tokens = TokenWeights.read(sample_weight, lengths, part=part)
    weights = score_weights(sample_weight, distribution.chains, known, "sequence", of_tokens, part=part)
    return float(np.multiply(right[known], weights).sum()), float(weights.sum())
