"""The base class of distributions p(y|x) of the labels y of given samples x."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.decoding import RULES, DecodingRule, find_rule, rules_for
from kernelcrf.validation import shown


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Distribution:
    """Base class of distributions p(y|x) of the labels y of given samples x.

    The results of inference are stored, so that several methods share one computation.

    rule : the decoding rule, or its name, that `decode` uses if none is passed.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.distributions import Distribution
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, random_state=0).fit(data.X, data.y)
    >>> distribution = crf.distribution(data.X)
    >>> isinstance(distribution, Distribution), distribution.n_samples, distribution.rule
    (True, 30, 'auto')
    >>> distribution.probabilities.shape == distribution.shape, distribution.best.shape == distribution.shape[:-1]
    (True, True)
    """

    rule: str | DecodingRule

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_samples={self.n_samples})"

    @property
    def n_samples(self) -> int:
        """Return the number of samples, such as sequences."""
        raise NotImplementedError

    @property
    def classes(self) -> Any:
        """Return the labels, in the order of the last axis of `probabilities`."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of `probabilities`."""
        raise NotImplementedError

    @cached_property
    def probabilities(self) -> Array:
        """Return the probability of each label of each token, node or row, as one array that cannot be changed.

        The last axis has the labels. The tokens of all sequences, or the nodes of all graphs, are one after the other.
        """
        raise NotImplementedError

    @cached_property
    def best(self) -> Labels:
        """Return the likeliest labelling of each sample as indices, in the shape of `probabilities[..., 0]`."""
        raise NotImplementedError

    def cheapest(self, costs: Floats) -> Labels:
        """Return the labelling with the smallest sum of costs, as indices in the shape of `probabilities[..., 0]`.

        A ChainCRF with constraints returns the best of the labellings that are allowed.

        costs : the cost of each label, in the shape of `probabilities`.
        """
        return np.asarray(costs.argmin(axis=-1), np.int32)

    def marginals(self) -> Any:
        """Return the probabilities of the labels, in the format of `predict_proba`."""
        raise NotImplementedError

    def log_prob(self, y: UserData) -> Floats:
        """Return log p(y|x) of each sample; if labels are missing, return the log-probability of the known labels."""
        raise NotImplementedError

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) in nats, -sum_y p(y|x) log p(y|x), for each sample."""
        raise NotImplementedError

    def decode(self, rule: str | DecodingRule | None = None) -> Any:
        """Return the labels that a rule chooses, in the format of `predict`.

        rule : the name of a rule, such as "viterbi" or "marginal", or a rule of `kernelcrf.decoding`. None means the
            parameter `decoding` of the estimator or, if it has none, "viterbi".
        """
        return self._name_labels(self.decode_indices(rule))

    def decode_indices(self, rule: str | DecodingRule | None = None) -> Labels:
        """Return the labels that a rule chooses, as integers (indices of labels) in the shape of `best`.

        rule : as in `decode`.
        """
        # The estimator has checked its own rule.
        chosen = find_rule(self.rule if rule is None else rules_for(type(self)).check("rule", rule))  # type: ignore[arg-type]
        indices = np.asarray(chosen.decode(self))
        if type(chosen) in RULES.values():
            return indices
        *expected, L = self.shape
        if indices.shape != tuple(expected) or not np.issubdtype(indices.dtype, np.integer):
            raise ValueError(
                f"decode of {shown(chosen)} returned an array of shape {indices.shape} and dtype {indices.dtype}: "
                f"expected integers of shape {tuple(expected)}, one per token, node or label"
            )
        if indices.size and not (indices.min() >= 0 and indices.max() < L):
            raise ValueError(
                f"decode of {shown(chosen)} returned integers from {indices.min()} to {indices.max()}: expected "
                f"indices of labels, from 0 to {L - 1}"
            )
        return indices

    def _name_labels(self, indices: Labels) -> Any:
        """Convert indices of labels, in the shape of `best`, to labels in the format of `predict`."""
        raise NotImplementedError


def read_only(values: Array) -> Array:
    """Make an array read-only, and return it."""
    values.flags.writeable = False
    return values
