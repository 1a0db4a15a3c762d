"""The distribution p(y|x) of the label sets of rows; `estimators.multilabel` has the formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Labels, NamedInputs, UserData
from kernelcrf.distributions.base import Distribution, read_only
from kernelcrf.engines.local import LocalEngine
from kernelcrf.models.base import rng_of
from kernelcrf.models.label_sets import LabelSetModel, pair_name
from kernelcrf.models.network import NetworkField
from kernelcrf.validation import SEED, SIZE, either, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelSetDistribution(Distribution):
    """The distribution p(y|x) of the label sets of rows, as `MultiLabelCRF.distribution` returns it.

    The last axis of `probabilities` says whether a row has a label: index 1 if it does, and 0 if it does not. Many rows
    are divided into blocks, to save memory; each method then runs inference on every block.

    model : the fitted model.
    rows : the inputs, as the model has read them.
    base : base scores, as the model has read them, or None.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import MultiLabelCRF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5))
    >>> Y = (X[:, :3] + rng.normal(size=(300, 3)) > 0).astype(int)
    >>> Y[:, 1] = np.where(rng.random(300) < 0.8, Y[:, 0], Y[:, 1])  # the second label follows the first
    >>> model = MultiLabelCRF("linear", random_state=0).fit(X, Y)
    >>> distribution = model.distribution(X[:2])
    >>> [(labels.tolist(), round(log_p, 2)) for labels, log_p in distribution.k_best(2)[0]]
    [([0, 0, 1], -1.08), ([1, 1, 1], -1.2)]
    >>> distribution.log_prob(Y[:2]).round(1), distribution.entropy().round(1)
    (array([-4.1, -2.5]), array([1.6, 1.5]))
    >>> distribution.marginals().shape, distribution.edge_marginals().shape, distribution.probabilities.shape
    ((2, 3), (2, 1, 2, 2), (2, 3, 2))
    >>> distribution.sample(3, random_state=0).shape, distribution.decode("marginal").tolist()
    ((3, 2, 3), [[0, 0, 1], [1, 1, 1]])
    """

    model: LabelSetModel
    rows: Inputs | NamedInputs
    engine: LocalEngine
    base: Mapping[str, Array] | None = None

    @property
    def n_samples(self) -> int:
        return int(self.rows.shape[0])

    @property
    def classes(self) -> Array:
        """Return the indices of the labels or, if the y passed to `fit` was one-dimensional, its two values."""
        return self.model.sets.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.n_samples, len(self.model.sets.values), 2

    @cached_property
    def _only_field(self) -> NetworkField:
        """Return the random field of all rows; raise ValueError if each of several blocks has its field."""
        (field,) = self.model.fields(self.rows, self.engine, self.base)
        return field

    def _fields(self) -> Iterator[NetworkField]:
        """Yield one field per block of rows; a field has the scores of all rows of its block.

        If there is only one block, every call yields the same field, so that results of inference are shared.
        """
        if self.n_samples <= self.model.block_size:
            yield self._only_field
        else:
            yield from self.model.fields(self.rows, self.engine, self.base)

    @cached_property
    def probabilities(self) -> Array:
        return read_only(np.concatenate([self.model.marginals(field) for field in self._fields()]))

    @cached_property
    def best(self) -> Labels:
        return read_only(np.concatenate([field.best() for field in self._fields()]))

    def marginals(self) -> Floats:
        """Return the probability that each row has each label, with one row per row of X and one column per label.

        If the y passed to `fit` was one-dimensional, the result has one column for each of its two values.
        """
        p = self.probabilities
        return np.array(p[:, 0] if self.model.sets.one_column else p[:, :, 1])

    def edge_marginals(self) -> Floats:
        """Return an array [row, pair, i, j] with the joint probabilities of the pairs of labels in `edges_`.

        i and j are 1 if the row has the first and the second label of the pair, and 0 if it does not.
        """
        pairs = [pair_name(*pair) for pair in self.model.edges.tolist()]
        blocks = [[field.marginals(pair) for pair in pairs] for field in self._fields()]
        joined = [np.concatenate(tables) for tables in zip(*blocks, strict=True)]
        return np.stack([np.empty((self.n_samples, 4)), *joined], axis=1)[:, 1:].reshape(self.n_samples, -1, 2, 2)

    def log_prob(self, y: UserData) -> Floats:
        labels = self.model.sets.read(y)
        if self.n_samples != len(labels):
            raise ValueError(f"y has {len(labels)} rows and X has {self.n_samples}: expected one row of y per row of X")
        ends = [*range(0, max(self.n_samples, 1), self.model.block_size), self.n_samples]
        parts = zip(self._fields(), pairwise(ends), strict=True)
        return np.concatenate([field.log_prob(labels[low:high]) for field, (low, high) in parts])

    def entropy(self) -> Floats:
        return np.concatenate([field.entropy() for field in self._fields()])

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> Array:
        """Return `n_samples` draws from p(y|x) for all rows; each draw has the format of the y passed to `fit`."""
        rng = rng_of(random_state)
        draws = np.concatenate([field.sample(n_samples, rng) for field in self._fields()])
        return np.stack([self._name_labels(one) for one in draws.transpose(1, 0, 2)])

    @validated(k=either(SIZE))
    def k_best(self, k: int = 1) -> list[list[tuple[Array, float]]]:
        """Return the k likeliest label sets of each row with their log-probabilities, best first."""
        ranked = (one for field in self._fields() for one in field.k_best(k))
        return [list(zip(self._name_labels(labels), log_p, strict=True)) for labels, log_p in ranked]

    def _name_labels(self, indices: Labels) -> Array:
        return self.model.sets.decode(indices.astype(np.intp))
