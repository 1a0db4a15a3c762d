"""The base class of fitted models of sequences and of independent rows, whose score is a sum of terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.base import FittedModel
from kernelcrf.models.posterior import ScorePosterior
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_count, read_map, read_text
from kernelcrf.readers.base_scores import read_base_names
from kernelcrf.readers.inputs import BETWEEN, InputsReader
from kernelcrf.readers.rows import RowReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import BIAS_TERM, FIRST_TERM, LAST_TERM, OF_INPUT, SEGMENT_TERM, STEP_TERM, TOKEN_TERM, Term
from kernelcrf.validation import shown

# By term: the parameter that sets its kernel, and the name of its feature map in files.
KERNELS = {
    TOKEN_TERM: "kernel",
    FIRST_TERM: "kernel",
    LAST_TERM: "kernel",
    STEP_TERM: "edge_kernel",
    SEGMENT_TERM: "segment_kernel",
}
MAPS = {TOKEN_TERM: "map", STEP_TERM: "edge_map"}


def kernel_parameter(term: str) -> str:
    """Return the name of the parameter that sets the kernel of a term."""
    return KERNELS.get(term, f"{term}__kernel")


def map_entry(term: str) -> str:
    """Return the name of the feature map of a term in model files."""
    return MAPS.get(term, f"{term}__map")


T = TypeVar("T")
Terms: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class TokenInput:
    """An input that scores the labels of tokens, with its kernel and weights.

    prefix : what the names of its columns begin with; empty if the input has no name.
    map : the map from inputs to features whose inner products approximate `kernel`.
    coef : the weights, one row per feature and one column per label.
    columns : the names of the columns of the input.
    """

    name: str
    prefix: str
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

        k is the kernel. If it is linear, return `coef`, the weights of the features.
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
    layout, theta : the terms, and the weights of all terms as one vector.
    maps : for each term that depends on inputs, the map from inputs to features.
    objective_curve : the objective at each iteration of the fit.
    has_prior : whether another model was the prior of the fit. Files do not store its means and precisions.
    base : the names of the base scores of the fit, "tokens" and "steps"; predictions need the same ones.
    """

    reader: SequenceReader | InputsReader | RowReader
    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]
    objective_curve: Floats
    has_prior: bool = False
    base: tuple[str, ...] = ()

    @property
    def feature_maps(self) -> Mapping[str, FeatureMap]:
        return self.maps

    @property
    def column_labels(self) -> list[UserData]:
        """Return the label of each column of the scores."""
        raise NotImplementedError

    @property
    def answer_bytes(self) -> int:
        pairs = [term.pairs for term in self.layout.terms if term.pairs is not None]
        return 8 * (len(self.theta) + sum(own.n + 2 * own.size for own in pairs))

    @cached_property
    def token_inputs(self) -> list[TokenInput]:
        """Return the inputs that score the labels of tokens, with their kernels and weights, in the order of `coef`."""
        named = self.reader.names_of if isinstance(self.reader, InputsReader) else lambda _: self.reader.feature_names
        found = []
        for term in self.layout.terms:
            if term.kind.is_token and term.kernel is not None and term.input is not None:
                own, prefix = self.maps[term.name], f"{term.input}{BETWEEN}" if term.name.startswith(OF_INPUT) else ""
                width = own.landmarks.shape[1] if isinstance(own, WhitenedMap) else own.n
                names = named(term.input)
                columns = [f"x{c}" for c in range(width)] if names is None else list(names)
                found.append(TokenInput(term.input, prefix, term.kernel, own, self._expand(term.name), columns))
        return found

    @property
    def kernel(self) -> InputKernel | dict[str, InputKernel]:
        """Return the kernel between the inputs of two tokens, or between two rows; a dict if inputs have names."""
        return self._of_inputs({own.name: own.kernel for own in self.token_inputs})

    @property
    def landmarks(self) -> Inputs | dict[str, Inputs | None] | None:
        """Return the landmarks, one per row, or None for the linear kernel; a dict if inputs have names."""
        return self._of_inputs({own.name: own.landmarks for own in self.token_inputs})

    def _of_inputs(self, found: dict[str, T]) -> T | dict[str, T]:
        return found if isinstance(self.reader, InputsReader) else found[TOKENS]

    @property
    def has_landmarks(self) -> bool:
        """Return whether an input has landmarks."""
        return any(own.landmarks is not None for own in self.token_inputs)

    @cached_property
    def coef(self) -> Floats:
        """Return the weights as an array with one row per feature, of all inputs, and one column per label."""
        return np.vstack([own.coef for own in self.token_inputs])

    @property
    def variances(self) -> dict[str, float]:
        """Return the prior variance of each input that has a name."""
        named = [term for term in self.layout.terms if term.name.startswith(OF_INPUT)]
        return {term.name.removeprefix(OF_INPUT): term.C for term in named}

    def _expand(self, name: str) -> Floats:
        """Return the weight of each feature of a term in the score of each label, or of each pair of labels.

        With n features and L labels, the shape is (n, L) for tokens, (L, L) for transitions, (n, L, L) for transitions
        that depend on inputs, and (L,) for biases and for the scores of first and last labels.
        """
        term = next(term for term in self.layout.terms if term.name == name)
        W = term.k_y.expand(term.unpack(self.layout.split(self.theta)[name]))
        shape = W.shape if not term.kind.is_step else (*W.shape[:-1], *(math.isqrt(W.shape[-1]),) * 2)
        return np.asarray(W.reshape(shape) if term.kernel is not None else W.reshape(shape)[0])

    @cached_property
    def intercept(self) -> Floats:
        """Return the bias of each label, which is added to its scores at all tokens; zeros if there are no biases."""
        return self._constant(BIAS_TERM)

    def _constant(self, name: str) -> Floats:
        """Return the scores of labels by a term without inputs; zeros if the model has no such term."""
        known = any(term.name == name for term in self.layout.terms)
        return self._expand(name) if known else np.zeros(len(self.column_labels))

    @property
    def term_names(self) -> list[str]:
        """Return a name for each row of `dual_coef`: "landmark 0", "landmark 1", ...

        With the linear kernel, the rows have the names of the features. The names start with the name of the input, if
        it has one.
        """
        return [name for own in self.token_inputs for name in own.term_names]

    @cached_property
    def folded(self) -> dict[str, Weights]:
        """Return, for each term that depends on inputs, weights with which predictions are fast.

        These weights are multiplied by kernel values between inputs and landmarks, instead of features. With the linear
        kernel, they are multiplied by the inputs themselves.
        """
        pairs, theta = {term.name: term.pairs for term in self.layout.terms}, self.layout.split(self.theta)
        return {
            name: fold(own, self._expand(name).reshape(own.n, -1)) if of is None else PairWeights(of, theta[name])
            for name, own in self.maps.items()
            for of in [pairs[name]]
        }

    @cached_property
    def _constants(self) -> dict[str, Floats]:
        """Return the scores of terms without inputs, one row each."""
        weights = self.layout.split(self.theta)
        return {term.name: term.expand(weights[term.name]) for term in self.layout.terms if term.name not in self.maps}

    @cached_property
    def _constant_terms(self) -> list[tuple[Term, Floats]]:
        """Return the terms without inputs with their scores, without those whose scores are 0."""
        terms = [term for term in self.layout.terms if term.name not in self.maps]
        return [(term, self._constants[term.name]) for term in terms if self._constants[term.name].any()]

    def term_scores(self, inputs: Callable[[Term], Inputs | Entries], engine: LocalEngine) -> list[tuple[Term, Array]]:
        """Return the scores of terms: one row per clique, or a single row if a term has no inputs.

        inputs : a function that returns the inputs of a term.
        """
        with_inputs = [term for term in self.layout.terms if term.name in self.maps]
        rows = [(term, self.folded[term.name].scores(inputs(term), engine)) for term in with_inputs]
        return rows + self._constant_terms

    @property
    def dual_coef(self) -> Floats:
        """Return the coefficients of all inputs, one row per landmark or feature; `TokenInput` defines them."""
        return np.vstack([own.dual_coef for own in self.token_inputs])

    @property
    def score_posterior(self) -> ScorePosterior:
        """Return an object that computes the posterior distribution of the scores for any inputs.

        Raise AttributeError if the posterior of the weights was not kept.
        """
        if self.laplace is None or self.laplace.posterior is None:
            raise AttributeError("the posterior of the weights was not kept: fit with laplace=True")
        return ScorePosterior(self.layout, self.laplace.posterior, self.maps)

    def start_for(self, terms: Iterable[Term], n_columns: Callable[[str], int]) -> Start:
        """Return a starting point for a fit of these terms, with the landmarks of this model.

        The weights of new columns, and of new pairs of a feature and a label, start at 0.

        n_columns : a function that returns the number of columns of an input, which may have new columns at the end.
        """
        new, old = {term.name: term for term in terms}, self.layout.split(self.theta)
        maps: dict[str, FeatureMap] = {}
        weights, shared = {}, dict[int, FeatureMap]()
        for term in self.layout.terms:
            if term.name not in new:
                continue
            W = term.unpack(old[term.name])
            if (own := self.maps.get(term.name)) is not None:
                # Terms that share landmarks share one map.
                maps[term.name] = shared.setdefault(id(own), own.with_columns(n_columns(str(term.input))))
                W = np.pad(W, ((0, maps[term.name].n - len(W)), (0, 0)))
            weights[term.name] = new[term.name].pack(W)
        return Start(maps, weights)

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
        config |= {name: own.to_config() for name, own in self.kernels.items()}
        layout, theta = self._without_zeros()
        config["layout"] = layout.to_config()
        config |= {"has_prior": True} if self.has_prior else {}
        config |= {"base_scores": list(self.base)} if self.base else {}
        arrays |= {"theta": theta, "objective_curve": self.objective_curve}
        for term in layout.terms:
            arrays |= parts.pairs_to_arrays(term.name, term.pairs)
        first = dict[int, str]()
        for name, own in self.maps.items():
            entry = map_entry(name)
            if first.setdefault(id(own), entry) != entry:
                # Terms that share a map store it once, and the others name its entry.
                config[entry] = first[id(own)]
                continue
            config[entry], of_map = own.to_arrays()
            arrays |= {f"{entry}.{key}": array for key, array in of_map.items()}
        if self.laplace is not None and self.laplace.posterior is not None:
            arrays |= parts.posterior_arrays(self.laplace.posterior)
        return config, arrays

    def _without_zeros(self) -> tuple[Layout, Floats]:
        """Return the layout and the weights without pairs whose weight is zero; a posterior needs all weights."""
        if self.laplace is not None and self.laplace.posterior is not None:
            return self.layout, self.theta
        kept, weights = [], []
        for term, W in zip(self.layout.terms, self.layout.split(self.theta).values(), strict=True):
            some = term.pairs is not None and not W.all()
            kept.append(replace(term, pairs=term.pairs.select(W != 0)) if some and term.pairs is not None else term)
            weights.append(W[W != 0] if some else W.ravel())
        return Layout(tuple(kept)), np.concatenate(weights)

    @staticmethod
    def _fields_of(found: Trained, specification: Config) -> Config:
        """Return the fields of `KernelModel` as a dict, given the result of training and what the fit asked for."""
        fitted, terms = found.fit, found.fit.layout.terms
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": next((term.C for term in terms if not term.name.startswith(OF_INPUT)), terms[0].C),
            "laplace": found.laplace,
            "specification": specification,
            "kernels": {kernel_parameter(term.name): term.kernel for term in terms if term.kernel is not None},
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "objective_curve": np.array([record.value for record in fitted.solution.history]),
            "has_prior": any(term.mean is not None for term in terms),
        }

    @classmethod
    def _read_fields(cls, config: Config, arrays: Arrays, widths: Mapping[str, int], L: int, terms: Terms) -> Config:
        """Return the fields of `KernelModel` as a dict, as read from a model file.

        Raise an error if they are inconsistent or do not fit L labels.

        widths : the number of columns of the inputs of each term that has inputs.
        terms : the expected names of the terms, with the number of labels in a clique of each.
        """
        found = [(read_text(one, "name"), read_count(one, "nodes")) for one in config["layout"]]
        if found != list(terms.items()):
            raise ModelFileError(
                f"the model file has the terms {shown(found)}: expected {', '.join(terms)}. Use another copy"
            )
        maps: dict[str, FeatureMap] = {}
        for name, width in widths.items():
            entry = map_entry(name)
            shared_by = [other for other in maps if map_entry(other) == config[entry]]
            maps[name] = maps[shared_by[0]] if shared_by else read_map(config[entry], arrays, f"{entry}.", width)
        pairs = {name: parts.read_pairs(arrays, name, L**n) for name, n in terms.items()}
        sizes = {name: maps[name].n if name in maps else 1 for name in terms}
        wrong = [name for name, own in pairs.items() if own is not None and own.n != sizes[name]]
        if wrong or any(one["label_kernel"]["L"] != L or one["n"] != sizes[one["name"]] for one in config["layout"]):
            raise ModelFileError(f"the model file has terms of wrong sizes: expected sizes for {L} labels")
        layout = Layout.from_config(config["layout"], pairs)
        theta = read_array(arrays, "theta", (layout.size,), "f").astype(np.float64)
        shared = cls._read_shared(config, arrays, theta, rounded=arrays["theta"].dtype == np.float32)
        return shared | {
            "kernels": {name: InputKernel.from_config(config[name]) for name in map(kernel_parameter, maps)},
            "layout": layout,
            "theta": theta,
            "maps": maps,
            "objective_curve": read_array(arrays, "objective_curve", (parts.n_records(shared),), "f"),
            "has_prior": config.get("has_prior") is True,
            "base": read_base_names(config.get("base_scores", [])),
        }
