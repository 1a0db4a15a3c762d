"""Laplace's approximation: a Gaussian around the mode of the posterior (15), and the evidence that goes with it.

With the prior N(0, C_k) on the weights of each template and H = H_L + 1/C the Hessian of P at its minimum,

    theta | data ~ N(theta_hat, H^-1)
    log evidence = -P(theta_hat) - 1/2 logdet(I + C^1/2 H_L C^1/2) = -P(theta_hat) - 1/2 logdet(C^1/2 H C^1/2)
    gamma        = size - tr(H^-1 / C),

gamma the number of weights that the data determine (MacKay 1992). Two ways to H:

    exact        up to MOST_EXACT weights: A = C^1/2 H C^1/2 as a matrix and its factor A = G G'
    stochastic   beyond: for M = E E' of `preconditioners`, S = E^-1 H E^-T is near the identity, and

                     logdet(C^1/2 H C^1/2) = tr log S + logdet M + sum log C
                     tr log S                    ~  size mean_z z' log(S) z / |z|^2
                     theta_hat + E^-T S^-1/2 z   ~  N(theta_hat, H^-1)                   for z ~ N(0, I)

                 so that one run of `lanczos` from z gives a term of the trace and a draw from the posterior. The
                 spread of the terms gives the standard error of the evidence.

Weights of sparse features that never occur in the data have their prior for a posterior, and are left aside.

Where labels are missing, H is not known (`objective` has its Gauss-Newton part), and there is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular
from scipy.linalg.lapack import dtrtri

from kernelcrf.arrays import Flags, Floats, Places
from kernelcrf.fitting.lanczos import RTOL, krylov
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.partition import RowPartition
from kernelcrf.solvers.preconditioners import Preconditioner, Preconditioning, node_covariances
from kernelcrf.terms import Layout, Term

MOST_EXACT = 5000
N_DRAWS = 32


@dataclass(frozen=True, eq=False)
class FactoredPosterior:
    """N(mode, H^-1) over theta by H^-1 = D A^-1 D, A = G G': `scale` (size,) is the diagonal of D = C^1/2.

    n_kept : how many draws there are; None where any number can be made.
    """

    mode: Floats
    scale: Floats
    G: Floats
    n_kept: ClassVar[int | None] = None

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return draws minus the mode, (n, size): D G^-T z."""
        z = rng.standard_normal((len(self.mode), n))
        return np.asarray(self.scale * solve_triangular(self.G, z, trans="T", lower=True).T)

    def covariance(self, term: slice) -> Floats:
        """Return the rows and columns of H^-1 of some weights, exactly."""
        half = self._inverse[:, term] * self.scale[term]
        return np.asarray(half.T @ half)

    def determined(self, chosen: Flags | slice) -> float:
        """Return gamma of some weights: their number minus the sum of their diagonal entries of A^-1."""
        columns = self._inverse[:, chosen]
        return float(columns.shape[1] - np.square(columns).sum())

    @property
    def _inverse(self) -> Floats:
        # LAPACK complains on the terminal about matrices without rows.
        return np.asarray(dtrtri(self.G, lower=1)[0]) if self.G.size else self.G


@dataclass(frozen=True, eq=False)
class SampledPosterior:
    """N(mode, H^-1) by S draws from it: `drawn` (S, size) has them minus the mode."""

    mode: Floats
    drawn: Floats

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return n of the draws, in random order: no more than there are."""
        if n > len(self.drawn):
            raise ValueError(
                f"n_samples={n}: this posterior was kept as {len(self.drawn)} draws, since it has {len(self.mode)} "
                f"weights, more than {MOST_EXACT}: expected at most as many"
            )
        return np.asarray(self.drawn[rng.permutation(len(self.drawn))[:n]])

    @property
    def n_kept(self) -> int:
        """Return S."""
        return len(self.drawn)


@dataclass(frozen=True, eq=False)
class PartialPosterior:
    """The posterior of the weights `kept`, whose features the data show; the prior N(0, scale^2) of all others."""

    mode: Floats
    scale: Floats
    kept: Places
    inner: FactoredPosterior | SampledPosterior

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return draws of both kinds minus the mode."""
        inner = self.inner.deviations(n, rng)
        found = self.scale * rng.standard_normal((n, len(self.mode)))
        found[:, self.kept] = inner
        return np.asarray(found)

    @property
    def n_kept(self) -> int | None:
        """Return the number of draws of the weights kept."""
        return self.inner.n_kept


Posterior = FactoredPosterior | SampledPosterior | PartialPosterior


@dataclass(frozen=True, eq=False)
class Laplace:
    """Evidence and posterior at a mode.

    log_evidence : log p(labels | inputs), approximately.
    error : its standard error where it was sampled, 0 where it is exact.
    n_effective : gamma, the number of weights that the data determine.
    posterior : None where it was not kept.
    shares : of each weight in gamma, where they were sampled; of the weights that the data show.
    """

    log_evidence: float
    error: float
    n_effective: float
    posterior: Posterior | None
    shares: Floats | None = None

    def determined(self, chosen: Flags) -> float:
        """Return gamma of some weights, (size,) flags; all of them together have `n_effective`."""
        posterior = self.posterior
        if isinstance(posterior, PartialPosterior):
            chosen, posterior = chosen[posterior.kept], posterior.inner
        if isinstance(posterior, FactoredPosterior):
            return posterior.determined(chosen)
        assert self.shares is not None
        return float(self.shares[chosen].sum())


def laplace(
    objective: Objective,
    at: Evaluation,
    *,
    n_draws: int = N_DRAWS,
    rtol: float = RTOL,
    seed: int = 0,
    preconditioning: Preconditioning | None = None,
    most_exact: int | None = None,
) -> Laplace:
    """Return Laplace's approximation at the minimum of P.

    n_draws, rtol, seed : of the stochastic way: directions z, the accuracy of each run, and where they come from; the
        same seed gives the same directions.
    preconditioning : of an objective on the same data, under any C, to spare its eigendecompositions.
    most_exact : the most weights for the exact way; None is MOST_EXACT.
    """
    if not objective.is_convex:
        raise ValueError(
            "labels are missing, and with them the curvature of the objective: expected all labels observed for the "
            "evidence and the posterior of the weights"
        )
    seen = _seen(objective)
    if seen is not None:
        fewer, kept = seen
        own = fewer.evaluate(at.theta[kept])
        inner = laplace(fewer, own, n_draws=n_draws, rtol=rtol, seed=seed, most_exact=most_exact)
        assert isinstance(inner.posterior, FactoredPosterior | SampledPosterior)
        posterior = PartialPosterior(at.theta, prior_scale(objective.layout), kept, inner.posterior)
        return replace(inner, posterior=posterior)
    at = objective.evaluate(at.theta, curvature=True)
    if objective.layout.size <= (MOST_EXACT if most_exact is None else most_exact):
        return _exact(objective, at)
    M = preconditioned(objective, preconditioning).at(at)
    return _stochastic(objective, at, M, n_draws, rtol, np.random.default_rng(seed))


def preconditioned(objective: Objective, known: Preconditioning | None) -> Preconditioning:
    """Return the preconditioning of an objective, with the eigenvectors of the same data under another C if known."""
    return Preconditioning.of(objective) if known is None else replace(known, objective=objective)


def _seen(objective: Objective) -> tuple[Objective, Places] | None:
    """Return the objective of the weights whose sparse features occur, and their places; None where all of them do.

    A feature that never occurs has a weight of zero and no curvature but the prior's: it adds nothing to the evidence.
    """
    layout, partitions = objective.layout, list(objective.partitions)
    terms, kept, fewer = [], [], False
    for term in layout.terms:
        name, place = term.name, layout.slices[term.name]
        own = partitions[0].features.get(name)
        columns = np.arange(term.n)
        if own is not None and own.is_sparse:
            counts = sum(partition.total(partial(_column_counts, term), None) for partition in partitions)
            columns = np.flatnonzero(counts)
            if len(columns) < term.n:
                fewer = True
                partitions = [partition.with_columns(term, columns) for partition in partitions]
        terms.append(replace(term, n=len(columns)))
        width = (place.stop - place.start) // term.n
        kept.append((place.start + columns[:, None] * width + np.arange(width)).ravel())
    if not fewer:
        return None
    return Objective(Layout(tuple(terms)), partitions, objective.engine), np.concatenate(kept)


def _column_counts(term: Term, partition: RowPartition, state: None) -> Places:
    return np.bincount(partition.features[term.name].F.indices, minlength=term.n)


def hessian(objective: Objective, at: Evaluation) -> Floats:
    """Return H at an evaluation made with curvature, (size, size)."""
    layout, covariances = objective.layout, node_covariances(objective, at)
    H, unit = np.zeros((layout.size, layout.size)), np.zeros(layout.size)
    if covariances is not None:
        # Samples are single nodes, and one term has their inputs: H from weighted Gram matrices.
        name, blocks = covariances
        n_labels, n = blocks.shape[0], blocks.shape[2]
        H[layout.slices[name], layout.slices[name]] = blocks.transpose(2, 0, 3, 1).reshape(n * n_labels, -1)
        H[np.diag_indices(layout.size)] += layout.times_lam(np.ones(layout.size))
        return H
    for k in range(layout.size):
        unit[k] = 1.0
        H[k] = objective.hessian_product(at, unit)
        unit[k] = 0.0
    H += H.T.copy()
    H *= 0.5
    return H


def _exact(objective: Objective, at: Evaluation) -> Laplace:
    scale = prior_scale(objective.layout)
    with np.errstate(over="ignore", invalid="ignore"):
        A = hessian(objective, at)
        A *= scale
        A *= scale[:, None]
    if not np.isfinite(A).all():
        raise ValueError(
            "the curvature of the objective overflows, and with it the evidence: scale the inputs, as "
            "sklearn.preprocessing.StandardScaler does, lower C, or set laplace=False"
        )
    G = _factor(A)
    posterior = FactoredPosterior(at.theta, scale, G)
    log_determinant = 2.0 * float(np.log(np.diagonal(G)).sum())
    return Laplace(-at.value - 0.5 * log_determinant, 0.0, posterior.determined(slice(None)), posterior)


def _factor(A: Floats) -> Floats:
    """Return G of A = G G'. All eigenvalues of A are at least 1; features in single precision may hide it."""
    try:
        return np.asarray(cholesky(A, lower=True))
    except LinAlgError:
        values, Q = eigh(A)
        R = np.linalg.qr((Q * np.sqrt(np.maximum(values, 1.0))).T, mode="r")
        return np.asarray((R * np.sign(np.diagonal(R))[:, None]).T)


def _stochastic(
    objective: Objective, at: Evaluation, M: Preconditioner, n_draws: int, rtol: float, rng: np.random.Generator
) -> Laplace:
    layout = objective.layout
    scale = prior_scale(layout)

    def product(v: Floats) -> Floats:
        return M.forward(objective.hessian_product(at, M.back(v)))

    drawn, traces, gammas = np.empty((n_draws, layout.size)), np.empty(n_draws), np.empty(n_draws)
    shares = np.zeros(layout.size)
    for k in range(n_draws):
        z = rng.standard_normal(layout.size)
        found = krylov(product, z, rtol)
        traces[k] = layout.size * found.quadrature(np.log)
        drawn[k] = M.back(found.applied(lambda values: 1 / np.sqrt(values)))
        # E |z|^2 = size: where the data say nothing z and the scaled draw have one length, and cancel.
        gammas[k] = np.dot(z, z) - np.square(drawn[k] / scale).sum()
        shares += (np.square(z) - np.square(drawn[k] / scale)) / n_draws
    log_determinant = traces.mean() + M.log_determinant + 2.0 * np.log(scale).sum()
    error = 0.5 * traces.std(ddof=1) / np.sqrt(n_draws)
    evidence = -at.value - 0.5 * float(log_determinant)
    return Laplace(evidence, float(error), float(gammas.mean()), SampledPosterior(at.theta, drawn), shares)


def prior_scale(layout: Layout) -> Floats:
    """Return C^1/2 of each weight, (size,)."""
    return np.asarray(1 / np.sqrt(layout.times_lam(np.ones(layout.size))))
