"""The parameters of a model: the weights of all its terms, one term after the other, as one vector theta."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.basis.pairs import Pairs
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.score.cliques import kind_of
from kernelcrf.score.terms import OF_INPUT, Term, cliques_of, times_square


@dataclass(frozen=True, eq=False)
class JointPrecision:
    """The prior precisions 1/C + B B' of some weights together, a matrix.

    The information B B' of earlier data can be larger than 1/C by more than the precision of floating-point numbers.
    The sum is therefore never formed.

    indices : the indices of these weights in theta.
    root : the matrix B, one row per weight.
    C : the prior variances of the weights without this information.
    """

    indices: Ints
    root: Floats
    C: Floats

    @cached_property
    def factor(self) -> Floats:
        """Return the lower Cholesky factor of the precisions."""
        R = np.linalg.qr(np.vstack([self.root.T, np.diag(1.0 / np.sqrt(self.C))]), mode="r")
        return np.asarray((R * np.sign(np.diagonal(R))[:, None]).T)

    def solve_factor(self, g: Floats) -> Floats:
        """Return a vector whose squared norm is g' (1/C + B B')^-1 g."""
        return np.asarray(solve_triangular(self.factor, g, lower=True))

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant of the precisions."""
        return 2.0 * float(np.log(np.diagonal(self.factor)).sum())


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

        n_features : the number of features of each term that has inputs, by the name of the term.
        """
        return cls(tuple(replace(term, n=n_features.get(term.name, 1)) for term in terms))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return the slice of theta that contains the weights of each term, by the name of the term."""
        ends = np.cumsum([term.size for term in self.terms]).tolist()
        return {term.name: slice(end - term.size, end) for term, end in zip(self.terms, ends, strict=True)}

    @cached_property
    def cliques(self) -> tuple[str, ...]:
        """Return the kinds of cliques on which at least one term is defined, in the order of the terms."""
        return tuple(dict.fromkeys(term.cliques for term in self.terms))

    @cached_property
    def size(self) -> int:
        """Return the length of theta, which is the number of weights of all terms."""
        return sum(term.size for term in self.terms)

    def times_lam(self, v: Floats) -> Floats:
        """Return the product of v and the Hessian of the penalty: each entry is multiplied by its prior precision."""
        if self.joint is None:
            return np.concatenate([term.times_lam(v[self.slices[term.name]]) for term in self.terms])
        product = v / self.variances
        product[self.joint.indices] += self.joint.root @ (self.joint.root.T @ v[self.joint.indices])
        return product

    @property
    def lam(self) -> Floats:
        """Return the prior precision of each weight given all others, the diagonal of the Hessian of the penalty."""
        return np.concatenate([term.times_lam(np.ones(term.size)) for term in self.terms])

    @property
    def variances(self) -> Floats:
        """Return the prior variance C of the term of each weight."""
        return np.repeat([term.C for term in self.terms], [term.size for term in self.terms])

    @cached_property
    def joint(self) -> JointPrecision | None:
        """Return the prior precisions of weights that are not independent under the prior, or None."""
        priors = [(term, term.prior) for term in self.terms if term.prior is not None and term.prior.joint is not None]
        if not priors:
            return None
        rows = np.concatenate([prior.rows for _, prior in priors if prior.rows is not None])
        indices = np.concatenate([self.slices[term.name].start + term.prior_indices for term, _ in priors])
        shared = priors[0][1].joint
        assert shared is not None
        return JointPrecision(indices, shared.root[rows], self.variances[indices])

    @cached_property
    def mean(self) -> Floats | None:
        """Return the prior mean mu of all weights, or None if all means are 0."""
        means = [(term.size, term.mean) for term in self.terms]
        if all(mean is None for _, mean in means):
            return None
        return np.concatenate([np.zeros(size) if mean is None else mean for size, mean in means])

    def penalty_gradient(self, theta: Floats) -> Floats:
        """Return the gradient of the penalty at theta, without its L1 part: lam (theta - mu) for each weight."""
        return self.times_lam(theta if self.mean is None else theta - self.mean)

    @cached_property
    def has_l1(self) -> bool:
        """Return whether a term has an L1 penalty, so that the objective is not differentiable."""
        return any(term.l1 for term in self.terms)

    @property
    def l1(self) -> Floats:
        """Return the factor of the L1 penalty of each weight."""
        return np.repeat([term.l1 for term in self.terms], [term.size for term in self.terms])

    def penalty(self, theta: Floats) -> float:
        """Return the penalty at theta: the sum over terms of |weights - mu|^2 / (2 C) + l1 |weights|_1.

        Weights that have their own precision lam have lam in the place of 1 / C.
        """
        absolute = [term.l1 * float(np.abs(theta[self.slices[term.name]]).sum()) for term in self.terms if term.l1]
        return 0.5 * self.squared_norm(theta if self.mean is None else theta - self.mean) + sum(absolute)

    def gap(self, theta: Floats, gradient: Floats) -> float:
        """Return the gap of Lemma 9: how far the objective at theta is at most above its minimum.

        gradient : the gradient of the objective without its L1 penalty.
        """
        if self.joint is not None:
            return 0.5 * self._squared_joint_norm(gradient)
        slices = [(term, self.slices[term.name]) for term in self.terms]
        return sum(term.gap(theta[own], gradient[own]) for term, own in slices)

    def conjugate(self, g: Floats) -> float:
        """Return the largest value of -<g, theta> minus the penalty, over all theta; g is the gradient of the loss."""
        if self.joint is not None:
            return 0.5 * self._squared_joint_norm(g) - (0.0 if self.mean is None else float(np.dot(g, self.mean)))
        return sum(term.conjugate(g[self.slices[term.name]]) for term in self.terms)

    def squared_norm(self, v: Floats) -> float:
        """Return the sum over weights of lam v^2, where lam are prior precisions."""
        if self.joint is not None:
            inner = self.joint.root.T @ v[self.joint.indices]
            return times_square(1.0, v / np.sqrt(self.variances)) + times_square(1.0, inner)
        return float(sum(term.squared_norm(v[self.slices[term.name]]) for term in self.terms))

    def squared_dual_norms(self, g: Floats) -> dict[str, float]:
        """Return the sum of g^2 / lam for each term, where lam are prior precisions and g its part of the gradient.

        Changing the weights of a term can lower the objective by at most half of this number (Lemma 9 of the paper). If
        weights are not independent under the prior, the result is the upper bound C |g|^2.
        """
        if self.joint is not None:
            return {term.name: times_square(term.C, g[self.slices[term.name]]) for term in self.terms}
        return {term.name: term.squared_dual_norm(g[self.slices[term.name]]) for term in self.terms}

    def _squared_joint_norm(self, g: Floats) -> float:
        """Return g' lam^-1 g for the matrix lam of prior precisions."""
        assert self.joint is not None
        others = g.copy()
        others[self.joint.indices] = 0.0
        inner = self.joint.solve_factor(g[self.joint.indices])
        return times_square(1.0, others * np.sqrt(self.variances)) + times_square(1.0, inner)

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant of the matrix of prior precisions."""
        if self.joint is None:
            return float(np.log(self.lam).sum())
        others = np.ones(self.size, bool)
        others[self.joint.indices] = False
        return self.joint.log_determinant - float(np.log(self.variances[others]).sum())

    def split(self, theta: Floats) -> dict[str, Floats]:
        """Return the weights of each term, by its name, in the shape of the term; the arrays are views of theta."""
        return {term.name: theta[self.slices[term.name]].reshape(term.shape) for term in self.terms}

    def join(self, weights: Mapping[str, Array]) -> Floats:
        """Return the weights of all terms, given by name, as one vector theta."""
        return np.concatenate([np.asarray(weights[term.name], np.float64).ravel() for term in self.terms])

    def project(self, theta: Floats) -> Floats:
        """Return theta without the components that change no score, because a label kernel maps them to zero.

        The penalty makes these components zero at the optimum, but rounding errors of a solver can bring them back. If
        there is a prior mean, the components become those of the mean.
        """
        return self.project_change(theta) if self.mean is None else self.mean + self.project_change(theta - self.mean)

    def project_change(self, theta: Floats) -> Floats:
        """Return a difference of two points without the components that `project` makes equal."""
        weights = self.split(theta)
        projected = {term.name: term.project(weights[term.name]) for term in self.terms}
        return theta if all(projected[name] is W for name, W in weights.items()) else self.join(projected)

    def to_config(self) -> list[dict[str, Any]]:
        """Return the terms of a chain as values that can be stored as JSON; `from_config` restores the layout."""
        return [
            {
                "name": term.name,
                "nodes": 2 if term.kind.is_step else 1,
                "label_kernel": _stored_label_kernel(term).to_config(),
                "kernel": None if term.kernel is None else term.kernel.to_config(),
                "n": term.n,
                "C": term.C,
                "l1": term.l1,
            }
            for term in self.terms
        ]

    @classmethod
    def from_config(cls, config: Iterable[Mapping[str, Any]], pairs: Mapping[str, Pairs | None]) -> Layout:
        """Restore a layout from the result of `to_config`, and the pairs of each term by its name."""
        terms = []
        for one in config:
            of_durations = one["label_kernel"]["kind"] == "durations"
            k_y = (DurationKernel if of_durations else LabelKernel).from_config(one["label_kernel"])
            cliques = cliques_of(one["name"], one["nodes"])
            kind = kind_of(cliques)
            if kind.is_step:
                if not k_y.is_identity:
                    raise ValueError(
                        f"term {one['name']!r} scores steps and has label_kernel={one['label_kernel']['kind']!r}: "
                        "expected 'delta', the only label kernel for pairs of labels"
                    )
                k_y = LabelKernel("delta", k_y.L**2)
            kernel = None if one["kernel"] is None else InputKernel.from_config(one["kernel"])
            read = one["name"].removeprefix(OF_INPUT) if one["name"].startswith(OF_INPUT) else kind.input
            read = None if kernel is None else read
            n, own = int(one["n"]), pairs[one["name"]]
            # Files of earlier versions have no L1 penalty.
            l1 = float(one.get("l1", 0.0))
            terms.append(Term(one["name"], cliques, k_y, float(one["C"]), kernel, read, n, own, l1))
        return cls(tuple(terms))


def _stored_label_kernel(term: Term) -> LabelKernel | DurationKernel:
    """Return the label kernel that model files store for a term of a chain.

    For a term that scores steps between labels, the stored kernel compares single labels instead of pairs of labels.
    """
    if isinstance(term.k_y, DurationKernel):
        return term.k_y
    if not isinstance(term.k_y, LabelKernel):
        raise TypeError(
            f"term {term.name!r} has a label kernel of type {type(term.k_y).__name__}: "
            "expected LabelKernel, the only type that model files can store"
        )
    return LabelKernel(term.k_y.kind, math.isqrt(term.k_y.L)) if term.kind.is_step else term.k_y
