"""The prior that an earlier model determines for a new fit, so that the earlier data need not be read again.

Under Laplace's approximation, the posterior of the weights theta given the earlier data is N(theta_old, H^-1), where
H = 1/C + H_L is the Hessian of the earlier objective. By Bayes' rule, this posterior is the prior of the new fit: its
mean is theta_old, and its precisions are 1/C + J with the information J = H_L. If the earlier model has its whole
Hessian, J is a matrix. Otherwise, only the diagonal of H_L is known, and the weights are independent under the prior:
weight i has the precision lam_i = 1/C + information_i. If the earlier model has no posterior, the information is 0, and
only C determines how close the new weights stay to the old ones.

New features and new labels have weights that the earlier model does not have. The prior of these weights has the mean 0
and the precision 1/C.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from kernelcrf.arrays import Floats, Ints, Labels
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.fitting.curvature_diagonal import DiagonalPosterior
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import FactoredPosterior, PartialPosterior, Posterior
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.joint_labels import same_label_kernel
from kernelcrf.kernels.labels import LabelMap
from kernelcrf.penalties import EarlierGaussian, Joint
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.validation import shown_list


@dataclass(frozen=True, eq=False)
class Earlier:
    """An earlier model, whose posterior is the prior of a new fit.

    layout, theta : its terms, and all its weights as one vector.
    posterior : the posterior of its weights, or None if it is not known.
    maps : a dict from names of terms to its feature maps.
    kernels : a dict from names of parameters to the kernels that they set.
    labels : for each label of the earlier model, its index among the labels of the new fit.
    n_labels : the number of labels of the new fit.
    n_columns : a dict from names of inputs of the new fit to their numbers of columns.
    """

    layout: Layout
    theta: Floats
    posterior: Posterior | None
    maps: Mapping[str, FeatureMap]
    kernels: Mapping[str, InputKernel]
    labels: Labels
    n_labels: int
    n_columns: Mapping[str, int]

    def with_variances(self, terms: Sequence[Term], names: Collection[str]) -> list[Term]:
        """Return the terms of a new fit; the terms in `names` get the prior variances of the earlier model.

        If the earlier model lacks a term in `names`, this term gets the variance of the earlier model's first term.
        """
        known = {term.name: term.C for term in self.layout.terms}
        first = self.layout.terms[0].C
        return [replace(term, C=known.get(term.name, first)) if term.name in names else term for term in terms]

    @property
    def start(self) -> Start:
        """Return the landmarks of the earlier model, to which the new fit may add others."""
        maps, padded = {}, dict[int, WhitenedMap]()
        for term in self.layout.terms:
            feature_map = self.maps.get(term.name)
            if isinstance(feature_map, WhitenedMap):
                # Terms that share landmarks share one map.
                key = id(feature_map.landmarks)
                padded.setdefault(key, feature_map.with_columns(self.n_columns[str(term.input)]))
                maps[term.name] = padded[key]
        return Start(maps, extend=True)

    def extend(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms of a new fit with the priors that the earlier model determines.

        Raise ValueError if `terms` lacks a term of the earlier model, or has it with another label kernel.
        """
        names = {term.name for term in terms}
        if absent := [term.name for term in self.layout.terms if term.name not in names]:
            raise ValueError(
                f"the prior has weights of {shown_list(absent)}, but this fit has no such weights: expected at "
                "least the kinds of weights of the prior. Set the parameters as in the fit of the prior, or prior=None"
            )
        of_weights = information(self.layout, self.posterior)
        means = self.layout.split(self.theta)
        infos = None if of_weights is None else self.layout.split(of_weights)
        joint = joint_information(self.layout, self.posterior)
        extended, before = [], {term.name: term for term in self.layout.terms}
        for term in terms:
            if term.name not in before:
                extended.append(term)
                continue
            k_y, places = before[term.name].k_y, self._places(before[term.name], term)
            if isinstance(k_y, DurationKernel):
                # The factor of the matrix of durations is that of the earlier model, for which the weights are valid.
                k_y = replace(k_y, n_labels=self.n_labels)
            order = np.argsort(places)
            info = None if infos is None else infos[term.name].ravel()[order]
            rows = None if joint is None else self.layout.slices[term.name].start + order
            prior = EarlierGaussian(places[order], means[term.name].ravel()[order], info, joint, rows)
            extended.append(replace(term, k_y=term.k_y if k_y.is_identity else k_y, penalty=prior))
        return extended

    def _places(self, old: Term, new: Term) -> Ints:
        """Return, for each weight of the term `old`, its index in the flattened matrix of weights of the term `new`."""
        places = np.arange(old.size) if old.pairs is None else old.pairs.places
        before, after = old.k_y, new.k_y
        if np.array_equal(self.labels, np.arange(self.n_labels)):
            same = before.L == after.L and (same_label_kernel(before, after) or np.allclose(before.gram, after.gram))
        else:
            same = _has_columns_of_labels(before) and _has_columns_of_labels(after)
        if not same:
            raise ValueError(
                f"term {old.name!r} has another label kernel than in the prior, or y has labels that are new to the "
                "prior: expected the label_kernel and the labels of the prior. New labels need label_kernel='delta' "
                "or, in graphs, directed=True"
            )
        rows, columns = np.divmod(places, before.rank)
        return np.asarray(rows * after.rank + self._renumber(columns, before.rank, after.rank))

    def _renumber(self, columns: Ints, before: int, after: int) -> Ints:
        """Return the numbers that columns of the weights of an earlier term have in the new term.

        The earlier term has `before` columns, and the new term has `after` columns. If a clique has k nodes, the last k
        digits of the number of a column are the labels of the nodes. The digits before them, such as the duration of a
        segment, stay the same.
        """
        old, k = len(self.labels), 0
        while before * self.n_labels**k != after * old**k:
            k += 1
        digits = []
        for _ in range(k):
            columns, digit = np.divmod(columns, old)
            digits.append(self.labels[digit].astype(np.int64))
        for digit in reversed(digits):
            columns = columns * self.n_labels + digit
        return columns


def information(layout: Layout, posterior: Posterior | None) -> Floats | None:
    """Return the information of the data on each weight: its posterior precision minus 1 / C, and at least 0.

    The posterior precision of a weight is its precision given all other weights: an entry of the diagonal of the
    Hessian. If the posterior consists of draws, the precision is the inverse of the variance of the draws. Return None
    if there is no posterior.
    """
    if posterior is None:
        return None
    return np.asarray(np.maximum(_precisions(posterior) - 1.0 / layout.variances, 0.0))


def joint_information(layout: Layout, posterior: Posterior | None) -> Joint | None:
    """Return the information J = H - 1/C if the posterior has the whole Hessian H, else None.

    In exact arithmetic, no eigenvalue of J is negative. Eigenvalues that may be rounding errors become 0.
    """
    if not isinstance(posterior, FactoredPosterior):
        return None
    scaled = posterior.G @ posterior.G.T
    scaled[np.diag_indices(len(scaled))] -= np.square(posterior.scale) / layout.variances
    values, Q = eigh(scaled)
    known = values > len(values) * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)
    return Joint(Q[:, known] * np.sqrt(values[known]) / posterior.scale[:, None])


def _precisions(posterior: Posterior) -> Floats:
    if isinstance(posterior, FactoredPosterior):
        return np.asarray(np.square(posterior.G).sum(axis=1) / np.square(posterior.scale))
    if isinstance(posterior, DiagonalPosterior):
        return np.asarray(posterior.scale**-2)
    if isinstance(posterior, PartialPosterior):
        precisions = posterior.scale**-2
        precisions[posterior.kept] = _precisions(posterior.inner)
        return np.asarray(precisions)
    return np.asarray(1.0 / np.maximum(np.square(posterior.drawn).mean(axis=0), np.finfo(np.float64).tiny))


def _has_columns_of_labels(k_y: LabelMap) -> bool:
    """Return whether each column of weights belongs to a label, or to a joint label of the nodes of a clique."""
    return k_y.is_identity or isinstance(k_y, DurationKernel)
