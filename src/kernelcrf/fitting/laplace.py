"""Laplace's approximation: a Gaussian around the mode of the posterior (equation 15 of the paper), and the evidence.

Let theta_hat be the weights that minimise the objective P, C their prior variances, and H = H_L + 1/C the Hessian of P
at theta_hat, where H_L is the Hessian of the loss. The posterior of the weights is about N(theta_hat, H^-1), and

    log evidence = -P(theta_hat) - 1/2 logdet(I + C^1/2 H_L C^1/2) = -P(theta_hat) - 1/2 logdet(C^1/2 H C^1/2)
    gamma        = size - tr(H^-1 / C),

where gamma is the number of weights that the data determine (MacKay 1992), and size the number of all weights.

With up to MOST_EXACT weights, the matrix A = C^1/2 H C^1/2 and its Cholesky factor G, with A = G G', are computed. With
more weights, the evidence is estimated from random vectors z ~ N(0, I). With a preconditioner M = E E', the matrix
S = E^-1 H E^-T is near the identity, and

    logdet(C^1/2 H C^1/2) = tr log S + logdet M + sum log C
    tr log S                    ~  size mean_z z' log(S) z / |z|^2
    theta_hat + E^-T S^-1/2 z   ~  N(theta_hat, H^-1).

One run of `lanczos` from z gives one term of the mean and one draw from the posterior. The variance of the terms gives
the standard error of the evidence.

If the sparse feature of a weight never occurs in the data, the posterior of the weight is its prior. Such weights are
left out of H. If labels are missing, H is not known (`objective` has only its Gauss-Newton approximation), and there is
no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular
from scipy.linalg.lapack import dtrtri

from kernelcrf.arrays import Flags, Floats, Places
from kernelcrf.fitting.curvature_diagonal import DiagonalPosterior, curvature_diagonal
from kernelcrf.fitting.lanczos import RTOL, krylov
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.partitions.partition import RowPartition
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.solvers.preconditioners import Preconditioner, Preconditioning, node_covariances

MOST_EXACT = 5000
N_DRAWS = 32


@dataclass(frozen=True, eq=False)
class FactoredPosterior:
    """The Gaussian posterior of the weights, with the mean `mode`, stored as a Cholesky factor.

    The covariance is the inverse H^-1 = D A^-1 D of the Hessian, where A = G G'.

    scale : the diagonal of D, the prior standard deviation of each weight.
    G : the Cholesky factor of A.
    n_kept : None, because any number of draws can be made.
    """

    mode: Floats
    scale: Floats
    G: Floats
    n_kept: ClassVar[int | None] = None

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return n draws of the weights minus their mode, one row per draw."""
        z = rng.standard_normal((len(self.mode), n))
        return np.asarray(self.scale * solve_triangular(self.G, z, trans="T", lower=True).T)

    def covariance(self, chosen: Places | slice) -> Floats:
        """Return the exact covariance matrix of the weights theta[chosen]."""
        half = self._inverse[:, chosen] * self.scale[chosen]
        return np.asarray(half.T @ half)

    def determined(self, chosen: Flags | slice) -> float:
        """Return the effective number of the chosen weights that the data determine.

        It is 0 if the posterior of the chosen weights equals their prior, and at most the number of chosen weights.
        """
        columns = self._inverse[:, chosen]
        return float(columns.shape[1] - np.square(columns).sum())

    @property
    def _inverse(self) -> Floats:
        # LAPACK prints an error to the terminal if a matrix has no rows.
        return np.asarray(dtrtri(self.G, lower=1)[0]) if self.G.size else self.G


@dataclass(frozen=True, eq=False)
class SampledPosterior:
    """The posterior of the weights, stored as draws: each row of `drawn` is a draw minus the mode."""

    mode: Floats
    drawn: Floats

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return n of the stored draws minus the mode, in random order; raise ValueError if fewer draws are stored."""
        if n > len(self.drawn):
            raise ValueError(
                f"n_samples={n}: expected at most {len(self.drawn)}. With more than {MOST_EXACT} weights (here "
                f"{len(self.mode)}), only {len(self.drawn)} draws from the posterior are stored: pass a smaller number"
            )
        return np.asarray(self.drawn[rng.permutation(len(self.drawn))[:n]])

    @property
    def n_kept(self) -> int:
        """Return the number of stored draws."""
        return len(self.drawn)


@dataclass(frozen=True, eq=False)
class PartialPosterior:
    """The posterior of the weights if some features never occur in the data.

    The weights of features that never occur keep their prior.

    scale : the prior standard deviation of each weight.
    kept : the indices of the weights whose features occur.
    inner : the posterior of the weights in `kept`.
    """

    mode: Floats
    scale: Floats
    kept: Places
    inner: FactoredPosterior | SampledPosterior

    def deviations(self, n: int, rng: np.random.Generator) -> Floats:
        """Return n draws of all weights minus their mode, one row per draw."""
        inner = self.inner.deviations(n, rng)
        deviations = self.scale * rng.standard_normal((n, len(self.mode)))
        deviations[:, self.kept] = inner
        return np.asarray(deviations)

    @property
    def n_kept(self) -> int | None:
        """Return the number of stored draws, or None if any number of draws can be made."""
        return self.inner.n_kept


Posterior = FactoredPosterior | SampledPosterior | PartialPosterior | DiagonalPosterior


@dataclass(frozen=True, eq=False)
class Laplace:
    """Laplace's approximation of the evidence and of the posterior of the weights.

    log_evidence : log p(labels | inputs), approximately.
    error : the standard error of `log_evidence` if it was sampled, 0 if it was computed exactly.
    n_effective : gamma, the effective number of weights that the data determine.
    posterior : the posterior of the weights, or None if it was not kept.
    shares : the share of each weight in gamma, for weights whose features occur in the data; None if the evidence was
        computed exactly.
    """

    log_evidence: float
    error: float
    n_effective: float
    posterior: Posterior | None
    shares: Floats | None = None

    def determined(self, chosen: Flags) -> float:
        """Return the effective number of weights that the data determine, among the weights with a True flag."""
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
    diagonal: bool = False,
) -> Laplace:
    """Return Laplace's approximation at the minimum `at` of the objective P.

    n_draws, rtol, seed : number of random vectors, accuracy of each Lanczos run, and seed of the vectors. They are used
        only if there are more than `most_exact` weights.
    preconditioning : the preconditioning of an objective with the same data and any C, to reuse its eigenvectors.
    most_exact : the largest number of weights for which H is computed exactly; None means MOST_EXACT.
    diagonal : whether to replace H by its diagonal, as the module `curvature_diagonal` approximates it.
    """
    if not objective.is_convex:
        raise ValueError(
            "some labels are missing: the evidence and the posterior can only be computed if all labels are observed. "
            "Set laplace=False, and choose C and the kernel without the evidence"
        )
    if diagonal:
        lam, d = objective.layout.lam, curvature_diagonal(objective, objective.complete(at))
        posterior, shares = DiagonalPosterior(at.theta, 1 / np.sqrt(lam + d)), d / (lam + d)
        return Laplace(-at.value - 0.5 * float(np.log1p(d / lam).sum()), 0.0, float(shares.sum()), posterior, shares)
    reduced = drop_unseen(objective) if objective.layout.joint is None else None
    if reduced is not None:
        fewer, kept = reduced
        at_kept = fewer.evaluate(at.theta[kept])
        inner = laplace(fewer, at_kept, n_draws=n_draws, rtol=rtol, seed=seed, most_exact=most_exact)
        assert isinstance(inner.posterior, FactoredPosterior | SampledPosterior)
        partly = PartialPosterior(at.theta, prior_scale(objective.layout), kept, inner.posterior)
        return replace(inner, posterior=partly)
    at = objective.evaluate(at.theta, curvature=True)
    if objective.layout.size <= (MOST_EXACT if most_exact is None else most_exact):
        return _exact(objective, at)
    M = preconditioned(objective, preconditioning).at(at)
    return _stochastic(objective, at, M, n_draws, rtol, np.random.default_rng(seed))


def preconditioned(objective: Objective, known: Preconditioning | None) -> Preconditioning:
    """Return the preconditioning of an objective; reuse the eigenvectors of `known`, which belongs to the same data."""
    return Preconditioning.of(objective) if known is None else replace(known, objective=objective)


def drop_unseen(objective: Objective) -> tuple[Objective, Places] | None:
    """Return a pair: an objective without the features that never occur, and the indices of the remaining weights.

    Return None if all features occur. Only sparse features are dropped. Dropping them does not change the evidence.
    """
    layout, partitions = objective.layout, list(objective.partitions)
    terms, kept, fewer = [], [], False
    for term in layout.terms:
        name, place = term.name, layout.slices[term.name]
        features = partitions[0].features.get(name)
        if term.pairs is not None:
            # Pairs without a feature that occurs are few: a warm start on other data can have them.
            terms.append(term)
            kept.append(np.arange(place.start, place.stop))
            continue
        columns = np.arange(term.n)
        if features is not None and features.is_sparse:
            counts = sum(partition.total(partial(_column_counts, term), None) for partition in partitions)
            columns = np.flatnonzero(counts)
            if len(columns) < term.n:
                fewer = True
                partitions = [partition.with_columns(term, columns) for partition in partitions]
        terms.append(replace(term, n=len(columns), penalty=term.penalty.select(columns, term.k_y.rank)))
        width = term.k_y.rank
        kept.append((place.start + columns[:, None] * width + np.arange(width)).ravel())
    if not fewer:
        return None
    return Objective(Layout(tuple(terms)), partitions, objective.engine), np.concatenate(kept)


def _column_counts(term: Term, partition: RowPartition, state: None) -> Places:
    return np.bincount(partition.features[term.name].F.indices, minlength=term.n)


def hessian(objective: Objective, at: Evaluation) -> Floats:
    """Return the Hessian matrix of the objective at the point `at`, which was evaluated with curvature=True."""
    layout, covariances = objective.layout, node_covariances(objective, at)
    H, unit = np.zeros((layout.size, layout.size)), np.zeros(layout.size)
    if covariances is not None:
        # Samples are single nodes and only one term has inputs: H consists of weighted Gram matrices.
        name, blocks = covariances
        n_labels, n = blocks.shape[0], blocks.shape[2]
        H[layout.slices[name], layout.slices[name]] = blocks.transpose(2, 0, 3, 1).reshape(n * n_labels, -1)
        H[np.diag_indices(layout.size)] += layout.lam if layout.joint is None else 1.0 / layout.variances
        if layout.joint is not None:
            H[np.ix_(layout.joint.indices, layout.joint.indices)] += layout.joint.root @ layout.joint.root.T
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
            "the curvature of the objective overflows, so that the evidence cannot be computed: scale the inputs (for "
            "example with sklearn.preprocessing.StandardScaler), lower C, or set laplace=False"
        )
    G = _factor(A)
    posterior = FactoredPosterior(at.theta, scale, G)
    log_determinant, gamma = 2.0 * float(np.log(np.diagonal(G)).sum()), posterior.determined(slice(None))
    if objective.layout.joint is not None:
        log_determinant -= objective.layout.log_determinant + 2.0 * float(np.log(scale).sum())
        products = map(objective.layout.times_lam, posterior.covariance(slice(None)))
        gamma = len(scale) - sum(float(product[k]) for k, product in enumerate(products))
    return Laplace(-at.value - 0.5 * log_determinant, 0.0, gamma, posterior)


def _factor(A: Floats) -> Floats:
    """Return the Cholesky factor G of A = G G'.

    In exact arithmetic, all eigenvalues of A are >= 1. If rounding errors make A indefinite, eigenvalues below 1 are
    set to 1.
    """
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
        lanczos = krylov(product, z, rtol)
        traces[k] = layout.size * lanczos.quadrature(np.log)
        drawn[k] = M.back(lanczos.apply(lambda values: 1 / np.sqrt(values)))
        # E |z|^2 = size: if the data say nothing, z and the scaled draw have the same length and cancel.
        norm = np.square(drawn[k] / scale).sum() if layout.joint is None else layout.squared_norm(drawn[k])
        gammas[k] = np.dot(z, z) - norm
        shares += (np.square(z) - np.square(drawn[k] / scale)) / n_draws
    prior = 2.0 * np.log(scale).sum() if layout.joint is None else -layout.log_determinant
    log_determinant = traces.mean() + M.log_determinant + prior
    error = 0.5 * traces.std(ddof=1) / np.sqrt(n_draws)
    evidence = -at.value - 0.5 * float(log_determinant)
    return Laplace(evidence, float(error), float(gammas.mean()), SampledPosterior(at.theta, drawn), shares)


def prior_scale(layout: Layout) -> Floats:
    """Return the prior standard deviation of each weight, which is sqrt(C) unless an earlier model determines it."""
    return np.asarray(1 / np.sqrt(layout.lam))
