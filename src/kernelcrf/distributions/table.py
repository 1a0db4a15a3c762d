"""The distribution of the missing values of table rows, given the known values of each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.distributions.base import Distribution, read_only
from kernelcrf.models.base import rng_of
from kernelcrf.models.label_sets import TableModel, pair_name, variable_name
from kernelcrf.models.network import NetworkField
from kernelcrf.validation import SEED, SIZE, either, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableDistribution(Distribution):
    """The distribution of the missing values of rows, given their known values.

    `MarkovNetwork.distribution` returns it. If all values of a row are missing, it is the distribution of whole rows.

    model : the fitted model.
    field : the scores of all values of single variables and of pairs of variables. If a value is known, the other
        values of its variable are impossible.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import MarkovNetwork
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(3, size=500)
    >>> table = np.column_stack((a, (a + rng.integers(2, size=500)) % 3, rng.integers(2, size=500)))
    >>> distribution = MarkovNetwork().fit(table).distribution([[2, None, 0]])
    >>> distribution.marginals()[1].round(2), distribution.entropy().round(2)
    (array([[0.52, 0.01, 0.47]]), array([0.75]))
    >>> [(row.tolist(), round(log_p, 2)) for row, log_p in distribution.k_best(2)[0]]
    [([2, 0, 0], -0.65), ([2, 2, 0], -0.76)]
    >>> distribution.log_prob([[2, 0, 0]]).round(2), distribution.decode().tolist()
    (array([-0.65]), [[2, 0, 0]])
    >>> distribution.sample(3, random_state=0).shape, distribution.edge_marginals()[0].shape
    ((3, 1, 3), (1, 3, 3))
    """

    model: TableModel
    field: NetworkField

    @property
    def n_samples(self) -> int:
        return self.field.n_samples

    @property
    def classes(self) -> list[Array]:
        """Return the values of each variable."""
        return self.model.categories

    @property
    def shape(self) -> tuple[int, ...]:
        return self.n_samples, self.model.n_features, max(map(len, self.classes))

    @cached_property
    def probabilities(self) -> Array:
        """Return the probabilities as a read-only array [row, variable, value].

        If a variable has fewer values than another one, the entries after its last value are 0.
        """
        return read_only(self.model.marginals(self.field))

    @cached_property
    def best(self) -> Labels:
        return read_only(self.field.best())

    def marginals(self) -> list[Floats]:
        """Return one array per variable, with one row per row of X and one column per value of the variable."""
        return [self.field.marginals(variable_name(v)).copy() for v in range(self.model.n_features)]

    def edge_marginals(self) -> list[Floats]:
        """Return, for each pair (u, v) of variables in `edges_`, an array [row, value of u, value of v]."""
        sizes = [len(values) for values in self.classes]
        return [
            self.field.marginals(pair_name(u, v)).reshape(-1, sizes[u], sizes[v]) for u, v in self.model.edges.tolist()
        ]

    def log_prob(self, y: UserData) -> Floats:
        """Return the log-probability of each row of y, given the known values of X; -inf if the row contradicts them.

        If y has missing values, this is the log-probability of its known values.
        """
        labels = self.model.reader.read(y)
        if len(labels) != self.n_samples:
            raise ValueError(f"y has {len(labels)} rows and X has {self.n_samples}: expected one row of y per row of X")
        return self.field.log_prob(labels)

    def entropy(self) -> Floats:
        return self.field.entropy()

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> Array:
        """Return `n_samples` draws of the missing values of all rows, as an array [draw, row, variable]."""
        draws = self.field.sample(n_samples, rng_of(random_state))
        return np.stack([self._name_labels(one) for one in draws.transpose(1, 0, 2)])

    @validated(k=either(SIZE))
    def k_best(self, k: int = 1) -> list[list[tuple[Array, float]]]:
        """Return the k likeliest completions of each row with their log-probabilities, best first."""
        ranked = self.field.k_best(k)
        return [list(zip(self._name_labels(labels), log_p, strict=True)) for labels, log_p in ranked]

    def _name_labels(self, indices: Labels) -> Array:
        return self.model.reader.decode(indices)
