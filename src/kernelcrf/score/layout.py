"""The parameters of a model: the weights of all its terms, one term after the other, as one vector theta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.basis.pairs import Pairs
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.joint_labels import label_kernels_from_config, label_kernels_to_config
from kernelcrf.kernels.orbits import Views
from kernelcrf.penalties import EarlierGaussian, JointGaussian, penalty_from_config, times_square
from kernelcrf.score.terms import Term


@dataclass(frozen=True)
class Layout:
    """The terms of a model, and the positions of their weights in the parameter vector theta.

    The weights of the terms follow each other in the order of `terms`.
    """

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if len(set(names)) != len(names):
            raise ValueError(f"terms are named {names}: expected a different name for each term")

    @classmethod
    def of(cls, terms: Iterable[Term], n_features: Mapping[str, int]) -> Layout:
        """Return the layout of the given terms.

        n_features : a dict from names of terms to their numbers of features, for terms that have inputs.
        """
        return cls(tuple(replace(term, n=n_features.get(term.name, 1)) for term in terms))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return a dict from the name of each term to the slice of theta that contains its weights."""
        ends = np.cumsum([term.size for term in self.terms]).tolist()
        return {term.name: slice(end - term.size, end) for term, end in zip(self.terms, ends, strict=True)}

    @cached_property
    def by_name(self) -> dict[str, Term]:
        """Return a dict from names to terms."""
        return {term.name: term for term in self.terms}

    @cached_property
    def cliques(self) -> tuple[str, ...]:
        """Return the kinds of cliques on which at least one term is defined, in the order of the terms."""
        return tuple(dict.fromkeys(term.cliques for term in self.terms))

    @cached_property
    def size(self) -> int:
        """Return the length of theta, which is the number of weights of all terms."""
        return sum(term.size for term in self.terms)

    def times_lam(self, v: Floats) -> Floats:
        """Return the product of v and the matrix of prior precisions, the Hessian of the penalty's smooth part."""
        if self.joint is not None:
            return self.joint.curvature(v)
        return np.concatenate([term.penalty.curvature(term, v[part]) for term, part in self._parts])

    @cached_property
    def _parts(self) -> list[tuple[Term, slice]]:
        return [(term, self.slices[term.name]) for term in self.terms]

    @property
    def lam(self) -> Floats:
        """Return the prior precision of each weight given all others: the diagonal of the Hessian of the penalty."""
        return np.concatenate([term.lam for term in self.terms])

    @property
    def variances(self) -> Floats:
        """Return, for each weight, the prior variance C of its term."""
        return np.repeat([term.C for term in self.terms], [term.size for term in self.terms])

    @cached_property
    def joint(self) -> JointGaussian | None:
        """Return the matrix of prior precisions if some weights are dependent under the prior, otherwise None."""
        rows, indices, roots = list[Ints](), list[Ints](), list[Floats]()
        for term, part in self._parts:
            penalty = term.penalty
            if isinstance(penalty, EarlierGaussian) and penalty.joint is not None and penalty.rows is not None:
                rows.append(penalty.rows)
                indices.append(part.start + penalty.indices(term))
                roots.append(penalty.joint.root)
        if not roots:
            return None
        return JointGaussian(np.concatenate(indices), roots[0][np.concatenate(rows)], self.variances)

    @cached_property
    def mean(self) -> Floats | None:
        """Return the prior mean mu of all weights, or None if all means are 0."""
        if all(term.mean is None for term in self.terms):
            return None
        return np.concatenate([np.zeros(term.size) if term.mean is None else term.mean for term in self.terms])

    def penalty_gradient(self, theta: Floats) -> Floats:
        """Return the gradient of the smooth part of the penalty at theta: lam (theta - mu) for each weight."""
        return self.times_lam(theta if self.mean is None else theta - self.mean)

    @cached_property
    def is_smooth(self) -> bool:
        """Return whether the penalties of all terms are differentiable, so that the objective is differentiable."""
        return all(term.penalty.is_smooth for term in self.terms)

    @property
    def absolute(self) -> Floats | None:
        """Return, for each weight, the number that multiplies its absolute value in the penalty.

        The number is 0 if the penalty of the weight's term is smooth. Return None if the non-smooth part of
        any penalty has another form than l1 |theta|_1.
        """
        factors = [0.0 if term.penalty.is_smooth else term.penalty.absolute(term) for term in self.terms]
        known = [factor for factor in factors if factor is not None]
        return np.repeat(known, [term.size for term in self.terms]) if len(known) == len(factors) else None

    def penalty(self, theta: Floats) -> float:
        """Return the penalty at theta, the sum of the penalties of all terms."""
        if self.joint is None:
            return float(sum(term.penalty.value(term, theta[part]) for term, part in self._parts))
        return 0.5 * self.joint.squared_norm(theta if self.mean is None else theta - self.mean)

    def extra(self, theta: Floats) -> float:
        """Return R(theta), the part of the penalty that is not differentiable everywhere."""
        return float(sum(term.penalty.extra(term, theta[part]) for term, part in self._parts))

    def slope(self, theta: Floats) -> Floats:
        """Return the gradient of R, the part of the penalty that is not differentiable everywhere.

        The result may be any number for weights at which R is not differentiable.
        """
        return np.concatenate([term.penalty.slope(term, theta[part]) for term, part in self._parts])

    def shrink(self, v: Floats, factors: Mapping[str, float]) -> Floats:
        """Return the theta that minimises |theta - v|^2 / 2 + sum of factor_k R_k(theta_k) over all terms k.

        R_k is the part of the penalty of term k that is not differentiable everywhere.

        factors : a dict from names of terms to factors.
        """
        shrunk = [term.penalty.shrink(term, v[part], factors[term.name]) for term, part in self._parts]
        return np.concatenate(shrunk)

    def gap(self, theta: Floats, gradient: Floats) -> float:
        """Return the gap of Lemma 9: the objective at theta exceeds its minimum by at most this number.

        gradient : the gradient of the objective, without the part of the penalty that is not differentiable.
        """
        if self.joint is not None:
            return 0.5 * self.joint.squared_dual_norm(gradient)
        return sum(term.penalty.gap(term, theta[part], gradient[part]) for term, part in self._parts)

    def conjugate(self, g: Floats) -> float:
        """Return the largest value of -<g, theta> minus the penalty, over all theta; g is the gradient of the loss."""
        if self.joint is not None:
            mean = 0.0 if self.mean is None else float(np.dot(g, self.mean))
            return 0.5 * self.joint.squared_dual_norm(g) - mean
        return sum(term.penalty.conjugate(term, g[part]) for term, part in self._parts)

    def squared_norm(self, v: Floats) -> float:
        """Return the sum over weights of lam v^2, where lam are prior precisions."""
        if self.joint is not None:
            return self.joint.squared_norm(v)
        return float(sum(term.penalty.squared_norm(term, v[part]) for term, part in self._parts))

    def squared_dual_norms(self, g: Floats) -> dict[str, float]:
        """Return a dict from names of terms to sums of g^2 / lam over the weights of the term.

        Here g is the gradient, and lam are prior precisions. Changing the weights of a term can lower the objective by
        at most half of the term's sum (Lemma 9 of the paper). If weights are not independent under the prior, the
        result has the upper bounds C |g|^2 instead.
        """
        if self.joint is not None:
            return {term.name: times_square(term.C, g[part]) for term, part in self._parts}
        return {term.name: term.penalty.squared_dual_norm(term, g[part]) for term, part in self._parts}

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant of the matrix of prior precisions."""
        return float(np.log(self.lam).sum()) if self.joint is None else self.joint.log_determinant

    def split(self, theta: Floats) -> dict[str, Floats]:
        """Return a dict from names of terms to their weights, as views of theta in the shapes of the terms."""
        return {term.name: theta[self.slices[term.name]].reshape(term.shape) for term in self.terms}

    def join(self, weights: Mapping[str, Array]) -> Floats:
        """Join the weights of all terms to one vector theta; `weights` is a dict from names of terms to weights."""
        return np.concatenate([np.asarray(weights[term.name], np.float64).ravel() for term in self.terms])

    def project(self, theta: Floats) -> Floats:
        """Return theta without the components that change no score, because a label kernel maps them to zero.

        The penalty makes these components zero at the optimum, but rounding errors of a solver can bring them back. If
        there is a prior mean, these components become those of the mean.
        """
        return self.project_change(theta) if self.mean is None else self.mean + self.project_change(theta - self.mean)

    def project_change(self, theta: Floats) -> Floats:
        """Return the difference that two points have after `project`, given their difference `theta` before it."""
        weights = self.split(theta)
        projected = {term.name: term.project(weights[term.name]) for term in self.terms}
        return theta if all(projected[name] is W for name, W in weights.items()) else self.join(projected)

    def to_config(self) -> dict[str, list[dict[str, Any]]]:
        """Return the terms and their label kernels as values for JSON; `from_config` restores the layout."""
        label_kernels, places = label_kernels_to_config(term.k_y for term in self.terms)
        terms = [
            {
                "name": term.name,
                "cliques": term.cliques,
                "label_kernel": place,
                "kernel": None if term.kernel is None else term.kernel.to_config(),
                "input": term.input,
                "n": term.n,
                "C": term.C,
                "penalty": term.penalty.to_config(),
            }
            | ({} if term.views is None else {"views": term.views.to_config()})
            for term, place in zip(self.terms, places, strict=True)
        ]
        return {"terms": terms, "label_kernels": label_kernels}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], pairs: Mapping[str, Pairs | None]) -> Layout:
        """Restore a layout from the result of `to_config`; the dict `pairs` maps names of terms to their pairs."""
        label_kernels = dict(enumerate(label_kernels_from_config(config["label_kernels"])))
        return cls(
            tuple(
                Term(
                    one["name"],
                    one["cliques"],
                    label_kernels[one["label_kernel"]],
                    one["C"],
                    None if one["kernel"] is None else InputKernel.from_config(one["kernel"]),
                    one["input"],
                    one["n"],
                    pairs[one["name"]],
                    penalty_from_config(one),
                    Views.from_config(one["views"]) if "views" in one else None,
                )
                for one in config["terms"]
            )
        )
