"""Penalties: negative log priors of the weights of a term, with the formulas that certificates need.

Every term has a Gaussian prior with the variance C = 1 / lam. A penalty may add a function R, the maximum of <b, theta>
over all b in a convex set B that contains 0. Norms are such functions:

    penalty(theta) = lam/2 |theta|^2 + R(theta).

Solvers and certificates need only R and the function S(v) = v - (the point of B nearest to v), which moves v towards 0.
Let g be the gradient of the loss at theta. The conjugate, the weights that attain it, and the share of the term in the
gap of Lemma 9 are

    max over theta of <v, theta> - penalty(theta) = |S(v)|^2 / (2 lam),      attained at theta = S(v) / lam,
    gap = 1/(2 lam) |lam theta + S(g)|^2 + [<theta, g - S(g)> + R(theta)].

Neither part of the gap is negative. For R = 0, it is |g + lam theta|^2 / (2 lam), as in the paper. A new penalty is a
class with R (`extra`), its gradient (`slope`) and S (`shrink`).

An earlier model may determine the prior instead (`EarlierGaussian`). Weight i of a term then has a prior mean mu_i, its
value in the earlier model, and a precision lam_i = 1/C + information_i, where information_i is the precision that
earlier data add. The negative log prior and the gap, with the gradient g of the whole objective, are

    sum_i lam_i/2 (theta_i - mu_i)^2,      sum_i g_i^2 / (2 lam_i).

If the information is a matrix J, the precisions are the matrix 1/C + J, and `JointGaussian` has the formulas.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.basis.pairs import Pairs
from kernelcrf.validation import either, one_of, real

L1 = either(real(least=0))
GROUPS = either(one_of("features", "input"))

# If |v|^2 is between these, entries of v whose squares underflow are negligible.
SMALL_SQUARE, LARGE_SQUARE = 1e-200, 1e200


class Block(Protocol):
    """Protocol with the properties of a term that penalties use, such as its prior variance.

    pairs : the pairs of a feature and a label that have a weight; None if all pairs have a weight, so that the weights
        are a matrix of the shape `shape`.
    """

    @property
    def C(self) -> float:
        """Return the prior variance."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weights."""

    @property
    def size(self) -> int:
        """Return the number of weights."""

    @property
    def pairs(self) -> Pairs | None:
        """Return the pairs of a feature and a label that have a weight, or None if all pairs have a weight."""

    @property
    def has_inputs(self) -> bool:
        """Return whether the scores depend on inputs."""

    @property
    def mean(self) -> Floats | None:
        """Return the prior mean of each weight, or None if all are 0."""

    @property
    def precision(self) -> Floats | None:
        """Return the prior precision of each weight, or None if all are 1 / C."""


class Penalty(ABC):
    """Base class of penalties; the formulas are in the module docstring.

    Weights, gradients and results are vectors with one entry per weight of the term.

    name : the name of the kind of penalty in model files.
    is_smooth : whether R = 0, so that the penalty is differentiable.
    of_coordinates : whether R treats features one by one. Such a penalty has a meaning only for linear kernels, whose
        features are the columns of the user's inputs.
    """

    name: ClassVar[str]
    is_smooth: ClassVar[bool] = False
    of_coordinates: ClassVar[bool] = False

    def extra(self, term: Block, theta: Floats) -> float:
        """Return R(theta)."""
        return 0.0

    def slope(self, term: Block, theta: Floats) -> Floats:
        """Return the gradient of R. The result may be any number for weights at which R is not differentiable."""
        return np.zeros(term.size)

    def shrink(self, term: Block, v: Floats, factor: float = 1.0) -> Floats:
        """Return S(v) for factor * R: the theta that minimises |theta - v|^2 / 2 + factor * R(theta)."""
        return v

    def absolute(self, term: Block) -> float | None:
        """Return l1 if R(theta) = l1 |theta|_1, and None for all other functions R."""
        return None

    def value(self, term: Block, theta: Floats) -> float:
        """Return the penalty of the weights theta."""
        return 0.5 * self.squared_norm(term, theta) + self.extra(term, theta)

    def gradient(self, term: Block, theta: Floats) -> Floats:
        """Return the gradient of the penalty without R."""
        return self.curvature(term, theta)

    def curvature(self, term: Block, v: Floats) -> Floats:
        """Return the product of v and the Hessian of the penalty without R: v times the prior precisions."""
        return v * (1.0 / term.C)

    def squared_norm(self, term: Block, v: Floats) -> float:
        """Return the sum of lam v^2, where lam are prior precisions."""
        return times_square(1.0 / term.C, v)

    def squared_dual_norm(self, term: Block, g: Floats) -> float:
        """Return the sum of g^2 / lam, where lam are prior precisions."""
        return times_square(term.C, g)

    def conjugate(self, term: Block, g: Floats) -> float:
        """Return the largest value of -<g, theta> minus the penalty, over all weights theta."""
        return 0.5 * self.squared_dual_norm(term, self.shrink(term, g))

    def primal(self, term: Block, v: Floats) -> Floats:
        """Return the weights theta with the largest value of <v, theta> minus the penalty."""
        return self.shrink(term, v) * term.C

    def gap(self, term: Block, theta: Floats, gradient: Floats) -> float:
        """Return what the term adds to the gap of Lemma 9.

        gradient : the gradient of the objective without R.
        """
        if self.is_smooth:
            return 0.5 * self.squared_dual_norm(term, gradient)
        decay = theta * (1.0 / term.C)
        g = gradient - decay
        shrunk = self.shrink(term, g)
        rest = float(np.dot(theta, g - shrunk)) + self.extra(term, theta)
        return 0.5 * times_square(term.C, decay + shrunk) + max(rest, 0.0)

    def find_mean(self, term: Block) -> Floats | None:
        """Return the prior mean of each weight, or None if all means are 0."""
        return None

    def find_precision(self, term: Block) -> Floats | None:
        """Return the prior precision of each weight if all others are fixed; None if all precisions are 1 / C."""
        return None

    def select(self, rows: Ints, rank: int) -> Penalty:
        """Return the penalty of a term with fewer features, given the increasing indices of the features that remain.

        rank : the number of weights per feature.
        """
        return self

    @property
    def required(self) -> Ints | None:
        """Return the weights that a term must have, as indices into the matrix of all weights.

        Return None if no weight is required.
        """
        return None

    @property
    def arrays(self) -> list[Array]:
        """Return the arrays on which the penalty depends; the result of `to_config` does not contain them."""
        return []

    def to_config(self) -> dict[str, Any]:
        """Return the penalty as values that JSON can store; `penalty_from_config` restores it."""
        return {"name": self.name, **vars(self)}


@dataclass(frozen=True)
class Gaussian(Penalty):
    """The Gaussian penalty |theta|^2 / (2 C), for which R = 0.

    Examples
    --------
    >>> from kernelcrf.penalties import Gaussian
    >>> Gaussian().to_config()
    {'name': 'gaussian'}
    """

    name: ClassVar[str] = "gaussian"
    is_smooth: ClassVar[bool] = True


@dataclass(frozen=True)
class ElasticNet(Penalty):
    """The Gaussian penalty plus R = l1 |theta|_1, which makes most weights zero; CRFsuite calls l1 "c1".

    S(v) = sign(v) max(|v| - l1, 0).

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.penalties import ElasticNet
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "dog"}]]
    >>> crf = ChainCRF(C=1.0, penalty=ElasticNet(l1=0.5)).fit(X, [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> crf.certificate_.status, bool((crf.coef_ == 0).any())
    ('optimal', True)
    """

    l1: float
    name: ClassVar[str] = "elastic net"
    of_coordinates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        L1.check("l1", self.l1)

    def extra(self, term: Block, theta: Floats) -> float:
        return self.l1 * float(np.abs(theta).sum())

    def slope(self, term: Block, theta: Floats) -> Floats:
        return self.l1 * np.sign(theta)

    def shrink(self, term: Block, v: Floats, factor: float = 1.0) -> Floats:
        return soft(v, factor * self.l1)

    def absolute(self, term: Block) -> float | None:
        return float(self.l1)


@dataclass(frozen=True)
class GroupLasso(Penalty):
    """The Gaussian penalty plus a penalty on groups of weights, which makes all weights of most groups zero.

    R = l1 sum over groups of sqrt(m) |theta_group|, where a group has m weights. Terms without inputs, such as
    transitions, have no groups.

    l1 : the factor of the penalty.
    groups : "features" or "input". With "features", the weights of one feature for all labels are a group, so that
        whole features are left out; this needs linear kernels. With "input", all weights of one input are a group, so
        that whole inputs are left out; this works with all kernels.

    S(v_group) = v_group max(1 - l1 sqrt(m) / |v_group|, 0).

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.penalties import GroupLasso
    >>> X, y = [[[0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 1.0]]], [["a", "b"], ["b", "a"]]
    >>> crf = ChainCRF("linear", C=1.0, penalty=GroupLasso(l1=0.2)).fit(X, y)
    >>> crf.certificate_.status, crf.coef_.any(axis=1)
    ('optimal', array([ True, False]))
    """

    l1: float
    groups: Literal["features", "input"] = "features"
    name: ClassVar[str] = "group lasso"

    @property
    def of_coordinates(self) -> bool:  # type: ignore[override]
        """Return whether each group has the weights of one feature.

        Such groups have a meaning only for linear kernels, whose features are the columns of the user's inputs.
        """
        return self.groups == "features"

    def __post_init__(self) -> None:
        L1.check("l1", self.l1)
        GROUPS.check("groups", self.groups)

    def _starts(self, term: Block) -> Ints:
        """Return the index of the first weight of each group that has weights."""
        if self.groups == "input" or not term.has_inputs:
            return np.zeros(min(term.size, 1), np.int64)
        if term.pairs is not None:
            return term.pairs.pointers[:-1][np.diff(term.pairs.pointers) > 0]
        return np.arange(0, term.size, term.shape[1])

    def _norms(self, term: Block, v: Floats) -> tuple[Floats, Ints]:
        """Return the norm of each group, and its number of weights."""
        starts = self._starts(term)
        sizes = np.diff(np.append(starts, term.size))
        # Groups are scaled, so that squares neither overflow nor vanish.
        largest = np.maximum.reduceat(np.abs(v), starts) if len(starts) else np.zeros(0)
        units = np.where(largest > 0, largest, 1.0)
        sums = np.add.reduceat(np.square(v / np.repeat(units, sizes)), starts) if len(starts) else np.zeros(0)
        return units * np.sqrt(sums), sizes

    def extra(self, term: Block, theta: Floats) -> float:
        if not term.has_inputs:
            return 0.0
        norms, sizes = self._norms(term, theta)
        return self.l1 * float(np.dot(np.sqrt(sizes), norms))

    def slope(self, term: Block, theta: Floats) -> Floats:
        if not term.has_inputs:
            return np.zeros(term.size)
        norms, sizes = self._norms(term, theta)
        factors = np.where(norms > 0, self.l1 * np.sqrt(sizes) / np.where(norms > 0, norms, 1.0), 0.0)
        return np.asarray(theta * np.repeat(factors, sizes))

    def shrink(self, term: Block, v: Floats, factor: float = 1.0) -> Floats:
        if not term.has_inputs:
            return v
        norms, sizes = self._norms(term, v)
        threshold = factor * self.l1 * np.sqrt(sizes)
        kept = np.where(norms > threshold, 1.0 - threshold / np.where(norms > 0, norms, 1.0), 0.0)
        return np.asarray(v * np.repeat(kept, sizes))


@dataclass(frozen=True, eq=False)
class Joint:
    """The precision that earlier data add to the prior of all weights together, as a matrix B B'.

    root : the matrix B, with one row per weight. B B' is added to the diagonal matrix of prior precisions 1 / C.
    """

    root: Floats


@dataclass(frozen=True, eq=False)
class EarlierGaussian(Penalty):
    """A Gaussian prior whose means and precisions an earlier model determines.

    places : the weights of the earlier model, as increasing indices into the matrix (n, rank of k_y), row by row. All
        other weights have the mean 0 and the precision 1 / C.
    means : the prior mean of each weight of the earlier model.
    information : the numbers that are added to the precisions 1 / C of these weights; None adds nothing.
    joint, rows : the matrix B B' for the weights of all terms together, and the row of B for each weight of the earlier
        model. The diagonal of B B' in these rows is `information`. Both are None if weights are independent under the
        prior.
    """

    places: Ints
    means: Floats
    information: Floats | None = None
    joint: Joint | None = None
    rows: Ints | None = None
    name: ClassVar[str] = "earlier model"
    is_smooth: ClassVar[bool] = True

    def select(self, rows: Ints, rank: int) -> EarlierGaussian:
        """Return the prior of a term that keeps only the features `rows`; the matrix `joint` is left out.

        rank : the number of weights per feature.
        """
        features, column = np.divmod(self.places, rank)
        kept = np.isin(features, rows)
        places = np.searchsorted(rows, features[kept]) * rank + column[kept]
        return EarlierGaussian(places, self.means[kept], None if self.information is None else self.information[kept])

    @property
    def required(self) -> Ints | None:
        return self.places

    @property
    def arrays(self) -> list[Array]:
        given = self.places, self.means, self.information, None if self.joint is None else self.joint.root
        return [array for array in given if array is not None]

    def indices(self, term: Block) -> Ints:
        """Return, for each weight of the earlier model, its index among the weights of the term."""
        places = self.places
        if term.pairs is not None:
            places = np.searchsorted(term.pairs.places, places)
            if (places == term.size).any() or (term.pairs.places[places] != self.places).any():
                raise ValueError(
                    "some pairs of a feature and a label have a weight in the earlier model, but not in the new "
                    "term: expected a weight for each of these pairs. Add the pairs in `required` to the new term"
                )
        return places

    def _place(self, term: Block, values: Floats) -> Floats:
        full = np.zeros(term.size)
        full[self.indices(term)] = values
        return full

    def find_mean(self, term: Block) -> Floats | None:
        return self._place(term, self.means)

    @staticmethod
    def _mean(term: Block) -> Floats:
        assert term.mean is not None
        return term.mean

    def find_precision(self, term: Block) -> Floats | None:
        return None if self.information is None else 1.0 / term.C + self._place(term, self.information)

    def value(self, term: Block, theta: Floats) -> float:
        return 0.5 * self.squared_norm(term, theta - self._mean(term))

    def gradient(self, term: Block, theta: Floats) -> Floats:
        return self.curvature(term, theta - self._mean(term))

    def curvature(self, term: Block, v: Floats) -> Floats:
        return v * (1.0 / term.C if term.precision is None else term.precision)

    def squared_norm(self, term: Block, v: Floats) -> float:
        if term.precision is None:
            return times_square(1.0 / term.C, v)
        return times_square(1.0, v * np.sqrt(term.precision))

    def squared_dual_norm(self, term: Block, g: Floats) -> float:
        return times_square(term.C, g) if term.precision is None else times_square(1.0, g / np.sqrt(term.precision))

    def conjugate(self, term: Block, g: Floats) -> float:
        return 0.5 * self.squared_dual_norm(term, g) - float(np.dot(g, self._mean(term)))

    def primal(self, term: Block, v: Floats) -> Floats:
        return np.asarray((term.C * v if term.precision is None else v / term.precision) + self._mean(term))

    def to_config(self) -> dict[str, Any]:
        """Return the penalty as values that JSON can store, without its means and precisions."""
        return Gaussian().to_config()


@dataclass(frozen=True, eq=False)
class JointGaussian:
    """The matrix of prior precisions of all weights theta: 1/C on the diagonal, plus B B' for some of the weights.

    The matrix B B' comes from earlier data. It can be so large that 1/C would be lost to rounding in the sum. The sum
    is therefore never computed.

    indices : the indices in theta of the weights for which B B' is added.
    root : the matrix B, one row per weight.
    variances : the prior variance C of each weight of theta, without the matrix B B'.
    """

    indices: Ints
    root: Floats
    variances: Floats

    @cached_property
    def factor(self) -> Floats:
        """Return the lower Cholesky factor of the matrix of prior precisions, only for the weights `indices`."""
        C = self.variances[self.indices]
        R = np.linalg.qr(np.vstack([self.root.T, np.diag(1.0 / np.sqrt(C))]), mode="r")
        return np.asarray((R * np.sign(np.diagonal(R))[:, None]).T)

    def curvature(self, v: Floats) -> Floats:
        """Return the product of v and the matrix of prior precisions."""
        product = v / self.variances
        product[self.indices] += self.root @ (self.root.T @ v[self.indices])
        return product

    def squared_norm(self, v: Floats) -> float:
        """Return v' lam v for the matrix lam of prior precisions."""
        inner = self.root.T @ v[self.indices]
        return times_square(1.0, v / np.sqrt(self.variances)) + times_square(1.0, inner)

    def squared_dual_norm(self, g: Floats) -> float:
        """Return g' lam^-1 g for the matrix lam of prior precisions."""
        others = g.copy()
        others[self.indices] = 0.0
        inner = np.asarray(solve_triangular(self.factor, g[self.indices], lower=True))
        return times_square(1.0, others * np.sqrt(self.variances)) + times_square(1.0, inner)

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant of the matrix of prior precisions."""
        others = np.ones(len(self.variances), bool)
        others[self.indices] = False
        of_factor = 2.0 * float(np.log(np.diagonal(self.factor)).sum())
        return of_factor - float(np.log(self.variances[others]).sum())


PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (Gaussian, ElasticNet, GroupLasso)}
"""The penalties that model files can store, by name."""


def penalty_from_config(config: Mapping[str, Any]) -> Penalty:
    """Return the penalty whose method `to_config` returned `config["penalty"]`."""
    values = dict(config["penalty"])
    name = values.pop("name")
    if name not in PENALTIES:
        raise ValueError(f"the penalty {str(name)[:80]!r} is not known: expected one of {', '.join(PENALTIES)}")
    return PENALTIES[name](**values)


def soft(v: Array, threshold: float) -> Array:
    """Return the entries of v, moved towards zero by `threshold`; entries that would change their sign become zero."""
    return np.maximum(v - threshold, 0.0) + np.minimum(v + threshold, 0.0)


def times_square(factor: float, v: Array) -> float:
    """Return factor * |v|^2, even if |v|^2 alone would underflow or overflow."""
    square = float(np.dot(v, v))
    if SMALL_SQUARE < square < LARGE_SQUARE:
        return factor * square
    largest = float(np.abs(v).max(initial=0.0))
    if not 0 < largest < np.inf:
        return factor * square
    unit = v / largest
    return float((largest * np.sqrt(factor)) ** 2 * np.dot(unit, unit))
