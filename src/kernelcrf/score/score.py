"""The score as a linear map of the weights: theta -> scores, and its transpose.

Term k has weights W_k, a factor A_k of its label kernel, and features F_k with one row per clique. If the term has no
inputs, F_k is 1. The scores of the joint labellings of its cliques are the rows of

    Z_k = F_k W_k A_k'.

The kind of cliques of a term names an array of scores, and Z_k is added to this array, with the Z_k of other terms. The
transpose maps the gradient R of a function of the scores to its gradient with respect to the weights, F_k' R A_k.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats
from kernelcrf.score.cliques import Nodes
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term


@dataclass(frozen=True, eq=False)
class Score:
    """The linear map from theta to the scores of some samples, whose features are known.

    features : a dict from names of terms to their features, for terms that have inputs.
    chains : the sequences of the samples.
    """

    layout: Layout
    features: Mapping[str, TokenFeatures]
    chains: Nodes

    def add(self, arrays: Mapping[str, Array], theta: Floats, n_jobs: int = 1) -> None:
        """Add the scores for the parameters theta to the arrays of scores."""
        add_terms(arrays, self.terms(theta, n_jobs), self.chains)

    def terms(self, theta: Floats, n_jobs: int = 1) -> Iterator[tuple[Term, Array]]:
        """Yield the scores of each term: one row per row of its features, or a single row if it has no inputs."""
        weights = self.layout.split(theta)
        for group in self._groups():
            features = self.features.get(group[0].name)
            if features is None:
                yield group[0], group[0].expand(weights[group[0].name])
                continue
            W = [weights[term.name] for term in group]
            Z = features.times(W[0] if len(W) == 1 else np.concatenate(W, axis=1), n_jobs)
            for term, columns in zip(group, _columns(group), strict=True):
                yield term, term.k_y.expand(Z if len(group) == 1 else Z[:, columns])

    def adjoint(self, arrays: Mapping[str, Array], n_jobs: int = 1) -> Floats:
        """Return the gradient with respect to theta, given the gradient with respect to the scores."""
        gradients: dict[str, Array] = {}
        for group in self._groups():
            features = self.features.get(group[0].name)
            if features is None:
                gradients[group[0].name] = group[0].adjoint(group[0].kind.take(arrays, self.chains))
                continue
            rows = [term.k_y.adjoint(term.kind.take_all(arrays, self.chains)) for term in group]
            R = np.ascontiguousarray(rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1))
            G = features.transposed_times(R, n_jobs)
            for term, columns in zip(group, _columns(group), strict=True):
                gradients[term.name] = G if len(group) == 1 else G[:, columns]
        return self.layout.join(gradients)

    def _groups(self) -> list[list[Term]]:
        """Return groups of terms with the same features; one matrix product computes the scores of a group."""
        groups: dict[int | str, list[Term]] = {}
        for term in self.layout.terms:
            features = self.features.get(term.name)
            alone = features is None or term.pairs is not None or term.k_y.views > 1
            groups.setdefault(term.name if alone else id(features), []).append(term)
        return list(groups.values())


def add_terms(arrays: Mapping[str, Array], scores: Iterable[tuple[Term, Array]], chains: Nodes) -> None:
    """Add the scores of terms to the arrays of scores; each term has one row per clique, or one row for all."""
    for term, Z in scores:
        term.kind.add(arrays, Z, chains)


def add_base(arrays: Mapping[str, Array], base: Mapping[str, Array] | None) -> None:
    """Add base scores, which are not learned, to the arrays of scores; `base` has arrays of the same names.

    Base scores are log p0 of the base measure p0 of the paper: p(y|x) is proportional to p0(y|x) exp(score).
    """
    for name, rows in ({} if base is None else base).items():
        target = arrays[name]
        target += rows.reshape(target.shape)


def _columns(group: Sequence[Term]) -> list[slice]:
    """Return, for each term of a group, its columns in the concatenated weights of all terms of the group."""
    ends = np.cumsum([term.k_y.rank for term in group]).tolist()
    return [slice(end - term.k_y.rank, end) for end, term in zip(ends, group, strict=True)]
