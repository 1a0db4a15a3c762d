"""The relative residual of a basis, tr(K - F F') / tr K, against the number n of landmarks.

The first k columns of F belong to a basis of the first k landmarks, so one F gives the whole curve:

    residual(k) = 1 - sum_{j <= k} |F_j|^2 / tr K.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import UserData
from kernelcrf.basis.distinct import distinct
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.plotting.axes import BLUE, Display, Estimator, MaybeAxes, verbatim_legend


class ResidualDisplay(Display):
    """The share `residual` (n + 1,) of the trace that 0, ..., n landmarks leave out.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.plotting import ResidualDisplay
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF(n_components=30, random_state=0).fit(data.X, data.y)
    >>> display = ResidualDisplay.from_estimator(crf, data.X)
    >>> display.residual.shape, bool(display.residual[-1] < 0.01)
    ((31,), True)
    """

    def __init__(self, residual: npt.ArrayLike) -> None:
        self.residual = np.asarray(residual, np.float64)
        if self.residual.ndim != 1 or self.residual.size < 2:
            raise ValueError(f"residual has shape {self.residual.shape}: expected (n + 1,), for 0 to n landmarks")

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: UserData, *, name: str | None = None, ax: MaybeAxes = None
    ) -> ResidualDisplay:
        """Draw the residual of the landmarks of a fitted ChainCRF on the distinct tokens of sequences X."""
        check_is_fitted(estimator)
        if not isinstance(estimator.model_.map, WhitenedMap):
            raise ValueError("kernel='linear' has no landmarks: fit a model with a basis, such as kernel='rbf'")
        inputs = distinct(estimator.model_.reader.read(X)[0]).inputs
        F = estimator.model_.map.transform(inputs, LocalEngine(estimator.n_jobs))
        trace = float(np.asarray(estimator.kernel_.diagonal(inputs), np.float64).sum())
        kept = np.cumsum(np.einsum("un,un->n", F, F, dtype=np.float64))
        return cls(np.maximum(1 - np.concatenate(([0.0], kept)) / trace, 0)).plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ResidualDisplay:
        """Draw on `ax` with a logarithmic scale; `name` names the curve."""
        color = BLUE if ax is None else None
        ax = self._use(ax)
        shown = np.where(self.residual > 0, self.residual, np.nan)
        (self.line_,) = ax.plot(shown, color=color, label=name)
        ax.set(yscale="log", xlabel="landmarks n", ylabel="relative residual, tr(K − F Fᵀ) / tr K")
        ax.grid(True, which="both", alpha=0.25)
        if name is not None:
            verbatim_legend(ax)
        return self
