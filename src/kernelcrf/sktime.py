"""A detector of sktime that learns from labelled events. It needs the extra `sktime`; no other module imports it."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.arrays import UserData
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.segments import SegmentCRF
from kernelcrf.validation import shown

try:
    import pandas as pd
    from sktime.detection.base import BaseDetector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"CRFSegmenter needs {error.name}, which is not installed: run pip install 'kernelcrf[sktime]'", name=error.name
    ) from None


class CRFSegmenter(BaseDetector):  # type: ignore[misc]
    """Divide a time series into labelled segments by a ChainCRF or SegmentCRF, as a detector of sktime.

    The events that sktime passes as y are intervals with labels. `predict` returns such intervals, one after the
    other, for the whole series.

    Parameters
    ----------
    estimator : ChainCRF, SegmentCRF or FrozenEstimator
        `fit(X, y)` fits a copy to one series and its events. FrozenEstimator(model), where `model` is fitted to many
        series already, stays as it is, and `fit` needs no events.
    background : hashable, default=-1
        The label of time points that are in no event. sktime calls -1 "unclassified".

    Attributes
    ----------
    estimator_ : the fitted estimator.

    Examples
    --------
    >>> import pandas as pd
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.sktime import CRFSegmenter
    >>> X = pd.Series([0.1, 0.0, 2.1, 2.0, 0.2, 0.0, 0.1, 1.9, 2.2, 0.1])
    >>> events = pd.DataFrame({"ilocs": pd.IntervalIndex.from_tuples([(2, 4), (7, 9)], closed="left"), "labels": 1})
    >>> segmenter = CRFSegmenter(ChainCRF("linear", C=10.0)).fit(X, events)
    >>> segmenter.predict(pd.Series([0.0, 0.1, 2.0, 2.1, 1.8]))
        ilocs  labels
    0  [0, 2)      -1
    1  [2, 5)       1
    >>> segmenter.predict_scores(pd.Series([0.0, 0.1, 2.0, 2.1, 1.8])).round(1)["probability"].tolist()
    [0.9, 0.9]
    """

    _tags = {  # noqa: RUF012
        "authors": ["The kernelcrf developers"],
        "task": "segmentation",
        "learning_type": "supervised",
        "capability:multivariate": True,
        "X_inner_mtype": "pd.DataFrame",
    }

    def __init__(self, estimator: UserData, background: UserData = -1) -> None:
        self.estimator = estimator
        self.background = background
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: UserData = None) -> CRFSegmenter:
        self.estimator_ = clone(self.estimator)
        if isinstance(self.estimator_, FrozenEstimator):
            return self
        if not isinstance(self.estimator_, ChainCRF | SegmentCRF):
            raise TypeError(
                f"estimator is {shown(self.estimator)}: expected a ChainCRF, a SegmentCRF, or FrozenEstimator(model) "
                "with a fitted model"
            )
        if y is None:
            raise ValueError(
                "y is None: expected the events of X, a data frame with the columns 'ilocs' and 'labels'; or pass "
                "CRFSegmenter(FrozenEstimator(model)) with a fitted model"
            )
        labels = label_points(y, len(X), self.background)
        if self.estimator_.classes is None:
            self.estimator_.set_params(classes=sorted(set(labels)))  # so that -1 is a class, and not a missing label
        self.estimator_.fit([X], [labels])
        return self

    def _update(self, X: pd.DataFrame, y: UserData = None) -> CRFSegmenter:
        raise NotImplementedError(
            "CRFSegmenter has no update: sktime would mix events of both series; fit again instead"
        )

    def _predict(self, X: pd.DataFrame | pd.Series) -> pd.DataFrame:
        spans = self._spans(X)
        ilocs = pd.IntervalIndex.from_tuples(
            [(span.start, span.end) for span in spans], closed="left", dtype="interval[int64, left]"
        )
        return pd.DataFrame({"ilocs": ilocs, "labels": [span.label for span in spans]})

    def _predict_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the probability that the series has exactly the predicted segment, one row per segment."""
        return pd.DataFrame({"probability": [span.probability for span in self._spans(X)]})

    def _transform_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the probability of each label, one row per time point and one column per label."""
        return pd.DataFrame(self.estimator_.predict_proba([X])[0], X.index, self.estimator_.classes_)

    def _spans(self, X: pd.DataFrame | pd.Series) -> list[PredictedSpan]:
        frame = pd.DataFrame(X)  # predict_segments of sktime passes a Series as it is
        return list(self.estimator_.distribution([frame]).spans()[0])

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return parameters for the checks of sktime, which fit without events, so that the models are fitted here."""
        X, labels = [pd.DataFrame([0.0, 0.1, 3.0, 3.1, 0.2])], [[1, 1, 2, 2, 1]]
        models = ChainCRF("linear", C=1.0), SegmentCRF("linear", C=1.0)
        return [{"estimator": FrozenEstimator(model.fit(X, labels))} for model in models]


def label_points(events: UserData, length: int, background: UserData) -> list[Any]:
    """Return the label of each time point of a series, given its events as sktime passes them."""
    kind = getattr(events["ilocs"], "dtype", None) if isinstance(events, pd.DataFrame) and "ilocs" in events else None
    if not isinstance(kind, pd.IntervalDtype) or kind.closed != "left":
        raise TypeError(
            f"y is {shown(events)}: expected a data frame whose column 'ilocs' has left-closed intervals, such as "
            "pd.IntervalIndex.from_tuples([(2, 4)], closed='left'), and whose column 'labels' has their labels"
        )
    intervals = pd.IntervalIndex(events["ilocs"])
    if intervals.is_overlapping or not ((intervals.left >= 0) & (intervals.right <= length)).all():
        raise ValueError(
            f"y has intervals that overlap, or that end outside of the {length} time points of X: expected disjoint "
            f"intervals from 0 to {length}; each time point has one label"
        )
    points = [background] * length
    labels = events["labels"].tolist() if "labels" in events else [1] * len(events)
    for start, end, label in zip(intervals.left, intervals.right, labels, strict=True):
        points[int(start) : int(end)] = [label] * int(end - start)
    if len({isinstance(label, str) for label in points}) > 1:
        raise TypeError(
            f"background={shown(background)}, but labels of y are of another kind: expected a label of the same kind, "
            "such as background='none' for strings"
        )
    return points
