"""The base class of fitted models of sequences and of independent rows, whose score is a sum of terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Self, TypeAlias, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, UserData
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.kernel_weights import PairWeights, Weights, fold
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.certificate import IMPORTED, TEMPERED, Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.held_out import Trial
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.base import FittedModel, common_variance
from kernelcrf.persistence.checks import check_terms, read_array
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.rows import RowReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.cliques import DURATIONS, KINDS, TOKENS, Clique
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import (
    BETWEEN,
    BIAS_TERM,
    FIRST_TERM,
    LAST_TERM,
    SEGMENT_TERM,
    TOKEN_TERM,
    Term,
    input_name,
    named_term,
)

# By term: the parameter that sets its kernel.
KERNELS = {
    TOKEN_TERM: "kernel",
    FIRST_TERM: "kernel",
    LAST_TERM: "kernel",
    SEGMENT_TERM: "segment_kernel",
}


def kernel_parameter(term: str) -> str:
    """Return the name of the parameter that sets the kernel of a term."""
    name = input_name(term)
    return KERNELS.get(term, f"{term if name is None else named_term(name)}{BETWEEN}kernel")


T = TypeVar("T")
ExpectedTerms: TypeAlias = Mapping[str, tuple[str, str | None]]


@dataclass(frozen=True, eq=False)
class TokenInput:
    """An input that scores single labels of tokens, with its kernel and weights.

    prefix : the name of the input and a separator, with which the names of its columns begin; "" without a name.
    kind : the kind of cliques that the input scores.
    map : the map from inputs to features whose inner products approximate `kernel`.
    coef : the weights, one row per feature and one column per label.
    columns : the names of the columns of the input.
    """

    name: str
    prefix: str
    kind: Clique
    kernel: InputKernel
    map: FeatureMap
    coef: Floats
    columns: Sequence[str]

    @property
    def landmarks(self) -> Inputs:
        """Return the landmarks, one per row, or None for the linear kernel."""
        return self.map.landmarks if isinstance(self.map, WhitenedMap) else None

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the columns of the input; columns without names are called "x0", "x1", ..."""
        return [self.prefix + column for column in self.columns]

    @property
    def term_names(self) -> list[str]:
        """Return a name for each row of `dual_coef`: "landmark 0", "landmark 1", ..., or the name of a feature."""
        if self.landmarks is None:
            return self.feature_names
        return [f"{self.prefix}landmark {b}" for b in range(self.map.n)]

    @cached_property
    def dual_coef(self) -> Floats:
        """Return the coefficients a_b of the scores f(x) = sum_b k(x, b) a_b, one row per landmark b.

        Here, k is the kernel of the input. For the linear kernel, return `coef`, the weights of the features.
        """
        if not isinstance(self.map, WhitenedMap):
            return self.coef
        return np.asarray(solve_triangular(self.map.R.astype(np.float64), self.coef, trans="T", lower=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelModel(FittedModel):
    """Base class of fitted models of sequences or independent rows, whose score is a sum of terms.

    The terms are the score of a token's label, the score of a transition between the labels of neighbouring tokens,
    biases of labels, scores of the first and the last label, and a score of transitions that depends on inputs. Models
    of rows have only the score of a label and its bias.

    reader : converts new inputs to arrays in the same way as the inputs of `fit`.
    objective_curve : the objective at each iteration of the fit.
    has_prior : whether another model was the prior of the fit. Files do not store the means and precisions of the
        prior.
    trials : the models that the fit has compared on held-out samples.
    """

    reader: SequenceReader | InputsReader | RowReader
    objective_curve: Floats
    has_prior: bool = False
    trials: tuple[Trial, ...] = ()

    @property
    def search(self) -> dict[str, list[UserData]]:
        """Return a dict of columns with one entry per model that the fit compared."""
        columns: dict[str, list[UserData]] = {
            one.name: [getattr(t, one.name) for t in self.trials] for one in fields(Trial)
        }
        # Only several inputs have several values of C.
        columns["C"] = [C[0] if len(C) == 1 else list(C) for C in columns["C"]]
        return columns

    @property
    def column_labels(self) -> list[UserData]:
        """Return the label of each column of the scores."""
        raise NotImplementedError

    @property
    def answer_bytes(self) -> int:
        pairs = [term.pairs for term in self.layout.terms if term.pairs is not None]
        return 8 * (len(self.theta) + sum(one.n + 2 * one.size for one in pairs))

    @cached_property
    def token_inputs(self) -> list[TokenInput]:
        """Return the inputs that score the labels of all tokens, in the order of `coef`."""
        return [one for one in self.label_inputs if one.kind.is_token]

    @cached_property
    def label_inputs(self) -> list[TokenInput]:
        """Return the inputs that score single labels; the inputs that score the labels of all tokens come first."""
        inputs = []
        for term in self.layout.terms:
            if term.kind.is_single and term.kernel is not None and term.input is not None:
                feature_map = self.maps[term.name]
                prefix = "" if input_name(term.name) is None else f"{term.input}{BETWEEN}"
                width = feature_map.landmarks.shape[1] if isinstance(feature_map, WhitenedMap) else feature_map.n
                names = self.reader.names_of(term.input)
                columns = [f"x{c}" for c in range(width)] if names is None else list(names)
                coef = self._weights(term)
                inputs.append(TokenInput(term.input, prefix, term.kind, term.kernel, feature_map, coef, columns))
        return inputs

    @property
    def kernel(self) -> InputKernel | dict[str, InputKernel]:
        """Return the kernel between the inputs of two tokens, or between two rows; a dict if inputs have names."""
        return self._of_inputs({one.name: one.kernel for one in self.token_inputs})

    @property
    def landmarks(self) -> Inputs | dict[str, Inputs | None] | None:
        """Return the landmarks, one per row, or None for the linear kernel; a dict if inputs have names."""
        return self._of_inputs({one.name: one.landmarks for one in self.token_inputs})

    def _of_inputs(self, by_name: dict[str, T]) -> T | dict[str, T]:
        return by_name if self.token_inputs[0].prefix else by_name[TOKENS]

    @property
    def has_landmarks(self) -> bool:
        """Return whether at least one input has landmarks."""
        return any(one.landmarks is not None for one in self.token_inputs)

    @property
    def moves_inputs(self) -> bool:
        """Return whether a group moves inputs, so that weights belong to orbits of labels, and not to labels."""
        return any(term.views is not None for term in self.layout.terms)

    def refuse_moved_inputs(self, what: str) -> None:
        """Raise an AttributeError if a group moves inputs; `what` needs weights that belong to labels."""
        if self.moves_inputs:
            raise AttributeError(
                f"{what} is not available for a model with label_kernel=Symmetry(...), whose weights do not belong to "
                "single labels: use predict_proba or distribution"
            )

    @property
    def certifies_labels(self) -> bool:
        """Return whether there are bounds for single labels: no group moves inputs, and no steps share weights."""
        steps = [term for term in self.layout.terms if term.kind.is_step]
        return not self.moves_inputs and all(term.k_y.is_identity for term in steps)

    def refuse_shared_steps(self, what: str) -> None:
        """Raise a ValueError if a group moves inputs or steps share weights; `what` has no bound for such models."""
        if not self.certifies_labels:
            raise ValueError(
                f"{what} is not available for this model, because labels share the weights of steps or of moved "
                "inputs: expected label_kernel='delta', 'centred' or a matrix in the fit"
            )

    @cached_property
    def coef(self) -> Floats:
        """Return the weights of the features of all inputs, with one row per feature and one column per label."""
        self.refuse_moved_inputs("coef_")
        return np.vstack([one.coef for one in self.token_inputs])

    def _expand(self, name: str) -> Floats:
        """Return the weight of each feature of a term in the score of each label, or of each pair of labels.

        With n features and L labels, the shape is (n, L) for tokens, (L, L) for transitions, (n, L, L) for transitions
        that depend on inputs, and (L,) for biases and for the scores of first and last labels.
        """
        term = self.layout.by_name[name]
        W = term.k_y.expand(term.unpack(self.layout.split(self.theta)[name]))
        shape = W.shape if not term.kind.is_step else (*W.shape[:-1], *(math.isqrt(W.shape[-1]),) * 2)
        return np.asarray(W.reshape(shape) if term.kernel is not None else W.reshape(shape)[0])

    def _weights(self, term: Term) -> Floats:
        """Return the weights with which the features of a term are multiplied, one row per feature.

        There is one column per label, or, if a group moves the input, one column per orbit of labels.
        """
        if term.views is None:
            return self._expand(term.name)
        return self.layout.split(self.theta)[term.name]

    @cached_property
    def intercept(self) -> Floats:
        """Return the bias of each label, which is added to its scores at all tokens; zeros if there are no biases."""
        return self._constant(BIAS_TERM)

    def _constant(self, name: str) -> Floats:
        """Return the scores of labels by the term `name`, which has no inputs; zeros if the model has no such term."""
        return self._expand(name) if name in self.layout.by_name else np.zeros(len(self.column_labels))

    @property
    def term_names(self) -> list[str]:
        """Return a name for each row of `dual_coef`: "landmark 0", "landmark 1", ..., or the name of a feature.

        Rows are features if the kernel is linear. If inputs have names, each row's name begins with that of its input.
        """
        return [name for one in self.token_inputs for name in one.term_names]

    @cached_property
    def folded(self) -> dict[str, Weights]:
        """Return a dict from the name of each term that depends on inputs to weights with which predictions are fast.

        Predictions multiply these weights by the kernel values between inputs and landmarks, and need no features. With
        the linear kernel, they multiply the weights by the inputs.
        """
        theta, folded = self.layout.split(self.theta), dict[str, Weights]()
        for name, feature_map in self.maps.items():
            term = self.layout.by_name[name]
            pairs = term.pairs
            if pairs is None:
                folded[name] = fold(feature_map, self._weights(term).reshape(feature_map.n, -1))
            else:
                folded[name] = PairWeights(pairs, theta[name])
        return folded

    @cached_property
    def _constants(self) -> dict[str, Floats]:
        """Return a dict from the name of each term without inputs to its scores, as an array with one row."""
        weights = self.layout.split(self.theta)
        return {term.name: term.expand(weights[term.name]) for term in self.layout.terms if term.name not in self.maps}

    @cached_property
    def _constant_terms(self) -> list[tuple[Term, Floats]]:
        """Return the terms that have no inputs, with their scores; leave out terms whose scores are all 0."""
        terms = [term for term in self.layout.terms if term.name not in self.maps]
        return [(term, self._constants[term.name]) for term in terms if self._constants[term.name].any()]

    def term_scores(self, inputs: Callable[[Term], Inputs | Entries], engine: LocalEngine) -> list[tuple[Term, Array]]:
        """Return pairs of a term and its scores: one row per clique, or a single row if the term has no inputs.

        Terms without inputs are left out if all their scores are 0.

        inputs : a function that returns the inputs of a term.
        """
        with_inputs = [term for term in self.layout.terms if term.name in self.maps]
        return [(term, self._scores_of(term, inputs(term), engine)) for term in with_inputs] + self._constant_terms

    def _scores_of(self, term: Term, X: Inputs | Entries, engine: LocalEngine) -> Array:
        """Return the scores of a term that has inputs, one row per row of X."""
        weights = self.folded[term.name]
        if term.views is None:
            return weights.scores(X, engine)
        blocks = [weights.scores(rows, engine) for rows in term.views.blocks(X)]
        return term.k_y.expand(np.concatenate(blocks).reshape(X.shape[0], -1))

    @property
    def dual_coef(self) -> Floats:
        """Return the coefficients a_b of the scores sum_b k(x, b) a_b, one row per landmark b of all inputs.

        Here, k is the kernel of the input. For the linear kernel, the rows are the weights of the features.
        """
        self.refuse_moved_inputs("top_features")
        return np.vstack([one.dual_coef for one in self.token_inputs])

    def divide_weights(self, temperature: float) -> Self:
        """Return a copy of the model whose weights are divided by `temperature`.

        The copy has no posterior, and its certificate has no objective and no lower bound.
        """
        status = IMPORTED if self.certificate.status == IMPORTED else TEMPERED
        certificate = Certificate(np.nan, -np.inf, status)
        return replace(self, theta=self.theta / temperature, certificate=certificate, laplace=None)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config |= {"has_prior": True} if self.has_prior else {}
        config |= {"trials": [asdict(one) for one in self.trials]} if self.trials else {}
        return config, arrays | {"objective_curve": self.objective_curve}

    @staticmethod
    def _fields_of(trained: Trained, specification: Config) -> Config:
        """Return the fields of `KernelModel` as a dict, given the result of training and the settings of the fit."""
        fitted, terms = trained.fit, trained.fit.layout.terms
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": common_variance(terms),
            "laplace": trained.laplace,
            "specification": specification,
            "kernels": _kernels(fitted.layout),
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "objective_curve": np.array([record.value for record in fitted.solution.history]),
            "has_prior": any(term.mean is not None for term in terms),
            "trials": () if trained.held_out is None else trained.held_out.trials,
        }

    @classmethod
    def _read_terms(
        cls,
        config: Config,
        arrays: Arrays,
        L: int,
        expected: ExpectedTerms,
        widths: Mapping[str, int],
        longest: int = 0,
    ) -> Config:
        """Return the fields of `KernelModel` as a dict, as read from a model file.

        Raise an error if the fields are inconsistent or do not fit L labels.

        expected : a dict from the name of each expected term to the kind of its cliques and the name of its input.
        widths : the number of columns of each input.
        longest : the number of durations of segments that have scores of their own; 0 for a model without segments.
        """
        check_terms(config, expected)
        sizes = {name: L**2 if kind.is_step else L for name, kind in KINDS.items()} | {DURATIONS: longest * L}
        shared = cls._read_fields(config, arrays, sizes, widths)
        return shared | {
            "kernels": _kernels(shared["layout"]),
            "objective_curve": read_array(arrays, "objective_curve", (parts.n_records(shared),), "f"),
            "has_prior": config.get("has_prior") is True,
            "trials": parts.read_trials(config),
        }


def _kernels(layout: Layout) -> dict[str, InputKernel]:
    """Return a dict from the name of each kernel parameter to the kernel that this parameter sets."""
    return {kernel_parameter(term.name): term.kernel for term in layout.terms if term.kernel is not None}
