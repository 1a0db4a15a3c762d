"""The posterior of scores at new inputs.

Under the prior, the score function is a Gaussian process, which is the sum of two independent processes. The first is
F_x w, where F_x are the features of the input x, and the weights w have the posterior N(w_hat, H^-1). The second is
orthogonal to the features. The training data say nothing about it, so that it keeps its variance under the prior,
C (k(x, x) - |F_x|^2), where C is the prior variance of the weights. With a factor A of the label kernel k_y = A A', the
covariance of the scores s(x) at a token is

    Cov[s(x)] = tau [ A Sigma_x A' + C (k(x, x) - |F_x|^2) k_y ],     where Sigma_x = kron(F_x, I) H^-1 kron(F_x, I)'.

If every distinct input is a landmark, this is the predictive covariance of Gaussian process classification. The second
process is treated as independent between tokens. The temperature tau multiplies the covariance: with tau = 1, scores
have their posterior, and with tau = 0, they are fixed at its mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.basis.features import FeatureMap, PrimalMap
from kernelcrf.basis.folded import check_scores
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.laplace import FactoredPosterior, Posterior
from kernelcrf.terms import TOKEN_TERM, TOKENS, Layout, Term

GROUP_VALUES = 2**22
ROWS = 2048
N_SAMPLES, N_DRAWS = 100, 1000


@dataclass(frozen=True, eq=False)
class ScorePosterior:
    """The posterior of scores at any inputs.

    posterior : the posterior of the weights.
    maps : for each term that depends on inputs, the map from inputs to features.
    """

    layout: Layout
    posterior: Posterior
    maps: Mapping[str, FeatureMap]

    def node_variances(self, X: Inputs, contrasts: Floats, engine: LocalEngine) -> Floats:
        """Return the variance of the inner product of b and the token scores s(x).

        The result has one row for each row x of X, and one column for each row b of `contrasts`.
        """
        term = next(term for term in self.layout.terms if term.name == TOKEN_TERM)
        F = self.maps[TOKEN_TERM].transform(X, engine)
        weights = np.asarray(term.k_y.adjoint(contrasts), np.float64)
        outside = self._rest(term, X, F)[:, None] * np.square(weights).sum(axis=1)
        exact = isinstance(self.posterior, FactoredPosterior)
        found = (self._exact_variances if exact else self._sampled_variances)(term, F, weights)
        return np.asarray(found + outside)

    def _exact_variances(self, term: Term, F: Inputs, weights: Floats) -> Floats:
        """Return the variances of F_x W c, with one row per row F_x of F, and one column per row c of `weights`.

        W has the posterior of the weights of `term`, whose covariance is known exactly.
        """
        r = term.k_y.rank
        assert isinstance(self.posterior, FactoredPosterior)
        covariance = self.posterior.covariance(self.layout.slices[TOKEN_TERM]).reshape(term.n, r, term.n, r)
        found = np.empty((F.shape[0], len(weights)))
        for k, c in enumerate(weights):
            own = np.flatnonzero(c)
            S = np.einsum("i,aibj,j->ab", c[own], covariance[:, own][..., own], c[own], optimize=True)
            for low in range(0, F.shape[0], ROWS):
                rows = F[low : low + ROWS]
                rows = rows.toarray() if hasattr(rows, "toarray") else rows
                found[low : low + ROWS, k] = np.einsum("tn,tn->t", rows @ S, rows)
        return found

    def _sampled_variances(self, term: Term, F: Inputs, weights: Floats) -> Floats:
        """Estimate the variances that `_exact_variances` returns from n draws, with a relative error of sqrt(2 / n)."""
        n = self.posterior.n_kept or N_DRAWS
        deviations = self.posterior.deviations(n, np.random.default_rng(0))[:, self.layout.slices[TOKEN_TERM]]
        found = np.zeros((F.shape[0], len(weights)))
        for W in deviations:
            found += np.square(np.asarray(F @ (W.reshape(term.n, -1) @ weights.T), np.float64)) / n
        return found

    def draws(
        self, X: Inputs, n_samples: int | None, rng: np.random.Generator, temperature: float, engine: LocalEngine
    ) -> Iterator[tuple[Array, Array]]:
        """Yield `n_samples` draws of token scores and transition scores.

        If `n_samples` is None, it is the number of draws that the posterior has kept, or 100 if it can make any number.

        With N rows in X and L labels, token scores have the shape (N, L). Transition scores have the shape (L, L), or
        (N, L, L) if they depend on inputs. `temperature` multiplies the covariance of the posterior.
        """
        n_samples = n_samples or self.posterior.n_kept or N_SAMPLES
        deviations = np.sqrt(temperature) * self.posterior.deviations(n_samples, rng)
        features = {name: own.transform(X, engine) for name, own in self.maps.items()}
        L = next(term.k_y.L for term in self.layout.terms if term.cliques == TOKENS)
        widest = max(term.k_y.rank for term in self.layout.terms)
        group = max(GROUP_VALUES // max(X.shape[0] * widest, 1), 1)
        rest = {
            term.name: np.sqrt(temperature * self._rest(term, X, features[term.name]))
            for term in self.layout.terms
            if term.name in features
        }
        for low in range(0, n_samples, group):
            theta = self.posterior.mode + deviations[low : low + group]
            parts = [
                (term, self._group(term, theta, features.get(term.name), rest.get(term.name), rng))
                for term in self.layout.terms
            ]
            for k in range(len(theta)):
                s, w = np.zeros(1), np.zeros(1)
                for term, Z in parts:
                    scores = term.k_y.expand(Z[:, k] if term.name in features else Z[k])
                    if term.cliques == TOKENS:
                        s = s + scores
                    else:
                        w = w + scores.reshape(*scores.shape[:-1], L, L)
                check_scores(w.reshape(len(w), -1))
                yield check_scores(s), w

    def _group(
        self, term: Term, theta: Floats, F: Inputs | None, rest: Floats | None, rng: np.random.Generator
    ) -> Floats:
        """Return the scores of one term for several draws `theta` of the weights, before the label kernel is applied.

        The result has the axes [token, draw, column]. `rest` is, for each token, the standard deviation of the process
        that is orthogonal to the features F; one value of this process is added to each score. If the term has no
        inputs, return its weights with the axes [draw, column].
        """
        W = theta[:, self.layout.slices[term.name]].reshape(len(theta), term.n, -1)
        if F is None or rest is None:
            return W[:, 0]
        stacked = np.ascontiguousarray(W.transpose(1, 0, 2)).reshape(term.n, -1)
        Z = np.asarray(F @ stacked)
        if rest.any():
            Z = Z + rest[:, None] * rng.standard_normal(Z.shape)
        return Z.reshape(Z.shape[0], *W.shape[::2])

    def _rest(self, term: Term, X: Inputs, F: Inputs) -> Floats:
        """Return, for each row x of X, the prior variance C (k(x, x) - |F_x|^2) that its features F_x leave out."""
        if term.kernel is None or isinstance(self.maps[term.name], PrimalMap):
            return np.zeros(X.shape[0])
        squares = np.einsum("tn,tn->t", F, F, dtype=np.float64)
        return np.asarray(term.C * np.maximum(term.kernel.diagonal(X) - squares, 0.0))
