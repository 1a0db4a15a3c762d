"""The base class of all fitted models, and its subclass for models of sequences and of independent rows."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from kernelcrf.arrays import Arrays, Config, Floats, Inputs, UserData
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.folded import PairWeights, Weights, fold
from kernelcrf.certificate import IMPORTED, TEMPERED, Certificate
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import Laplace
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.posterior import ScorePosterior
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_count, read_map, read_number, read_text
from kernelcrf.readers.rows import RowReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.terms import BIAS_TERM, CHAIN_CLIQUES, STEP_TERM, STEPS, TOKEN_TERM, Layout
from kernelcrf.validation import shown

# The number of labels in a clique of each term of a chain.
NODES = {name: 2 if cliques == STEPS else 1 for name, cliques in CHAIN_CLIQUES.items()}
# By term: the parameter that sets its kernel, and the name of its feature map in files.
KERNELS = {TOKEN_TERM: "kernel", STEP_TERM: "edge_kernel"}
MAPS = {TOKEN_TERM: "map", STEP_TERM: "edge_map"}
# The entries of a file that record how the fit went and do not change predictions.
RECORDS = ("certificate", "n_iter", "laplace", "gap_curve", "objective_curve")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModel:
    """Base class of fitted models, which estimators use to predict.

    certificate : the objective at the end of the fit, a lower bound on its minimum, and how the fit ended.
    C : the prior variance of the weights of input features, or of all weights if the model has no inputs; NaN if the
        weights were not fitted by this library.
    laplace : the evidence and the posterior of the weights by Laplace's approximation; None if they were not computed.
    kernels : the kernels of the inputs; each key is the name of the estimator's parameter that sets the kernel.
    """

    certificate: Certificate
    n_iter: int
    C: float
    laplace: Laplace | None
    kernels: Mapping[str, InputKernel]

    @property
    def evidence(self) -> Laplace:
        """Return Laplace's approximation of the evidence log p(y|X), with an estimate of its error.

        Raise AttributeError if the evidence was not computed.
        """
        if self.laplace is None:
            raise AttributeError("the evidence was not computed: fit with laplace=True")
        return self.laplace

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config = {
            "certificate": {name: parts.plain(value, name) for name, value in asdict(self.certificate).items()},
            "n_iter": self.n_iter,
            "C": float(self.C),
            "laplace": None,
        }
        if self.laplace is not None:
            names = "log_evidence", "error", "n_effective"
            config["laplace"] = {name: getattr(self.laplace, name) for name in names}
        return config, {}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        raise NotImplementedError

    @staticmethod
    def _read_shared(config: Config, posterior: Arrays, theta: Floats) -> Config:
        """Return the fields that all models have, as read from a model file.

        posterior : arrays with the posterior of the weights; they are only read if the file says that it was computed.
        theta : the weights of the model, which are the mode of this posterior.
        """
        # Files of earlier versions may have C among the parameters only.
        certificate = parts.certificate_from_config(config["certificate"])
        imported = certificate.status == IMPORTED
        C = read_number(config if "C" in config else config["parameters"], "C", finite=not imported)
        if C <= 0:
            raise ModelFileError(f"the model file has C={C:g}: expected a number above 0. Save the model again")
        return {
            "certificate": certificate,
            "n_iter": read_count(config, "n_iter"),
            "C": C,
            "laplace": parts.read_laplace(config["laplace"], posterior, theta),
        }


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
    """

    reader: SequenceReader | RowReader
    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]
    objective_curve: Floats

    @property
    def kernel(self) -> InputKernel:
        """Return the kernel between the inputs of two tokens, or between two rows."""
        return self.kernels[KERNELS[TOKEN_TERM]]

    @property
    def map(self) -> FeatureMap:
        """Return the map from inputs to features whose inner products approximate `kernel`."""
        return self.maps[TOKEN_TERM]

    @cached_property
    def coef(self) -> Floats:
        """Return the weights as an array with one row per feature and one column per label."""
        return self._expand(TOKEN_TERM)

    def _expand(self, name: str) -> Floats:
        """Return the weight of each feature of a term in the score of each label, or of each pair of labels.

        With n features and L labels, the shape is (n, L) for tokens, (L, L) for transitions, (n, L, L) for transitions
        that depend on inputs, and (L,) for biases and for the scores of first and last labels.
        """
        term = next(term for term in self.layout.terms if term.name == name)
        W = term.k_y.expand(term.unpack(self.layout.split(self.theta)[name]))
        shape = W.shape if NODES[name] == 1 else (*W.shape[:-1], *(math.isqrt(W.shape[-1]),) * 2)
        return np.asarray(W.reshape(shape) if term.kernel is not None else W.reshape(shape)[0])

    @cached_property
    def intercept(self) -> Floats:
        """Return the bias of each label, which is added to its scores at all tokens; zeros if there are no biases."""
        return self._constant(BIAS_TERM)

    def _constant(self, name: str) -> Floats:
        """Return the scores of labels by a term without inputs; zeros if the model has no such term."""
        known = any(term.name == name for term in self.layout.terms)
        return self._expand(name) if known else np.zeros(self.coef.shape[1])

    @property
    def landmarks(self) -> Inputs | None:
        """Return the landmarks, one per row, or None for the linear kernel."""
        return self.map.landmarks if isinstance(self.map, WhitenedMap) else None

    @property
    def feature_names(self) -> list[str]:
        """Return the names of the columns of the inputs; columns without names are called "x0", "x1", ..."""
        names = self.reader.feature_names
        return [f"x{f}" for f in range(self.reader.n_features)] if names is None else list(names)

    @property
    def term_names(self) -> list[str]:
        """Return a name for each row of `dual_coef`: "landmark 0", "landmark 1", ...

        With the linear kernel, the rows have the names of the features.
        """
        return self.feature_names if self.landmarks is None else [f"landmark {b}" for b in range(self.map.n)]

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

    @property
    def dual_coef(self) -> Floats:
        """Return the coefficients a_b of the scores f(x) = sum_b k(x, b) a_b, one row per landmark b.

        k is the kernel. If it is linear, return `coef`, the weights of the features.
        """
        if not isinstance(self.map, WhitenedMap):
            return self.coef
        return np.asarray(solve_triangular(self.map.R.astype(np.float64), self.coef, trans="T", lower=True))

    @property
    def score_posterior(self) -> ScorePosterior:
        """Return an object that computes the posterior distribution of the scores for any inputs.

        Raise AttributeError if the posterior of the weights was not kept.
        """
        if self.laplace is None or self.laplace.posterior is None:
            raise AttributeError("the posterior of the weights was not kept: fit with laplace=True")
        return ScorePosterior(self.layout, self.laplace.posterior, self.maps)

    @property
    def end(self) -> Start:
        """Return the feature maps and weights of this model as the starting point of a later fit."""
        return Start(self.maps, self.layout.split(self.theta))

    def divide_weights(self, temperature: float) -> Self:
        """Return a copy of the model whose weights are divided by `temperature`.

        The copy has no posterior, and its certificate has no objective and no lower bound.
        """
        imported = self.certificate.status == IMPORTED
        return replace(
            self,
            theta=self.theta / temperature,
            certificate=Certificate(np.nan, -np.inf, IMPORTED if imported else TEMPERED),
            laplace=None,
        )

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config |= {name: own.to_config() for name, own in self.kernels.items()}
        layout, theta = self._without_zeros()
        config["layout"] = layout.to_config()
        arrays |= {"theta": theta, "objective_curve": self.objective_curve}
        for term in layout.terms:
            arrays |= parts.pairs_to_arrays(term.name, term.pairs)
        for name, own in self.maps.items():
            config[MAPS[name]], of_map = own.to_arrays()
            arrays |= {f"{MAPS[name]}.{key}": array for key, array in of_map.items()}
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
    def _fields_of(found: Trained) -> Config:
        """Return the fields of `KernelModel` as a dict, given the result of training."""
        fitted, terms = found.fit, found.fit.layout.terms
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": terms[0].C,
            "laplace": found.laplace,
            "kernels": {KERNELS[term.name]: term.kernel for term in terms if term.kernel is not None},
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "objective_curve": np.array([record.value for record in fitted.solution.history]),
        }

    @classmethod
    def _read_fields(cls, config: Config, arrays: Arrays, n_features: int, L: int, names: Sequence[str]) -> Config:
        """Return the fields of `KernelModel` as a dict, as read from a model file.

        Raise an error if they are inconsistent, do not fit `n_features` inputs and L labels, or if the names of the
        terms are not `names`.
        """
        found = [(read_text(one, "name"), read_count(one, "nodes")) for one in config["layout"]]
        if found != [(name, NODES[name]) for name in names]:
            raise ModelFileError(
                f"the model file has the terms {shown(found)}: expected {', '.join(names)}. Save the model again"
            )
        pairs = {name: parts.read_pairs(arrays, name, L ** NODES[name]) for name in names}
        sizes = {name: range(1, len(arrays["theta"]) + 1) if own is None else [own.n] for name, own in pairs.items()}
        if any(one["label_kernel"]["L"] != L or one["n"] not in sizes[one["name"]] for one in config["layout"]):
            raise ModelFileError(
                f"the model file has terms or weights of the wrong size: expected terms for {L} labels. Save the model "
                "again"
            )
        layout = Layout.from_config(config["layout"], pairs)
        maps = {
            name: read_map(config[MAPS[name]], arrays, f"{MAPS[name]}.", n_features) for name in names if name in MAPS
        }
        theta = read_array(arrays, "theta", (layout.size,), "f").astype(np.float64)
        shared = cls._read_shared(config, arrays, theta)
        return shared | {
            "kernels": {KERNELS[name]: InputKernel.from_config(config[KERNELS[name]]) for name in maps},
            "layout": layout,
            "theta": theta,
            "maps": maps,
            "objective_curve": read_array(arrays, "objective_curve", (parts.n_records(shared),), "f"),
        }


def model_digest(model: FittedModel, decoding: str) -> str:
    """Return a digest of the decoding rule and of everything in the model on which predictions depend.

    The records of the fit, such as the certificate and the evidence, are left out. Fitting again with the same data and
    parameters therefore gives the same digest. If a model cannot be stored in a file, every call gives another digest.
    """
    try:
        config, arrays = model.to_arrays()
    except TypeError:
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    digests = {name: digest_array(array) for name, array in arrays.items() if name not in RECORDS}
    return digest_value([config, decoding, digests])


def rng_of(random_state: UserData) -> np.random.Generator:
    """Return a NumPy generator; `random_state` may be None, an integer or a RandomState, as in scikit-learn."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
