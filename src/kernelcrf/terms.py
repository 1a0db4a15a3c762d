"""Define the terms of a model; each has an input kernel k_x, a label kernel k_y and a prior variance C.

The score of a labelling y is a sum over the terms, and over the cliques c on which each term is defined (equations 14
and 26 of the paper):

    score(y | x) = sum over terms, sum over cliques c, of f_term(x_c, y_c).

The function f_term is in the RKHS of k_x k_y. The label kernel compares joint labelings of a clique and has a factor A
with one row per joint labelling, so that k_y = A A'. With n features F of the input (F = 1 if the term has no inputs)
and weights W of shape (n, rank of A), the function is f = A (W' F). Since features are whitened and label kernels are
factored, the RKHS norm of f is the Euclidean norm of the weights. The negative log prior is therefore
sum_k |theta_k|^2 / (2 C_k), where theta_k are the weights of term k. Solvers see the weights of all terms as one vector
theta.

A term may also have an L1 penalty l1 |theta_k|_1, which makes most weights zero (the elastic net). With lam = 1 / C and
the gradient g of the loss with respect to the weights of the term, it adds to the gap of Lemma 9

    <theta, g> + lam/2 |theta|^2 + l1 |theta|_1 + |soft(g, l1)|^2 / (2 lam),

where soft(g, a) = sign(g) max(|g| - a, 0). For l1 = 0, this is |g + lam theta|^2 / (2 lam).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.basis.pairs import Pairs
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel, LabelMap
from kernelcrf.validation import either, real

# For smaller C, 1 / C would be close to the largest float.
LEAST_C = 1e-300
L1 = either(real(least=0))
PRIOR_VARIANCE = either(real(least=LEAST_C), advice="the certificate needs a finite C for every term")

# If |v|^2 is between these, entries of v whose squares underflow are negligible.
SMALL_SQUARE, LARGE_SQUARE = 1e-200, 1e200


# The kinds of cliques of a chain: tokens (t,), steps (t - 1, t), the first token and the last token of each sequence.
TOKENS, STEPS, STARTS, ENDS = "tokens", "steps", "starts", "ends"
# The names of the terms of a chain, also in model files, and the kinds of their cliques.
TOKEN_TERM, TRANSITION_TERM, STEP_TERM = "node", "edge", "steps"
BIAS_TERM, START_TERM, END_TERM = "bias", "start", "end"
CHAIN_CLIQUES = {
    TOKEN_TERM: TOKENS,
    TRANSITION_TERM: STEPS,
    BIAS_TERM: TOKENS,
    START_TERM: STARTS,
    END_TERM: ENDS,
    STEP_TERM: STEPS,
}
# The kinds of cliques of graphs; a term with inputs has the name of its kind.
NODES, EDGES, EDGE_INPUTS, SKIPS, PATHS = "nodes", "edges", "edge inputs", "skips", "paths"


@dataclass(frozen=True, eq=False)
class Term:
    """A function that scores the labels of a clique, given its input; it is in the RKHS of the kernel k_x k_y.

    cliques : the kind of cliques: TOKENS, STEPS, STARTS or ENDS for a chain, the name of a template for a graph.
    k_y : the label kernel, which compares joint labelings of a clique.
    C, l1 : the prior variance of the weights, and the factor of their L1 penalty.
    kernel : the input kernel k_x, or None if the function does not depend on inputs.
    input : the name of the input that `kernel` compares, or None.
    n : the number of features of k_x; the weights have the shape (n, rank of k_y).
    pairs : the pairs of a feature and a joint label that have a weight, or None if all pairs have one. If some have
        none, the weights are a vector with one entry per pair, and k_y must be the identity.
    """

    name: str
    cliques: str
    k_y: LabelMap
    C: float
    kernel: InputKernel | None = None
    input: str | None = None
    n: int = 1
    pairs: Pairs | None = None
    l1: float = 0.0

    def __post_init__(self) -> None:
        PRIOR_VARIANCE.check("C", self.C)
        L1.check("l1", self.l1)
        object.__setattr__(self, "C", float(self.C))
        if (self.kernel is None) != (self.input is None):
            raise ValueError(
                f"term {self.name!r} has kernel={self.kernel!r} and input={self.input!r}: pass both or neither"
            )
        if self.pairs is not None and not self.k_y.is_identity:
            raise ValueError(
                f"term {self.name!r} has weights for some pairs only, and another label kernel than 'delta': expected "
                "label_kernel='delta', or weights for all pairs"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weights."""
        return (self.n, self.k_y.rank) if self.pairs is None else (self.pairs.size,)

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return math.prod(self.shape)

    def gap(self, theta: Floats, gradient: Floats) -> float:
        """Return what the term adds to the gap of Lemma 9, given its weights and the gradient of loss + |theta|^2 / 2C.

        The formula of the module docstring is computed as a sum of terms that are not negative.
        """
        if not self.l1:
            return 0.5 * times_square(self.C, gradient)
        decay = theta * (1.0 / self.C)
        g = gradient - decay
        pull = -soft(g, self.l1)
        absolute = np.dot(theta, g + pull) + self.l1 * np.abs(theta).sum()
        return 0.5 * times_square(self.C, decay - pull) + max(float(absolute), 0.0)

    def unpack(self, weights: Array) -> Array:
        """Return the weights as a matrix (n, rank of k_y), with 0 for pairs that have no weight.

        The weights may have further axes before those of `shape`.
        """
        return weights if self.pairs is None else self.pairs.unpack(weights)

    def pack(self, full: Array) -> Array:
        """Return the entries of a matrix (n, rank of k_y) that belong to weights, in the shape of the weights."""
        return full if self.pairs is None else self.pairs.pack(full)


def scored_tokens(term: Term, chains: Chains) -> Ints | slice:
    """Return the tokens whose labels a term of a chain scores: all of them, or those at one end of each sequence."""
    if term.cliques == TOKENS:
        return slice(None)
    return chains.first_nodes if term.cliques == STARTS else chains.last_nodes


def constant_term(cliques: str) -> str:
    """Return the name of the term without inputs that scores the given kind of cliques of a graph."""
    return f"{cliques} constant"


def chain_terms(
    n_labels: int,
    kernel: InputKernel,
    edge_kernel: InputKernel | None = None,
    *,
    C: float = 1.0,
    C_edge: float | None = 1.0,
    C_bias: float | None = None,
    C_ends: float | None = None,
    label_kernel: str | npt.ArrayLike = "delta",
    l1: float = 0.0,
) -> list[Term]:
    """Return the terms of a chain: scores of tokens and, optionally, of transitions, labels, and both ends.

    kernel, label_kernel, C : input kernel, label kernel and prior variance of the scores of tokens.
    C_edge : prior variance of transitions, or None to leave transitions out.
    C_bias : prior variance of label biases, which have the label kernel of tokens, or None to leave biases out.
    C_ends : prior variance of the scores of first and of last labels, or None to leave them out.
    edge_kernel : input kernel of transitions that depend on the input, or None if transitions are constant.
    l1 : the factor of the L1 penalty of all weights.
    """
    pairs = LabelKernel("delta", n_labels**2)
    terms = [Term(TOKEN_TERM, TOKENS, LabelKernel.of(label_kernel, n_labels), C, kernel, TOKENS)]
    if C_edge is not None:
        terms.append(Term(TRANSITION_TERM, STEPS, pairs, C_edge))
    if C_bias is not None:
        terms.append(Term(BIAS_TERM, TOKENS, terms[0].k_y, C_bias))
    if C_ends is not None:
        terms.append(Term(START_TERM, STARTS, LabelKernel("delta", n_labels), C_ends))
        terms.append(Term(END_TERM, ENDS, LabelKernel("delta", n_labels), C_ends))
    if C_edge is not None and edge_kernel is not None:
        terms.append(Term(STEP_TERM, STEPS, pairs, C_edge, edge_kernel, TOKENS))
    return [replace(term, l1=float(l1)) for term in terms]


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
        """Return the gradient of the penalty at v: the weights of each term, divided by its prior variance C."""
        return np.concatenate([v[self.slices[term.name]] * (1.0 / term.C) for term in self.terms])

    @cached_property
    def has_l1(self) -> bool:
        """Return whether a term has an L1 penalty, so that the objective is not differentiable."""
        return any(term.l1 for term in self.terms)

    @property
    def l1(self) -> Floats:
        """Return the factor of the L1 penalty of each weight."""
        return np.repeat([term.l1 for term in self.terms], [term.size for term in self.terms])

    def penalty(self, theta: Floats) -> float:
        """Return the penalty at theta: the sum over terms of |weights|^2 / (2 C) + l1 |weights|_1."""
        absolute = [term.l1 * float(np.abs(theta[self.slices[term.name]]).sum()) for term in self.terms if term.l1]
        return 0.5 * self.squared_norm(theta) + sum(absolute)

    def gap(self, theta: Floats, gradient: Floats) -> float:
        """Return the gap of Lemma 9: how far the objective at theta is at most above its minimum.

        gradient : the gradient of the objective without its L1 penalty.
        """
        slices = [(term, self.slices[term.name]) for term in self.terms]
        return sum(term.gap(theta[own], gradient[own]) for term, own in slices)

    def squared_norm(self, theta: Floats) -> float:
        """Return the sum over terms of |weights|^2 / C."""
        return float(sum(times_square(1.0 / term.C, theta[self.slices[term.name]]) for term in self.terms))

    def squared_dual_norms(self, g: Floats) -> dict[str, float]:
        """Return C |g|^2 for each term, where C is its prior variance and g its part of the gradient.

        Changing the weights of a term can lower the objective by at most half of this number (Lemma 9 of the paper).
        """
        return {term.name: times_square(term.C, g[self.slices[term.name]]) for term in self.terms}

    def split(self, theta: Floats) -> dict[str, Floats]:
        """Return the weights of each term, by its name, in the shape of the term; the arrays are views of theta."""
        return {term.name: theta[self.slices[term.name]].reshape(term.shape) for term in self.terms}

    def join(self, weights: Mapping[str, Array]) -> Floats:
        """Return the weights of all terms, given by name, as one vector theta."""
        return np.concatenate([np.asarray(weights[term.name], np.float64).ravel() for term in self.terms])

    def project(self, theta: Floats) -> Floats:
        """Return theta without the components that change no score, because a label kernel maps them to zero.

        The penalty makes these components zero at the optimum, but rounding errors of a solver can bring them back.
        """
        weights = self.split(theta)
        projected = {term.name: term.k_y.project(weights[term.name]) for term in self.terms}
        return theta if all(projected[name] is W for name, W in weights.items()) else self.join(projected)

    def to_config(self) -> list[dict[str, Any]]:
        """Return the terms of a chain as values that can be stored as JSON; `from_config` restores the layout."""
        return [
            {
                "name": term.name,
                "nodes": 2 if term.cliques == STEPS else 1,
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
            k_y = LabelKernel.from_config(one["label_kernel"])
            cliques = CHAIN_CLIQUES[one["name"]]
            if cliques == STEPS:
                if not k_y.is_identity:
                    raise ValueError(
                        f"term {one['name']!r} scores steps and has label_kernel={k_y.kind!r}: expected 'delta', "
                        "the only label kernel for pairs of labels"
                    )
                k_y = LabelKernel("delta", k_y.L**2)
            kernel = None if one["kernel"] is None else InputKernel.from_config(one["kernel"])
            read = None if kernel is None else TOKENS
            n, own = int(one["n"]), pairs[one["name"]]
            # Files of earlier versions have no L1 penalty.
            l1 = float(one.get("l1", 0.0))
            terms.append(Term(one["name"], cliques, k_y, float(one["C"]), kernel, read, n, own, l1))
        return cls(tuple(terms))


def soft(v: Array, threshold: float) -> Array:
    """Return the entries of v, moved towards zero by `threshold`; smaller entries become zero."""
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


def _stored_label_kernel(term: Term) -> LabelKernel:
    """Return the label kernel that model files store for a term of a chain.

    For a term that scores steps between labels, the stored kernel compares single labels instead of pairs of labels.
    """
    if not isinstance(term.k_y, LabelKernel):
        raise TypeError(
            f"term {term.name!r} has a label kernel of type {type(term.k_y).__name__}: "
            "expected LabelKernel, the only type that model files can store"
        )
    return LabelKernel(term.k_y.kind, math.isqrt(term.k_y.L)) if term.cliques == STEPS else term.k_y
