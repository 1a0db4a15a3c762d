"""The prior that an earlier model determines for a new fit, so that its data need not be read again.

Under Laplace's approximation, the posterior of the weights theta given the earlier data is N(theta_old, H^-1), where
H = 1/C + H_L is the Hessian of the earlier objective. By Bayes' rule, this posterior is the prior of the new fit: its
mean is theta_old, and its precisions are 1/C + J with the information J = H_L. If the earlier model has its whole
Hessian, J is a matrix. Otherwise, only the diagonal of H_L is known, and the weights are independent under the prior:
weight i has the precision lam_i = 1/C + information_i. If the earlier model has no posterior, the information is 0, and
the new weights stay as near to the old ones as C demands.

Weights that the earlier model does not have, those of new features and of new labels, have the mean 0 and the
precision 1/C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from kernelcrf.arrays import Floats, Ints, Labels
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.fitting.curvature_diagonal import DiagonalPosterior
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import FactoredPosterior, PartialPosterior, Posterior
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.penalties import EarlierGaussian, Joint
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term


@dataclass(frozen=True, eq=False)
class Earlier:
    """An earlier model, whose posterior is the prior of a new fit.

    layout, theta : its terms, and all its weights as one vector.
    posterior : the posterior of its weights, or None if it is not known.
    maps : its feature maps, by the names of terms.
    kernels : its kernels, by the names of the parameters that set them.
    labels : for each label of the earlier model, its index among the labels of the new fit.
    n_columns : the number of columns of the inputs of the new fit, by the names of inputs.
    """

    layout: Layout
    theta: Floats
    posterior: Posterior | None
    maps: Mapping[str, FeatureMap]
    kernels: Mapping[str, InputKernel]
    labels: Labels
    n_columns: Mapping[str, int]

    @property
    def variances(self) -> dict[str, float]:
        """Return the prior variance C of each term."""
        return {term.name: term.C for term in self.layout.terms}

    @property
    def start(self) -> Start:
        """Return the landmarks of the earlier model, to which the new fit may add others."""
        found, padded = {}, dict[int, WhitenedMap]()
        for term in self.layout.terms:
            own = self.maps.get(term.name)
            if isinstance(own, WhitenedMap):
                # Terms that share landmarks share one map.
                key = id(own.landmarks)
                padded.setdefault(key, own.with_columns(self.n_columns[str(term.input)]))
                found[term.name] = padded[key]
        return Start(found, extend=True)

    def extend(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms of a new fit with the priors that the earlier model determines.

        All terms of the earlier model must be among them. Raise ValueError if it has another label kernel.
        """
        of_weights = information(self.layout, self.posterior)
        means = self.layout.split(self.theta)
        infos = None if of_weights is None else self.layout.split(of_weights)
        joint = joint_information(self.layout, self.posterior)
        found, before = [], {term.name: term for term in self.layout.terms}
        for term in terms:
            if term.name not in before:
                found.append(term)
                continue
            k_y, places = before[term.name].k_y, _places(before[term.name], term, self.labels)
            order = np.argsort(places)
            info = None if infos is None else infos[term.name].ravel()[order]
            rows = None if joint is None else self.layout.slices[term.name].start + order
            prior = EarlierGaussian(places[order], means[term.name].ravel()[order], info, joint, rows)
            found.append(replace(term, k_y=term.k_y if k_y.is_identity else k_y, penalty=prior))
        return found


def information(layout: Layout, posterior: Posterior | None) -> Floats | None:
    """Return the information of the data on each weight: the precision of its posterior minus 1 / C, at least 0.

    The precision of a weight is the entry of the diagonal of the Hessian, the precision given all other weights. If the
    posterior consists of draws, it is the inverse of their variance. Return None if there is no posterior.
    """
    if posterior is None:
        return None
    return np.asarray(np.maximum(_precisions(posterior) - 1.0 / layout.variances, 0.0))


def joint_information(layout: Layout, posterior: Posterior | None) -> Joint | None:
    """Return the information J = H - 1/C if the posterior has the whole Hessian H, else None.

    In exact arithmetic, no eigenvalue of J is negative. Those that are not larger than rounding errors become 0.
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
        found = posterior.scale**-2
        found[posterior.kept] = _precisions(posterior.inner)
        return np.asarray(found)
    return np.asarray(1.0 / np.maximum(np.square(posterior.drawn).mean(axis=0), np.finfo(np.float64).tiny))


def _places(old: Term, new: Term, labels: Labels) -> Ints:
    """Return the index of each weight of a term of the earlier model in the matrix of the new term's weights."""
    places = np.arange(old.size) if old.pairs is None else old.pairs.places
    if not (old.k_y.is_identity and new.k_y.is_identity):
        same = old.k_y.L == new.k_y.L and np.allclose(old.k_y.gram, new.k_y.gram)
        if not same or (labels != np.arange(len(labels))).any():
            raise ValueError(
                f"the label kernel of term {old.name!r} is another one than that of the prior, or y has labels that "
                "the prior does not have: expected the label_kernel and the labels of the prior. New labels need "
                "label_kernel='delta'"
            )
        return places
    rows, columns = np.divmod(places, old.k_y.L)
    if old.kind.is_step:
        before, into = np.divmod(columns, len(labels))
        columns = labels[before].astype(np.int64) * round(new.k_y.L**0.5) + labels[into]
    else:
        columns = labels[columns].astype(np.int64)
    return np.asarray(rows * new.k_y.L + columns)
