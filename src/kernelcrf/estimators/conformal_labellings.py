"""Conformal prediction of whole labellings of sequences."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np
from sklearn.utils import _safe_indexing

from kernelcrf.answers.conformal_thresholds import SLACK, LabellingSet
from kernelcrf.arrays import Flags, Floats, Ints, UserData
from kernelcrf.estimators.conformal import Conformal, estimator_with, read_truth
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.validation import SHARE, either, stacklevel_of_user, whole

# The number of labellings that are decoded first; it is doubled for sequences whose sets have more.
FIRST_SIZE = 8


@dataclass(eq=False, repr=False)
class ConformalLabellings(Conformal):
    """Predict a set of whole labellings per sequence, which contains the true labelling with a chosen probability.

    The set has all labellings with log p(y|x) >= -threshold_. There are at most exp(threshold_) such labellings, and
    there may be none.

    Parameters
    ----------
    estimator : estimator with the methods log_prob and distribution
        A fitted ChainCRF, SegmentCRF, ChainOver, GraphCRF or MultiLabelCRF, or a Pipeline that ends with one of them.
    confidence_level : float, default=0.9
        Probability that the set of a new sequence contains its true labelling, between 0 and 1.
    max_size : int, default=1000
        Largest number of labellings to return per sequence. If a set has more, it is cut, its `is_complete` is False,
        and there is a warning. The guarantee then says that the true labelling is in the set or the set is cut.

    Attributes
    ----------
    threshold_ : the largest -log p(y|x) of labellings in a set. It is infinite if there are too few calibration data
        for the level, and then sets have all labellings that are possible.
    n_calibration_ : the number of sequences or groups that determined the threshold, without sequences that have a
        missing label.
    classes_ : the labels.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, ConformalLabellings
    >>> from kernelcrf.datasets import make_sequences
    >>> train, held_out, new = (make_sequences(n, random_state=seed) for seed, n in enumerate((60, 200, 200)))
    >>> crf = ChainCRF(C=1.0, n_components=100, random_state=0).fit(train.X, train.y)
    >>> sets = ConformalLabellings(crf, confidence_level=0.5).conformalize(held_out.X, held_out.y)
    >>> found = sets.predict_set(new.X)
    >>> [(labels.tolist(), round(log_p, 2)) for labels, log_p in found[1]], found[1].is_complete
    ([([2, 2, 2, 0, 0, 0, 0, 0, 0], -1.04), ([2, 2, 0, 0, 0, 0, 0, 0, 0], -1.07)], True)
    >>> sum(any((labels == y).all() for labels, _ in one) for one, y in zip(found, new.y))  # sets with the truth
    105
    """

    estimator: Annotated[
        Any,
        estimator_with(
            "log_prob",
            "distribution",
            advice="such as ChainCRF; for TemperatureScaling, pass its estimator_",
        ),
    ]
    _: KW_ONLY
    confidence_level: Annotated[float, SHARE] = 0.9
    max_size: Annotated[int, either(whole(least=1, most=2**31 - 2))] = 1000

    control = "all"

    def predict_set(self, X: UserData) -> list[LabellingSet]:
        """Return, for each sequence, a list of labellings with their log-probabilities, best first, as `k_best` does.

        Each list has the attribute `is_complete`, which is False if the set was cut at `max_size` labellings.
        """
        self._validate_params("max_size")
        model, X, threshold = self._open_calibrated(X)
        lowest = -threshold - SLACK * max(threshold, 1.0)
        size = min(FIRST_SIZE, self.max_size + 1)
        ranked = list(model.distribution(X).k_best(size))

        def unfinished() -> list[int]:
            return [i for i, one in enumerate(ranked) if len(one) == size and one[-1][1] >= lowest]

        while size <= self.max_size and (open_ := unfinished()):
            size = min(2 * size, self.max_size + 1)
            distribution = model.distribution(_safe_indexing(X, open_))
            for i, one in zip(open_, distribution.k_best(size), strict=True):
                ranked[i] = one
        cut = set(unfinished()) if size > self.max_size else set()
        if cut:
            few = "calibrate with more sequences" if threshold == np.inf else "increase max_size"
            warnings.warn(
                f"{len(cut)} of {len(ranked)} sets have more than max_size={self.max_size} labellings and were cut "
                f"(their attribute is_complete is False): {few}, or lower confidence_level",
                stacklevel=stacklevel_of_user(),
            )
        return Ragged(
            LabellingSet([pair for pair in one[: self.max_size] if pair[1] >= lowest], i not in cut)
            for i, one in enumerate(ranked)
        )

    def _scores(self, model: Any, X: UserData, y: UserData) -> tuple[Floats, Ints, Flags]:
        distribution = model.distribution(X)
        scores, best = -distribution.log_prob(y), [one[0][0] for one in distribution.k_best()]
        truth, samples = read_truth(model, y, [np.size(one) for one in best], any(np.ndim(one) == 0 for one in best))
        complete = np.bincount(samples[(truth == UNKNOWN).any(axis=1)], minlength=len(scores)) == 0
        return scores[complete], np.flatnonzero(complete), complete
