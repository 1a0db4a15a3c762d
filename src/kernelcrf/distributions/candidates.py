"""The distribution p(c|x) of the candidates of sequences; `models.candidates` has its formula."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.distributions.sequences import SequenceDistribution
from kernelcrf.models.candidates import CandidateModel, log_probabilities
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.candidates import CandidateData
from kernelcrf.readers.containers import Ragged


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CandidateDistribution(SequenceDistribution):
    """The distribution p(c|x) of the candidates of sequences, as `CandidateCRF.distribution` returns it.

    Labels are numbers of candidates. A candidate that a token does not have, because other tokens have more, has the
    probability 0.

    data : the sequences, as the model has read them.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import CandidateCRF
    >>> X = [[[[0.0], [1.0]], [[1.0], [0.2], [0.1]]], [[[0.9], [0.3]]]]  # features of the candidates of each token
    >>> crf = CandidateCRF("linear", C=10.0).fit(X, [[1, 0], [0]])
    >>> distribution = crf.distribution(X)
    >>> [p.shape for p in distribution.marginals()[0]], distribution.entropy().shape
    ([(2,), (3,)], (2,))
    >>> distribution.decode()[0].tolist(), distribution.log_prob([[1, 0], [0]]).shape
    ([1, 0], (2,))
    >>> [labels.tolist() for labels, log_p in distribution.k_best(2)[1]]
    [[0], [1]]
    """

    model: CandidateModel  # type: ignore[assignment]
    field: ChainField
    data: CandidateData

    @property
    def classes(self) -> Array:
        return np.arange(self.data.most)

    def marginals(self) -> list[list[Array]]:  # type: ignore[override]
        """Return one list per sequence, with one array per token: entry c is the probability of its candidate c."""
        rows = [p[:n] for p, n in zip(self.probabilities.copy(), self.data.counts.tolist(), strict=True)]
        return Ragged(rows[low:high] for low, high in pairwise(self.chains.offsets.tolist()))

    def labelled_marginals(self) -> list[list[dict[Any, float]]]:
        """Return one list per sequence: one dict per token, from numbers of candidates to probabilities."""
        return Ragged([dict(enumerate(p.tolist())) for p in tokens] for tokens in self.marginals())

    def read_tokens(self, y: UserData) -> list[UserData]:
        """Return the numbers of the right candidates of all tokens in one list; -1 if it is not known."""
        labels: list[UserData] = self.model.reader.read_labels(y, self.data).tolist()
        return labels

    def log_prob(self, y: UserData) -> Floats:
        """Return log p(c|x) of the candidates y of each sequence, or of those that are known."""
        return log_probabilities(self.field, self.model.reader.read_labels(y, self.data))

    def _name_labels(self, indices: Labels) -> list[Array]:
        return Ragged.cut(np.asarray(indices, np.int64), self.chains.offsets)
