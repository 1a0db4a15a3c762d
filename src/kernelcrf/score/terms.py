"""Define the terms of a model; each has an input kernel k_x, a label kernel k_y and a prior variance C.

The score of a labelling y is a sum over the terms, and over the cliques c on which each term is defined (equations 14
and 26 of the paper):

    score(y | x) = sum over terms, sum over cliques c, of f_term(x_c, y_c).

The function f_term is in the RKHS of k_x k_y. The label kernel compares joint labellings of a clique and has a factor A
with one row per joint labelling, so that k_y = A A'. With n features F of the input (F = 1 if the term has no inputs)
and weights W of shape (n, rank of A), the function is f = A (W' F). Since features are whitened and label kernels are
factored, the RKHS norm of f is the Euclidean norm of the weights. The negative log prior is therefore
sum_k |theta_k|^2 / (2 C_k), where theta_k are the weights of term k. Solvers get the weights of all terms as one vector
theta.

The module `penalties` has other priors: some make weights zero, and some are determined by an earlier model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.basis.pairs import Pairs
from kernelcrf.kernels.chain_labels import ChainLabels, TokenLabels
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel, LabelMap
from kernelcrf.kernels.orbits import Views
from kernelcrf.penalties import Gaussian, Penalty
from kernelcrf.score.chain_names import BETWEEN as BETWEEN
from kernelcrf.score.chain_names import BIAS_TERM as BIAS_TERM
from kernelcrf.score.chain_names import CHAIN_CLIQUES as CHAIN_CLIQUES
from kernelcrf.score.chain_names import END_TERM as END_TERM
from kernelcrf.score.chain_names import OF_INPUT as OF_INPUT
from kernelcrf.score.chain_names import START_TERM as START_TERM
from kernelcrf.score.chain_names import TOKEN_TERM as TOKEN_TERM
from kernelcrf.score.chain_names import TRANSITION_TERM as TRANSITION_TERM
from kernelcrf.score.cliques import (
    DURATIONS,
    ENDS,
    FIRSTS,
    LASTS,
    SEGMENTS,
    STARTS,
    STEPS,
    TAILS,
    TOKENS,
    Clique,
    kind_of,
)
from kernelcrf.validation import either, real

# For smaller C, 1 / C would be close to the largest float.
LEAST_C = 1e-300
PRIOR_VARIANCE = either(real(least=LEAST_C), advice="the certificate needs a finite C for every term")
GAUSSIAN = Gaussian()


FIRST_TERM, LAST_TERM, DURATION_TERM, TAIL_TERM, SEGMENT_TERM = "first", "last", "duration", "tail", "segment"
SEGMENT_CLIQUES = {
    FIRST_TERM: FIRSTS,
    LAST_TERM: LASTS,
    DURATION_TERM: DURATIONS,
    TAIL_TERM: TAILS,
    SEGMENT_TERM: SEGMENTS,
}


@dataclass(frozen=True, eq=False)
class Term:
    """A function that scores the labels of a clique, given its input; it is in the RKHS of the kernel k_x k_y.

    cliques : the name of the kind of cliques, as in `score.cliques`; for a graph, the name of a template.
    k_y : the label kernel, which compares joint labellings of a clique.
    C : the prior variance of the weights.
    kernel : the input kernel k_x, or None if the function does not depend on inputs.
    input : the name of the input that `kernel` compares, or None.
    n : the number of features of k_x; the weights have the shape (n, rank of k_y).
    pairs : the pairs of a feature and a joint label that have a weight, or None if all pairs have one. If only some
        pairs have weights, the weights are a vector with one entry per pair, and k_y must be the identity.
    penalty : the negative log prior of the weights; by default that of N(0, C).
    views : if a group moves the input, how its elements move it; a clique then has one row of features per element.
    """

    name: str
    cliques: str
    k_y: LabelMap
    C: float
    kernel: InputKernel | None = None
    input: str | None = None
    n: int = 1
    pairs: Pairs | None = None
    penalty: Penalty = GAUSSIAN
    views: Views | None = None

    def __post_init__(self) -> None:
        PRIOR_VARIANCE.check("C", self.C)
        object.__setattr__(self, "C", float(self.C))
        if (self.kernel is None) != (self.input is None):
            raise ValueError(
                f"term {self.name!r} has kernel={self.kernel!r} and input={self.input!r}: pass both or neither"
            )
        if self.pairs is not None and not self.k_y.is_identity:
            raise ValueError(
                f"term {self.name!r} has weights for only some pairs of a feature and a label, and its label kernel "
                "is not 'delta': expected label_kernel='delta', or weights for all pairs"
            )

    @cached_property
    def kind(self) -> Clique:
        """Return the kind of cliques that the term scores."""
        return kind_of(self.cliques)

    def rows(self, X: Inputs) -> Inputs:
        """Return the rows whose features the term has: those of X, or several moved ones for each row of X."""
        return X if self.views is None else self.views.rows(X)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weights."""
        return (self.n, self.k_y.rank) if self.pairs is None else (self.pairs.size,)

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return math.prod(self.shape)

    @property
    def has_inputs(self) -> bool:
        """Return whether the scores of the term depend on inputs."""
        return self.kernel is not None

    @cached_property
    def mean(self) -> Floats | None:
        """Return the prior mean mu of each weight, or None if all means are 0."""
        return self.penalty.find_mean(self)

    @cached_property
    def precision(self) -> Floats | None:
        """Return the prior precision lam of each weight given all others, or None if all are 1 / C."""
        return self.penalty.find_precision(self)

    @property
    def lam(self) -> Floats:
        """Return the prior precision of each weight given all others."""
        return self.penalty.curvature(self, np.ones(self.size))

    def project(self, W: Floats) -> Floats:
        """Return W, a change of the weights, without the components that the label kernel maps to zero.

        If not all prior precisions are 1 / C, such components can lower the penalty, and W is returned unchanged.
        """
        return self.k_y.project(W) if self.precision is None else W

    def expand(self, W: Array) -> Array:
        """Return W A', for the weights W and the factor A of the label kernel.

        The result has one row per feature and one column per joint labelling of a clique.
        """
        return self.k_y.expand(self.unpack(W))

    def adjoint(self, R: Array) -> Array:
        """Return the gradient with respect to the weights of a term without inputs.

        R : the gradient with respect to the scores of the term, one row per clique.
        """
        return self.pack(self.k_y.adjoint(R.sum(axis=0, dtype=np.float64, keepdims=True)))

    def unpack(self, weights: Array) -> Array:
        """Return the weights as a matrix (n, rank of k_y), with 0 for pairs that have no weight.

        The weights may have more axes before those of `shape`.
        """
        return weights if self.pairs is None else self.pairs.unpack(weights)

    def pack(self, full: Array) -> Array:
        """Return the entries of a matrix (n, rank of k_y) that belong to weights, in the shape of the weights."""
        return full if self.pairs is None else self.pairs.pack(full)


def constant_term(cliques: str) -> str:
    """Return the name of the term without inputs that scores the given kind of cliques of a graph."""
    return f"{cliques} constant"


class NamedInput(NamedTuple):
    """An input that has a name: its kernel, its prior variance, and the kind of cliques that it scores."""

    kernel: InputKernel
    C: float
    scores: str = TOKENS


def named_term(name: str, cliques: str = "") -> str:
    """Return the name of a term of the input called `name`.

    cliques : the kind of cliques, if the input scores several kinds.
    """
    return OF_INPUT + name + (BETWEEN + cliques if cliques else "")


def input_name(term: str) -> str | None:
    """Return the name of the input of the term called `term`, or None if this input has no name."""
    return term.removeprefix(OF_INPUT).partition(BETWEEN)[0] if term.startswith(OF_INPUT) else None


def node_terms(cliques: str, k_y: LabelMap, inputs: Mapping[Any, NamedInput], source: str, part: str) -> list[Term]:
    """Return the terms of graphs that score single nodes, one term per input.

    inputs : a dict from names to inputs; a single input without a name has the key None.
    source : the name of the data matrix of an input without a name.
    part : the second argument of `named_term`; its result is the name of the data matrix of an input with a name.
    """
    return [
        Term(cliques, cliques, k_y, one.C, one.kernel, source)
        if name is None
        else Term(named_term(name, cliques), cliques, k_y, one.C, one.kernel, named_term(name, part))
        for name, one in inputs.items()
    ]


def input_term(name: str, one: NamedInput, labels: ChainLabels) -> Term:
    """Return the term of the input called `name`, which scores the labels of one kind of cliques."""
    k_y, views = labels.of_input(2 if kind_of(one.scores).is_step else 1, name)
    return Term(named_term(name), one.scores, k_y, one.C, one.kernel, name, views=views)


def chain_terms(
    n_labels: int,
    kernel: InputKernel | None,
    *,
    C: float = 1.0,
    C_edge: float | None = 1.0,
    C_bias: float | None = None,
    C_ends: float | None = None,
    label_kernel: str | npt.ArrayLike | ChainLabels = "delta",
    inputs: Mapping[str, NamedInput] | None = None,
) -> list[Term]:
    """Return the terms of a chain: scores of tokens and, optionally, of transitions, labels, and both ends.

    kernel, label_kernel, C : input kernel, label kernel and prior variance of the scores of tokens; `kernel` is None
        if only inputs with names score tokens. The label kernel may also be an object with the kernels of all terms.
    inputs : the inputs that have a name.
    C_edge : prior variance of transitions, or None to leave transitions out.
    C_bias : prior variance of label biases, which have the label kernel of tokens, or None to leave biases out.
    C_ends : prior variance of the scores of first and of last labels, or None to leave them out.
    """
    labels: ChainLabels
    if isinstance(label_kernel, ChainLabels):
        labels = label_kernel
    else:
        labels = TokenLabels(LabelKernel.of(label_kernel, n_labels))
    of_inputs = [input_term(name, one, labels) for name, one in (inputs or {}).items()]
    terms: list[Term] = []
    if kernel is not None:
        k_y, views = labels.of_input(1, None)
        terms.append(Term(TOKEN_TERM, TOKENS, k_y, C, kernel, TOKENS, views=views))
    terms += [term for term in of_inputs if term.kind.is_token]
    if C_edge is not None:
        terms.append(Term(TRANSITION_TERM, STEPS, labels.of_labels(2), C_edge))
    if C_bias is not None:
        terms.append(Term(BIAS_TERM, TOKENS, labels.of_bias, C_bias))
    if C_ends is not None:
        terms.append(Term(START_TERM, STARTS, labels.of_labels(1), C_ends))
        terms.append(Term(END_TERM, ENDS, labels.of_labels(1), C_ends))
    return terms + [term for term in of_inputs if not term.kind.is_token]


def segment_terms(
    n_labels: int,
    C: float,
    *,
    durations: DurationKernel | None,
    tail: bool,
    ends: InputKernel | None,
    segment_kernel: InputKernel | None,
    named_ends: Mapping[str, NamedInput] | None = None,
) -> list[Term]:
    """Return the terms that a segmentation has besides the terms of a chain, all with the prior variance C.

    durations : the kernel of pairs of a duration and a label, or None if durations have no scores.
    tail : whether segments may be longer than the longest duration, with a score for each further token.
    ends : input kernel for scores of the first and the last token of a segment, or None to leave these scores out.
    segment_kernel : input kernel for scores of whole segments, or None to leave these scores out.
    named_ends : the inputs that have a name and score the first and the last token of a segment.
    """
    k_y = LabelKernel("delta", n_labels)
    terms = [] if ends is None else [Term(FIRST_TERM, FIRSTS, k_y, C, ends, TOKENS)]
    terms += [] if ends is None else [Term(LAST_TERM, LASTS, k_y, C, ends, TOKENS)]
    for name, one in (named_ends or {}).items():
        terms += [Term(named_term(name, at), at, k_y, one.C, one.kernel, name) for at in (FIRSTS, LASTS)]
    terms += [] if durations is None else [Term(DURATION_TERM, DURATIONS, durations, C)]
    terms += [Term(TAIL_TERM, TAILS, k_y, C)] if tail else []
    return terms + ([] if segment_kernel is None else [Term(SEGMENT_TERM, SEGMENTS, k_y, C, segment_kernel, SEGMENTS)])
