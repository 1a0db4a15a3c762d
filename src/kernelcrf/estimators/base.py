"""What the estimators share: kernels as users name them, seeds, progress, the fit itself and what is kept of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelcrf.basis.features import FeatureMap
from kernelcrf.certificate import Certificate
from kernelcrf.checkpoints import Checkpoint, problem_of, shown_text
from kernelcrf.corpora.corpus import Data
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.posterior import ScorePosterior
from kernelcrf.estimators.saved import SavedEstimator
from kernelcrf.estimators.settings import input_kernel, progress, warn_where_short
from kernelcrf.evidence import FIRST_C, choose_C, choose_kernel
from kernelcrf.fitting import Fit, Settings, Start, fit
from kernelcrf.graphs.structure import Legal
from kernelcrf.kernels.inputs import InputKernel, Inputs
from kernelcrf.laplace import N_DRAWS, Laplace, laplace
from kernelcrf.parameters import Layout
from kernelcrf.persistence import ModelFileError
from kernelcrf.solvers import Record
from kernelcrf.validation import SEED, SIZE, either, nothing, one_of, real

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

POSTERIOR = either(one_of("map", "laplace"))
N_SAMPLES = 100
DRAWS = {"n_samples": either(SIZE, nothing), "random_state": SEED}
OF_POSTERIORS = {**DRAWS, "variance_temperature": either(real(least=0, most=1e12), advice="0 is the mode alone")}


class KernelEstimator(SavedEstimator):
    """The part of an estimator that does not depend on what its samples are."""

    gamma: float | str
    degree: int
    coef0: float
    C: float | str
    optimize_kernel: bool
    n_restarts_optimizer: int
    n_components: int | str | None
    pivots: Any
    label_kernel: Any
    laplace: bool
    solver: str
    tol: float
    max_iter: int
    warm_start: bool
    n_jobs: int | None
    random_state: Any
    verbose: int

    C_: float
    _has_edges = True
    _kernel: InputKernel
    _edge_kernel: InputKernel | None
    _map: FeatureMap
    _edge_map: FeatureMap | None
    _layout: Layout
    _theta: Floats
    _laplace: Laplace | None

    def log_marginal_likelihood(self) -> float:
        """Log p(y | X) of the training data by Laplace's approximation."""
        return self._kept_laplace.log_evidence

    @property
    def log_marginal_likelihood_error_(self) -> float:
        """The standard error of `log_marginal_likelihood`: 0 up to 5,000 weights, where it is exact."""
        return self._kept_laplace.error

    def _tempered(self, temperature: float) -> Self:
        """Return a copy with the weights divided by a temperature.

        The posterior and the certificate speak of the weights of the fit, and are left out.
        """
        model = copy(self)
        model.certificate_ = Certificate.of_tempered()
        model._theta, model._laplace = self._theta / temperature, None
        model.coef_ = self.coef_ / temperature
        return model

    def _fitted(
        self,
        data: Data,
        kernel: InputKernel,
        edge_kernel: InputKernel | None,
        start: Start | None,
        checkpoint: Checkpoint | None = None,
        legal: Legal | None = None,
    ) -> Fit:
        """Fit, say so where the fit fell short, and keep what predictions need.

        checkpoint : where the fit is kept as it goes, or None.
        legal : what labelings may be, or None for any.
        """
        engine = self._engine
        by_evidence = self._by_evidence
        C: Any = self.C if by_evidence else float(self.C)
        if by_evidence:
            C = FIRST_C if start is None else self.C_
        settings = Settings(
            kernel,
            edge_kernel,
            C=C,
            C_edge=C if self._has_edges else None,
            label_kernel=self.label_kernel,
            n_components=self._n_components,
            rule=self.pivots,
            solver=self.solver,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            random_state=check_random_state(self.random_state).randint(np.iinfo(np.int32).max),
        )
        with self._progress(data) as callback:
            if checkpoint is None:
                fitted = fit(data, settings, engine, callback, start)
            else:
                fitted = self._kept_fit(checkpoint, data, settings, callback, start, legal)
            if by_evidence or self.optimize_kernel:
                fitted, settings, found = self._selected(data, fitted, settings, callback)
                self._laplace = found if self.laplace else replace(found, posterior=None)
            else:
                self._laplace = laplace(fitted.objective, fitted.solution.evaluation) if self.laplace else None
        warn_where_short(fitted.certificate, fitted.solution.history[-1], self.tol)
        self.C_, self._kernel, self._edge_kernel = settings.C, settings.kernel, edge_kernel
        self._map, self._theta, self._layout = fitted.features.map, fitted.solution.theta, fitted.layout
        self._edge_map = None if fitted.edge_features is None else fitted.edge_features.map
        self.coef_ = fitted.layout.blocks[0].clique.expand(fitted.weights["node"])
        self.landmarks_ = getattr(self._map, "landmarks", None)
        self.certificate_ = fitted.certificate
        self.n_iter_ = fitted.solution.n_iter
        self.objective_curve_ = np.array([record.value for record in fitted.solution.history])
        return fitted

    def _kept_fit(
        self,
        checkpoint: Checkpoint,
        data: Data,
        settings: Settings,
        callback: Callable[[Record], None] | None,
        start: Start | None,
        legal: Legal | None,
    ) -> Fit:
        """Fit from where the checkpoint is, if there is one, and write it on the way and at the end."""
        problem = problem_of(data, settings, legal, start)
        found = checkpoint.start(problem, settings, data)
        steps, write = 0, checkpoint.keep(problem)

        def keep(*point: Any) -> None:
            nonlocal steps
            steps += 1
            write(*point)

        try:
            fitted = fit(data, settings, self._engine, callback, found or start, keep)
        except ValueError as error:
            # A fit of this very problem went past its first step before: it is the file that is wrong.
            if found is None or steps > 1:
                raise
            raise ModelFileError(
                f"{checkpoint.path}: the fit cannot go on from the weights and landmarks of the checkpoint "
                f"({shown_text(error)}): remove the file to start anew"
            ) from None
        end = fitted.end
        checkpoint.write(problem, end.map, end.edge_map, end.theta, fitted.solution.history)
        return fitted

    def _selected(
        self, data: Data, fitted: Fit, settings: Settings, callback: Callable[[Record], None] | None
    ) -> tuple[Fit, Settings, Laplace]:
        """The fit at the C and the kernel of the greatest evidence."""
        n_draws = N_DRAWS if self.laplace else N_DRAWS // 4
        if self.optimize_kernel:
            found = choose_kernel(
                data,
                fitted,
                settings,
                self._engine,
                with_C=self._by_evidence,
                n_restarts=int(self.n_restarts_optimizer),
                callback=callback,
                n_draws=n_draws,
            )
        else:
            found = choose_C(fitted, settings, callback, n_draws=n_draws)
        if not found.converged:
            warnings.warn(
                f"the search for the greatest evidence did not converge: it ended at C={found.settings.C:.3g} and "
                f"{found.settings.kernel}; widen the bounds of the kernel, or give C as a number",
                ConvergenceWarning,
                stacklevel=4,
            )
        if settings.n_components != "auto":
            return found.fit, found.settings, found.laplace
        # The landmarks that `tol` needs depend on C and the kernel.
        grown = fit(data, found.settings, self._engine, callback)
        return grown, found.settings, laplace(grown.objective, grown.solution.evaluation, n_draws=n_draws)

    @property
    def _n_components(self) -> int | str | None:
        given = self.n_components
        return given if given is None or isinstance(given, str) else int(given)

    @property
    def _by_evidence(self) -> bool:
        return isinstance(self.C, str)

    @property
    def kernel_(self) -> InputKernel:
        """The input kernel of the fit, with the hyperparameters that were found."""
        check_is_fitted(self)
        return self._kernel

    def _input_kernel(self, kernel: Any, X: Inputs, weights: Floats | None = None) -> InputKernel:
        """The kernel with its gamma as a number; by weights, rows count for what they weigh."""
        return input_kernel(kernel, X, self.gamma, self.degree, self.coef0, weights)

    def _progress(self, data: Data) -> AbstractContextManager[Callable[[Record], None] | None]:
        """What is told of a fit as it goes."""
        return progress(type(self).__name__, self.verbose, data.where)

    @property
    def _engine(self) -> LocalEngine:
        return LocalEngine(1 if self.n_jobs is None else self.n_jobs)

    @property
    def _kept_laplace(self) -> Laplace:
        check_is_fitted(self)
        if self._laplace is None:
            raise AttributeError(
                f"this {type(self).__name__} was fitted with laplace=False, and knows no evidence: fit it with "
                "laplace=True"
            )
        return self._laplace

    def _drawn_scores(
        self, X: Inputs, n_samples: int | None, temperature: float, random_state: Any
    ) -> Iterator[tuple[Array, Array]]:
        """Node and edge scores at inputs X under draws from the posterior."""
        if n_samples is None:
            n_samples = self._score_posterior.posterior.n_kept or N_SAMPLES
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        return self._score_posterior.draws(X, n_samples, rng, temperature, self._engine)

    @property
    def _score_posterior(self) -> ScorePosterior:
        check_is_fitted(self)
        posterior = None if self._laplace is None else self._laplace.posterior
        if posterior is None:
            raise AttributeError(
                f"this {type(self).__name__} was fitted with laplace=False, and keeps no posterior of its weights: fit "
                "it with laplace=True"
            )
        maps = {"node": self._map} | ({} if self._edge_map is None else {"steps": self._edge_map})
        return ScorePosterior(self._layout, posterior, maps)
