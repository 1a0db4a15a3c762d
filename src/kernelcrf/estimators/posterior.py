"""The posterior of scores at new inputs: that of the weights, and of what lies outside of the span of the basis.

The kernel's Gaussian process is the sum of two independent ones, F_x w in the span of the basis, about which the data
say N(w_hat, H^-1), and a rest of prior variance C (k(x, x) - |F_x|^2), about which they say nothing. At a node,

    Cov[s(x)] = tau [ A Sigma_x A' + C (k(x, x) - |F_x|^2) k_y ],     Sigma_x = (F_x (x) I) H^-1 (F_x (x) I)',

with A the factor of the label kernel, k_y = A A'. With every distinct input as a landmark, this is the predictive
covariance of Gaussian process classification. Between tokens the rest is taken as independent, as if no two were alike
in what the landmarks miss. tau, the variance temperature, is 1 for the posterior as it is, and 0 for its mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, PrimalMap
from kernelcrf.basis.folded import check_scores
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import Inputs
from kernelcrf.laplace import FactoredPosterior, Posterior
from kernelcrf.parameters import Layout, TemplateBlock

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

GROUP_VALUES = 2**22
ROWS = 2048
N_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class ScorePosterior:
    """The posterior of theta with the feature maps of the templates that have inputs, by name."""

    layout: Layout
    posterior: Posterior
    maps: Mapping[str, FeatureMap]

    def node_variances(self, X: Inputs, contrasts: Floats, engine: LocalEngine) -> Floats:
        """Return Var[<b, s(x)>] for each row b of contrasts (k, L), (rows, k), of the template "node" alone."""
        block = next(block for block in self.layout.blocks if block.clique.name == "node")
        F = self.maps["node"].transform(X, engine)
        weights = np.asarray(block.clique.adjoint(contrasts), np.float64)
        outside = self._rest(block, X, F)[:, None] * np.square(weights).sum(axis=1)
        exact = isinstance(self.posterior, FactoredPosterior)
        found = (self._exact_variances if exact else self._sampled_variances)(block, F, weights)
        return np.asarray(found + outside)

    def _exact_variances(self, block: TemplateBlock, F: Any, weights: Floats) -> Floats:
        """Return F_x S F_x' with S, (n, n), the covariance of what each row of weights makes of theta."""
        r = block.clique.shape[0]
        assert isinstance(self.posterior, FactoredPosterior)
        covariance = self.posterior.covariance(self.layout.slices["node"]).reshape(block.n, r, block.n, r)
        found = np.empty((F.shape[0], len(weights)))
        for k, c in enumerate(weights):
            own = np.flatnonzero(c)
            S = np.einsum("i,aibj,j->ab", c[own], covariance[:, own][..., own], c[own], optimize=True)
            for low in range(0, F.shape[0], ROWS):
                rows = F[low : low + ROWS]
                rows = rows.toarray() if hasattr(rows, "toarray") else rows
                found[low : low + ROWS, k] = np.einsum("tn,tn->t", rows @ S, rows)
        return found

    def _sampled_variances(self, block: TemplateBlock, F: Any, weights: Floats) -> Floats:
        """Return the same from draws; entries have a relative error of about (2 / draws)^1/2."""
        n = self.posterior.n_kept or N_DRAWS
        deviations = self.posterior.deviations(n, np.random.default_rng(0))[:, self.layout.slices["node"]]
        found = np.zeros((F.shape[0], len(weights)))
        for W in deviations:
            found += np.square(np.asarray(F @ (W.reshape(block.n, -1) @ weights.T), np.float64)) / n
        return found

    def draws(
        self, X: Inputs, n_samples: int, rng: np.random.Generator, temperature: float, engine: LocalEngine
    ) -> Iterator[tuple[Array, Array]]:
        """`n_samples` times node scores (N, L), and edge scores (L, L) or, where edges have inputs, (N, L, L)."""
        deviations = np.sqrt(temperature) * self.posterior.deviations(n_samples, rng)
        features = {name: own.transform(X, engine) for name, own in self.maps.items()}
        widest = max(int(np.prod(block.clique.shape)) for block in self.layout.blocks)
        group = max(GROUP_VALUES // max(X.shape[0] * widest, 1), 1)
        rest = {
            block.clique.name: np.sqrt(temperature * self._rest(block, X, features[block.clique.name]))
            for block in self.layout.blocks
            if block.clique.name in features
        }
        for low in range(0, n_samples, group):
            theta = self.posterior.mode + deviations[low : low + group]
            parts = [(block, *self._group(block, theta, features, rest, rng)) for block in self.layout.blocks]
            for k in range(len(theta)):
                s, w = np.zeros(1), np.zeros(1)
                for block, Z, has_inputs in parts:
                    scores = block.clique.expand(Z[:, k] if has_inputs else Z[k])
                    s, w = (s + scores, w) if block.clique.nodes == 1 else (s, w + scores)
                check_scores(w.reshape(len(w), -1))
                yield check_scores(s), w

    def _group(
        self,
        block: TemplateBlock,
        theta: Floats,
        features: Mapping[str, Any],
        rest: Mapping[str, Floats],
        rng: np.random.Generator,
    ) -> tuple[Floats, bool]:
        """F W of some draws, (N, draws, r, ...), or W itself, (draws, r, ...), of a template without inputs."""
        name, shape = block.clique.name, block.clique.shape
        W = theta[:, self.layout.slices[name]].reshape(len(theta), block.n, -1)
        if name not in features:
            return W.reshape(len(theta), *shape), False
        stacked = np.ascontiguousarray(W.transpose(1, 0, 2)).reshape(block.n, -1)
        Z = np.asarray(features[name] @ stacked)
        if rest[name].any():
            Z = Z + rest[name][:, None] * rng.standard_normal(Z.shape)
        return Z.reshape(Z.shape[0], len(theta), *shape), True

    def _rest(self, block: TemplateBlock, X: Inputs, F: Any) -> Floats:
        """C (k(x, x) - |F_x|^2): the prior variance outside of the span, (rows,)."""
        if block.clique.k_x is None or isinstance(self.maps[block.clique.name], PrimalMap):
            return np.zeros(X.shape[0])
        squares = np.einsum("tn,tn->t", F, F, dtype=np.float64)
        return np.asarray(block.C * np.maximum(block.clique.k_x.diagonal(X) - squares, 0.0))
