"""Base classes of fitted models: one with certificate and evidence, and one with kernels and weights as well."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, UserData
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.folded import Weights, fold
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import Laplace
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.posterior import ScorePosterior
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_count, read_map, read_number, read_text
from kernelcrf.terms import STEP_TERM, TOKEN_TERM, TRANSITION_TERM, Layout
from kernelcrf.validation import shown

N_SAMPLES = 100
# The number of labels in a clique of each term of a chain.
NODES = {TOKEN_TERM: 1, TRANSITION_TERM: 2, STEP_TERM: 2}
# By term: the parameter that sets its kernel, and the names of its feature map and weights in files.
KERNELS = {TOKEN_TERM: "kernel", STEP_TERM: "edge_kernel"}
MAPS = {TOKEN_TERM: "map", STEP_TERM: "edge_map"}
COEFS = {TOKEN_TERM: "coef", TRANSITION_TERM: "transitions", STEP_TERM: "edge_coef"}
# The entries of a file that record how the fit went and do not change predictions.
RECORDS = ("certificate", "n_iter", "laplace", "gap_curve", "objective_curve")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModel:
    """Base class of the results of fits, from which estimators predict.

    C : prior variance of the weights of terms with inputs, or of all weights if no term has inputs.
    laplace : evidence and posterior of the weights, or None if they were not computed.
    kernels : input kernels, by the names of the parameters that set them.
    """

    certificate: Certificate
    n_iter: int
    C: float
    laplace: Laplace | None
    kernels: Mapping[str, InputKernel]

    @property
    def evidence(self) -> Laplace:
        """Return the evidence, or raise if it was not computed."""
        if self.laplace is None:
            raise AttributeError("the evidence was not computed: fit with laplace=True")
        return self.laplace

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
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
        """Return the model that `to_arrays` wrote; raise if its parts do not fit together."""
        raise NotImplementedError

    @staticmethod
    def _read_shared(config: Config, posterior: Arrays, theta: Floats) -> Config:
        """Return the fields that all models have from a file; `posterior` holds arrays, and theta is its mode."""
        # Files of earlier versions may have C among the parameters only.
        C = read_number(config if "C" in config else config["parameters"], "C")
        if C <= 0:
            raise ModelFileError(f"C is {C:g}: expected a number above 0")
        return {
            "certificate": parts.certificate_from_config(config["certificate"]),
            "n_iter": read_count(config, "n_iter"),
            "C": C,
            "laplace": parts.read_laplace(config["laplace"], posterior, theta),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelModel(FittedModel):
    """Base class of fitted models of sequences or rows: weights, and the feature maps that they belong to.

    layout, theta : the terms, and all their weights as one vector.
    maps : the feature maps of the terms that have inputs, by name.
    coefs : scores of labels per feature, by term: tokens (n, L), transitions (L, L), and with inputs (n, L, L).
    """

    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]
    coefs: Mapping[str, Floats]
    objective_curve: Floats

    @property
    def kernel(self) -> InputKernel:
        """Return the kernel of the inputs of tokens or rows."""
        return self.kernels[KERNELS[TOKEN_TERM]]

    @property
    def map(self) -> FeatureMap:
        """Return the feature map of `kernel`."""
        return self.maps[TOKEN_TERM]

    @property
    def coef(self) -> Floats:
        """Return the weights (n, L) of labels on the features."""
        return self.coefs[TOKEN_TERM]

    @property
    def landmarks(self) -> Inputs | None:
        """Return the landmarks (n, d), or None for the linear kernel."""
        return self.map.landmarks if isinstance(self.map, WhitenedMap) else None

    @cached_property
    def folded(self) -> dict[str, Weights]:
        """Return the weights of each term with inputs, multiplied by the whitening, for faster predictions."""
        return {name: fold(own, self.coefs[name].reshape(own.n, -1)) for name, own in self.maps.items()}

    @property
    def dual_coef(self) -> Floats:
        """Return the a (n, L) of f(x) = sum_b k(x, b) a_b over landmarks b; return `coef` for the linear kernel."""
        if not isinstance(self.map, WhitenedMap):
            return self.coef
        return np.asarray(solve_triangular(self.map.R.astype(np.float64), self.coef, trans="T", lower=True))

    @property
    def score_posterior(self) -> ScorePosterior:
        """Return the posterior of scores, or raise if the posterior of the weights was not kept."""
        if self.laplace is None or self.laplace.posterior is None:
            raise AttributeError("the posterior of the weights was not kept: fit with laplace=True")
        return ScorePosterior(self.layout, self.laplace.posterior, self.maps)

    @property
    def end(self) -> Start:
        """Return the maps and weights of this model as the starting point of a later fit."""
        return Start(self.maps, self.layout.split(self.theta))

    def tempered(self, temperature: float) -> Self:
        """Return the model with its weights divided by a temperature; it has no posterior and no certificate."""
        return replace(
            self,
            theta=self.theta / temperature,
            coefs={name: W / temperature for name, W in self.coefs.items()},
            certificate=Certificate.of_tempered(),
            laplace=None,
        )

    def draw_scores(
        self, X: Inputs, n_samples: int | None, temperature: float, random_state: UserData, engine: LocalEngine
    ) -> Iterator[tuple[Array, Array]]:
        """Yield node and edge scores at inputs X for draws from the posterior, its covariance times `temperature`."""
        posterior = self.score_posterior
        if n_samples is None:
            n_samples = posterior.posterior.n_kept or N_SAMPLES
        return posterior.draws(X, n_samples, rng_of(random_state), temperature, engine)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, arrays = super().to_arrays()
        config |= {name: own.to_config() for name, own in self.kernels.items()}
        config["layout"] = self.layout.to_config()
        arrays |= {"theta": self.theta, "objective_curve": self.objective_curve}
        arrays |= {COEFS[name]: W for name, W in self.coefs.items()}
        for name, own in self.maps.items():
            config[MAPS[name]], of_map = own.to_arrays()
            arrays |= {f"{MAPS[name]}.{key}": array for key, array in of_map.items()}
        if self.laplace is not None and self.laplace.posterior is not None:
            arrays |= parts.posterior_arrays(self.laplace.posterior)
        return config, arrays

    @staticmethod
    def _fields_of(found: Trained, L: int) -> Config:
        """Return the fields of this class from the result of training, with L labels."""
        fitted, terms = found.fit, found.fit.layout.terms
        shapes = _shapes(fitted.maps, L)
        coefs = {term.name: term.k_y.expand(fitted.weights[term.name]) for term in terms}
        return {
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "C": terms[0].C,
            "laplace": found.laplace,
            "kernels": {KERNELS[term.name]: term.kernel for term in terms if term.kernel is not None},
            "layout": fitted.layout,
            "theta": fitted.theta,
            "maps": fitted.maps,
            "coefs": {name: W.reshape(shapes[name]) for name, W in coefs.items()},
            "objective_curve": np.array([record.value for record in fitted.solution.history]),
        }

    @classmethod
    def _read_fields(cls, config: Config, arrays: Arrays, n_features: int, L: int, names: Sequence[str]) -> Config:
        """Return the fields of this class from a model file; raise if they do not fit together or to the terms."""
        found = [(read_text(one, "name"), read_count(one, "nodes")) for one in config["layout"]]
        if found != [(name, NODES[name]) for name in names]:
            raise ModelFileError(f"the terms are {shown(found)}: expected {', '.join(names)}")
        if any(one["label_kernel"]["L"] != L or not 0 < one["n"] <= len(arrays["theta"]) for one in config["layout"]):
            raise ModelFileError(f"the terms do not match the weights: expected {L} labels in each term")
        layout = Layout.from_config(config["layout"])
        maps = {
            name: read_map(config[MAPS[name]], arrays, f"{MAPS[name]}.", n_features) for name in names if name in MAPS
        }
        shapes = _shapes(maps, L)
        theta = read_array(arrays, "theta", (layout.size,), "f")
        shared = cls._read_shared(config, arrays, theta)
        return shared | {
            "kernels": {KERNELS[name]: InputKernel.from_config(config[KERNELS[name]]) for name in maps},
            "layout": layout,
            "theta": theta,
            "maps": maps,
            "coefs": {name: read_array(arrays, COEFS[name], shapes[name], "f") for name in names},
            "objective_curve": read_array(arrays, "objective_curve", (shared["n_iter"] + 1,), "f"),
        }


def _shapes(maps: Mapping[str, FeatureMap], L: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of the `coefs` of each term: features (if it has inputs), then labels of each node."""
    labels = {name: (L,) * nodes for name, nodes in NODES.items()}
    return labels | {name: (own.n, *labels[name]) for name, own in maps.items()}


def model_digest(model: FittedModel, decoding: str) -> str:
    """Return a digest that is equal for two models if they make the same predictions with the same decoding rule.

    It covers everything in a model file except the records of how the fit went: fitting again with the same data and
    parameters gives the same digest. If the model cannot be stored in a file, every call returns a new digest.
    """
    try:
        config, arrays = model.to_arrays()
    except TypeError:
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    digests = {name: digest_array(array) for name, array in arrays.items() if name not in RECORDS}
    return digest_value([config, decoding, digests])


def rng_of(random_state: UserData) -> np.random.Generator:
    """Return a NumPy generator that is seeded by a `random_state` as in scikit-learn."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
