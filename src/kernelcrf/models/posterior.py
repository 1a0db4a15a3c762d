"""The posterior of scores at new inputs.

Under the prior, the score function is a Gaussian process, which is the sum of two independent processes:

- The first is F_x w, with the features F_x of an input x. The posterior of the weights w is N(w_hat, H^-1), with the
  mode w_hat and the Hessian H of the objective at this mode.
- The second is orthogonal to the features. The training data say nothing about it, so that its variance at x remains C
  (k(x, x) - |F_x|^2), as in the prior, with the kernel k and the prior variance C of the weights. It is treated as
  independent between tokens.

With a factor A of the label kernel k_y = A A', the covariance of the scores s(x) of the labels at a token is

    Cov[s(x)] = tau [ A Sigma_x A' + C (k(x, x) - |F_x|^2) k_y ],     where Sigma_x = kron(F_x, I) H^-1 kron(F_x, I)'.

If every distinct input is a landmark, this is the predictive covariance of Gaussian process classification. The
temperature tau multiplies the covariance: tau = 1 gives the posterior, and tau = 0 fixes the scores at its mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, NamedInputs, Places, is_sparse, join_columns, matrix_of
from kernelcrf.basis.features import FeatureMap, PrimalMap
from kernelcrf.basis.kernel_weights import check_scores
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.curvature_diagonal import DiagonalPosterior
from kernelcrf.fitting.laplace import FactoredPosterior, PartialPosterior, Posterior
from kernelcrf.graphs.structure import Chains
from kernelcrf.score.cliques import STEPS
from kernelcrf.score.layout import Layout
from kernelcrf.score.score import add_base, add_terms
from kernelcrf.score.tables import ChainScores, Steps
from kernelcrf.score.terms import Term

GROUP_VALUES = 2**22
ROWS = 2048
N_SAMPLES = 100


@dataclass(frozen=True, eq=False)
class ScorePosterior:
    """The posterior distribution of the scores at any inputs.

    layout : the terms of the score, and where the weights of each term are in the vector of all weights.
    posterior : the posterior of the weights.
    maps : for each term that depends on inputs, the map from inputs to features.
    """

    layout: Layout
    posterior: Posterior
    maps: Mapping[str, FeatureMap]

    def node_variances(self, X: Inputs | NamedInputs, contrasts: Floats, engine: LocalEngine) -> Floats:
        """Return the posterior variances of linear combinations of the scores of labels.

        The result has one row for each row x of X, and one column for each row b of `contrasts`. Each entry is the
        variance of the inner product of b and the scores s(x) of the labels at x.
        """
        terms = [term for term in self.layout.terms if term.kind.is_token]
        weights, rest, parts = np.asarray(terms[0].k_y.adjoint(contrasts), np.float64), np.zeros(X.shape[0]), {}
        for term in terms:
            if term.name in self.maps:
                rows = matrix_of(X, str(term.input))
                parts[term.name] = self.maps[term.name].transform(rows, engine)
                rest += self._rest(term, rows, parts[term.name])
            else:
                # A bias is the weight of a feature that is 1, and has the same label kernel.
                parts[term.name] = np.ones((X.shape[0], 1), np.float32)
        outside, F = rest[:, None] * np.square(weights).sum(axis=1), join_columns(NamedInputs(parts))
        places = np.split(np.arange(self.layout.size), np.cumsum([one.size for one in self.layout.terms])[:-1])
        indices = np.concatenate(
            [part for one, part in zip(self.layout.terms, places, strict=True) if one.kind.is_token]
        )
        return np.asarray(_variances(self.posterior, indices, F, weights) + outside)

    def draws(
        self,
        X: Inputs | NamedInputs,
        chains: Chains,
        n_samples: int | None,
        rng: np.random.Generator,
        temperature: float,
        engine: LocalEngine,
        base: Mapping[str, Array] | None = None,
    ) -> Iterator[tuple[Array, Array]]:
        """Yield `n_samples` draws of the token scores and transition scores from their posterior.

        With N rows in X and L labels, token scores have the shape (N, L). Transition scores have the shape (L, L), or
        (N, L, L) if they depend on inputs.

        chains : the sequences whose tokens are the rows of X.
        base : base scores, which are added to each draw, or None.
        """
        step_terms, L = [term for term in self.layout.terms if term.kind.is_step], self.layout.terms[0].k_y.L
        steps: Steps = "tied" if step_terms else "none"
        if any(term.name in self.maps for term in step_terms) or STEPS in (base or {}):
            steps = "own"
        inputs = {term.name: matrix_of(X, str(term.input)) for term in self.layout.terms if term.name in self.maps}
        for drawn in self.draw_terms(inputs, n_samples, rng, temperature, engine):
            scores = ChainScores.zeros(X.shape[0], L, steps)
            add_terms(scores.arrays, drawn, chains)
            add_base(scores.arrays, base)
            for array in scores.arrays.values():
                check_scores(array)
            yield scores.s, scores.w

    def draw_terms(
        self,
        inputs: Mapping[str, Inputs],
        n_samples: int | None,
        rng: np.random.Generator,
        temperature: float,
        engine: LocalEngine,
    ) -> Iterator[list[tuple[Term, Array]]]:
        """Yield `n_samples` draws of the scores of each term from their posterior.

        inputs : a dict from names of terms to their inputs, for terms that have inputs.
        n_samples : the number of draws. None uses all draws of the weights that the posterior stores, or 100 if it
            stores no draws and can make any number of them.
        temperature : a factor of the covariance of the posterior.
        """
        n_samples = n_samples or self.posterior.n_kept or N_SAMPLES
        deviations = np.sqrt(temperature) * self.posterior.deviations(n_samples, rng)
        features, transformed = {}, dict[tuple[int, int], Inputs]()
        for name, feature_map in self.maps.items():
            key = id(feature_map), id(inputs[name])
            if key not in transformed:
                transformed[key] = transform_rows(feature_map, inputs[name], engine)
            features[name] = transformed[key]
        n_values = sum(F.shape[0] * self.layout.by_name[name].k_y.rank for name, F in features.items())
        group = max(GROUP_VALUES // max(n_values, 1), 1)
        rest = {
            term.name: np.sqrt(temperature * self._rest(term, inputs[term.name], features[term.name]))
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
                yield [(term, term.k_y.expand(Z[:, k] if term.name in features else Z[k : k + 1])) for term, Z in parts]

    def _group(
        self, term: Term, theta: Floats, F: Inputs | None, rest: Floats | None, rng: np.random.Generator
    ) -> Floats:
        """Return the scores of one term for several draws `theta` of the weights, one draw per row.

        The result has the axes [token, draw, column]; the factor of the label kernel maps columns to labels later. If
        the term has no inputs, return its weights with the axes [draw, column].

        F : the features of the term, one row per token; None if the term has no inputs.
        rest : for each token, the standard deviation of the random values that are added to its scores. They stand for
            the part of the score function that is orthogonal to the features.
        """
        W = term.unpack(theta[:, self.layout.slices[term.name]]).reshape(len(theta), term.n, -1)
        if F is None or rest is None:
            return W[:, 0]
        stacked = np.ascontiguousarray(W.transpose(1, 0, 2)).reshape(term.n, -1)
        Z = np.asarray(F @ stacked)
        if rest.any():
            Z = Z + rest[:, None] * rng.standard_normal(Z.shape)
        return Z.reshape(Z.shape[0], *W.shape[::2])

    def _rest(self, term: Term, X: Inputs, F: Inputs) -> Floats:
        """Return, for each row x of X, the part of the prior variance of its score that its features do not explain.

        This is C (k(x, x) - |F_x|^2), with the kernel k, the features F_x and the prior variance C of the weights.
        """
        if term.kernel is None or X.shape[0] == 0 or isinstance(self.maps[term.name], PrimalMap):
            return np.zeros(X.shape[0])
        squares = np.einsum("tn,tn->t", F, F, dtype=np.float64)
        return np.asarray(term.C * np.maximum(term.kernel.diagonal(X) - squares, 0.0))


def transform_rows(feature_map: FeatureMap, X: Inputs, engine: LocalEngine) -> Inputs:
    """Return the features of the rows of X.

    If X has no rows, return an array without rows, whatever the number of columns of X. Graphs without edges may lack
    edge features, so that this number is not known.
    """
    return feature_map.transform(X, engine) if X.shape[0] else np.empty((0, feature_map.n))


def _variances(posterior: Posterior, indices: Places, F: Inputs, weights: Floats) -> Floats:
    """Return the posterior variances of the numbers F_x W c, where W = theta[indices] are weights of features.

    The result has one row for each row F_x of the features F, and one column for each row c of `weights`. It is exact,
    unless the posterior stores only draws of the weights: with n draws, the relative error is about sqrt(2 / n).
    """
    if isinstance(posterior, FactoredPosterior):
        return _joint_variances(posterior, indices, F, weights)
    if isinstance(posterior, DiagonalPosterior):
        return _independent_variances(posterior.scale[indices], F, weights)
    if isinstance(posterior, PartialPosterior) and isinstance(posterior.inner, FactoredPosterior):
        seen = np.isin(indices, posterior.kept)
        columns = seen.reshape(F.shape[1], -1)[:, 0]
        inner = np.searchsorted(posterior.kept, indices[seen])
        unseen = _independent_variances(posterior.scale[indices[~seen]], F[:, ~columns], weights)
        return unseen + _joint_variances(posterior.inner, inner, F[:, columns], weights)
    assert posterior.n_kept is not None
    variances = np.zeros((F.shape[0], len(weights)))
    for W in posterior.deviations(posterior.n_kept, np.random.default_rng(0))[:, indices]:
        variances += np.square(np.asarray(F @ (W.reshape(F.shape[1], -1) @ weights.T), np.float64)) / posterior.n_kept
    return variances


def _joint_variances(posterior: FactoredPosterior, indices: Places, F: Inputs, weights: Floats) -> Floats:
    covariance = posterior.covariance(indices).reshape(2 * (F.shape[1], weights.shape[1]))
    variances = np.empty((F.shape[0], len(weights)))
    for k, c in enumerate(weights):
        used = np.flatnonzero(c)
        S = np.einsum("i,aibj,j->ab", c[used], covariance[:, used][..., used], c[used], optimize=True)
        for low in range(0, F.shape[0], ROWS):
            rows = F[low : low + ROWS]
            rows = rows.toarray() if hasattr(rows, "toarray") else rows
            variances[low : low + ROWS, k] = np.einsum("tn,tn->t", rows @ S, rows)
    return variances


def _independent_variances(scale: Floats, F: Inputs, weights: Floats) -> Floats:
    """Return the variances of F_x W c for independent weights W, whose standard deviations are `scale`.

    The result has one row for each row F_x of F, and one column for each row c of `weights`.
    """
    of_features = np.square(scale).reshape(F.shape[1], -1) @ np.square(weights).T
    return np.asarray((F.power(2) if is_sparse(F) else np.square(F)) @ of_features, np.float64)
