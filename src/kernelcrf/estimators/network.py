"""What the estimators on networks share: the fit or the search, what is kept of it, and its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.saved import SavedEstimator
from kernelcrf.estimators.settings import progress, warn_where_short
from kernelcrf.laplace import Laplace, laplace
from kernelcrf.networks import Network, NetworkFit, Settings, fit
from kernelcrf.structure_search import Search, SearchSettings, search

COVERS = {
    "exact": "the negative log posterior",
    "loopy": "an upper bound on the negative log posterior, by tree-reweighted messages",
    "gibbs": "the negative log pseudo-likelihood, with the same prior",
}
"""What the objective of a fit is, by the way of inference."""


class NetworkEstimator(SavedEstimator):
    """The part of an estimator that does not depend on what its samples are."""

    laplace: bool
    structure_tol: float
    min_gain: float | None
    solver: str
    tol: float
    max_iter: int
    n_jobs: int | None
    verbose: int

    certificate_: Certificate
    search_: Search | None
    n_iter_: int
    _laplace: Laplace | None

    def log_marginal_likelihood(self) -> float:
        """Log p(y | X) of the training data by Laplace's approximation; needs `laplace=True`."""
        check_is_fitted(self)
        if self._laplace is None:
            raise AttributeError(
                f"this {type(self).__name__} was fitted with laplace=False, and has no evidence: "
                "fit it with laplace=True"
            )
        return self._laplace.log_evidence

    def _fit_network(
        self, network: Network, present: Sequence[str], others: Sequence[str], seed: int, *, learn: bool
    ) -> NetworkFit:
        """Solve with the templates present and all others, or with those of the others that a search lets join.

        seed : where a fit with missing labels starts.
        """
        settings, engine = Settings(self.solver, float(self.tol), int(self.max_iter), seed), self._engine
        self.search_ = None
        with progress(type(self).__name__, self.verbose) as callback:
            if learn:
                rule = SearchSettings(
                    float(self.structure_tol), None if self.min_gain is None else float(self.min_gain)
                )
                fitted, self.search_ = search(network, present, others, settings, rule, engine, callback)
            else:
                fitted = fit(network, [*present, *others], settings, engine, callback)
        warn_where_short(fitted.certificate, fitted.solution.history[-1], self.tol)
        self.certificate_, self.n_iter_ = fitted.certificate, fitted.solution.n_iter
        self._laplace = laplace(fitted.objective, fitted.solution.evaluation) if self.laplace else None
        return fitted

    @property
    def _engine(self) -> LocalEngine:
        return LocalEngine(1 if self.n_jobs is None else self.n_jobs)

    @property
    def _n_threads(self) -> int:
        return self._engine.n_threads


def is_learned(structure: Any) -> bool:
    """Whether a user asks for structure search."""
    return isinstance(structure, str) and structure == "auto"
